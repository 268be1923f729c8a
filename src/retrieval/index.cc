#include "retrieval/index.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "retrieval/database_internal.h"

namespace weft::retrieval {
namespace {

constexpr int64_t kApplicationId = 0x77656674;  // "weft", in the file's header
constexpr int64_t kSchemaVersion = 1;
constexpr int64_t kChunksPerBatch = 64;

// tokens: little-endian int32. chunk_terms finds rows of chunk_source by id; it keeps no text.
constexpr const char* kSchema = R"(
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
)";

constexpr std::string_view kSelectChunk =
    "SELECT id, document_id, ordinal, byte_begin, byte_end, text, tokens, n_tokens FROM chunks ";
constexpr std::string_view kSelectDocument =
    "SELECT id, path, title, size_bytes, modified_ns, content_hash, status,"
    " (SELECT count(*) FROM chunks WHERE document_id = documents.id),"
    " (SELECT ifnull(sum(n_tokens), 0) FROM chunks WHERE document_id = documents.id)"
    " FROM documents ";

static_assert(std::endian::native == std::endian::little);  // token ids are stored as they are

Result<int64_t> read_integer(Database& database, std::string_view sql) {
  WEFT_ASSIGN_OR_RETURN(Statement statement, database.prepare(sql));
  WEFT_ASSIGN_OR_RETURN(const bool has_row, statement.step());
  return has_row ? statement.integer(0) : 0;
}

Result<Chunk> read_chunk(const Statement& row, const std::string& path) {
  Chunk chunk{.id = row.integer(0),
              .document_id = row.integer(1),
              .ordinal = static_cast<int32_t>(row.integer(2)),
              .byte_begin = static_cast<uint64_t>(row.integer(3)),
              .byte_end = static_cast<uint64_t>(row.integer(4)),
              .text = row.bytes(5),
              .tokens = {}};
  const std::string ids = row.bytes(6);
  const int64_t n_tokens = row.integer(7);
  if (ids.size() % sizeof(int32_t) != 0 ||
      static_cast<int64_t>(ids.size() / sizeof(int32_t)) != n_tokens) {
    return corrupt(
        fmt::format("{}: chunk {} has {} bytes of token ids for {} tokens; remove the "
                    "index and ingest again",
                    path, chunk.id, ids.size(), n_tokens));
  }
  chunk.tokens.resize(ids.size() / sizeof(int32_t));
  if (!ids.empty()) std::memcpy(chunk.tokens.data(), ids.data(), ids.size());
  return chunk;
}

Document read_document_row(const Statement& row) {
  return {.id = row.integer(0),
          .info = {.path = row.bytes(1),
                   .title = row.bytes(2),
                   .size_bytes = static_cast<uint64_t>(row.integer(3)),
                   .modified_ns = row.integer(4),
                   .content_hash = row.bytes(5)},
          .status = row.integer(6) == 1 ? DocumentStatus::kStored : DocumentStatus::kCatalogued,
          .n_chunks = row.integer(7),
          .n_tokens = row.integer(8)};
}

/// The id of the document with this path, if there is one.
Result<std::optional<int64_t>> document_id(Database& database, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(Statement find,
                        database.prepare("SELECT id FROM documents WHERE path = ?"));
  WEFT_ASSIGN_OR_RETURN(const bool exists, find.bind_text(path).step());
  return exists ? std::optional(find.integer(0)) : std::nullopt;
}

Status remove_chunks(Database& database, int64_t document) {
  WEFT_ASSIGN_OR_RETURN(
      Statement terms,
      database.prepare(
          "INSERT INTO chunk_terms(chunk_terms, rowid, title, text)"
          " SELECT 'delete', id, title, text FROM chunk_source WHERE document_id = ?"));
  WEFT_RETURN_IF_ERROR(terms.bind(document).run());
  WEFT_ASSIGN_OR_RETURN(Statement chunks,
                        database.prepare("DELETE FROM chunks WHERE document_id = ?"));
  return chunks.bind(document).run();
}

Status insert_chunks(Database& database, int64_t document, std::span<const ChunkText> chunks) {
  WEFT_ASSIGN_OR_RETURN(Statement insert,
                        database.prepare("INSERT INTO chunks(document_id, ordinal, byte_begin,"
                                         " byte_end, text, tokens, n_tokens)"
                                         " VALUES(?, ?, ?, ?, ?, ?, ?)"));
  for (size_t i = 0; i < chunks.size(); ++i) {
    const ChunkText& chunk = chunks[i];
    insert.bind(document).bind(static_cast<int64_t>(i));
    insert.bind(static_cast<int64_t>(chunk.byte_begin)).bind(static_cast<int64_t>(chunk.byte_end));
    insert.bind_text(chunk.text).bind_blob(std::as_bytes(chunk.tokens));
    WEFT_RETURN_IF_ERROR(insert.bind(static_cast<int64_t>(chunk.tokens.size())).run());
  }
  WEFT_ASSIGN_OR_RETURN(
      Statement terms,
      database.prepare("INSERT INTO chunk_terms(rowid, title, text)"
                       " SELECT id, title, text FROM chunk_source WHERE document_id = ?"));
  return terms.bind(document).run();
}

/// Inserts or updates the document's row; returns its id.
Result<int64_t> upsert_document(Database& database, const DocumentInfo& info) {
  WEFT_ASSIGN_OR_RETURN(
      Statement upsert,
      database.prepare(
          "INSERT INTO documents(path, title, size_bytes, modified_ns, content_hash, status)"
          " VALUES(?, ?, ?, ?, ?, 0) ON CONFLICT(path) DO UPDATE SET title = excluded.title,"
          " size_bytes = excluded.size_bytes, modified_ns = excluded.modified_ns,"
          " content_hash = excluded.content_hash, status = 0 RETURNING id"));
  upsert.bind_text(info.path).bind_text(info.title).bind(static_cast<int64_t>(info.size_bytes));
  upsert.bind(info.modified_ns).bind_text(info.content_hash);
  WEFT_ASSIGN_OR_RETURN(const bool has_row, upsert.step());
  if (!has_row) return io_error(database.path() + ": the document was not stored");
  return upsert.integer(0);
}

/// Makes the schema in a new file; refuses a file that is somebody else's or of another version.
Status prepare_schema(Database& database, bool create) {
  if (create) {
    WEFT_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(database));
    WEFT_ASSIGN_OR_RETURN(const int64_t n_objects,
                          read_integer(database, "SELECT count(*) FROM sqlite_schema"));
    WEFT_ASSIGN_OR_RETURN(const int64_t owner, read_integer(database, "PRAGMA application_id"));
    if (n_objects == 0 && owner == 0) {
      WEFT_RETURN_IF_ERROR(database.execute(kSchema));
      WEFT_RETURN_IF_ERROR(database.execute(fmt::format(
          "PRAGMA application_id = {}; PRAGMA user_version = {}", kApplicationId, kSchemaVersion)));
    }
    WEFT_RETURN_IF_ERROR(transaction.commit());
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t owner, read_integer(database, "PRAGMA application_id"));
  if (owner != kApplicationId) {
    return corrupt(database.path() + ": not an index of weft; give another --store");
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t version, read_integer(database, "PRAGMA user_version"));
  if (version != kSchemaVersion) {
    return unsupported(
        fmt::format("{}: index of version {}, this weft reads version {}; ingest into a new store",
                    database.path(), version, kSchemaVersion));
  }
  for (const char* table : {"meta", "documents", "chunks", "chunk_terms"}) {
    const auto readable = database.prepare(fmt::format("SELECT * FROM {} LIMIT 1", table));
    WEFT_RETURN_IF_ERROR(readable.status());
  }
  return Status::ok();
}

}  // namespace

struct Index::State {
  std::unique_ptr<Database> database;
  Mode mode;
};

Index::Index(std::unique_ptr<State> state) : state_(std::move(state)) {}
Index::~Index() = default;

Result<std::unique_ptr<Index>> Index::open(const std::string& path, Mode mode) {
  const bool create = mode == Mode::kCreate;
  WEFT_ASSIGN_OR_RETURN(auto database, Database::open(path, create, mode == Mode::kReadOnly));
  WEFT_RETURN_IF_ERROR(prepare_schema(*database, create));
  return std::unique_ptr<Index>(
      new Index(std::make_unique<State>(State{std::move(database), mode})));
}

Result<std::optional<std::string>> Index::meta(std::string_view key) {
  WEFT_ASSIGN_OR_RETURN(Statement find,
                        state_->database->prepare("SELECT value FROM meta WHERE key = ?"));
  WEFT_ASSIGN_OR_RETURN(const bool exists, find.bind_text(key).step());
  return exists ? std::optional(find.bytes(0)) : std::nullopt;
}

Status Index::set_meta(std::string_view key, std::string_view value) {
  WEFT_ASSIGN_OR_RETURN(
      Statement put,
      state_->database->prepare("INSERT INTO meta(key, value) VALUES(?, ?)"
                                " ON CONFLICT(key) DO UPDATE SET value = excluded.value"));
  return put.bind_text(key).bind_blob(std::as_bytes(std::span(value))).run();
}

Result<int64_t> Index::replace_document(const DocumentInfo& info,
                                        std::span<const ChunkText> chunks) {
  Database& database = *state_->database;
  WEFT_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(database));
  WEFT_ASSIGN_OR_RETURN(const auto known, document_id(database, info.path));
  // Before the row changes: the search index is told the old title with the old text.
  if (known) WEFT_RETURN_IF_ERROR(remove_chunks(database, *known));
  WEFT_ASSIGN_OR_RETURN(const int64_t id, upsert_document(database, info));
  WEFT_RETURN_IF_ERROR(insert_chunks(database, id, chunks));
  WEFT_RETURN_IF_ERROR(transaction.commit());
  return id;
}

Status Index::set_document_status(int64_t document, DocumentStatus status) {
  WEFT_ASSIGN_OR_RETURN(
      Statement update,
      state_->database->prepare("UPDATE documents SET status = ? WHERE id = ? RETURNING id"));
  WEFT_ASSIGN_OR_RETURN(const bool exists,
                        update.bind(static_cast<int64_t>(status)).bind(document).step());
  if (!exists) {
    return not_found(fmt::format("{}: no document {}", state_->database->path(), document));
  }
  return update.run();
}

Status Index::touch_document(const DocumentInfo& info) {
  WEFT_ASSIGN_OR_RETURN(Statement update, state_->database->prepare(
                                              "UPDATE documents SET size_bytes = ?, modified_ns = ?"
                                              " WHERE path = ? RETURNING id"));
  update.bind(static_cast<int64_t>(info.size_bytes)).bind(info.modified_ns);
  WEFT_ASSIGN_OR_RETURN(const bool exists, update.bind_text(info.path).step());
  if (!exists) return not_found(state_->database->path() + ": no document " + info.path);
  return update.run();
}

Status Index::remove_document(const std::string& path) {
  Database& database = *state_->database;
  WEFT_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(database));
  WEFT_ASSIGN_OR_RETURN(const auto id, document_id(database, path));
  if (!id) return not_found(database.path() + ": no document " + path);
  WEFT_RETURN_IF_ERROR(remove_chunks(database, *id));
  WEFT_ASSIGN_OR_RETURN(Statement remove, database.prepare("DELETE FROM documents WHERE id = ?"));
  WEFT_RETURN_IF_ERROR(remove.bind(*id).run());
  return transaction.commit();
}

Result<std::vector<Document>> Index::documents() {
  WEFT_ASSIGN_OR_RETURN(Statement rows,
                        state_->database->prepare(std::string(kSelectDocument) + "ORDER BY path"));
  std::vector<Document> documents;
  while (true) {
    WEFT_ASSIGN_OR_RETURN(const bool has_row, rows.step());
    if (!has_row) return documents;
    documents.push_back(read_document_row(rows));
  }
}

Result<std::optional<Document>> Index::find_document(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(Statement row,
                        state_->database->prepare(std::string(kSelectDocument) + "WHERE path = ?"));
  WEFT_ASSIGN_OR_RETURN(const bool exists, row.bind_text(path).step());
  return exists ? std::optional(read_document_row(row)) : std::nullopt;
}

Result<std::vector<Chunk>> Index::chunks_of(int64_t document) {
  WEFT_ASSIGN_OR_RETURN(Statement rows,
                        state_->database->prepare(std::string(kSelectChunk) +
                                                  "WHERE document_id = ? ORDER BY ordinal"));
  rows.bind(document);
  std::vector<Chunk> chunks;
  while (true) {
    WEFT_ASSIGN_OR_RETURN(const bool has_row, rows.step());
    if (!has_row) return chunks;
    WEFT_ASSIGN_OR_RETURN(Chunk chunk, read_chunk(rows, state_->database->path()));
    chunks.push_back(std::move(chunk));
  }
}

Result<Chunk> Index::chunk(int64_t id) {
  WEFT_ASSIGN_OR_RETURN(Statement row,
                        state_->database->prepare(std::string(kSelectChunk) + "WHERE id = ?"));
  WEFT_ASSIGN_OR_RETURN(const bool exists, row.bind(id).step());
  if (!exists) return not_found(fmt::format("{}: no chunk {}", state_->database->path(), id));
  return read_chunk(row, state_->database->path());
}

Result<Counts> Index::counts() {
  WEFT_ASSIGN_OR_RETURN(
      Statement row, state_->database->prepare("SELECT (SELECT count(*) FROM documents), count(*),"
                                               " ifnull(sum(n_tokens), 0) FROM chunks"));
  WEFT_RETURN_IF_ERROR(row.step().status());
  return Counts{row.integer(0), row.integer(1), row.integer(2)};
}

Status Index::all_chunks(FunctionRef<Status(const Chunk&)> fn) {
  for (int64_t after = 0;;) {
    std::vector<Chunk> batch;
    {
      WEFT_ASSIGN_OR_RETURN(Statement rows,
                            state_->database->prepare(std::string(kSelectChunk) +
                                                      "WHERE id > ? ORDER BY id LIMIT ?"));
      rows.bind(after).bind(kChunksPerBatch);
      while (true) {
        WEFT_ASSIGN_OR_RETURN(const bool has_row, rows.step());
        if (!has_row) break;
        WEFT_ASSIGN_OR_RETURN(Chunk chunk, read_chunk(rows, state_->database->path()));
        batch.push_back(std::move(chunk));
      }
    }
    if (batch.empty()) return Status::ok();
    after = batch.back().id;
    for (const Chunk& chunk : batch) WEFT_RETURN_IF_ERROR(fn(chunk));
  }
}

Result<std::vector<Hit>> Index::search(std::string_view question, int k) {
  Database& database = *state_->database;
  WEFT_ASSIGN_OR_RETURN(const auto terms, database.terms(question, kMaxQueryTerms));
  std::vector<Hit> hits;
  if (terms.empty() || k <= 0) return hits;
  std::string any;
  for (const std::string& term : terms) any += (any.empty() ? "\"" : " OR \"") + term + '"';

  WEFT_ASSIGN_OR_RETURN(
      Statement rows,
      database.prepare("SELECT c.id, c.document_id, c.ordinal, c.byte_begin, c.byte_end, c.text,"
                       " c.tokens, c.n_tokens, d.path, d.title, best.score FROM"
                       " (SELECT chunk_terms.rowid AS id, bm25(chunk_terms) AS score"
                       "  FROM chunk_terms CROSS JOIN chunks ON chunks.id = chunk_terms.rowid"
                       "  CROSS JOIN documents ON documents.id = chunks.document_id"
                       "  WHERE chunk_terms MATCH ?1 ORDER BY score, path, ordinal LIMIT ?2) best"
                       " JOIN chunks c ON c.id = best.id JOIN documents d ON d.id = c.document_id"
                       " ORDER BY best.score, d.path, c.ordinal"));
  rows.bind_text(any).bind(k);
  while (true) {
    WEFT_ASSIGN_OR_RETURN(const bool has_row, rows.step());
    if (!has_row) return hits;
    WEFT_ASSIGN_OR_RETURN(Chunk chunk, read_chunk(rows, database.path()));
    hits.push_back({std::move(chunk), rows.bytes(8), rows.bytes(9), -rows.real(10)});
  }
}

Status Index::verify() {
  Database& database = *state_->database;
  {
    WEFT_ASSIGN_OR_RETURN(Statement check, database.prepare("PRAGMA integrity_check(1)"));
    WEFT_RETURN_IF_ERROR(check.step().status());
    std::string found = check.bytes(0);
    std::replace(found.begin(), found.end(), '\n', ' ');
    if (found != "ok") {
      return corrupt(database.path() + ": damaged (" + found + "); remove it and ingest again");
    }
  }
  if (state_->mode != Mode::kReadOnly) {  // SQLite takes this check for a write
    WEFT_RETURN_IF_ERROR(database.execute(
        "INSERT INTO chunk_terms(chunk_terms, rank) VALUES('integrity-check', 1)"));
  }
  return all_chunks([](const Chunk&) { return Status::ok(); });
}

}  // namespace weft::retrieval
