// SQLite behind plain types: a connection, a statement, a transaction, and FTS5's own splitting of
// text into terms. Internal to this room; the one place that knows SQLite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

/// One connection. One thread at a time. Not movable: statements refer to it.
class Database {
 public:
  /// `create`: makes the file when it is missing. `read_only`: refuses changes, but still undoes
  /// what a killed writer left half done where the folder allows it.
  static Result<std::unique_ptr<Database>> open(const std::string& path, bool create,
                                                bool read_only);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  /// One or more statements without parameters; rows are discarded.
  Status execute(const std::string& sql);
  Result<Statement> prepare(std::string_view sql);
  int64_t last_insert_id() const;
  const std::string& path() const { return path_; }

  /// The terms that FTS5's tokenizer unicode61 finds in any bytes, folded as the index folds them:
  /// each once, in order, at most `limit`.
  Result<std::vector<std::string>> terms(std::string_view text, size_t limit);

  /// An SQLite result code as a Status that names the file.
  Status error(int code) const;

 private:
  Database(std::string path, void* connection) : path_(std::move(path)), connection_(connection) {}

  std::string path_;
  void* connection_;  // sqlite3
};

/// A write transaction; rolled back unless committed.
class Transaction {
 public:
  /// Waits for other processes' writes first.
  static Result<Transaction> begin(Database& database);
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  Status commit();

 private:
  explicit Transaction(Database* database) : database_(database) {}
  Database* database_;  // null once committed
};

}  // namespace weft::retrieval
