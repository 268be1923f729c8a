// The type of a store's records, through the built program: settled once, kept by all that use the
// store, whatever the cache holds, and refused where it cannot be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/hash.h"
#include "retrieval/index.h"
#include "support/weft_program.h"

namespace weft {
namespace {

using test::Outcome;
using test::read_text;
using test::write_text;
using ::testing::Each;
using ::testing::HasSubstr;
using Json = nlohmann::json;

/// With a model whose heads take blocks of 32; those of model() do not.
class RecordTypeProgram : public test::WeftProgram {
 protected:
  static void SetUpTestSuite() {
    WeftProgram::SetUpTestSuite();
    const gguf::RandomModelOptions options{.n_layers = 6,
                                           .n_embd = 64,
                                           .n_ff = 512,
                                           .n_heads = 4,
                                           .n_kv_heads = 2,
                                           .head_dim = 32,
                                           .vocab = 600};
    ASSERT_TRUE(gguf::write_random_model(posix_env(), wide(), options).is_ok());
  }
  void TearDown() override {
    WeftProgram::TearDown();
    std::filesystem::remove_all(other_store());
  }

  static std::string wide() { return path("wide.gguf"); }
  static std::string other_store() { return path("other-store"); }

  static Outcome ingest_wide(std::vector<std::string> more = {}, const std::string& dir = store()) {
    std::vector<std::string> arguments{"ingest", "-m", wide(), "--store", dir, docs()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return weft(arguments);
  }
  static Outcome ask_wide(const std::string& question, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"ask", "-m",     wide(),    "--store", store(), "-n",
                                       "8",   "--json", "--reuse", "full",    question};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return weft(arguments);
  }
  static Json stat(const std::string& dir = store()) {
    return weft({"cache", "stat", "--store", dir, "--json"}).json();
  }
  /// The records' names and types.
  static std::map<std::string, std::string> records(const std::string& dir = store()) {
    std::map<std::string, std::string> found;
    const Json listed = weft({"cache", "ls", "--store", dir, "--json"}).json();
    for (const Json& record : listed["records"]) found[record["hash"]] = record["type"];
    EXPECT_FALSE(found.empty());
    return found;
  }
  static std::vector<std::string> types(const std::string& dir = store()) {
    std::vector<std::string> all;
    for (const auto& [hash, type] : records(dir)) all.push_back(type);
    return all;
  }
  /// Where a question's chunks came from: all "disk", or not.
  static void expect_from_disk(const Outcome& asked) {
    ASSERT_EQ(asked.status, 0) << asked.err;
    const Json json = asked.json();
    ASSERT_GT(json["chunks"].size(), 0u);
    EXPECT_EQ(json["tier"], "disk") << asked.out;
  }
};

TEST_F(RecordTypeProgram, TheFirstIngestSettlesItAndEverythingElseTakesIt) {
  const Outcome first = ingest_wide({"--record-type", "q8_0"});
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(stat()["record_type"], "q8_0");
  EXPECT_THAT(weft({"cache", "stat", "--store", store()}).out, HasSubstr("\ntype   q8_0\n"));
  EXPECT_THAT(types(), Each("q8_0"));
  EXPECT_THAT(weft({"cache", "ls", "--store", store()}).out, HasSubstr(" MB  q8_0  used "));
  expect_from_disk(ask_wide("harbour"));
  EXPECT_EQ(weft({"cache", "verify", "--store", store()}).status, 0);

  write_text(docs() + "/mill.txt", "The mill grinds rye. " + filler(20));
  const auto before = records();
  const Outcome more = ingest_wide();
  ASSERT_EQ(more.status, 0) << more.err;
  EXPECT_THAT(more.out, HasSubstr("1 new"));
  EXPECT_GT(records().size(), before.size());
  EXPECT_THAT(types(), Each("q8_0"));
  const Outcome again = ingest_wide({"--record-type", "q8_0"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("4 unchanged"));
  EXPECT_EQ(stat()["record_type"], "q8_0");
}

TEST_F(RecordTypeProgram, WithoutAWordItIsF16) {
  ASSERT_EQ(ingest_wide().status, 0);
  ASSERT_EQ(ingest_wide({"--record-type", "f16"}, other_store()).status, 0);
  EXPECT_EQ(stat()["record_type"], "f16");
  EXPECT_THAT(types(), Each("f16"));
  EXPECT_EQ(records(), records(other_store()));
}

TEST_F(RecordTypeProgram, AnotherOneIsRefusedAndSaysWhatToDo) {
  for (const auto& [settled, other] : {std::pair("f16", "q8_0"), std::pair("q8_0", "f16")}) {
    ASSERT_EQ(ingest_wide({"--record-type", settled}).status, 0);
    write_text(docs() + "/harbour.md", "# Harbour\n\nIt opens at eight. ");
    const auto before = records();
    expect_error(ingest_wide({"--record-type", other}), 2,
                 store() + ": the folder's records are of type '" + settled + "'; for '" + other +
                     "' take another folder");
    EXPECT_EQ(records(), before);
    EXPECT_EQ(stat()["record_type"], settled);
    std::filesystem::remove_all(store());
  }
}

TEST_F(RecordTypeProgram, OneThatNobodyKnowsIsRefusedWithTheList) {
  for (const char* name : {"q4_0", "f8"}) {
    expect_error(ingest_wide({"--record-type", name}), 2, "f16");
    EXPECT_FALSE(std::filesystem::exists(store()));
  }
  const Outcome listed = ingest_wide({"--record-type", "q4_0"});
  EXPECT_THAT(listed.err, HasSubstr("--record-type"));
  EXPECT_THAT(listed.err, HasSubstr("q8_0"));
}

TEST_F(RecordTypeProgram, HeadsThatAreNoWholeBlocksAreRefusedByNameAndNoStoreIsMade) {
  expect_error(ingest({"--record-type", "q8_0"}), 1,
               "records of type q8_0: this model's head size 16 is no multiple of its block of 32; "
               "take f16");
  EXPECT_FALSE(std::filesystem::exists(store()));
  EXPECT_EQ(ingest({"--record-type", "f16"}).status, 0);
}

TEST_F(RecordTypeProgram, TheCachesTypesAreNoPartOfIt) {
  for (const char* type : {"f16", "q8_0"}) {
    ASSERT_EQ(ingest_wide({"--record-type", type}).status, 0);
    const auto before = records();
    for (const char* cache : {"f32", "f16", "bf16", "q8_0", "q4_0"}) {
      SCOPED_TRACE(std::string("records of ") + type + ", cache of " + cache);
      expect_from_disk(ask_wide("harbour", {"--cache-type-k", cache}));
      expect_from_disk(ask_wide("orchard", {"--cache-type-k", cache, "--cache-type-v", cache}));
      EXPECT_EQ(records(), before) << "a cache's type took records away";
    }
    EXPECT_THAT(ingest_wide({"--cache-type-k", "f32"}).out, HasSubstr("3 unchanged"));
    EXPECT_EQ(records(), before);
    std::filesystem::remove_all(store());
  }
}

TEST_F(RecordTypeProgram, AMissSaysWhatAHitSaysAndIsStoredUnderItsName) {
  ASSERT_EQ(ingest_wide({"--record-type", "q8_0"}).status, 0);
  const auto before = records();
  for (const char* mode : {"full", "blend"}) {
    const auto asked = [&] {
      return weft({"ask", "-m", wide(), "--store", store(), "-n", "12", "--json", "--reuse", mode,
                   "--ratio", "0.2", "--temp", "1", "--seed", "3", "harbour orchard library"});
    };
    const Outcome hit = asked();
    expect_from_disk(hit);
    EXPECT_NE(hit.json()["answer"], "");
    int n_missed = 0;
    for (const auto& [name, type] : before) {
      ASSERT_EQ(weft({"cache", "rm", name, "--store", store()}).status, 0);
      const Outcome miss = asked();
      EXPECT_EQ(miss.json()["answer"], hit.json()["answer"]);
      const bool is_missed = miss.json()["computed_tokens"] != hit.json()["computed_tokens"];
      if (is_missed) {
        ++n_missed;
        EXPECT_EQ(miss.json()["done"], mode) << miss.out;
        EXPECT_EQ(records(), before);
      }
      if (n_missed == 2) break;
      ASSERT_EQ(weft({"cache", "verify", "--repair", "--store", store()}).status, 0);
      ASSERT_EQ(ingest_wide().status, 0);
    }
    EXPECT_EQ(n_missed, 2);
  }
}

TEST_F(RecordTypeProgram, WhatItWillTakeIsSaidBefore) {
  std::map<std::string, uint64_t> planned, on_disk;
  for (const char* type : {"f16", "q8_0"}) {
    planned[type] =
        ingest_wide({"--record-type", type, "--json"}).json()["new_bytes"].get<uint64_t>();
    on_disk[type] = stat()["bytes"].get<uint64_t>();
    EXPECT_GE(on_disk[type], planned[type]);
    std::filesystem::remove_all(store());
  }
  EXPECT_EQ(planned["q8_0"] * 64, planned["f16"] * 34);
  EXPECT_LT(on_disk["q8_0"], on_disk["f16"]);
  // All that it takes is room enough, and no byte less.
  const std::string room = std::to_string(on_disk["q8_0"]);
  EXPECT_EQ(ingest_wide({"--record-type", "q8_0", "--store-limit", room}).status, 0);
  std::filesystem::remove_all(store());
  const std::string less = std::to_string(on_disk["q8_0"] - 1);
  const Outcome stopped = ingest_wide({"--record-type", "q8_0", "--store-limit", less});
  EXPECT_EQ(stopped.status, 1);
  EXPECT_THAT(stopped.err, HasSubstr(" holds all of it"));
  std::filesystem::remove_all(store());
  EXPECT_EQ(ingest_wide({"--record-type", "f16", "--store-limit", room}).status, 1);
}

TEST_F(RecordTypeProgram, ARecordsHeadThatSaysNoTypeIsDamagedInOneLine) {
  ASSERT_EQ(ingest_wide({"--record-type", "q8_0"}).status, 0);
  const auto [name, type] = *records().begin();
  const std::string file = store() + "/" + name + ".chunk";
  const Json inspected = weft({"inspect", file, "--json"}).json();
  EXPECT_EQ(inspected["type"], "q8_0");
  EXPECT_THAT(weft({"inspect", file}).out, HasSubstr("  K and V       q8_0\n"));

  std::string bytes = read_text(file);
  std::filesystem::remove(file);
  const uint32_t unknown = 99;
  std::memcpy(&bytes[48 + 4], &unknown, sizeof unknown);  // of the identity, which begins at 48
  const auto identity_bytes = inspected["identity_bytes"].get<uint64_t>();
  const uint64_t payload =
      bytes.size() - inspected["layers"].get<uint64_t>() *
                         ((inspected["layer_bytes"].get<uint64_t>() + 4095) / 4096 * 4096);
  const auto head = std::as_bytes(std::span(bytes));
  const uint64_t checksum = hash64(head.subspan(16, payload - 16));
  std::memcpy(&bytes[8], &checksum, sizeof checksum);
  const std::string forged =
      store() + "/" + hash128(head.subspan(48, identity_bytes)).to_hex() + ".chunk";
  write_text(forged, bytes);

  const std::string why = "its KV has the type 99, which is none of f16 or q8_0: damaged";
  expect_error(weft({"inspect", forged}), 1, forged + ": " + why);
  const Outcome listed = weft({"cache", "ls", "--store", store()});
  EXPECT_EQ(listed.status, 0) << listed.err;
  EXPECT_THAT(listed.out, HasSubstr("damaged: " + forged + ": " + why + "\n"));
  const Outcome verified = weft({"cache", "verify", "--store", store()});
  EXPECT_EQ(verified.status, 1);
  EXPECT_THAT(verified.out, HasSubstr(forged + ": " + why + "\n"));
  EXPECT_THAT(verified.err, HasSubstr("1 bad record"));
  weft({"cache", "verify", "--repair", "--store", store()});
  EXPECT_FALSE(std::filesystem::exists(forged));
  ASSERT_EQ(ingest_wide().status, 0);
  EXPECT_EQ(records().count(name), 1u) << "the one that was taken away is computed again";
}

TEST_F(RecordTypeProgram, OneThatAFolderSaysAndNobodyKnowsIsTheFoldersFaultNotAFlags) {
  ASSERT_EQ(ingest_wide().status, 0);
  {
    auto index =
        retrieval::Index::open(store() + "/documents.sqlite", retrieval::Index::Mode::kReadWrite);
    ASSERT_TRUE(index.is_ok()) << index.status().message();
    retrieval::Settlement settled = *(*index)->settlement();
    settled.record_type = "odd";
    ASSERT_TRUE(
        (*index)
            ->settle({[&](const auto&, bool) { return Result<retrieval::Settlement>(settled); },
                      [](std::span<const int32_t>) { return Hash128{}; }})
            .is_ok());
  }
  const std::string why = store() +
                          ": its records have the type 'odd', which this weft does not "
                          "know";
  expect_error(ingest_wide(), 1, why);
  expect_error(weft({"ask", "-m", wide(), "--store", store(), "harbour"}), 1, why);
}

}  // namespace
}  // namespace weft
