// What an index was made with: settled once among threads and processes, checked in every change,
// and taken over from an index of an older weft.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "retrieval/database_internal.h"
#include "retrieval/index.h"
#include "support/files.h"
#include "support/index_documents.h"

namespace weft::retrieval {
namespace {

using test::put;
using test::record_of;
using test::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Mode = Index::Mode;

Settlement made_with(const std::string& model) {
  return {.model = model,
          .model_name = model + " (m.gguf)",
          .ropes = "r",
          .context_tokens = 8192,
          .prompt = "chat",
          .anchor = "file",
          .anchor_passages = std::string("passages\0 of any\n bytes", 23),
          .scope = "scope of " + model};
}

/// Settles as `wanted` where nothing is settled; else only the same will do.
Status settle(Index& index, const Settlement& wanted) {
  return index.settle({[&](const std::optional<Settlement>& there, bool) -> Result<Settlement> {
                         if (there && *there != wanted)
                           return invalid_argument("made with " + there->model);
                         return wanted;
                       },
                       [](std::span<const int32_t> tokens) { return record_of(tokens); }});
}

TEST(IndexSettlement, IsSeenByLaterOpenings) {
  const TempDir dir;
  {
    auto index = *Index::open(dir / "a.db", Mode::kCreate);
    EXPECT_FALSE(index->settlement());
    ASSERT_TRUE(settle(*index, made_with("m")).is_ok());
    EXPECT_EQ(index->settlement(), made_with("m"));
  }
  for (const auto mode : {Mode::kReadOnly, Mode::kReadWrite, Mode::kCreate}) {
    auto index = *Index::open(dir / "a.db", mode);
    EXPECT_EQ(index->settlement(), made_with("m"));
    EXPECT_TRUE(settle(*index, made_with("m")).is_ok());
    EXPECT_THAT(settle(*index, made_with("n")).message(), HasSubstr("made with m"));
    EXPECT_EQ(index->settlement(), made_with("m"));
  }
}

TEST(IndexSettlement, OfConcurrentProcessesOneSettlesAndTheOthersSeeIt) {
  for (int round = 0; round < 20; ++round) {
    const TempDir dir;
    constexpr int kThreads = 4;
    std::atomic<int> waiting = kThreads;
    std::atomic<int> settled = 0;
    std::vector<std::thread> threads;
    std::vector<Status> results(kThreads);
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        --waiting;
        while (waiting > 0) std::this_thread::yield();
        const std::string name = "m" + std::to_string(i);
        auto index = Index::open(dir / "a.db", Mode::kCreate);
        Status& result = results[static_cast<size_t>(i)];
        result = index.status();
        if (result.is_ok()) result = settle(**index, made_with(name));
        if (!result.is_ok()) return;
        ++settled;
        if (put(**index, "/" + name, {name}).is_ok()) return;
        result = io_error("the one who settled may not put");
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(settled, 1);
    for (const Status& result : results) {
      if (result.is_ok()) continue;
      EXPECT_EQ(result.code(), StatusCode::kInvalidArgument) << result.message();
    }
    auto index = *Index::open(dir / "a.db", Mode::kReadOnly);
    EXPECT_THAT(*index->documents(), SizeIs(1));
    EXPECT_EQ("/" + index->settlement()->model, (*index->documents())[0].info.path);
  }
}

TEST(IndexSettlement, EveryChangeIsRefusedOnceTheSettlementChanged) {
  const TempDir dir;
  auto index = *Index::open(dir / "a.db", Mode::kCreate);
  ASSERT_TRUE(settle(*index, made_with("m")).is_ok());
  const int64_t id = *put(*index, "/a", {"walnut"});
  {
    auto database = *Database::open(dir / "a.db", false, false);
    ASSERT_TRUE(database->execute("DELETE FROM settlement").is_ok());
    auto other = *Index::open(dir / "a.db", Mode::kReadWrite);
    ASSERT_TRUE(settle(*other, made_with("n")).is_ok());
  }
  const DocumentInfo info{.path = "/a"};
  const auto nothing = [](const Hash128&) { return Status::ok(); };
  for (const Status& status :
       {put(*index, "/b", {"pear"}).status(), index->mark_stored(id, "hash of /a"),
        index->touch_document(info), index->remove_document("/a"),
        index->remove_unneeded(std::vector<Hash128>(1), nothing)}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("settled anew for n (m.gguf)"));
  }
  EXPECT_THAT(*index->documents(), SizeIs(1));
}

TEST(IndexSettlement, AnotherScopeRenamesTheRecordsAndLeavesTheOldOnesToBeRemoved) {
  const TempDir dir;
  auto index = *Index::open(dir / "a.db", Mode::kCreate);
  ASSERT_TRUE(settle(*index, made_with("m")).is_ok());
  const int64_t id = *put(*index, "/a", {"walnut"});
  const auto other_name = [](std::span<const int32_t>) { return Hash128{7, 7}; };
  Settlement moved = made_with("m");
  moved.scope = "another scope";
  ASSERT_TRUE(
      index->settle({[&](const auto&, bool) -> Result<Settlement> { return moved; }, other_name})
          .is_ok());
  EXPECT_EQ((*index->chunks_of(id))[0].record, (Hash128{7, 7}));
  std::vector<Hash128> removed;
  ASSERT_TRUE(index
                  ->sweep([&](const Hash128& record) {
                    removed.push_back(record);
                    return Status::ok();
                  })
                  .is_ok());
  EXPECT_THAT(removed, ElementsAre(record_of("walnut")));
  EXPECT_TRUE(index->verify().is_ok()) << index->verify().message();
}

// ------------------------------------------------------------------------- an index of version 1

/// As the weft of version 1 made it.
constexpr const char* kVersion1 = R"(
CREATE TABLE meta(key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE documents(
  id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL UNIQUE, title TEXT NOT NULL,
  size_bytes INTEGER NOT NULL, modified_ns INTEGER NOT NULL, content_hash TEXT NOT NULL,
  status INTEGER NOT NULL);
CREATE TABLE chunks(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  document_id INTEGER NOT NULL REFERENCES documents(id),
  ordinal INTEGER NOT NULL, byte_begin INTEGER NOT NULL, byte_end INTEGER NOT NULL,
  text TEXT NOT NULL, tokens BLOB NOT NULL, n_tokens INTEGER NOT NULL,
  UNIQUE(document_id, ordinal));
CREATE VIEW chunk_source AS
  SELECT chunks.id AS id, document_id, title, text
  FROM chunks JOIN documents ON documents.id = document_id;
CREATE VIRTUAL TABLE chunk_terms USING fts5(
  title, text, content='chunk_source', content_rowid='id',
  tokenize='unicode61 remove_diacritics 2');
INSERT INTO documents VALUES
  (1, '/a', 'Trees', 11, 5, 'ha', 1), (3, '/b', 'More', 3, 6, 'hb', 0);
INSERT INTO chunks VALUES
  (1, 1, 0, 0, 6, 'walnut', x'010000000200000003000000', 3),
  (2, 1, 1, 6, 11, 'apple', x'04000000', 1),
  (5, 3, 0, 0, 3, 'fig', x'0500000006000000', 2);
INSERT INTO chunk_terms(rowid, title, text) SELECT id, title, text FROM chunk_source;
PRAGMA application_id = 0x77656674;
PRAGMA user_version = 1;
)";

class OldIndex : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(raw()->execute(kVersion1).is_ok()); }
  std::unique_ptr<Database> raw() { return *Database::open(file_, true, false); }
  std::unique_ptr<Index> open(Mode mode) {
    auto index = Index::open(file_, mode);
    EXPECT_TRUE(index.is_ok()) << index.status().message();
    return index.is_ok() ? std::move(*index) : nullptr;
  }
  void expect_whole(Index& index) {
    const auto documents = index.documents();
    ASSERT_TRUE(documents.is_ok()) << documents.status().message();
    ASSERT_THAT(*documents, SizeIs(2));
    EXPECT_EQ((*documents)[0].n_chunks, 2);
    EXPECT_EQ((*documents)[0].n_tokens, 4);
    EXPECT_EQ((*documents)[0].status, DocumentStatus::kStored);
    EXPECT_EQ((*documents)[1].info.title, "More");
    const auto hits = index.search("walnut trees", 5);
    ASSERT_TRUE(hits.is_ok()) << hits.status().message();
    ASSERT_THAT(*hits, SizeIs(2));
    EXPECT_THAT((*hits)[0].chunk.tokens, ElementsAre(1, 2, 3));
    EXPECT_EQ(index.counts()->tokens, 6);
    EXPECT_TRUE(index.verify().is_ok()) << index.verify().message();
  }

  TempDir dir_;
  std::string file_ = dir_ / "a.db";
};

TEST_F(OldIndex, CanBeReadAsItIs) {
  auto index = open(Mode::kReadOnly);
  EXPECT_TRUE(index->is_old());
  expect_whole(*index);
  EXPECT_TRUE(settle(*index, made_with("m")).is_ok());  // taken over for this opening only
  EXPECT_EQ(index->settlement(), made_with("m"));
  expect_whole(*index);
  EXPECT_TRUE(open(Mode::kReadOnly)->is_old());
}

TEST_F(OldIndex, IsNotChangedBeforeItIsUpToDate) {
  auto index = open(Mode::kCreate);
  EXPECT_TRUE(index->is_old());
  EXPECT_EQ(put(*index, "/c", {"pear"}).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(index->remove_document("/a").code(), StatusCode::kUnsupported);
  EXPECT_EQ(index->has_record({}).status().code(), StatusCode::kUnsupported);
}

TEST_F(OldIndex, IsBroughtUpToDateWithItsSettlementInOneStep) {
  auto reader = open(Mode::kReadOnly);  // goes on reading meanwhile
  {
    auto index = open(Mode::kReadWrite);
    std::vector<bool> old;
    ASSERT_TRUE(index
                    ->settle({[&](const std::optional<Settlement>& there,
                                  bool is_old) -> Result<Settlement> {
                                EXPECT_FALSE(there);
                                old.push_back(is_old);
                                return made_with("m");
                              },
                              [](std::span<const int32_t> tokens) { return record_of(tokens); }})
                    .is_ok());
    EXPECT_THAT(old, ElementsAre(true, true));
    EXPECT_FALSE(index->is_old());
    expect_whole(*index);
  }
  expect_whole(*reader);
  auto index = open(Mode::kReadWrite);
  EXPECT_FALSE(index->is_old());
  EXPECT_EQ(index->settlement(), made_with("m"));
  expect_whole(*index);
  EXPECT_TRUE(*index->has_record(record_of(std::vector<int32_t>{1, 2, 3})));
  EXPECT_TRUE(put(*index, "/c", {"pear"}).is_ok());
  EXPECT_TRUE(index->remove_document("/a").is_ok());
  EXPECT_GT((*index->find_document("/c"))->id, 3);
  EXPECT_TRUE(index->verify().is_ok()) << index->verify().message();
}

TEST_F(OldIndex, IsSeenUpToDateByEarlierOpenings) {
  auto first = open(Mode::kReadWrite);
  auto second = open(Mode::kReadWrite);
  ASSERT_TRUE(settle(*first, made_with("m")).is_ok());
  EXPECT_EQ(put(*second, "/c", {"pear"}).status().code(), StatusCode::kUnsupported);
  ASSERT_TRUE(settle(*second, made_with("m")).is_ok());
  EXPECT_FALSE(second->is_old());
  EXPECT_TRUE(put(*second, "/c", {"pear"}).is_ok());
  EXPECT_TRUE(second->verify().is_ok()) << second->verify().message();
}

TEST_F(OldIndex, StaysAsItIsWhenItIsAnotherModels) {
  auto index = open(Mode::kReadWrite);
  const Status refused = index->settle(
      {[&](const auto&, bool) -> Result<Settlement> { return invalid_argument("no"); },
       [](std::span<const int32_t> tokens) { return record_of(tokens); }});
  EXPECT_EQ(refused.message(), "no");
  EXPECT_TRUE(open(Mode::kReadOnly)->is_old());
}

TEST_F(OldIndex, ATokenOutsideTheVocabularyIsCorruptAndKeepsItFromBeingUpdated) {
  ASSERT_TRUE(raw()
                  ->execute("UPDATE chunks SET tokens = x'01000000fe00000003000000' WHERE id = 1")
                  .is_ok());
  auto index = open(Mode::kReadWrite);
  index->set_token_limit(100);
  const Status found = index->search("walnut", 1).status();
  EXPECT_EQ(found.code(), StatusCode::kCorrupt);
  EXPECT_THAT(found.message(), HasSubstr(file_));
  EXPECT_THAT(found.message(), HasSubstr("chunk 1: token id 254"));
  EXPECT_EQ(settle(*index, made_with("m")).code(), StatusCode::kCorrupt);
  EXPECT_TRUE(open(Mode::kReadOnly)->is_old());
}

}  // namespace
}  // namespace weft::retrieval
