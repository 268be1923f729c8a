// Which records are needed: what a change leaves to be removed stays in mind until it is removed,
// across crashes, and nobody's new chunk loses its record to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>

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
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Mode = Index::Mode;

class IndexRecords : public ::testing::Test {
 protected:
  void SetUp() override { index_ = *Index::open(file_, Mode::kCreate); }
  void reopen() {
    index_.reset();
    index_ = *Index::open(file_, Mode::kReadWrite);
  }
  /// What a sweep removes.
  std::vector<Hash128> swept() {
    std::vector<Hash128> removed;
    const Status status = index_->sweep([&](const Hash128& record) {
      removed.push_back(record);
      return Status::ok();
    });
    EXPECT_TRUE(status.is_ok()) << status.message();
    return removed;
  }

  TempDir dir_;
  std::string file_ = dir_ / "index.db";
  std::unique_ptr<Index> index_;
};

TEST_F(IndexRecords, SearchTermsOfDeletedChunksLeaveTheFile) {
  const auto file_has = [&](const std::string& word) {
    std::ifstream in(file_, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    return bytes.find(word) != std::string::npos;
  };
  ASSERT_TRUE(put(*index_, "/a", {"walnut", "zymurgy"}).is_ok());
  ASSERT_TRUE(put(*index_, "/b", {"pear", "quillwort"}).is_ok());
  ASSERT_TRUE(put(*index_, "/c", {"fig"}).is_ok());
  ASSERT_TRUE(file_has("zymurg") && file_has("quillwort"));
  ASSERT_TRUE(index_->remove_document("/a").is_ok());
  ASSERT_TRUE(put(*index_, "/b", {"pear", "plum"}).is_ok());
  EXPECT_TRUE(file_has("zymurg"))
      << "SQLite drops terms at once by now: drop_former_terms() can go";
  ASSERT_TRUE(index_->drop_former_terms().is_ok());
  EXPECT_FALSE(file_has("zymurg"));
  EXPECT_FALSE(file_has("quillwort"));
  EXPECT_EQ(index_->search("plum pear fig", 9)->size(), 3u);
  EXPECT_TRUE(index_->verify().is_ok());
}

TEST_F(IndexRecords, AreRemovedWithTheLastChunkThatHasThem) {
  ASSERT_TRUE(put(*index_, "/a", {"walnut", "pear", "pear"}).is_ok());
  ASSERT_TRUE(put(*index_, "/b", {"walnut", "fig"}).is_ok());
  EXPECT_THAT(swept(), IsEmpty());
  ASSERT_TRUE(put(*index_, "/b", {"fig", "plum"}).is_ok());  // replaced: /a still has the walnut
  EXPECT_THAT(swept(), IsEmpty());
  ASSERT_TRUE(index_->remove_document("/a").is_ok());
  EXPECT_THAT(swept(), UnorderedElementsAre(record_of("walnut"), record_of("pear")));
  EXPECT_THAT(swept(), IsEmpty());
  EXPECT_TRUE(*index_->has_record(record_of("fig")));
  EXPECT_FALSE(*index_->has_record(record_of("walnut")));
}

TEST_F(IndexRecords, AreNotedUntilTheirRemovalHasSucceeded) {
  ASSERT_TRUE(put(*index_, "/a", {"walnut", "pear"}).is_ok());
  ASSERT_TRUE(index_->remove_document("/a").is_ok());
  reopen();  // as after a crash between the change and the removal
  int calls = 0;
  EXPECT_EQ(index_->sweep([&](const Hash128&) { return ++calls == 2 ? io_error("no") : Status(); })
                .code(),
            StatusCode::kIoError);
  reopen();
  EXPECT_THAT(swept(), UnorderedElementsAre(record_of("walnut"), record_of("pear")));
}

TEST_F(IndexRecords, AreKeptWhenAnotherDocumentNeedsThemMeanwhile) {
  ASSERT_TRUE(put(*index_, "/a", {"walnut"}).is_ok());
  ASSERT_TRUE(index_->remove_document("/a").is_ok());
  {
    auto other = *Index::open(file_, Mode::kReadWrite);
    ASSERT_TRUE(put(*other, "/b", {"walnut"}).is_ok());
  }
  EXPECT_THAT(swept(), IsEmpty());
  ASSERT_TRUE(index_->remove_document("/b").is_ok());
  EXPECT_THAT(swept(), ElementsAre(record_of("walnut")));
}

TEST_F(IndexRecords, NobodyAddsAChunkWhileItsRecordIsRemoved) {
  ASSERT_TRUE(put(*index_, "/a", {"walnut"}).is_ok());
  ASSERT_TRUE(index_->remove_document("/a").is_ok());
  auto other = *Database::open(file_, false, false);
  ASSERT_TRUE(other->execute("PRAGMA busy_timeout = 0").is_ok());
  const auto others_turn = [&](const Hash128&) {
    EXPECT_EQ(Transaction::begin(*other).status().code(), StatusCode::kResourceExhausted);
    return Status::ok();
  };
  ASSERT_TRUE(index_->sweep(others_turn).is_ok());
  const std::vector<Hash128> records{record_of("walnut")};
  ASSERT_TRUE(index_->remove_unneeded(records, others_turn).is_ok());
  EXPECT_TRUE(Transaction::begin(*other).is_ok());
}

TEST_F(IndexRecords, ArePutOnlyWhileAChunkHasThemAndNobodyTakesItAwayMeanwhile) {
  ASSERT_TRUE(put(*index_, "/a", {"walnut"}).is_ok());
  auto other = *Database::open(file_, false, false);
  ASSERT_TRUE(other->execute("PRAGMA busy_timeout = 0").is_ok());
  int puts = 0;
  const Status status = index_->put_record(record_of("walnut"), [&] {
    ++puts;
    EXPECT_EQ(other->execute("DELETE FROM chunks").code(), StatusCode::kResourceExhausted);
    return Status::ok();
  });
  EXPECT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(puts, 1);
  ASSERT_TRUE(index_->remove_document("/a").is_ok());
  EXPECT_TRUE(
      index_->put_record(record_of("walnut"), [&] { return ++puts, Status::ok(); }).is_ok());
  EXPECT_EQ(puts, 1);
  ASSERT_TRUE(put(*index_, "/a", {"walnut"}).is_ok());
  EXPECT_EQ(index_->put_record(record_of("walnut"), [] { return io_error("full"); }).code(),
            StatusCode::kIoError);
}

TEST_F(IndexRecords, OnlyThoseThatNoChunkHasAreRemoved) {
  std::vector<Hash128> all;
  std::vector<std::string> needed;
  for (int i = 0; i < 200; ++i) {
    const std::string text = "piece " + std::to_string(i);
    all.push_back(record_of(text));
    if (i % 3 == 0) needed.push_back(text);
  }
  ASSERT_TRUE(put(*index_, "/a", needed).is_ok());
  std::set<Hash128> removed;
  ASSERT_TRUE(index_
                  ->remove_unneeded(all,
                                    [&](const Hash128& record) {
                                      EXPECT_TRUE(removed.insert(record).second);
                                      return Status::ok();
                                    })
                  .is_ok());
  EXPECT_EQ(removed.size(), all.size() - needed.size());
  for (const std::string& text : needed) EXPECT_FALSE(removed.contains(record_of(text)));
}

// Records as files beside the index: two processes ingest, delete, sweep and are killed.
class RecordFiles {
 public:
  explicit RecordFiles(const std::string& dir) : dir_(dir) {
    std::filesystem::create_directories(dir);
  }
  Status put(const Hash128& record) const {
    std::ofstream(dir_ + "/" + record.to_hex()) << "kv";
    return Status::ok();
  }
  Status remove(const Hash128& record) const {
    std::filesystem::remove(dir_ + "/" + record.to_hex());
    return Status::ok();
  }
  bool has(const Hash128& record) const {
    return std::filesystem::exists(dir_ + "/" + record.to_hex());
  }
  std::set<std::string> all() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

 private:
  std::string dir_;
};

/// What ingest does with a document: in, the old records away, the missing ones put, marked.
bool ingest(Index& index, const RecordFiles& files, const std::string& path,
            const std::vector<std::string>& texts) {
  const auto remove = [&](const Hash128& record) { return files.remove(record); };
  std::string content;
  for (const std::string& text : texts) content += text + ",";
  const auto id = put(index, path, texts, "", content);
  if (!id.is_ok() || !index.sweep(remove).is_ok()) return false;
  for (const std::string& text : texts) {
    const Hash128 record = record_of(text);
    if (files.has(record)) continue;
    if (!index.put_record(record, [&] { return files.put(record); }).is_ok()) return false;
  }
  const Status marked = index.mark_stored(*id, content);
  return marked.is_ok() || marked.code() == StatusCode::kNotFound;
}

[[noreturn]] void ingest_and_delete_for_ever(const std::string& file, const RecordFiles& files,
                                             unsigned seed) {
  auto index = Index::open(file, Mode::kCreate);
  if (!index.is_ok()) ::_exit(2);
  std::mt19937 random(seed);
  while (true) {
    const std::string path = "/" + std::to_string(random() % 4);
    if (random() % 3 == 0) {
      const Status removed = (*index)->remove_document(path);
      if (!removed.is_ok() && removed.code() != StatusCode::kNotFound) ::_exit(3);
      if (!(*index)->sweep([&](const Hash128& r) { return files.remove(r); }).is_ok()) ::_exit(4);
      continue;
    }
    std::vector<std::string> texts;
    for (unsigned i = 0; i <= random() % 4; ++i) texts.push_back(std::to_string(random() % 8));
    if (!ingest(**index, files, path, texts)) ::_exit(5);
  }
}

TEST(IndexRecordProcesses, GivenKillNineThenNoRecordOutlivesItsLastChunkAndNoneIsMissed) {
  const TempDir dir;
  const std::string file = dir / "index.db";
  const RecordFiles files(dir / "records");
  std::mt19937 random(5);
  for (int round = 0; round < 40 && !::testing::Test::HasFailure(); ++round) {
    SCOPED_TRACE(round);
    pid_t children[2];
    for (pid_t& child : children) {
      const unsigned seed = random();
      child = ::fork();
      if (child == 0) ingest_and_delete_for_ever(file, files, seed);
    }
    ::usleep(static_cast<useconds_t>(random() % 100000));
    for (const pid_t child : children) ::kill(child, SIGKILL);
    for (const pid_t child : children) {
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSIGNALED(status)) << "ended by itself: " << WEXITSTATUS(status);
    }
    auto index = *Index::open(file, Mode::kCreate);
    ASSERT_TRUE(index->sweep([&](const Hash128& r) { return files.remove(r); }).is_ok());
    std::set<std::string> needed;
    ASSERT_TRUE(index
                    ->all_chunks([&](const Chunk& chunk) {
                      needed.insert(chunk.record.to_hex());
                      return Status::ok();
                    })
                    .is_ok());
    for (const std::string& name : files.all()) {
      EXPECT_TRUE(needed.contains(name)) << "KV of a deleted text is left";
    }
    // Of documents that were ingested to the end, no other's deletion took a record.
    for (const Document& document : *index->documents()) {
      if (document.status != DocumentStatus::kStored) continue;
      for (const Chunk& chunk : *index->chunks_of(document.id)) {
        EXPECT_TRUE(files.has(chunk.record)) << "a stored document lacks a record";
      }
    }
  }
}

}  // namespace
}  // namespace weft::retrieval
