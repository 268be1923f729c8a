// What weft relies on SQLite for is a matter of settings: each has a test that notices its absence.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "retrieval/database_internal.h"
#include "retrieval/index.h"
#include "support/files.h"
#include "support/index_documents.h"

namespace weft::retrieval {
namespace {

using test::put;
using test::TempDir;
using ::testing::HasSubstr;
using ::testing::Not;

class DatabaseTest : public ::testing::Test {
 protected:
  std::unique_ptr<Database> open(bool read_only = false) {
    auto database = Database::open(file_, /*create=*/!read_only, read_only);
    EXPECT_TRUE(database.is_ok()) << database.status().message();
    return database.is_ok() ? std::move(*database) : nullptr;
  }
  static std::string value(Database& database, const std::string& sql) {
    auto row = database.prepare(sql);
    if (!row.is_ok() || !row->step().is_ok()) return "?";
    return row->bytes(0);
  }
  static unsigned mode_of(const std::string& path) {
    struct stat file {};
    return ::stat(path.c_str(), &file) == 0 ? file.st_mode & 07777u : 0;
  }
  std::string bytes() const {
    std::ifstream in(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  TempDir dir_;
  std::string file_ = dir_ / "a.db";
};

TEST_F(DatabaseTest, EverySettingIsAsWeftNeedsIt) {
  auto database = open();
  EXPECT_EQ(value(*database, "PRAGMA synchronous"), "3");  // EXTRA: the journal's removal too
  EXPECT_EQ(value(*database, "PRAGMA journal_mode"), "delete");
  EXPECT_EQ(value(*database, "PRAGMA foreign_keys"), "1");
  EXPECT_EQ(value(*database, "PRAGMA trusted_schema"), "0");
  EXPECT_EQ(value(*database, "PRAGMA cell_size_check"), "1");
  EXPECT_EQ(value(*database, "PRAGMA secure_delete"), "1");
  EXPECT_EQ(value(*database, "PRAGMA temp_store"), "2");  // memory
  EXPECT_EQ(value(*database, "PRAGMA query_only"), "0");
  EXPECT_EQ(value(*open(true), "PRAGMA query_only"), "1");
}

// "Not found" is what a row is that another process removed, and no error where one is marked.
TEST_F(DatabaseTest, AJournalThatCannotBeMadeIsNoRowThatIsGone) {
  auto database = open();
  ASSERT_TRUE(database->execute("CREATE TABLE t (x)").is_ok());
  std::filesystem::create_symlink(dir_ / "none/x", file_ + "-journal");
  const Status written = database->execute("INSERT INTO t VALUES (1)");
  EXPECT_EQ(written.code(), StatusCode::kIoError);
  EXPECT_THAT(written.message(), HasSubstr("cannot open its journal: "));
}

TEST_F(DatabaseTest, ATransactionHasTheWriteLockFromItsBeginning) {
  auto first = open();
  auto second = open();
  ASSERT_TRUE(second->execute("PRAGMA busy_timeout = 0").is_ok());
  {
    auto transaction = Transaction::begin(*first);
    ASSERT_TRUE(transaction.is_ok());
    EXPECT_EQ(Transaction::begin(*second).status().code(), StatusCode::kResourceExhausted);
    EXPECT_TRUE(Transaction::begin(*second, Transaction::Kind::kRead).is_ok());
  }
  EXPECT_TRUE(Transaction::begin(*second).is_ok());  // rolled back, so over
}

TEST_F(DatabaseTest, WaitingForALockEndsAtItsLimitAndWhenItIsCancelled) {
  auto holder = open();
  auto transaction = Transaction::begin(*holder);
  ASSERT_TRUE(transaction.is_ok());
  int asked = 0;
  const auto begin = [&](LockWait wait) {
    auto waiting = Database::open(file_, false, false, posix_env(), std::move(wait));
    EXPECT_TRUE(waiting.is_ok());
    return Transaction::begin(**waiting).status();
  };
  Status status = begin({.limit_ms = 1 << 30, .cancelled = [&] { return ++asked == 3; }});
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(asked, 3);
  asked = 0;
  status = begin({.limit_ms = 50, .cancelled = [&] { return ++asked < 0; }});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("in use by another process"));
  EXPECT_GE(asked, 2);  // it did wait
  // Whoever waits gets the lock when it is free.
  std::optional<Transaction> held(std::move(*transaction));
  status = begin({.limit_ms = 1 << 30, .cancelled = [&] {
                    held.reset();
                    return false;
                  }});
  EXPECT_TRUE(status.is_ok()) << status.message();
}

TEST_F(DatabaseTest, AReadTransactionKeepsOthersFromCommitting) {
  auto first = open();
  auto second = open();
  ASSERT_TRUE(first->execute("CREATE TABLE t(x)").is_ok());
  ASSERT_TRUE(second->execute("PRAGMA busy_timeout = 0").is_ok());
  {
    auto reading = Transaction::begin(*first, Transaction::Kind::kRead);
    EXPECT_EQ(value(*first, "SELECT count(*) FROM t"), "0");
    EXPECT_FALSE(second->execute("INSERT INTO t VALUES(1)").is_ok());
    EXPECT_EQ(value(*first, "SELECT count(*) FROM t"), "0");
  }
  EXPECT_TRUE(second->execute("INSERT INTO t VALUES(1)").is_ok());
}

TEST_F(DatabaseTest, IsDefensive) {
  auto database = open();
  ASSERT_TRUE(database->execute("CREATE TABLE t(x); PRAGMA writable_schema = ON").is_ok());
  EXPECT_FALSE(database->execute("UPDATE sqlite_schema SET sql = 'x'").is_ok());
  EXPECT_FALSE(database->execute("DELETE FROM sqlite_schema").is_ok());
  (void)database->execute("PRAGMA journal_mode = OFF");
  EXPECT_EQ(value(*database, "PRAGMA journal_mode"), "delete");
}

TEST_F(DatabaseTest, AValueThatIsTooLongIsAnError) {
  auto database = open();
  EXPECT_EQ(value(*database, "SELECT length(zeroblob(1 << 20))"), "1048576");
  EXPECT_EQ(database->execute("SELECT length(zeroblob(1 << 27))").code(),
            StatusCode::kResourceExhausted);
}

TEST_F(DatabaseTest, AStatementInAFilesSchemaHasALimitedLength) {
  EXPECT_FALSE(open()->execute("SELECT '" + std::string(70'000, 'x') + "'").is_ok());
}

TEST_F(DatabaseTest, TriggersOfAForeignFileDoNotRun) {
  auto database = open();
  ASSERT_TRUE(database
                  ->execute("CREATE TABLE t(x); CREATE TABLE log(x);"
                            "CREATE TRIGGER spy AFTER INSERT ON t BEGIN"
                            " INSERT INTO log VALUES(new.x); END;"
                            "INSERT INTO t VALUES('secret')")
                  .is_ok());
  EXPECT_EQ(value(*database, "SELECT count(*) FROM log"), "0");
}

TEST_F(DatabaseTest, ForeignKeysAreEnforced) {
  auto database = open();
  ASSERT_TRUE(database
                  ->execute("CREATE TABLE p(id INTEGER PRIMARY KEY);"
                            "CREATE TABLE c(p INTEGER REFERENCES p(id))")
                  .is_ok());
  EXPECT_FALSE(database->execute("INSERT INTO c VALUES(7)").is_ok());
}

TEST_F(DatabaseTest, DeletedRowsAreOverwritten) {
  auto database = open();
  ASSERT_TRUE(
      database->execute("CREATE TABLE t(x); INSERT INTO t VALUES('a secret word')").is_ok());
  EXPECT_THAT(bytes(), HasSubstr("a secret word"));
  ASSERT_TRUE(database->execute("DELETE FROM t").is_ok());
  EXPECT_THAT(bytes(), Not(HasSubstr("a secret word")));
}

TEST_F(DatabaseTest, AStatementThatLoopsIsEnded) {
  auto database = open();
  const Status status = database->execute(
      "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n");
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr(file_));
  // A sound file is read to its end, and the next statement begins anew.
  ASSERT_TRUE(database
                  ->execute("CREATE TABLE t(x); WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL"
                            " SELECT x + 1 FROM n LIMIT 50000) INSERT INTO t"
                            " SELECT printf('%050d', x) FROM n")
                  .is_ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(value(*database, "SELECT count(*) FROM t a WHERE x LIKE '%7%' ORDER BY x"), "17195");
  }
}

TEST_F(DatabaseTest, FileAndJournalArePrivateToTheOwner) {
  const mode_t before = ::umask(0);
  auto database = open();
  ASSERT_TRUE(database->execute("CREATE TABLE t(x)").is_ok());
  EXPECT_EQ(mode_of(file_), 0600u);
  {
    auto transaction = *Transaction::begin(*database);
    ASSERT_TRUE(database->execute("INSERT INTO t VALUES(1)").is_ok());
    EXPECT_EQ(mode_of(file_ + "-journal"), 0600u);
  }
  ::umask(before);
}

TEST_F(DatabaseTest, AWiderModeSetByTheOwnerIsKept) {
  ASSERT_TRUE(open()->execute("CREATE TABLE t(x)").is_ok());
  ASSERT_EQ(::chmod(file_.c_str(), 0644), 0);
  EXPECT_NE(open(/*read_only=*/true), nullptr);
  EXPECT_EQ(mode_of(file_), 0644u);
  auto database = open();
  EXPECT_EQ(mode_of(file_), 0644u);
  auto transaction = *Transaction::begin(*database);
  ASSERT_TRUE(database->execute("INSERT INTO t VALUES(1)").is_ok());
  EXPECT_EQ(mode_of(file_), 0644u);
  EXPECT_EQ(mode_of(file_ + "-journal"), 0644u);
}

TEST_F(DatabaseTest, ALinkInAFilesPlaceIsRefusedAndNeverFollowed) {
  dir_.write("elsewhere", "");  // what leads to nothing and what leads to an empty file
  ASSERT_EQ(::chmod((dir_ / "elsewhere").c_str(), 0755), 0);
  for (const char* target : {"elsewhere", "nothing"}) {
    for (const char* side : {"", "-journal", "-wal", "-shm"}) {
      const std::string link = file_ + side;
      SCOPED_TRACE(link + " -> " + target);
      if (*side != 0) {
        ASSERT_TRUE(open()->execute("CREATE TABLE IF NOT EXISTS t(x)").is_ok());
      }
      std::filesystem::create_symlink(target, link);
      for (const bool read_only : {false, true}) {
        const Status status = Database::open(file_, !read_only, read_only).status();
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
        EXPECT_THAT(status.message(), HasSubstr(link + ": a symbolic link"));
      }
      EXPECT_TRUE(std::filesystem::is_symlink(link));
      EXPECT_FALSE(std::filesystem::exists(dir_ / "nothing"));
      EXPECT_EQ(mode_of(dir_ / "elsewhere"), 0755u);
      EXPECT_EQ(std::filesystem::file_size(dir_ / "elsewhere"), 0u);
      std::filesystem::remove(link);
    }
    std::filesystem::remove(file_);
  }
}

TEST_F(DatabaseTest, SpecialFilesAreRefused) {
  ASSERT_TRUE(open()->execute("CREATE TABLE t(x)").is_ok());
  std::filesystem::create_directory(file_ + "-wal");
  EXPECT_THAT(Database::open(file_, true, false).status().message(),
              HasSubstr(file_ + "-wal: in the place of a file of the index"));
  std::filesystem::remove(file_ + "-wal");
  std::filesystem::remove(file_);
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  EXPECT_THAT(Database::open(file_, true, false).status().message(), HasSubstr("no regular file"));
}

TEST_F(DatabaseTest, ALinkedFolderOnTheWayIsFollowed) {
  std::filesystem::create_directory(dir_ / "real");
  std::filesystem::create_directory_symlink("real", dir_ / "linked");
  auto database = Database::open(dir_ / "linked/a.db", true, false);
  ASSERT_TRUE(database.is_ok()) << database.status().message();
  ASSERT_TRUE((*database)->execute("CREATE TABLE t(x)").is_ok());
  EXPECT_TRUE(std::filesystem::exists(dir_ / "real/a.db"));
  EXPECT_EQ((*database)->path(), dir_ / "linked/a.db");
}

// A journal of a change over several databases names a file that SQLite removes with it.
TEST_F(DatabaseTest, AJournalThatNamesAnotherFileIsRefusedAndTheFileStays) {
  {
    auto database = open();
    ASSERT_TRUE(database->execute("CREATE TABLE t(x); INSERT INTO t VALUES(1)").is_ok());
    auto transaction = *Transaction::begin(*database);
    // More than the cache holds, so that the journal is complete.
    ASSERT_TRUE(database
                    ->execute("PRAGMA cache_size = 1; UPDATE t SET x = 2;"
                              "INSERT INTO t VALUES(zeroblob(1 << 18))")
                    .is_ok());
    std::filesystem::copy_file(file_ + "-journal", dir_ / "kept");
  }
  const std::string victim = dir_ / "victim";
  dir_.write("victim", "precious");
  // https://sqlite.org/fileformat2.html#the_rollback_journal, in pager.c's writeSuperJournal
  std::string end("\0\x04\0\x01", 4);  // no page has this number: the lock's (page size 4096)
  end += victim;
  const auto put = [&](uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) end += static_cast<char>(value >> shift);
  };
  uint32_t sum = 0;
  for (const char c : victim) sum += static_cast<uint32_t>(c);
  put(static_cast<uint32_t>(victim.size()));
  put(sum);
  end += std::string("\xd9\xd5\x05\xf9\x20\xa1\x63\xd7", 8);
  std::filesystem::copy_file(dir_ / "kept", file_ + "-journal");
  std::ofstream(file_ + "-journal", std::ios::binary | std::ios::app) << end;

  for (const bool read_only : {true, false}) {
    auto database = Database::open(file_, false, read_only);
    EXPECT_EQ(database.status().code(), StatusCode::kCorrupt);
    EXPECT_THAT(database.status().message(), HasSubstr(file_ + "-journal"));
    if (database.is_ok()) (void)(*database)->execute("SELECT * FROM t");
    EXPECT_TRUE(std::filesystem::exists(victim));
  }
}

// With a write-ahead log a reader would not keep a writer from committing.
TEST_F(DatabaseTest, AWriteAheadLogIsUndoneOrRefused) {
  ASSERT_TRUE(open()->execute("CREATE TABLE t(x); INSERT INTO t VALUES(7)").is_ok());
  const auto set_wal = [&] {  // as any SQLite tool does it: two bytes of the header
    std::fstream file(file_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(18);
    file.write("\2\2", 2);
  };
  set_wal();
  const std::string before = bytes();
  const Status refused = Database::open(file_, false, /*read_only=*/true).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_THAT(refused.message(), HasSubstr(file_ + ": has a write-ahead log"));
  EXPECT_EQ(bytes(), before);
  EXPECT_FALSE(std::filesystem::exists(file_ + "-wal"));
  EXPECT_FALSE(std::filesystem::exists(file_ + "-shm"));

  auto database = open();
  EXPECT_EQ(value(*database, "PRAGMA journal_mode"), "delete");
  EXPECT_EQ(value(*database, "SELECT x FROM t"), "7");
  auto second = open();
  ASSERT_TRUE(second->execute("PRAGMA busy_timeout = 0").is_ok());
  auto reading = Transaction::begin(*database, Transaction::Kind::kRead);
  EXPECT_EQ(value(*database, "SELECT x FROM t"), "7");
  EXPECT_FALSE(second->execute("INSERT INTO t VALUES(1)").is_ok());
}

TEST_F(DatabaseTest, ALongStatementEndsWhenItIsCancelled) {
  int asked = 0;
  auto database = Database::open(file_, true, false, posix_env(),
                                 {.limit_ms = 0, .cancelled = [&] { return ++asked == 2; }});
  ASSERT_TRUE(database.is_ok());
  asked = 0;
  const std::string count_up =
      "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 10000)"
      " SELECT count(*) FROM n";
  EXPECT_EQ((*database)->execute(count_up).code(), StatusCode::kCancelled);
  EXPECT_EQ(asked, 2);
  EXPECT_TRUE((*database)->execute(count_up).is_ok());
}

TEST_F(DatabaseTest, OpeningLeavesTheLocksOfOtherConnectionsAlone) {
  auto first = open();
  ASSERT_TRUE(first->execute("CREATE TABLE t(x)").is_ok());
  auto transaction = *Transaction::begin(*first);
  (void)open();                  // and closes it again
  const pid_t child = ::fork();  // another process tries SQLite's byte for the write lock
  if (child == 0) {
    const int file = ::open(file_.c_str(), O_RDWR | O_CLOEXEC);
    struct flock lock {
      .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0x40000001, .l_len = 1, .l_pid = 0
    };
    ::_exit(file >= 0 && ::fcntl(file, F_SETLK, &lock) == -1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "this process's lock is gone";
}

}  // namespace
}  // namespace weft::retrieval
