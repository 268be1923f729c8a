// Single flipped bits anywhere in the file: whatever is served is what was written, or an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>

#include "retrieval/database_internal.h"
#include "retrieval/index.h"
#include "retrieval/rows_internal.h"
#include "support/files.h"
#include "support/index_documents.h"

namespace weft::retrieval {
namespace {

using test::put;
using test::read_text;
using test::record_of;
using test::TempDir;
using ::testing::HasSubstr;
using ::testing::Not;
using Mode = Index::Mode;

constexpr int32_t kVocabulary = 600;

const Settlement kSettlement{.model = "0123456789abcdef",
                             .model_name = "random (m.gguf)",
                             .ropes = "fedcba",
                             .context_tokens = 8192,
                             .prompt = "fewshot",
                             .anchor = "file",
                             .anchor_passages = "Some passages.",
                             .scope = "aabbcc"};

class IndexDamage : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string file = dir_ / "good.db";
    auto index = *Index::open(file, Mode::kCreate);
    ASSERT_TRUE(index
                    ->settle({[](const auto&, bool) -> Result<Settlement> { return kSettlement; },
                              [](std::span<const int32_t> tokens) { return record_of(tokens); }})
                    .is_ok());
    for (int i = 0; i < 6; ++i) {
      const std::string name = std::to_string(i);
      ASSERT_TRUE(put(*index, "/folder/" + name,
                      {"walnut and pear " + name, std::string(900, 'a'), "fig " + name},
                      "Title " + name)
                      .is_ok());
    }
    ASSERT_TRUE(put(*index, "/folder/6", {"東京 2024"}, "東").is_ok());
    ASSERT_TRUE(index->begin_roots(roots_).is_ok());
    ASSERT_TRUE(index->remove_document("/folder/5").is_ok());  // leaves records to be removed
    ASSERT_TRUE(index
                    ->all_chunks([&](const Chunk& chunk) {
                      chunks_[chunk.id] = chunk;
                      return Status::ok();
                    })
                    .is_ok());
    for (const Document& document : *index->documents()) documents_[document.id] = document;
    index.reset();
    good_ = read_text(file);
  }

  void expect_right(const Chunk& chunk) {
    ASSERT_TRUE(chunks_.contains(chunk.id));
    const Chunk& right = chunks_[chunk.id];
    EXPECT_EQ(chunk.tokens, right.tokens);
    EXPECT_EQ(chunk.text, right.text);
    EXPECT_EQ(chunk.record, right.record);
    EXPECT_EQ(chunk.document_id, right.document_id);
    EXPECT_EQ(chunk.ordinal, right.ordinal);
    EXPECT_EQ(chunk.byte_begin, right.byte_begin);
    EXPECT_EQ(chunk.byte_end, right.byte_end);
    EXPECT_EQ(chunk.line_begin, right.line_begin);
    EXPECT_EQ(chunk.line_end, right.line_end);
  }
  void expect_right(const Document& document) {
    ASSERT_TRUE(documents_.contains(document.id));
    const Document& right = documents_[document.id];
    EXPECT_EQ(document.info.path, right.info.path);
    EXPECT_EQ(document.info.title, right.info.title);
    EXPECT_EQ(document.info.content_hash, right.info.content_hash);
    EXPECT_EQ(document.info.size_bytes, right.info.size_bytes);
    EXPECT_EQ(document.info.modified_ns, right.info.modified_ns);
    EXPECT_EQ(document.status, right.status);
    EXPECT_EQ(document.n_chunks, right.n_chunks);
    EXPECT_EQ(document.n_tokens, right.n_tokens);
    EXPECT_EQ(document.info.root, right.info.root);
  }
  /// One line that names the file.
  void expect_clear(const Status& status, const std::string& file) {
    if (status.is_ok()) return;
    EXPECT_THAT(status.message(), HasSubstr(file));
    EXPECT_THAT(status.message(), Not(HasSubstr("\n")));
  }

  /// All that ask and ingest read, and perhaps what ingest changes. True when anything was an
  /// error.
  bool use(const std::string& file, bool change) {
    auto opened = Index::open(file, Mode::kReadWrite);
    expect_clear(opened.status(), file);
    if (!opened.is_ok()) return true;
    Index& index = **opened;
    index.set_token_limit(kVocabulary);
    EXPECT_EQ(index.settlement().value_or(kSettlement), kSettlement);
    Status first = index.verify();
    const auto note = [&](const Status& status) {
      expect_clear(status, file);
      if (first.is_ok()) first = status;
    };
    note(first);
    const auto hits = index.search("walnut fig title", 10);
    note(hits.status());
    if (hits.is_ok()) {
      for (const Hit& hit : *hits) {
        expect_right(hit.chunk);
        EXPECT_EQ(hit.path, documents_[hit.chunk.document_id].info.path);
        EXPECT_EQ(hit.title, documents_[hit.chunk.document_id].info.title);
      }
    }
    const auto unfinished = index.unfinished();
    note(unfinished.status());
    if (unfinished.is_ok()) {
      for (const IngestRoot& root : unfinished->roots) {
        EXPECT_TRUE(root == IngestRoot{.path = "/"} || std::ranges::count(roots_, root) == 1)
            << root.path;
      }
    }
    const auto documents = index.documents();
    note(documents.status());
    if (documents.is_ok()) {
      for (const Document& document : *documents) expect_right(document);
    }
    for (const auto& [id, document] : documents_) {
      const auto chunks = index.chunks_of(id);
      note(chunks.status());
      if (!chunks.is_ok()) continue;
      for (const Chunk& chunk : *chunks) expect_right(chunk);
    }
    note(index.all_chunks([&](const Chunk& chunk) {
      expect_right(chunk);
      return Status::ok();
    }));
    if (!change) return !first.is_ok();
    note(index.sweep([](const Hash128&) { return Status::ok(); }));
    expect_clear(put(index, "/folder/1", {"pear"}).status(), file);
    expect_clear(put(index, "/new", {"pear"}).status(), file);
    expect_clear(index.remove_document("/folder/2"), file);
    return !first.is_ok();
  }

  TempDir dir_;
  const std::vector<IngestRoot> roots_{
      {.path = "/folder", .exclude = {"*.log", "drafts/"}, .reads_ignore_files = false},
      {.path = "/other", .encoding = "latin-1", .rehash = true}};
  std::string good_;
  std::map<int64_t, Chunk> chunks_;
  std::map<int64_t, Document> documents_;
};

TEST_F(IndexDamage, AFlippedBitIsAnErrorOrNothingThatAnyoneReads) {
  ASSERT_GT(chunks_.size(), 10u);
  std::mt19937 random(11);
  int noticed = 0;
  constexpr int kFlips = 4000;
  for (int round = 0; round < kFlips && !HasFailure(); ++round) {
    std::string bad = good_;
    const size_t bit = random() % (bad.size() * 8);
    SCOPED_TRACE(bit);
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    dir_.write("bad.db", bad);
    noticed += use(dir_ / "bad.db", round % 10 == 0) ? 1 : 0;  // changes are synced
    std::filesystem::remove(dir_ / "bad.db-journal");
  }
  EXPECT_GT(noticed, kFlips / 10);  // much of a small file is free space
}

TEST_F(IndexDamage, EveryBitOfAChunksTokensCounts) {
  const Chunk& chunk = chunks_.begin()->second;
  const std::string ids(reinterpret_cast<const char*>(chunk.tokens.data()),
                        chunk.tokens.size() * sizeof(int32_t));
  const size_t at = good_.find(ids);
  ASSERT_NE(at, std::string::npos);
  for (size_t bit = 0; bit < ids.size() * 8 && !HasFailure(); ++bit) {
    std::string bad = good_;
    bad[at + bit / 8] = static_cast<char>(bad[at + bit / 8] ^ (1 << bit % 8));
    dir_.write("bad.db", bad);
    auto index = *Index::open(dir_ / "bad.db", Mode::kReadOnly);
    const Status status = index->search("walnut", 10).status();
    ASSERT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr("chunk " + std::to_string(chunk.id) + ":"));
    EXPECT_THAT(status.message(), HasSubstr("ingest again"));
    EXPECT_EQ(index->verify().code(), StatusCode::kCorrupt);
  }
}

TEST_F(IndexDamage, EveryBitOfAnUnfinishedRootsFlagsCounts) {
  const std::string patterns("*.log\0drafts/\0", 14);
  for (const auto& [bytes, n_bytes] :
       {std::pair(patterns, patterns.size()), std::pair(std::string("latin-1"), size_t{7})}) {
    const size_t at = good_.find(bytes);
    ASSERT_NE(at, std::string::npos);
    for (size_t bit = 0; bit < n_bytes * 8; ++bit) {
      std::string bad = good_;
      bad[at + bit / 8] = static_cast<char>(bad[at + bit / 8] ^ (1 << bit % 8));
      dir_.write("bad.db", bad);
      const Status status = (*Index::open(dir_ / "bad.db", Mode::kReadOnly))->unfinished().status();
      ASSERT_EQ(status.code(), StatusCode::kCorrupt) << bit;
      EXPECT_THAT(status.message(), HasSubstr("an unfinished root: its hash differs"));
    }
  }
}

TEST_F(IndexDamage, ASweepOverDamagedRecordsEnds) {
  // Keys out of order: rows that a scan lists and no search finds.
  const Hash128 record = record_of("fig 5");
  std::string name;
  for (const uint64_t half : {record.high, record.low}) {
    for (int shift = 56; shift >= 0; shift -= 8) name += static_cast<char>(half >> shift);
  }
  const size_t at = good_.find(name);
  ASSERT_NE(at, std::string::npos);
  for (size_t bit = 0; bit < name.size() * 8; ++bit) {
    std::string bad = good_;
    bad[at + bit / 8] = static_cast<char>(bad[at + bit / 8] ^ (1 << bit % 8));
    dir_.write("bad.db", bad);
    auto index = *Index::open(dir_ / "bad.db", Mode::kReadWrite);
    const Status status = index->sweep([](const Hash128&) { return Status::ok(); });
    EXPECT_TRUE(status.is_ok() || status.code() == StatusCode::kCorrupt) << status.message();
  }
}

TEST_F(IndexDamage, IdsPastAllThatAreGivenAreDamage) {
  for (const char* table : {"chunks", "documents"}) {
    for (const char* set : {"seq = 9223372036854775807", "seq = 9007199254740993", "seq = -1",
                            "seq = 'many'", "seq = 1e300", "name = 'chunks'"}) {
      SCOPED_TRACE(std::string(table) + " " + set);
      dir_.write("bad.db", good_);
      {
        auto database = *Database::open(dir_ / "bad.db", false, false);
        ASSERT_TRUE(database
                        ->execute(std::string("UPDATE sqlite_sequence SET ") + set +
                                  " WHERE name = '" + table + "'")
                        .is_ok());
      }
      auto index = *Index::open(dir_ / "bad.db", Mode::kReadWrite);
      const Status added = put(*index, "/new", {"pear"}).status();
      if (std::string(set).starts_with("name")) {  // the rows' own ids say as much
        EXPECT_TRUE(added.is_ok()) << added.message();
        EXPECT_TRUE(index->verify().is_ok());
        continue;
      }
      for (const Status& status : {added, index->verify()}) {
        EXPECT_EQ(status.code(), StatusCode::kCorrupt);
        EXPECT_THAT(status.message(), HasSubstr(std::string("the ids of its ") + table +
                                                ": out of range: damaged; remove this file and "
                                                "ingest again"));
        expect_clear(status, dir_ / "bad.db");
      }
      EXPECT_EQ(index->documents()->size(), documents_.size());
    }
  }
}

TEST_F(IndexDamage, ANegativeIdIsDamageAlsoWithTheRightHash) {
  dir_.write("bad.db", good_);
  {
    auto database = *Database::open(dir_ / "bad.db", false, false);
    const std::vector<int32_t> ids{'f', 'i', 'g'};
    ASSERT_TRUE(insert_chunk(*database, -5, documents_.begin()->first, 3, "",
                             {.text = "fig", .tokens = ids, .record = record_of("fig")})
                    .is_ok());
  }
  auto index = *Index::open(dir_ / "bad.db", Mode::kReadWrite);
  EXPECT_THAT(index->chunks_of(documents_.begin()->first).status().message(),
              HasSubstr("chunk -5: its id is out of range: damaged"));
  EXPECT_EQ(put(*index, "/new", {"pear"}).status().code(), StatusCode::kCorrupt);
}

TEST_F(IndexDamage, CountsOutOfRangeAreDamageAlsoWithTheRightHash) {
  const auto damage_of = [&](const std::function<void(Document&)>& change) {
    dir_.write("bad.db", good_);
    Document document = (*Index::open(dir_ / "bad.db", Mode::kReadOnly))->documents()->front();
    change(document);
    {
      auto database = *Database::open(dir_ / "bad.db", false, false);
      EXPECT_TRUE(write_document(*database, document).is_ok());
    }
    const Status status = (*Index::open(dir_ / "bad.db", Mode::kReadOnly))->documents().status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    return status.message();
  };
  const auto out_of_range = HasSubstr("its counts are out of range: damaged; remove this file");
  EXPECT_THAT(damage_of([](Document& d) { d.n_chunks = -7; }), out_of_range);
  EXPECT_THAT(damage_of([](Document& d) { d.n_tokens = -1; }), out_of_range);
  EXPECT_THAT(damage_of([](Document& d) { d.n_tokens = INT64_MAX; }), out_of_range);
  EXPECT_THAT(damage_of([](Document& d) { d.info.size_bytes = UINT64_MAX; }), out_of_range);
  // No file has room for the token ids of as many as this.
  const auto too_many = HasSubstr("its rows say more than the file has bytes: damaged");
  EXPECT_THAT(damage_of([](Document& d) { d.n_tokens = 1'000'000'000; }), too_many);
  EXPECT_THAT(damage_of([](Document& d) { d.n_chunks = kMaxId; }), too_many);
}

TEST_F(IndexDamage, AChunksPlaceOutOfRangeIsDamageAlsoWithTheRightHash) {
  const int64_t document = documents_.begin()->first;
  const std::vector<int32_t> ids{'f', 'i', 'g'};
  const auto damage_of = [&](int64_t ordinal, const ChunkText& chunk) {
    dir_.write("bad.db", good_);
    {
      auto database = *Database::open(dir_ / "bad.db", false, false);
      EXPECT_TRUE(insert_chunk(*database, 1000, document, ordinal, "", chunk).is_ok());
    }
    return (*Index::open(dir_ / "bad.db", Mode::kReadOnly))->chunks_of(document).status().message();
  };
  const ChunkText good{.text = "fig", .tokens = ids, .record = record_of("fig")};
  EXPECT_EQ(damage_of(100, good), "");
  const auto out_of_range = HasSubstr("chunk 1000: its place is out of range: damaged");
  EXPECT_THAT(damage_of(-3, good), out_of_range);
  ChunkText bad = good;
  bad.line_begin = 9;  // and the last one is 0
  EXPECT_THAT(damage_of(100, bad), out_of_range);
  bad = good;
  bad.byte_begin = UINT64_MAX;
  EXPECT_THAT(damage_of(100, bad), out_of_range);
}

TEST_F(IndexDamage, ALostChunkOrDocumentIsFoundByVerify) {
  for (const char* change :
       {"DELETE FROM chunks WHERE id = 2", "DELETE FROM documents WHERE id = 2",
        "UPDATE documents SET status = 1 WHERE id = 2", "UPDATE settlement SET anchor = 'none'"}) {
    dir_.write("bad.db", good_);
    auto database = *Database::open(dir_ / "bad.db", false, false);
    ASSERT_TRUE(database->execute("PRAGMA foreign_keys = OFF").is_ok());
    ASSERT_TRUE(database->execute(change).is_ok());
    auto index = Index::open(dir_ / "bad.db", Mode::kReadWrite);
    const Status status = index.is_ok() ? (*index)->verify() : index.status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << change;
  }
}

}  // namespace
}  // namespace weft::retrieval
