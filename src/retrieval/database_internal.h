// SQLite by plain types: a connection, a statement, a transaction, and FTS5's own splitting of
// text into terms. Internal to this room; the one place that knows SQLite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/function_ref.h"
#include "base/status.h"

namespace weft::retrieval {

class Database;

/// A prepared statement: bind its parameters in order, then step. One thread; must not outlive the
/// database. A bind that fails is reported by the next step.
class Statement {
 public:
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  Statement& bind(int64_t value);
  Statement& bind_text(std::string_view value);
  Statement& bind_blob(std::span<const std::byte> value);
  /// True when there is a row to read.
  Result<bool> step();
  /// Steps to the end and makes the statement ready for new parameters.
  Status run();

  int64_t integer(int column) const;
  double real(int column) const;
  /// Text or blob; empty for NULL.
  std::string bytes(int column) const;

 private:
  friend class Database;
  Statement(Database& database, void* statement) : database_(database), statement_(statement) {}

  Database& database_;
  void* statement_;  // sqlite3_stmt
  int next_parameter_ = 1;
  int bind_error_ = 0;
};

/// One connection. One thread at a time. Not movable: statements refer to it. A statement that
/// takes more steps than its file's size explains is kCorrupt: pages of a damaged file may form
/// loops.
class Database {
 public:
  /// `create`: makes the file when it is missing. `read_only`: refuses changes, but still undoes
  /// what a killed writer left half done where the folder allows it. A file that is made is its
  /// owner's alone (0600), one that is there keeps its mode; the journal takes the file's. Links
  /// and what else is no file are refused, for the file and its journal (kInvalidArgument). `env`
  /// syncs the folder; the file itself is SQLite's. `wait`: for other processes' locks, in all that
  /// follows; its `cancelled` ends long statements, too.
  static Result<std::unique_ptr<Database>> open(const std::string& path, bool create,
                                                bool read_only, Env& env = posix_env(),
                                                LockWait wait = kUsualLockWait);
  /// An empty one that is nowhere on disk.
  static Result<std::unique_ptr<Database>> open_in_memory();
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  /// One or more statements without parameters; rows are discarded.
  Status execute(const std::string& sql);
  Result<Statement> prepare(std::string_view sql);
  const std::string& path() const { return path_; }
  /// Asked for, or because the system lets nobody write here.
  bool is_read_only() const;
  bool is_in_transaction() const;
  /// The file has no longer the name that it was opened by.
  bool has_moved() const;
  /// The file's size just now.
  int64_t file_bytes() const;

  /// A schema as it was found to be: SQLite's counter of its changes, and the index's version.
  struct KnownSchema {
    int64_t cookie = 0;
    int64_t version = 0;
    bool operator==(const KnownSchema&) const = default;
  };
  const std::optional<KnownSchema>& known_schema() const { return known_schema_; }
  void set_known_schema(KnownSchema schema) { known_schema_ = schema; }

  /// How a text is split into terms: words with case and diacritics folded, or of these the stems
  /// (Porter's, of English). The index has stems; one of an older version words.
  enum class Splitting { kWords, kStems };
  /// Calls `fn` for each term that FTS5 finds in any bytes, in order, until it returns false.
  Status for_each_term(std::string_view text, Splitting splitting,
                       FunctionRef<bool(std::string_view)> fn);
  /// The words: each once, in order, at most `limit`.
  Result<std::vector<std::string>> terms(std::string_view text, size_t limit);

  /// An SQLite result code as a Status that names the file.
  Status error(int code) const;

 private:
  Database(std::string path, void* connection, LockWait wait)
      : path_(std::move(path)), connection_(connection), wait_(std::move(wait)) {}

  /// With everything set that keeps a hostile file from harm, before its first byte is looked at.
  static Result<std::unique_ptr<Database>> connect(const std::string& path, const std::string& name,
                                                   int flags, LockWait wait);
  /// Readers keep writers from committing only with a rollback journal.
  Status leave_wal();

  /// SQLite asks after every kStepsBetweenChecks steps whether a statement has to end.
  static int must_stop(void* self);
  /// SQLite asks, for the `n_asked`-th time after the first, whether to try for a lock once more.
  static int may_try_again(void* self, int n_asked);

  std::string path_;
  void* connection_;  // sqlite3
  const LockWait wait_;
  void* vfs_ = nullptr;         // sqlite3_vfs
  bool was_cancelled_ = false;  // the last wait, or the statement
  bool is_read_only_ = false;
  bool is_open_ = false;
  std::optional<KnownSchema> known_schema_;
  void* fts5_ = nullptr;      // fts5_api, once it was asked for
  uint64_t steps_ = 0;        // of SQLite's machine since the last statement of ours began
  uint64_t steps_limit_ = 0;  // what a sound file of this size can need
};

/// A transaction; rolled back unless committed.
class Transaction {
 public:
  enum class Kind {
    kRead,   // from its first reading on nobody else's changes are committed
    kWrite,  // waits for other processes' writes first; nobody else writes until it ends
  };
  /// kWrite: kIoError where the file is no longer at its path, and what is written would be lost.
  static Result<Transaction> begin(Database& database, Kind kind = Kind::kWrite);
  /// One to read in, unless one has begun already.
  static Result<std::optional<Transaction>> begin_reading(Database& database);
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  Status commit();

 private:
  explicit Transaction(Database* database) : database_(database) {}
  Database* database_;  // null once committed
};

}  // namespace weft::retrieval
