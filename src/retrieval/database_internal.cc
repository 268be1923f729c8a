// SQLite, set up for a file that may be hostile and a machine that may lose power.
//
// The rollback journal is used and not WAL: WAL needs two more files that a reader must be able to
// write, and a store in a read-only folder could not be asked. Readers block a writer's commit for
// a moment in exchange, which is also used: Transaction::Kind::kRead keeps others from committing.
//
// A file from elsewhere can make SQLite loop (pages that refer to each other), allocate (lengths)
// or run code of the file's author (views, triggers, expressions in its schema). Hence the limits
// on lengths and on steps, DEFENSIVE, no trusted schema and no triggers, all set before the first
// byte of the file is read; what the schema may contain is checked in schema.cc. Paths are resolved
// and checked for links first, because SQLite would create a journal beside whatever a link leads
// to.
#include "retrieval/database_internal.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <unordered_set>
#include <utility>

#include "base/check.h"

namespace weft::retrieval {
namespace {

constexpr int kMsBetweenTries = 10;  // for a lock that another process holds

// A value is at most as long as its file, but one that is to be written may be longer than the file
// is now: hence the least limit.
constexpr int64_t kMaxValueBytes = 64 << 20;
constexpr int64_t kMaxValueBytesAtLeast = 16 << 20;
constexpr int kMaxSqlBytes = 64 << 10;  // of a statement, and of each one in a file's schema

// A row is some 50 bytes or more, and no statement of ours takes 100 steps for one.
constexpr uint64_t kStepsPerByte = 8;
constexpr uint64_t kStepsAtLeast = 2'000'000;
constexpr int kStepsBetweenChecks = 1000;  // between two calls of must_stop

// synchronous: EXTRA also syncs the folder after the journal was removed. With FULL a power cut can
// bring the journal back, and with it what a finished change had deleted.
// temp_store: documents' text does not go to /tmp. secure_delete: deleted rows are overwritten.
constexpr const char* kSettings =
    "PRAGMA foreign_keys = ON; PRAGMA synchronous = EXTRA; PRAGMA secure_delete = ON;"
    "PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON;";

sqlite3_stmt* as_statement(void* statement) { return static_cast<sqlite3_stmt*>(statement); }
sqlite3* as_connection(void* connection) { return static_cast<sqlite3*>(connection); }

/// Makes the removal of a journal durable. The last writer may have died before it did that, and a
/// power cut would then bring the journal back and undo its change, on which this one builds.
Status sync_folder(Env& env, const std::string& path) {
  return env.sync_dir(std::filesystem::path(path).parent_path().string());
}

/// Makes an empty file for its owner alone, where there is none; SQLite would make one that all may
/// read. mknod, because it opens nothing: closing a descriptor of the file would end the locks that
/// this process's other connections have on it. Where it fails SQLite finds out why.
void make_private(const std::string& path) { (void)::mknod(path.c_str(), S_IFREG | 0600, 0); }

/// The file's path with the links of its folder resolved, so that SQLite can be told to refuse
/// links (SQLITE_OPEN_NOFOLLOW refuses them anywhere in a path).
Result<std::string> without_links(const std::string& path) {
  const std::filesystem::path file(path);
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  auto resolved = posix_env().resolve(folder);
  if (!resolved.is_ok()) {
    return Status(resolved.status().code(),
                  fmt::format("{}: cannot open the index: {}", path, resolved.status().message()));
  }
  return join_path(*resolved, file.filename().string());
}

/// Refuses links, pipes and devices in place of the index's files: through a link planted there
/// weft would create, fill or remove somebody else's file.
Status refuse_special_files(const std::string& name) {
  for (const char* side : {"", "-journal", "-wal", "-shm"}) {
    const std::string path = name + side;
    struct stat file {};
    if (::lstat(path.c_str(), &file) != 0 || S_ISREG(file.st_mode)) continue;
    return invalid_argument(
        S_ISLNK(file.st_mode)
            ? path + ": a symbolic link, which is not followed here; remove it"
            : path + ": in the place of a file of the index, but no regular file; remove it");
  }
  return Status::ok();
}

/// A journal may name a file that SQLite removes once it has undone the change (of a transaction
/// over several databases). None of weft's does.
Status refuse_journal_of_several_files(const std::string& name) {
  // https://sqlite.org/fileformat2.html#the_rollback_journal: such a journal ends with this, too.
  constexpr std::array<unsigned char, 8> kMagic = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
  const std::string path = name + "-journal";
  const auto journal = posix_env().open_read(path, Links::kRefuse);
  if (!journal.is_ok() || (*journal)->size_bytes() < kMagic.size()) return Status::ok();
  std::array<std::byte, kMagic.size()> end{};
  const bool was_read = (*journal)->read_at((*journal)->size_bytes() - end.size(), end).is_ok();
  if (!was_read || std::memcmp(end.data(), kMagic.data(), end.size()) != 0) return Status::ok();
  return corrupt(path + ": not a journal that weft made; remove it");
}

/// Whether the file's header says that it has a write-ahead log. Through SQLite's own descriptor:
/// see make_private.
bool says_wal(sqlite3* connection) {
  sqlite3_file* file = nullptr;
  std::array<unsigned char, 20> header{};
  if (sqlite3_file_control(connection, "main", SQLITE_FCNTL_FILE_POINTER,
                           static_cast<void*>(&file)) != SQLITE_OK ||
      file == nullptr || file->pMethods == nullptr) {
    return false;
  }
  if (file->pMethods->xRead(file, header.data(), header.size(), 0) != SQLITE_OK) return false;
  return header[18] == 2 || header[19] == 2;
}

/// SQLite's message in one short line of ASCII: it may quote a damaged schema at length.
std::string short_line(std::string message) {
  constexpr size_t kMaxBytes = 120;
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) >= 0x7f) c = ' ';
  }
  return message.size() <= kMaxBytes ? message : message.substr(0, kMaxBytes) + " …";
}

/// What xTokenize calls back with.
struct TermReader {
  FunctionRef<bool(std::string_view)> fn;

  static int read(void* self, int /*flags*/, const char* token, int n_bytes, int /*begin*/,
                  int /*end*/) {
    const auto& reader = *static_cast<TermReader*>(self);
    return reader.fn({token, static_cast<size_t>(n_bytes)}) ? SQLITE_OK : SQLITE_DONE;
  }
};

}  // namespace

Statement::Statement(Statement&& other) noexcept
    : database_(other.database_),
      statement_(std::exchange(other.statement_, nullptr)),
      next_parameter_(other.next_parameter_),
      bind_error_(other.bind_error_) {}

Statement::~Statement() { sqlite3_finalize(as_statement(statement_)); }

Statement& Statement::bind(int64_t value) {
  const int code = sqlite3_bind_int64(as_statement(statement_), next_parameter_++, value);
  if (code != SQLITE_OK) bind_error_ = code;
  return *this;
}

Statement& Statement::bind_text(std::string_view value) {
  const char* const data = value.empty() ? "" : value.data();  // null would bind NULL
  const int code = sqlite3_bind_text64(as_statement(statement_), next_parameter_++, data,
                                       value.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  if (code != SQLITE_OK) bind_error_ = code;
  return *this;
}

Statement& Statement::bind_blob(std::span<const std::byte> value) {
  const void* const data = value.empty() ? static_cast<const void*>("") : value.data();
  const int code = sqlite3_bind_blob64(as_statement(statement_), next_parameter_++, data,
                                       value.size(), SQLITE_TRANSIENT);
  if (code != SQLITE_OK) bind_error_ = code;
  return *this;
}

Result<bool> Statement::step() {
  if (bind_error_ != SQLITE_OK) return database_.error(bind_error_);
  const int code = sqlite3_step(as_statement(statement_));
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return database_.error(code);
}

Status Statement::run() {
  while (true) {
    WEFT_ASSIGN_OR_RETURN(const bool has_row, step());
    if (!has_row) break;
  }
  sqlite3_reset(as_statement(statement_));
  next_parameter_ = 1;
  return Status::ok();
}

int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(as_statement(statement_), column);
}

double Statement::real(int column) const {
  return sqlite3_column_double(as_statement(statement_), column);
}

std::string Statement::bytes(int column) const {
  const void* const data = sqlite3_column_blob(as_statement(statement_), column);
  const int n_bytes = sqlite3_column_bytes(as_statement(statement_), column);
  return data == nullptr
             ? std::string()
             : std::string(static_cast<const char*>(data), static_cast<size_t>(n_bytes));
}

Result<std::unique_ptr<Database>> Database::open(const std::string& path, bool create,
                                                 bool read_only, Env& env, LockWait wait) {
  if (path.empty()) return invalid_argument("the index needs a file name");
  // An absolute path also keeps SQLite from reading names such as ":memory:" or "file:x?mode=ro" in
  // its own way.
  WEFT_ASSIGN_OR_RETURN(const std::string name, without_links(path));
  WEFT_RETURN_IF_ERROR(refuse_special_files(name));
  WEFT_RETURN_IF_ERROR(refuse_journal_of_several_files(name));
  // A read-only connection could not undo what a killed writer left: open for writing where
  // possible (SQLite falls back by itself), then refuse changes.
  int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW;
  if (create) flags |= SQLITE_OPEN_CREATE;
  if (create) make_private(name);
  WEFT_ASSIGN_OR_RETURN(auto database, connect(path, name, flags, std::move(wait)));
  database->is_read_only_ = read_only;
  sqlite3* const connection = as_connection(database->connection_);
  if (says_wal(connection) && database->is_read_only()) {
    return unsupported(path +
                       ": has a write-ahead log (WAL), which weft never makes and reading only "
                       "cannot undo; weft ingest, run once by its owner, does");
  }
  WEFT_RETURN_IF_ERROR(database->execute(kSettings));
  if (read_only) WEFT_RETURN_IF_ERROR(database->execute("PRAGMA query_only = ON"));
  if (!database->is_read_only()) {
    WEFT_RETURN_IF_ERROR(database->leave_wal());
    WEFT_RETURN_IF_ERROR(sync_folder(env, name));
  }
  return database;
}

Result<std::unique_ptr<Database>> Database::open_in_memory() {
  return connect(":memory:", ":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY, {});
}

Result<std::unique_ptr<Database>> Database::connect(const std::string& path,
                                                    const std::string& name, int flags,
                                                    LockWait wait) {
  sqlite3* connection = nullptr;
  errno = 0;  // SQLite notes it for error(), and it may be set from before
  const int code = sqlite3_open_v2(name.c_str(), &connection, flags, nullptr);
  if (connection == nullptr) return resource_exhausted(path + ": no memory to open the index");
  std::unique_ptr<Database> database(new Database(path, connection, std::move(wait)));
  if (code != SQLITE_OK) return database->error(code);
  database->is_open_ = true;
  // Sleeping between tries goes through SQLite's file system, so that tests can simulate the clock.
  sqlite3_file_control(connection, "main", SQLITE_FCNTL_VFS_POINTER,
                       static_cast<void*>(&database->vfs_));
  sqlite3_extended_result_codes(connection, 1);
  sqlite3_busy_handler(connection, may_try_again, database.get());
  const int64_t longest = std::clamp(database->file_bytes(), kMaxValueBytesAtLeast, kMaxValueBytes);
  sqlite3_limit(connection, SQLITE_LIMIT_LENGTH, static_cast<int>(longest));
  sqlite3_limit(connection, SQLITE_LIMIT_SQL_LENGTH, kMaxSqlBytes);
  sqlite3_limit(connection, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_progress_handler(connection, kStepsBetweenChecks, must_stop, database.get());
  sqlite3_db_config(connection, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(connection, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(connection, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  return database;
}

Status Database::leave_wal() {
  WEFT_ASSIGN_OR_RETURN(Statement mode, prepare("PRAGMA journal_mode = DELETE"));
  // SQLite does not wait here by itself for others to close the file.
  Status changed = mode.step().status();
  for (int n = 0; changed.code() == StatusCode::kResourceExhausted; ++n) {
    if (may_try_again(this, n) == 0) return error(SQLITE_BUSY);
    changed = mode.step().status();
  }
  WEFT_RETURN_IF_ERROR(changed);
  const std::string now = mode.bytes(0);
  if (now == "delete") return Status::ok();
  return unsupported(
      fmt::format("{}: its journal is kept as '{}', and cannot be changed to what "
                  "weft relies on; end whatever else uses it",
                  path_, short_line(now)));
}

Database::~Database() {
  WEFT_CHECK(sqlite3_close(as_connection(connection_)) == SQLITE_OK);  // else a statement outlived
}

int64_t Database::file_bytes() const {
  struct stat file {};
  return ::stat(path_.c_str(), &file) == 0 ? file.st_size : 0;
}

bool Database::is_in_transaction() const {
  return sqlite3_get_autocommit(as_connection(connection_)) == 0;
}

int Database::must_stop(void* self) {
  auto& database = *static_cast<Database*>(self);
  database.was_cancelled_ = database.wait_.cancelled && database.wait_.cancelled();
  if (database.was_cancelled_) return 1;
  database.steps_ += kStepsBetweenChecks;
  if (database.steps_ <= std::max(database.steps_limit_, kStepsAtLeast)) return 0;
  // It may have grown.
  database.steps_limit_ = static_cast<uint64_t>(database.file_bytes()) * kStepsPerByte;
  return database.steps_ > std::max(database.steps_limit_, kStepsAtLeast) ? 1 : 0;
}

int Database::may_try_again(void* self, int n_asked) {
  auto& database = *static_cast<Database*>(self);
  database.was_cancelled_ = database.wait_.cancelled && database.wait_.cancelled();
  if (database.was_cancelled_) return 0;
  if (int64_t{n_asked} * kMsBetweenTries >= database.wait_.limit_ms) return 0;
  auto* const vfs = static_cast<sqlite3_vfs*>(database.vfs_);
  vfs->xSleep(vfs, kMsBetweenTries * 1000);
  return 1;
}

bool Database::has_moved() const {
  int moved = 0;  // stays so where there is no file
  sqlite3_file_control(as_connection(connection_), "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  return moved != 0;
}

Status Database::execute(const std::string& sql) {
  steps_ = 0;
  const int code = sqlite3_exec(as_connection(connection_), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? Status::ok() : error(code);
}

Result<Statement> Database::prepare(std::string_view sql) {
  steps_ = 0;
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(as_connection(connection_), sql.data(),
                                      static_cast<int>(sql.size()), &statement, nullptr);
  if (code != SQLITE_OK) return error(code);
  return Statement(*this, statement);
}

bool Database::is_read_only() const {
  return is_read_only_ || sqlite3_db_readonly(as_connection(connection_), "main") == 1;
}

Status Database::for_each_term(std::string_view text, Splitting splitting,
                               FunctionRef<bool(std::string_view)> fn) {
  int code = SQLITE_OK;
  if (fts5_ == nullptr) {
    // How an application gets at FTS5's C interface: https://sqlite.org/fts5.html#extending_fts5
    sqlite3_stmt* raw = nullptr;
    code = sqlite3_prepare_v2(as_connection(connection_), "SELECT fts5(?1)", -1, &raw, nullptr);
    if (code != SQLITE_OK) return error(code);
    Statement statement(*this, raw);
    sqlite3_bind_pointer(raw, 1, static_cast<void*>(&fts5_), "fts5_api_ptr", nullptr);
    WEFT_RETURN_IF_ERROR(statement.step().status());
    if (fts5_ == nullptr) return unsupported("this SQLite was built without FTS5");
  }
  auto* const api = static_cast<fts5_api*>(fts5_);

  fts5_tokenizer tokenizer{};
  void* context = nullptr;
  const bool stems = splitting == Splitting::kStems;
  code = api->xFindTokenizer(api, stems ? "porter" : "unicode61", &context, &tokenizer);
  if (code != SQLITE_OK) return error(code);
  const char* of_words[] = {"remove_diacritics", "2"};  // as in the index's schema
  const char* of_stems[] = {"unicode61", "remove_diacritics", "2"};
  Fts5Tokenizer* instance = nullptr;
  code = tokenizer.xCreate(context, stems ? of_stems : of_words, stems ? 3 : 2, &instance);
  if (code != SQLITE_OK) return error(code);
  TermReader reader{fn};
  code = tokenizer.xTokenize(instance, &reader, FTS5_TOKENIZE_QUERY, text.data(),
                             static_cast<int>(std::min<size_t>(text.size(), INT_MAX)),
                             TermReader::read);
  tokenizer.xDelete(instance);
  return code == SQLITE_OK || code == SQLITE_DONE ? Status::ok() : error(code);
}

Result<std::vector<std::string>> Database::terms(std::string_view text, size_t limit) {
  std::vector<std::string> terms;
  std::unordered_set<std::string> seen;
  WEFT_RETURN_IF_ERROR(for_each_term(text, Splitting::kWords, [&](std::string_view term) {
    const auto [kept, is_new] = seen.emplace(term);
    if (is_new) terms.push_back(*kept);
    return terms.size() < limit;
  }));
  return terms;
}

Status Database::error(int code) const {
  const std::string message = short_line(sqlite3_errmsg(as_connection(connection_)));
  switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
    case SQLITE_ERROR:  // our own statements do not fit what is in the file
    case SQLITE_MISMATCH:
    case SQLITE_CONSTRAINT:  // our own rows fit each other
    case SQLITE_INTERNAL:
    case SQLITE_INTERRUPT:  // by must_stop
      if ((code & 0xff) == SQLITE_INTERRUPT && was_cancelled_) {
        return cancelled(path_ + ": stopped");
      }
      return corrupt(
          fmt::format("{}: damaged, or not an index of weft ({}); remove it and ingest "
                      "again",
                      path_, message));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      if (was_cancelled_) return cancelled(path_ + ": stopped waiting for another process");
      return resource_exhausted(fmt::format(
          "{}: in use by another process for over {} s; try again when that has finished", path_,
          wait_.limit_ms / 1000));
    case SQLITE_FULL:
    case SQLITE_NOMEM:
    case SQLITE_TOOBIG:
      return resource_exhausted(fmt::format("{}: {}", path_, message));
    case SQLITE_READONLY:
      return io_error(
          code == SQLITE_READONLY_ROLLBACK
              ? fmt::format("{}: an ingest was interrupted, and to undo its last change the folder "
                            "must be writable: ask once where it is",
                            path_)
              : fmt::format("{}: the index may not be written ({})", path_, message));
    case SQLITE_CANTOPEN: {
      // Of an open index it is the journal, and no row: "not found" is what rows are.
      const int why = sqlite3_system_errno(as_connection(connection_));
      const std::string reason = why == 0 ? message : std::strerror(why);
      if (is_open_) return io_error(fmt::format("{}: cannot open its journal: {}", path_, reason));
      if (why == ENOENT) {
        return not_found(fmt::format("{}: cannot open the index: {}", path_, message));
      }
      return io_error(fmt::format("{}: cannot open the index: {}", path_, reason));
    }
    default:
      return io_error(fmt::format("{}: {} (SQLite {})", path_, message, code));
  }
}

Result<Transaction> Transaction::begin(Database& database, Kind kind) {
  // IMMEDIATE: what a change reads before it writes nobody else can change in between.
  WEFT_RETURN_IF_ERROR(database.execute(kind == Kind::kWrite ? "BEGIN IMMEDIATE" : "BEGIN"));
  Transaction begun(&database);
  if (kind == Kind::kWrite && database.has_moved()) {
    return io_error(database.path() + ": was removed or replaced meanwhile; run this again");
  }
  return begun;
}

Result<std::optional<Transaction>> Transaction::begin_reading(Database& database) {
  if (database.is_in_transaction()) return std::optional<Transaction>();
  WEFT_ASSIGN_OR_RETURN(Transaction begun, begin(database, Kind::kRead));
  return std::optional<Transaction>(std::move(begun));
}

Transaction::Transaction(Transaction&& other) noexcept
    : database_(std::exchange(other.database_, nullptr)) {}

Transaction::~Transaction() {
  // Fails only where SQLite has rolled back by itself already.
  if (database_ != nullptr) (void)database_->execute("ROLLBACK");
}

Status Transaction::commit() {
  WEFT_RETURN_IF_ERROR(database_->execute("COMMIT"));
  database_ = nullptr;
  return Status::ok();
}

}  // namespace weft::retrieval
