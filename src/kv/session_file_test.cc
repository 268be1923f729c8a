#include "kv/session_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <string>

#include "base/hash.h"
#include "kv/invariants.h"

namespace weft::kv {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kChecksumAt = 8;
constexpr size_t kVersionAt = 16;
constexpr size_t kHeadDimAt = 40;
constexpr size_t kTokensAt = 52;
constexpr size_t kStateBytesAt = 64;
constexpr size_t kGroupsAt = 76;

/// A file in memory. Of byte `changes_at`, if there is one, reads after the first differ.
class MemoryFile : public ReadFile {
 public:
  explicit MemoryFile(std::string bytes, std::optional<size_t> changes_at = std::nullopt)
      : bytes_(std::move(bytes)), changes_at_(changes_at) {}
  uint64_t size_bytes() const override { return bytes_.size(); }
  Status read_at(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) return corrupt("beyond");
    longest_read_ = std::max(longest_read_, out.size());
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    if (changes_at_ && offset <= *changes_at_ && *changes_at_ < offset + out.size()) {
      if (n_reads_++ > 0) out[*changes_at_ - offset] ^= std::byte{1};
    }
    return Status::ok();
  }
  size_t longest_read() const { return longest_read_; }

 private:
  std::string bytes_;
  std::optional<size_t> changes_at_;
  mutable int n_reads_ = 0;
  mutable size_t longest_read_ = 0;
};

/// A file that is overwritten in place by another one of its size after `n_reads` reads.
class OverwrittenFile : public ReadFile {
 public:
  OverwrittenFile(std::string bytes, std::string later, int n_reads, int& reads)
      : bytes_(std::move(bytes)), later_(std::move(later)), n_reads_(n_reads), reads_(reads) {
    EXPECT_EQ(bytes_.size(), later_.size());
  }
  uint64_t size_bytes() const override { return bytes_.size(); }
  Status read_at(uint64_t offset, std::span<std::byte> out) const override {
    const std::string& now = reads_++ < n_reads_ ? bytes_ : later_;
    if (offset > now.size() || out.size() > now.size() - offset) return corrupt("beyond");
    std::memcpy(out.data(), now.data() + offset, out.size());
    return Status::ok();
  }

 private:
  std::string bytes_, later_;
  int n_reads_;
  int& reads_;
};

struct CacheShape {
  DType k_type = DType::kF16;
  DType v_type = DType::kF16;
  int page_tokens = 16;
  std::vector<int32_t> groups = {0, 1, 0};
  int head_dim = 8;
  int capacity_tokens = 256;
};

std::unique_ptr<Cache> make_cache(const CacheShape& shape = {}) {
  auto cache =
      Cache::create({.n_layers = static_cast<int>(shape.groups.size()),
                     .layer_groups = shape.groups,
                     .layout = {shape.k_type, shape.v_type, shape.head_dim, 2, shape.page_tokens},
                     .capacity_tokens = shape.capacity_tokens});
  EXPECT_TRUE(cache.is_ok()) << cache.status().message();
  return *std::move(cache);
}

/// Calls fn(vector's bytes, how many) for K and V of the slots, always in the same order.
template <class Fn>
void for_each_vector(Cache& cache, SequenceId id, int32_t n_slots, Fn fn) {
  for (int layer = 0; layer < cache.n_layers(); ++layer) {
    const kernels::PagedKv kv = cache.layer(layer);
    const int32_t* const table = cache.layer_table(id, layer).data();
    for (int32_t slot = 0; slot < n_slots; ++slot) {
      for (int head = 0; head < kv.layout.n_kv_heads; ++head) {
        fn(k_at(kv, table, slot, head), kv.k_bytes);
        fn(v_at(kv, table, slot, head), kv.v_bytes);
      }
    }
  }
}

std::string contents(Cache& cache, SequenceId id, int32_t n_slots) {
  std::string all;
  for_each_vector(cache, id, n_slots, [&](const uint8_t* bytes, int n) {
    all.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(n));
  });
  return all;
}

/// Random K and V: `n_prompt` slots of a prompt, then decoded ones.
SequenceId fill(Cache& cache, int32_t n_prompt, int32_t n_slots, uint32_t seed = 7) {
  const SequenceId id = cache.create_sequence();
  auto reservation = cache.reserve(id, n_slots);
  EXPECT_TRUE(reservation.is_ok());
  if (n_prompt < n_slots) reservation->mark_from(n_prompt, SlotKind::kDecode);
  std::mt19937 random(seed);
  for_each_vector(cache, id, n_slots, [&](uint8_t* bytes, int n) {
    for (int i = 0; i < n; ++i) bytes[i] = static_cast<uint8_t>(random());
  });
  reservation->commit();
  return id;
}

std::string write(Cache& cache, SequenceId id, std::span<const int32_t> tokens, int32_t n_slots,
                  std::string_view state = "a state") {
  std::string bytes;
  const auto written =
      write_session(cache, id,
                    {.tokens = tokens,
                     .n_slots = n_slots,
                     .identity = std::as_bytes(std::span<const char>("who", 3)),
                     .state = std::as_bytes(std::span(state))},
                    [&](std::span<const std::byte> more) {
                      bytes.append(reinterpret_cast<const char*>(more.data()), more.size());
                      return Status::ok();
                    });
  EXPECT_TRUE(written.is_ok()) << written.status().message();
  return bytes;
}

Result<SessionReader> read(std::string bytes, std::optional<size_t> changes_at = std::nullopt) {
  return SessionReader::open(std::make_unique<MemoryFile>(std::move(bytes), changes_at), "s");
}

/// 5 tokens, 4 of them with KV, 3 of those a prompt's; as small as a file gets with all there is.
class SmallSession : public ::testing::Test {
 protected:
  const std::vector<int32_t> tokens_ = {11, 12, 13, 14, 15};
  std::unique_ptr<Cache> cache_ = make_cache();
  SequenceId id_ = fill(*cache_, 3, 4);
  const std::string bytes_ = write(*cache_, id_, tokens_, 4);

  template <class T>
  std::string with(size_t at, T value) const {
    std::string changed = bytes_;
    std::memcpy(&changed[at], &value, sizeof(value));
    return changed;
  }
  /// With the head's checksum made right: what follows it is looked at.
  static std::string sealed(std::string bytes) {
    uint32_t header_bytes = 0;
    std::memcpy(&header_bytes, &bytes[20], 4);
    const auto head = std::as_bytes(std::span(bytes)).subspan(16, header_bytes - 16);
    const uint64_t checksum = hash64(head);
    std::memcpy(&bytes[kChecksumAt], &checksum, 8);
    return bytes;
  }
};

TEST_F(SmallSession, WhatWasWrittenIsReadAndRestoredBitByBit) {
  const auto file = read(bytes_);
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  EXPECT_THAT(file->tokens(), ElementsAreArray(tokens_));
  EXPECT_THAT(file->kinds(),
              ElementsAre(SlotRun{3, SlotKind::kPrompt}, SlotRun{4, SlotKind::kDecode}));
  EXPECT_THAT(file->head().layer_groups, ElementsAre(0, 1, 0));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file->state().data()), file->state().size()),
            "a state");
  EXPECT_EQ(file->head().identity.size(), 3u);
  ASSERT_TRUE(file->check_cache(*cache_).is_ok());
  const auto restored = file->restore(*cache_, 4);
  ASSERT_TRUE(restored.is_ok()) << restored.status().message();
  EXPECT_EQ(cache_->length(*restored), 4);
  EXPECT_EQ(contents(*cache_, *restored, 4), contents(*cache_, id_, 4));
  EXPECT_THAT(cache_->slot_kinds(*restored), ElementsAreArray(file->kinds()));
  EXPECT_THAT(violations(cache_->snapshots()), IsEmpty());
}

TEST_F(SmallSession, EveryFlippedBitIsRefused) {
  for (size_t at = 0; at < bytes_.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes_;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      const auto file = read(damaged);
      ASSERT_FALSE(file.is_ok()) << "byte " << at << " bit " << bit;
      ASSERT_TRUE(file.status().message().starts_with("s: ")) << file.status().message();
    }
  }
}

TEST_F(SmallSession, EveryLengthButItsOwnIsRefused) {
  for (size_t n = 0; n < bytes_.size(); ++n) {
    ASSERT_EQ(read(bytes_.substr(0, n)).status().code(), StatusCode::kCorrupt) << n;
  }
  EXPECT_EQ(read(bytes_ + '\0').status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(read(bytes_ + bytes_).status().code(), StatusCode::kCorrupt);
}

TEST_F(SmallSession, ANewerVersionIsRefusedByItsNumber) {
  const auto file = read(with(kVersionAt, uint32_t{3}));
  EXPECT_EQ(file.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(file.status().message(), HasSubstr("version 3, this weft reads version 2"));
}

// Whoever made the file can compute checksums: what the fields say is looked at all the same.
TEST_F(SmallSession, LyingFieldsAreRefusedUnderARightChecksum) {
  for (size_t at = kVersionAt; at < kGroupsAt + 12; at += 4) {
    for (const uint32_t lie : {0u, 1u, 7u, 300u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
      const std::string changed = with(at, lie);
      if (changed == bytes_) continue;
      uint32_t header_bytes = 0;
      std::memcpy(&header_bytes, &changed[20], 4);
      if (header_bytes < 16 || header_bytes > changed.size()) continue;
      const auto file = read(sealed(changed));
      if (at >= kGroupsAt && lie < 3) continue;  // a group that a layer may have
      EXPECT_FALSE(file.is_ok()) << "at " << at << ": " << lie;
    }
  }
  EXPECT_THAT(read(with(kTokensAt, uint32_t{1} << 25)).status().message(),
              HasSubstr("n_tokens is 33554432, must be 0 to 16777216"));
  EXPECT_THAT(read(with(kStateBytesAt, uint64_t{1} << 40)).status().message(),
              HasSubstr("state_bytes"));
  EXPECT_THAT(read(with(kHeadDimAt, uint32_t{0})).status().message(), HasSubstr("head_dim"));
}

// The layers are of one size and each is whole: only their places are wrong.
TEST_F(SmallSession, LayersInAnotherOrderAreRefused) {
  const auto file = read(bytes_);
  ASSERT_TRUE(file.is_ok());
  const size_t layer = static_cast<size_t>(file->head().layer_bytes()) + 8;
  const std::string before = bytes_.substr(0, bytes_.size() - 2 * layer);
  const std::string last = bytes_.substr(bytes_.size() - layer);
  const std::string one_before = bytes_.substr(bytes_.size() - 2 * layer, layer);
  EXPECT_THAT(read(before + last + one_before).status().message(), HasSubstr("checksum of layer"));
}

TEST_F(SmallSession, ABlockOfAnotherSessionIsRefused) {
  const std::vector<int32_t> others = {11, 12, 13, 14, 16};
  std::string mixed = write(*cache_, id_, others, 4);
  ASSERT_EQ(mixed.size(), bytes_.size());
  const size_t half = mixed.size() / 2;
  mixed.replace(half, std::string::npos, bytes_.substr(half));
  EXPECT_FALSE(read(mixed).is_ok());
}

// The file is read twice: what changes in between leaves neither a sequence nor a page behind.
TEST_F(SmallSession, AFileThatChangesBeforeItIsRestoredLeavesTheCacheAsItWas) {
  const std::vector<Snapshot> before = cache_->snapshots();
  const auto file = read(bytes_, bytes_.size() - 20);  // in the last layer
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  const auto restored = file->restore(*cache_, 4);
  EXPECT_EQ(restored.status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(restored.status().message(), HasSubstr("checksum of layer 2"));
  const std::vector<Snapshot> after = cache_->snapshots();
  EXPECT_THAT(violations(after), IsEmpty());
  for (size_t group = 0; group < after.size(); ++group) {
    EXPECT_EQ(after[group].sequences.size(), before[group].sequences.size());
    EXPECT_EQ(after[group].free_list.size(), before[group].free_list.size());
  }
}

// As `cp other session` does it: another session that is whole, of the same lengths.
TEST_F(SmallSession, AFileOverwrittenBetweenAnyTwoReadsIsRefusedOrOneOfTheTwo) {
  const std::vector<int32_t> other_tokens = {21, 22, 23, 24, 25};
  const SequenceId other_id = fill(*cache_, 3, 4, /*seed=*/8);
  const std::string other = write(*cache_, other_id, other_tokens, 4, "B state");
  const std::string kv = contents(*cache_, id_, 4), other_kv = contents(*cache_, other_id, 4);
  ASSERT_NE(kv, other_kv);
  int n_restored = 0, n_refused = 0;
  bool is_first = false;  // whether all was read before it was overwritten
  for (int n_reads = 0; !is_first; ++n_reads) {
    SCOPED_TRACE(n_reads);
    int reads = 0;
    const auto file =
        SessionReader::open(std::make_unique<OverwrittenFile>(bytes_, other, n_reads, reads), "s");
    if (!file.is_ok()) {
      EXPECT_EQ(file.status().code(), StatusCode::kCorrupt) << file.status().message();
      ++n_refused;
      continue;
    }
    const auto restored = file->restore(*cache_, 4);
    is_first = reads <= n_reads;
    if (!restored.is_ok()) {
      EXPECT_EQ(restored.status().code(), StatusCode::kCorrupt) << restored.status().message();
      ++n_refused;
      continue;
    }
    ++n_restored;
    const bool is_other = file->tokens()[0] == other_tokens[0];
    EXPECT_THAT(file->tokens(), ElementsAreArray(is_other ? other_tokens : tokens_));
    EXPECT_EQ(static_cast<char>(file->state()[0]), is_other ? 'B' : 'a');
    EXPECT_TRUE(contents(*cache_, *restored, 4) == (is_other ? other_kv : kv));
    const auto stamp = read_session_stamp(MemoryFile(is_other ? other : bytes_));
    EXPECT_EQ(file->stamp(), *stamp);
    cache_->free_sequence(*restored);
  }
  EXPECT_GE(n_restored, 2);  // one of each
  EXPECT_GT(n_refused, 5);
}

TEST_F(SmallSession, AWriteThatFailsIsPassedOn) {
  for (size_t limit = 0; limit < bytes_.size(); limit += 37) {
    size_t n = 0;
    const auto written = write_session(*cache_, id_,
                                       {.tokens = tokens_,
                                        .n_slots = 4,
                                        .identity = std::as_bytes(std::span("x", 1)),
                                        .state = {}},
                                       [&](std::span<const std::byte> more) {
                                         n += more.size();
                                         return n > limit ? io_error("full") : Status::ok();
                                       });
    EXPECT_EQ(written.status().code(), n > limit ? StatusCode::kIoError : StatusCode::kOk);
  }
}

TEST(SessionFile, AnyNumberOfItsFirstSlotsGoIntoPagesOfAnySize) {
  const auto cache = make_cache();
  std::vector<int32_t> tokens(100);
  const SequenceId id = fill(*cache, 40, 100);
  const auto file = read(write(*cache, id, tokens, 100));
  ASSERT_TRUE(file.is_ok());
  for (const int page_tokens : {16, 64}) {
    const auto other = make_cache({.page_tokens = page_tokens});
    ASSERT_TRUE(file->check_cache(*other).is_ok());
    for (const int32_t n : {0, 1, 15, 16, 17, 40, 41, 99, 100}) {
      const auto restored = file->restore(*other, n);
      ASSERT_TRUE(restored.is_ok()) << restored.status().message();
      EXPECT_EQ(other->length(*restored), n);
      EXPECT_EQ(contents(*other, *restored, n), contents(*cache, id, n)) << page_tokens << " " << n;
      EXPECT_THAT(violations(other->snapshots()), IsEmpty());
      other->free_sequence(*restored);
    }
  }
}

// The layer's size is the file's to say: a sparse one of a few KB on disk says gigabytes.
TEST(SessionFile, ALayerIsReadInPiecesOfAMegabyteAtMost) {
  constexpr int32_t kSlots = 1000;  // of 4 KB a layer
  const CacheShape shape{.k_type = DType::kF32,
                         .v_type = DType::kF32,
                         .groups = {0, 0},
                         .head_dim = 256,
                         .capacity_tokens = 3 * kSlots};
  const auto cache = make_cache(shape);
  const SequenceId id = fill(*cache, kSlots, kSlots);
  const std::vector<int32_t> tokens(kSlots);
  auto bytes = std::make_unique<MemoryFile>(write(*cache, id, tokens, kSlots));
  const MemoryFile& file = *bytes;
  const auto reader = SessionReader::open(std::move(bytes), "s");
  ASSERT_TRUE(reader.is_ok()) << reader.status().message();
  ASSERT_GT(reader->head().layer_bytes(), 3 << 20);
  // Pieces end within K, between K and V, and within V.
  for (const int32_t n : {0, 1, 255, 256, 499, 500, 501, 511, 512, 513, kSlots - 1, kSlots}) {
    const auto restored = reader->restore(*cache, n);
    ASSERT_TRUE(restored.is_ok()) << restored.status().message();
    EXPECT_TRUE(contents(*cache, *restored, n) == contents(*cache, id, n)) << n;
    cache->free_sequence(*restored);
  }
  EXPECT_LE(file.longest_read(), size_t{1} << 20);
}

TEST(SessionFile, EveryTypeOfTheCacheIsKept) {
  for (const std::string& name : kernels::kv_type_names()) {
    const auto type = kernels::parse_kv_type(name);
    ASSERT_TRUE(type.is_ok());
    const CacheShape shape{.k_type = *type, .head_dim = 64};
    const auto cache = make_cache(shape);
    const SequenceId id = fill(*cache, 20, 20);
    const std::vector<int32_t> tokens(20);
    const auto file = read(write(*cache, id, tokens, 20));
    ASSERT_TRUE(file.is_ok()) << name << ": " << file.status().message();
    const auto other = make_cache(shape);
    ASSERT_TRUE(file->check_cache(*other).is_ok());
    const auto restored = file->restore(*other, 20);
    ASSERT_TRUE(restored.is_ok());
    EXPECT_EQ(contents(*other, *restored, 20), contents(*cache, id, 20)) << name;
  }
}

TEST(SessionFile, AnotherCacheIsRefusedByWhatDiffers) {
  const auto cache = make_cache();
  const std::vector<int32_t> tokens(3);
  const auto file = read(write(*cache, fill(*cache, 3, 3), tokens, 3));
  ASSERT_TRUE(file.is_ok());
  const auto refusal = [&](const CacheShape& shape) {
    const Status status = file->check_cache(*make_cache(shape));
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    return status.message();
  };
  EXPECT_THAT(refusal({.k_type = DType::kF32}),
              HasSubstr("--cache-type-k f16 --cache-type-v f16 goes on with it"));
  EXPECT_THAT(refusal({.v_type = DType::kBF16}), HasSubstr("K f16 and V bf16"));
  EXPECT_THAT(refusal({.head_dim = 16}), HasSubstr("2 heads of 8"));
  EXPECT_THAT(refusal({.groups = {0, 0, 0}}), HasSubstr("other layer groups"));
  EXPECT_THAT(refusal({.groups = {0, 1}}), HasSubstr("3 layers"));
}

TEST(SessionFile, ACacheWithoutRoomSaysSoAndStaysAsItWas) {
  const auto cache = make_cache();
  const std::vector<int32_t> tokens(100);
  const auto file = read(write(*cache, fill(*cache, 100, 100), tokens, 100));
  ASSERT_TRUE(file.is_ok());
  const auto small = make_cache({.capacity_tokens = 64});
  EXPECT_EQ(file->restore(*small, 100).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(small->used_page_count(), 0);
  EXPECT_TRUE(file->restore(*small, 64).is_ok());
}

TEST(SessionFile, NoTokensAreASessionToo) {
  const auto cache = make_cache();
  const auto file = read(write(*cache, cache->create_sequence(), {}, 0, ""));
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  EXPECT_THAT(file->kinds(), IsEmpty());
  EXPECT_TRUE(file->restore(*cache, 0).is_ok());
}

TEST(SessionFile, OneStampIsOneContent) {
  const auto cache = make_cache();
  const SequenceId id = fill(*cache, 10, 10);
  std::vector<int32_t> tokens(10);
  std::map<std::pair<uint64_t, uint64_t>, int> seen;
  for (int i = 0; i < 10; ++i) {
    tokens[static_cast<size_t>(i)] = 1;
    const MemoryFile file(write(*cache, id, tokens, 10));
    const auto stamp = read_session_stamp(file);
    ASSERT_TRUE(stamp.is_ok());
    ++seen[{stamp->first, stamp->last}];
  }
  EXPECT_EQ(seen.size(), 10u);
}

}  // namespace
}  // namespace weft::kv
