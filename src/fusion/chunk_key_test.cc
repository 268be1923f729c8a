#include "fusion/chunk_key.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace weft::fusion {
namespace {

KeyScope base_scope() {
  KeyScope scope;
  scope.model_fingerprint = {.high = 0x0123456789abcdefu, .low = 0xfedcba9876543210u};
  scope.ropes.resize(1);
  scope.ropes[0].n_dims = 8;
  scope.ropes[0].inverse_frequencies = {1.0, 0.1, 0.01, 0.001};
  scope.anchor = {5, 6, 7};
  scope.salt = "tenant";
  return scope;
}

const std::vector<int32_t> kTokens{10, 11, 12, 13};

TEST(ChunkIdentity, IsTheSameForTheSameKey) {
  EXPECT_EQ(chunk_identity(base_scope(), kTokens), chunk_identity(base_scope(), kTokens));
}

TEST(ChunkIdentity, AnyFieldChangedChangesIt) {
  struct Change {
    const char* name;
    std::function<void(KeyScope&)> apply;
  };
  const Change changes[] = {
      {"fingerprint, high half", [](KeyScope& s) { s.model_fingerprint.high ^= 1; }},
      {"fingerprint, low half", [](KeyScope& s) { s.model_fingerprint.low ^= 1ull << 63; }},
      {"pairing", [](KeyScope& s) { s.ropes[0].pairing = kernels::RopePairing::kNeox; }},
      {"rotated dimensions", [](KeyScope& s) { s.ropes[0].n_dims = 6; }},
      {"rope base",
       [](KeyScope& s) {
         s.ropes[0].inverse_frequencies = {1.0, 0.2, 0.04, 0.008};
       }},
      {"one frequency", [](KeyScope& s) { s.ropes[0].inverse_frequencies[3] *= 1 + 0x1p-52; }},
      {"fewer frequencies", [](KeyScope& s) { s.ropes[0].inverse_frequencies.pop_back(); }},
      {"another RoPE for some layers", [](KeyScope& s) { s.ropes.push_back(s.ropes[0]); }},
      {"magnitude", [](KeyScope& s) { s.ropes[0].magnitude = 1.1f; }},
      {"anchor's last token", [](KeyScope& s) { s.anchor.back() = 8; }},
      {"anchor's order", [](KeyScope& s) { std::swap(s.anchor[0], s.anchor[1]); }},
      {"no anchor", [](KeyScope& s) { s.anchor.clear(); }},
      {"salt", [](KeyScope& s) { s.salt = "tenanu"; }},
      {"salt with a zero at its end", [](KeyScope& s) { s.salt.push_back('\0'); }},
      {"no salt", [](KeyScope& s) { s.salt.clear(); }},
      {"the records' type", [](KeyScope& s) { s.record_type = DType::kQ8_0; }},
  };
  std::set<std::vector<std::byte>> identities{chunk_identity(base_scope(), kTokens)};
  for (const Change& change : changes) {
    KeyScope scope = base_scope();
    change.apply(scope);
    EXPECT_TRUE(identities.insert(chunk_identity(scope, kTokens)).second) << change.name;
  }
}

// From Python's struct and xxhash, field by field as docs/formats/chunk.md has them: stores of
// every weft so far go by these names.
TEST(ChunkIdentity, OfF16IsWhatItWasBeforeThereWereOtherTypes) {
  EXPECT_EQ(hash128(chunk_identity(base_scope(), kTokens)).to_hex(),
            "39ce00cde6c3c409de10088ea033e1c0");
  KeyScope scope = base_scope();
  scope.record_type = DType::kQ8_0;
  EXPECT_EQ(hash128(chunk_identity(scope, kTokens)).to_hex(), "28656c0c5779db66e4a5864b9f494ae8");
}

TEST(ChunkIdentity, SaysTheRecordsType) {
  for (const auto& known : kRecordTypes) {
    KeyScope scope = base_scope();
    scope.record_type = known.value;
    for (const size_t n_ropes : {1, 2}) {
      scope.ropes.resize(n_ropes);
      EXPECT_EQ(record_type_id(chunk_identity(scope, kTokens)), to_underlying(known.value));
    }
  }
  EXPECT_EQ(record_type_id(std::vector<std::byte>(7)), std::nullopt);
}

TEST(ChunkIdentity, AnyTokenChangedChangesIt) {
  std::set<std::vector<std::byte>> identities{chunk_identity(base_scope(), kTokens)};
  for (size_t i = 0; i < kTokens.size(); ++i) {
    std::vector<int32_t> tokens = kTokens;
    tokens[i] ^= 1 << 20;
    EXPECT_TRUE(identities.insert(chunk_identity(base_scope(), tokens)).second) << i;
    tokens = kTokens;
    tokens.erase(tokens.begin() + i);
    EXPECT_TRUE(identities.insert(chunk_identity(base_scope(), tokens)).second) << i;
  }
}

// Equal ids throughout, so that only the border between the two lists can tell the keys apart; the
// ids look like lengths, too.
TEST(ChunkIdentity, NoTwoSplitsBetweenAnchorAndTokensCollide) {
  for (const int32_t id : {0, 1, 7}) {
    std::set<std::vector<std::byte>> identities;
    const std::vector<int32_t> ids(8, id);
    for (size_t n_anchor = 0; n_anchor <= ids.size(); ++n_anchor) {
      KeyScope scope = base_scope();
      scope.anchor.assign(ids.begin(), ids.begin() + n_anchor);
      const auto identity = chunk_identity(scope, std::span(ids).subspan(n_anchor));
      EXPECT_TRUE(identities.insert(identity).second) << n_anchor << " of 8 ids " << id;
    }
  }
}

TEST(ChunkIdentity, SaltAndAnchorDoNotRunIntoEachOther) {
  std::set<std::vector<std::byte>> identities;
  for (size_t n_salt = 0; n_salt <= 16; n_salt += 4) {
    KeyScope scope = base_scope();
    scope.salt.assign(n_salt, '\0');
    scope.anchor.assign((16 - n_salt) / 4, 0);
    EXPECT_TRUE(identities.insert(chunk_identity(scope, kTokens)).second) << n_salt;
  }
}

}  // namespace
}  // namespace weft::fusion
