// The index's schema, and how an index of an older version comes up to it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/function_ref.h"
#include "retrieval/rows_internal.h"

namespace weft::retrieval {
namespace {

constexpr int64_t kApplicationId = 0x77656674;  // "weft", in the file's header

// Version 1. tokens: little-endian int32. chunk_terms finds rows of chunk_source by id; it keeps no
// text.
constexpr const char* kVersion1 = R"(
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
)";

// The first weft made this table before the others; nothing was ever written to it.
constexpr const char* kMeta =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;";

// What version 2 adds. record: the name of the chunk's KV in the store, 16 bytes.
// unneeded_records: those whose last chunk a change took away, until they are removed. hash:
// XXH3-64 over all the row says.
constexpr const char* kVersion2 = R"(
DROP TABLE IF EXISTS meta;
CREATE TABLE settlement(
  id INTEGER PRIMARY KEY CHECK(id = 1), model TEXT NOT NULL, model_name TEXT NOT NULL,
  ropes TEXT NOT NULL, context_tokens INTEGER NOT NULL, prompt TEXT NOT NULL,
  anchor TEXT NOT NULL, anchor_passages TEXT NOT NULL, scope TEXT NOT NULL,
  hash INTEGER NOT NULL);
CREATE TABLE unneeded_records(record BLOB PRIMARY KEY) WITHOUT ROWID;
ALTER TABLE documents ADD COLUMN n_chunks INTEGER NOT NULL DEFAULT 0;
ALTER TABLE documents ADD COLUMN n_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE documents ADD COLUMN hash INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chunks ADD COLUMN record BLOB NOT NULL DEFAULT x'';
ALTER TABLE chunks ADD COLUMN hash INTEGER NOT NULL DEFAULT 0;
CREATE INDEX chunks_by_record ON chunks(record);
)";

// What version 3 adds. pieces: terms for runs of scripts without spaces (unspaced_internal.h), for
// title and text. line_begin, line_end: of the file, from 1, both included; 0: not known. root:
// what was named when the file was ingested. unfinished_roots: of ingests that were begun and have
// not ended well.
constexpr const char* kVersion3 = R"(
ALTER TABLE documents ADD COLUMN root TEXT NOT NULL DEFAULT '';
ALTER TABLE chunks ADD COLUMN line_begin INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chunks ADD COLUMN line_end INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chunks ADD COLUMN pieces TEXT NOT NULL DEFAULT '';
CREATE TABLE unfinished_roots(path TEXT PRIMARY KEY, hash INTEGER NOT NULL) WITHOUT ROWID;
DROP TABLE chunk_terms;
DROP VIEW chunk_source;
CREATE VIEW chunk_source AS
  SELECT chunks.id AS id, document_id, title, text, pieces
  FROM chunks JOIN documents ON documents.id = document_id;
CREATE VIRTUAL TABLE chunk_terms USING fts5(
  title, text, pieces, content='chunk_source', content_rowid='id',
  tokenize='porter unicode61 remove_diacritics 2');
)";

// What version 4 adds: the flags of an ingest that has not ended well. exclude: patterns, each with
// a zero byte after it.
constexpr const char* kVersion4 = R"(
ALTER TABLE unfinished_roots ADD COLUMN exclude BLOB NOT NULL DEFAULT x'';
ALTER TABLE unfinished_roots ADD COLUMN encoding TEXT NOT NULL DEFAULT '';
ALTER TABLE unfinished_roots ADD COLUMN no_ignore INTEGER NOT NULL DEFAULT 0;
ALTER TABLE unfinished_roots ADD COLUMN rehash INTEGER NOT NULL DEFAULT 0;
)";

// What version 5 adds: the type of the records' K and V, by its name.
constexpr const char* kVersion5 =
    "ALTER TABLE settlement ADD COLUMN record_type TEXT NOT NULL DEFAULT 'f16';";

Status not_an_index(const Database& database, const std::string& why = "") {
  return corrupt(database.path() + ": not an index of weft" + why + "; give another --store");
}

/// A row of sqlite_schema: type, name, the table's name, the statement that made it.
using SchemaRow = std::array<std::string, 4>;
using Schema = std::set<SchemaRow>;

/// What a database's schema consists of, in its own words; nothing when there are more than
/// `max_rows`. A value is at most as long as the file, and `fits` is asked after each row.
Result<std::optional<Schema>> read_schema(Database& database, size_t max_rows,
                                          FunctionRef<bool(const SchemaRow&)> fits) {
  WEFT_ASSIGN_OR_RETURN(Statement rows,
                        database.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema"));
  Schema schema;
  for (size_t n = 0;; ++n) {
    WEFT_ASSIGN_OR_RETURN(const bool has_row, rows.step());
    if (!has_row) return std::optional(std::move(schema));
    SchemaRow row{rows.bytes(0), rows.bytes(1), rows.bytes(2), rows.bytes(3)};
    // Two equal rows would be one in a set, so the second one is refused here.
    if (!fits(row) || n == max_rows || !schema.insert(std::move(row)).second) {
      return std::optional<Schema>();
    }
  }
}

/// The schema of a new database in which these statements were run, SQLite's own tables included.
Result<Schema> schema_made_by(std::initializer_list<const char*> statements) {
  WEFT_ASSIGN_OR_RETURN(const auto database, Database::open_in_memory());
  for (const char* sql : statements) WEFT_RETURN_IF_ERROR(database->execute(sql));
  constexpr size_t kAnyNumber = SIZE_MAX;
  const auto any = [](const SchemaRow&) { return true; };
  WEFT_ASSIGN_OR_RETURN(auto schema, read_schema(*database, kAnyNumber, any));
  WEFT_CHECK(schema.has_value());
  return std::move(*schema);
}

/// All schemas that any release of weft made under this version's number.
Result<std::vector<Schema>> schemas_of(int64_t version) {
  std::vector<Schema> schemas;
  if (version == kVersionWithoutHashes) {
    WEFT_ASSIGN_OR_RETURN(schemas.emplace_back(), schema_made_by({kMeta, kVersion1}));
    WEFT_ASSIGN_OR_RETURN(schemas.emplace_back(), schema_made_by({kVersion1}));
  } else if (version == kVersionWithoutLines) {
    WEFT_ASSIGN_OR_RETURN(schemas.emplace_back(), schema_made_by({kVersion1, kVersion2}));
  } else if (version == kVersionWithoutFlags) {
    WEFT_ASSIGN_OR_RETURN(schemas.emplace_back(),
                          schema_made_by({kVersion1, kVersion2, kVersion3}));
  } else if (version == kVersionWithoutTypes) {
    WEFT_ASSIGN_OR_RETURN(schemas.emplace_back(),
                          schema_made_by({kVersion1, kVersion2, kVersion3, kVersion4}));
  } else {
    WEFT_ASSIGN_OR_RETURN(schemas.emplace_back(),
                          schema_made_by({kVersion1, kVersion2, kVersion3, kVersion4, kVersion5}));
  }
  return schemas;
}

/// Before any of the file's tables is read: a view in a table's place, an expression in an index or
/// a column would be run by the queries that read them, and a single one can take hours or all
/// memory. So nothing may be there that weft did not make.
Status check_schema(Database& database, int64_t version) {
  // SQLite itself goes by this number for as long as it stays the same.
  WEFT_ASSIGN_OR_RETURN(const int64_t cookie, read_integer(database, "PRAGMA schema_version"));
  const Database::KnownSchema current{.cookie = cookie, .version = version};
  if (database.known_schema() == current) return Status::ok();
  WEFT_ASSIGN_OR_RETURN(const std::vector<Schema> known, schemas_of(version));
  size_t max_rows = 0;
  for (const Schema& schema : known) max_rows = std::max(max_rows, schema.size());
  std::string foreign;
  const auto is_in_one = [&](const SchemaRow& row) {
    const bool is_known = std::any_of(known.begin(), known.end(),
                                      [&](const Schema& schema) { return schema.contains(row); });
    // One made by a tool that looked at the file (sqlite_stat1) can be dropped, if it is named.
    constexpr size_t kMaxNameBytes = 60;
    if (!is_known) {
      foreign = fmt::format(": weft did not make its {} '{}'", row[0].substr(0, kMaxNameBytes),
                            row[1].substr(0, kMaxNameBytes));
    }
    return is_known;
  };
  WEFT_ASSIGN_OR_RETURN(const auto found, read_schema(database, max_rows, is_in_one));
  if (!found || std::find(known.begin(), known.end(), *found) == known.end()) {
    return not_an_index(database, foreign);
  }
  database.set_known_schema(current);
  return Status::ok();
}

Status set_version(Database& database) {
  return database.execute(fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}",
                                      kApplicationId, kSchemaVersion));
}

}  // namespace

Result<int64_t> schema_version(Database& database) {
  // Together, also while another process brings the index up to date.
  WEFT_ASSIGN_OR_RETURN(const auto reading, Transaction::begin_reading(database));
  WEFT_ASSIGN_OR_RETURN(const int64_t owner, read_integer(database, "PRAGMA application_id"));
  if (owner != kApplicationId) {
    WEFT_ASSIGN_OR_RETURN(const int64_t n_objects,
                          read_integer(database, "SELECT count(*) FROM sqlite_schema"));
    // A first ingest that ended before its first change.
    if (owner == 0 && n_objects == 0) return not_found(database.path() + ": an empty index");
    return not_an_index(database);
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t version, read_integer(database, "PRAGMA user_version"));
  if (version < kVersionWithoutHashes || version > kSchemaVersion) {
    return unsupported(fmt::format(
        "{}: index of version {}, this weft reads versions {} to {}; ingest into a new store",
        database.path(), version, kVersionWithoutHashes, kSchemaVersion));
  }
  WEFT_RETURN_IF_ERROR(check_schema(database, version));
  return version;
}

Result<int64_t> prepare_schema(Database& database, bool create) {
  if (create) {
    WEFT_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(database));
    WEFT_ASSIGN_OR_RETURN(const int64_t n_objects,
                          read_integer(database, "SELECT count(*) FROM sqlite_schema"));
    WEFT_ASSIGN_OR_RETURN(const int64_t owner, read_integer(database, "PRAGMA application_id"));
    if (n_objects == 0 && owner == 0) {
      WEFT_RETURN_IF_ERROR(database.execute(kVersion1));
      WEFT_RETURN_IF_ERROR(database.execute(kVersion2));
      WEFT_RETURN_IF_ERROR(database.execute(kVersion3));
      WEFT_RETURN_IF_ERROR(database.execute(kVersion4));
      WEFT_RETURN_IF_ERROR(database.execute(kVersion5));
      WEFT_RETURN_IF_ERROR(set_version(database));
    }
    WEFT_RETURN_IF_ERROR(transaction.commit());
  }
  return schema_version(database);
}

namespace {

/// To kVersionWithoutFlags, from a version before.
Status upgrade_documents(Database& database, int64_t from) {
  std::vector<Document> documents;
  {
    const Rows old(database.path(), from);
    WEFT_ASSIGN_OR_RETURN(Statement rows, database.prepare(fmt::format("SELECT {} FROM documents d",
                                                                       old.document_columns())));
    ReadLimit limit(database);
    while (true) {
      WEFT_ASSIGN_OR_RETURN(const bool has_row, rows.step());
      if (!has_row) break;
      WEFT_ASSIGN_OR_RETURN(Document document, old.document(rows));
      WEFT_RETURN_IF_ERROR(limit.add(document));
      documents.push_back(std::move(document));
    }
  }
  if (from == kVersionWithoutHashes) WEFT_RETURN_IF_ERROR(database.execute(kVersion2));
  WEFT_RETURN_IF_ERROR(database.execute(kVersion3));
  for (const Document& document : documents) {
    WEFT_RETURN_IF_ERROR(write_document(database, document));
  }
  return Status::ok();
}

/// To kVersionWithoutTypes, from a version before.
Status upgrade_roots(Database& database, int64_t from) {
  std::vector<IngestRoot> roots;
  if (from == kVersionWithoutFlags) {
    WEFT_ASSIGN_OR_RETURN(roots, read_unfinished_roots(database, from));
  } else {
    WEFT_RETURN_IF_ERROR(upgrade_documents(database, from));
  }
  WEFT_RETURN_IF_ERROR(database.execute(kVersion4));
  for (const IngestRoot& root : roots) {
    WEFT_RETURN_IF_ERROR(write_unfinished_root(database, root));
  }
  return Status::ok();
}

}  // namespace

Status upgrade_schema(Database& database, int64_t from) {
  if (from < kVersionWithoutTypes) WEFT_RETURN_IF_ERROR(upgrade_roots(database, from));
  WEFT_RETURN_IF_ERROR(database.execute(kVersion5));
  return set_version(database);
}

}  // namespace weft::retrieval
