// The index's schema, and how an index of an older version comes up to it.
#include <fmt/format.h>

#include <vector>

#include "retrieval/rows_internal.h"

namespace weft::retrieval {
namespace {

constexpr int64_t kApplicationId = 0x77656674;  // "weft", in the file's header

// Version 1. tokens: little-endian int32. chunk_terms finds rows of chunk_source by id; it keeps no
// text. (A version-1 file also has a table meta that nothing was ever written to.)
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

Status set_version(Database& database) {
  return database.execute(fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}",
                                      kApplicationId, kSchemaVersion));
}

}  // namespace

Result<int64_t> schema_version(Database& database) {
  WEFT_ASSIGN_OR_RETURN(const int64_t owner, read_integer(database, "PRAGMA application_id"));
  if (owner != kApplicationId) {
    return corrupt(database.path() + ": not an index of weft; give another --store");
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t version, read_integer(database, "PRAGMA user_version"));
  if (version < kOldVersion || version > kSchemaVersion) {
    return unsupported(fmt::format(
        "{}: index of version {}, this weft reads versions {} to {}; ingest into a new store",
        database.path(), version, kOldVersion, kSchemaVersion));
  }
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
      WEFT_RETURN_IF_ERROR(set_version(database));
    }
    WEFT_RETURN_IF_ERROR(transaction.commit());
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t version, schema_version(database));
  for (const char* table : {"documents", "chunks", "chunk_terms"}) {
    const auto readable = database.prepare(fmt::format("SELECT * FROM {} LIMIT 1", table));
    WEFT_RETURN_IF_ERROR(readable.status());
  }
  return version;
}

Status upgrade_schema(Database& database) {
  std::vector<Document> documents;
  {
    const Rows old(database.path(), kOldVersion);
    WEFT_ASSIGN_OR_RETURN(Statement rows, database.prepare(fmt::format("SELECT {} FROM documents d",
                                                                       old.document_columns())));
    while (true) {
      WEFT_ASSIGN_OR_RETURN(const bool has_row, rows.step());
      if (!has_row) break;
      WEFT_ASSIGN_OR_RETURN(Document document, old.document(rows));
      documents.push_back(std::move(document));
    }
  }
  WEFT_RETURN_IF_ERROR(database.execute(kVersion2));
  for (const Document& document : documents) {
    WEFT_RETURN_IF_ERROR(write_document(database, document));
  }
  return set_version(database);
}

}  // namespace weft::retrieval
