// Each change is one write transaction that first checks that the index is still the one that was
// opened: another process may have settled it anew or replaced the file (begin_change). Each
// reading is one read transaction that checks the schema, so that all of its queries see one
// snapshot.
//
// Records in the store and rows here are two systems that no transaction spans. The order makes up
// for it: a change that removes a record's last chunk notes the record's name in `unneeded_records`
// in the same transaction; the record is removed later, under the write lock, and only then is the
// note erased (sweep). A process that dies in between leaves the note, and the next one that opens
// the index removes the record. Removing the file first and the row after would leave rows without
// KV, and without the note records that no row knows.
//
// The search index (chunk_terms) keeps no text of its own. It is told what to forget with the very
// title and text that it was told to add, which is why a chunk's terms are removed before its row
// or its document's title changes.
#include "retrieval/index.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "retrieval/index_state_internal.h"

namespace weft::retrieval {
namespace {

constexpr int64_t kChunksPerBatch = 64;  // read in one transaction by walk_chunks()
constexpr size_t kRecordsPerBatch = 64;  // while other writers wait

/// The last id that was given in a table; ids are never given twice (AUTOINCREMENT). SQLite's own
/// counter is compared with the rows, because with a damaged counter it would give an id that is in
/// use. kCorrupt where one of them is out of range.
Result<int64_t> last_id(Database& database, const char* table) {
  const auto in_sequence = [&](const char* what) {
    return read_integer(
        database, fmt::format("SELECT {} FROM sqlite_sequence WHERE name = '{}'", what, table));
  };
  WEFT_ASSIGN_OR_RETURN(const int64_t n_bad,
                        in_sequence("total(typeof(seq) != 'integer' OR seq < 0)"));
  WEFT_ASSIGN_OR_RETURN(const int64_t given, in_sequence("max(seq)"));
  WEFT_ASSIGN_OR_RETURN(const int64_t highest,
                        read_integer(database, fmt::format("SELECT max(id) FROM {}", table)));
  WEFT_ASSIGN_OR_RETURN(
      const int64_t has_low,
      read_integer(database, fmt::format("SELECT 1 FROM {} WHERE id <= 0 LIMIT 1", table)));
  const int64_t last = std::max(given, highest);
  if (n_bad == 0 && has_low == 0 && last <= kMaxId) return last;
  return corrupt(
      fmt::format("{}: the ids of its {}: out of range: damaged; remove this file and "
                  "ingest again (stored KV is found again)",
                  database.path(), table));
}

/// The first of `n` new ids.
Result<int64_t> next_ids(Database& database, const char* table, int64_t n) {
  WEFT_ASSIGN_OR_RETURN(const int64_t last, last_id(database, table));
  if (n <= kMaxId - last) return last + 1;
  return resource_exhausted(fmt::format(
      "{}: no more ids for its {}: remove this file and ingest again (stored KV is found again)",
      database.path(), table));
}

Status remove_chunks(Database& database, int64_t document) {
  WEFT_ASSIGN_OR_RETURN(
      Statement terms,
      database.prepare(
          "INSERT INTO chunk_terms(chunk_terms, rowid, title, text, pieces)"
          " SELECT 'delete', id, title, text, pieces FROM chunk_source WHERE document_id = ?"));
  WEFT_RETURN_IF_ERROR(terms.bind(document).run());
  WEFT_ASSIGN_OR_RETURN(Statement chunks,
                        database.prepare("DELETE FROM chunks WHERE document_id = ?"));
  return chunks.bind(document).run();
}

Status insert_chunks(Database& database, int64_t document, std::string_view title,
                     std::span<const ChunkText> chunks) {
  WEFT_ASSIGN_OR_RETURN(const int64_t first, next_ids(database, "chunks", std::ssize(chunks)));
  for (int64_t ordinal = 0; ordinal < std::ssize(chunks); ++ordinal) {
    WEFT_RETURN_IF_ERROR(
        insert_chunk(database, first + ordinal, document, ordinal, title, chunks[ordinal]));
  }
  WEFT_ASSIGN_OR_RETURN(Statement terms,
                        database.prepare("INSERT INTO chunk_terms(rowid, title, text, pieces)"
                                         " SELECT id, title, text, pieces FROM chunk_source"
                                         " WHERE document_id = ?"));
  return terms.bind(document).run();
}

Result<bool> chunk_has(Database& database, const Hash128& record) {
  WEFT_ASSIGN_OR_RETURN(Statement find,
                        database.prepare("SELECT 1 FROM chunks WHERE record = ? LIMIT 1"));
  const std::string name = record_bytes(record);
  return find.bind_blob(std::as_bytes(std::span(name))).step();
}

std::vector<Hash128> records_of(std::span<const Chunk> chunks) {
  std::vector<Hash128> records;
  for (const Chunk& chunk : chunks) records.push_back(chunk.record);
  return records;
}

Status check_content(const Document& document, std::string_view content_hash) {
  if (document.info.content_hash == content_hash) return Status::ok();
  return not_found(document.info.path + ": has another content in the index by now");
}

/// Notes those of the records that no chunk has any longer, for sweep().
Status note_unneeded(Database& database, std::span<const Hash128> records) {
  WEFT_ASSIGN_OR_RETURN(
      Statement note, database.prepare("INSERT OR IGNORE INTO unneeded_records(record) VALUES(?)"));
  for (const Hash128& record : records) {
    WEFT_ASSIGN_OR_RETURN(const bool needed, chunk_has(database, record));
    if (needed) continue;
    const std::string name = record_bytes(record);
    WEFT_RETURN_IF_ERROR(note.bind_blob(std::as_bytes(std::span(name))).run());
  }
  return Status::ok();
}

}  // namespace

Index::Index(std::unique_ptr<State> state) : state_(std::move(state)) {}
Index::~Index() = default;

Result<std::unique_ptr<Index>> Index::open(const std::string& path, Mode mode, Env& env,
                                           LockWait wait) {
  const bool create = mode == Mode::kCreate;
  WEFT_ASSIGN_OR_RETURN(
      auto database, Database::open(path, create, mode == Mode::kReadOnly, env, std::move(wait)));
  WEFT_ASSIGN_OR_RETURN(int64_t version, prepare_schema(*database, create));
  State state{.database = std::move(database), .rows = Rows(path, version)};
  state.is_read_only = state.database->is_read_only();
  WEFT_RETURN_IF_ERROR(state.look(version, state.settlement));
  state.rows.set_version(version);
  return std::unique_ptr<Index>(new Index(std::make_unique<State>(std::move(state))));
}

const std::string& Index::path() const { return state_->database->path(); }
bool Index::is_read_only() const { return state_->is_read_only; }
bool Index::is_old() const { return state_->rows.version() == kVersionWithoutHashes; }
const std::optional<Settlement>& Index::settlement() const { return state_->settlement; }
void Index::set_token_limit(int32_t n_vocab) { state_->rows.set_token_limit(n_vocab); }

// ------------------------------------------------------------------------------------- settling

Status Index::settle(const Terms& terms) {
  Database& database = *state_->database;
  int64_t version = 0;
  std::optional<Settlement> there;
  {  // Most openings change nothing, and then need not wait for anybody.
    WEFT_RETURN_IF_ERROR(state_->look(version, there));
    WEFT_ASSIGN_OR_RETURN(Settlement agreed, terms.agree(there, version == kVersionWithoutHashes));
    if (is_read_only() || (version == kSchemaVersion && there == agreed)) {
      state_->rows.set_version(version);  // another process may have brought it up to date
      state_->settlement = std::move(agreed);
      return Status::ok();
    }
  }
  WEFT_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(database));
  WEFT_RETURN_IF_ERROR(state_->look(version, there));
  WEFT_ASSIGN_OR_RETURN(Settlement agreed, terms.agree(there, version == kVersionWithoutHashes));
  if (version < kSchemaVersion) WEFT_RETURN_IF_ERROR(upgrade_schema(database, version));
  const bool has_old_chunks = version < kVersionWithoutFlags;
  if (has_old_chunks || !there || there->scope != agreed.scope) {
    WEFT_RETURN_IF_ERROR(rewrite_chunks(version, terms));
  }
  if (has_old_chunks) WEFT_RETURN_IF_ERROR(rebuild_terms(database));
  WEFT_RETURN_IF_ERROR(write_settlement(database, agreed));
  WEFT_RETURN_IF_ERROR(transaction.commit());
  state_->rows.set_version(kSchemaVersion);
  state_->settlement = std::move(agreed);
  return Status::ok();
}

/// Rewrites each chunk's row, which is of version `from`, with the name of its record and the
/// columns of this version.
Status Index::rewrite_chunks(int64_t from, const Terms& terms) {
  Database& database = *state_->database;
  std::unordered_map<int64_t, std::string> titles;
  {
    const Rows now(path(), kSchemaVersion);
    WEFT_ASSIGN_OR_RETURN(Statement rows, database.prepare(fmt::format("SELECT {} FROM documents d",
                                                                       now.document_columns())));
    ReadLimit limit(database);
    while (true) {
      WEFT_ASSIGN_OR_RETURN(const bool has_row, rows.step());
      if (!has_row) break;
      WEFT_ASSIGN_OR_RETURN(Document document, now.document(rows));
      WEFT_RETURN_IF_ERROR(limit.add(document));
      titles[document.id] = std::move(document.info.title);
    }
  }
  Rows as = state_->rows;
  as.set_version(from);
  std::vector<Hash128> former;
  WEFT_RETURN_IF_ERROR(walk_chunks(as, [&](const Chunk& chunk) {
    const Hash128 record = terms.record_of(chunk.tokens);
    if (from != kVersionWithoutHashes && record != chunk.record) former.push_back(chunk.record);
    return rewrite_chunk(database, chunk, titles[chunk.document_id], record);
  }));
  return note_unneeded(database, former);
}

// -------------------------------------------------------------------------------------- changes

Result<int64_t> Index::replace_document(const DocumentInfo& info,
                                        std::span<const ChunkText> chunks) {
  Database& database = *state_->database;
  WEFT_ASSIGN_OR_RETURN(Transaction transaction, state_->begin_change());
  Document document{.info = info, .n_chunks = std::ssize(chunks)};
  for (const ChunkText& chunk : chunks) document.n_tokens += std::ssize(chunk.tokens);
  std::vector<Chunk> former;
  const auto known = state_->find(info.path);
  if (known.is_ok()) {
    document.id = known->id;
    WEFT_ASSIGN_OR_RETURN(former, chunks_of(known->id));
    // Before the row changes: the search index is told the old title with the old text.
    WEFT_RETURN_IF_ERROR(remove_chunks(database, known->id));
  } else {
    if (known.status().code() != StatusCode::kNotFound) return known.status();
    WEFT_ASSIGN_OR_RETURN(document.id, next_ids(database, "documents", 1));
  }
  WEFT_RETURN_IF_ERROR(write_document(database, document));
  WEFT_RETURN_IF_ERROR(insert_chunks(database, document.id, info.title, chunks));
  WEFT_RETURN_IF_ERROR(note_unneeded(database, records_of(former)));
  WEFT_RETURN_IF_ERROR(transaction.commit());
  return document.id;
}

Status Index::mark_stored(int64_t document_id, std::string_view content_hash) {
  WEFT_ASSIGN_OR_RETURN(Transaction transaction, state_->begin_change());
  WEFT_ASSIGN_OR_RETURN(Document document,
                        state_->find("d.id = ?", [&](Statement& row) { row.bind(document_id); }));
  WEFT_RETURN_IF_ERROR(check_content(document, content_hash));
  document.status = DocumentStatus::kStored;
  WEFT_RETURN_IF_ERROR(write_document(*state_->database, document));
  return transaction.commit();
}

Status Index::mark_incomplete(int64_t document_id) {
  WEFT_ASSIGN_OR_RETURN(Transaction transaction, state_->begin_change());
  WEFT_ASSIGN_OR_RETURN(Document document,
                        state_->find("d.id = ?", [&](Statement& row) { row.bind(document_id); }));
  document.status = DocumentStatus::kCatalogued;
  WEFT_RETURN_IF_ERROR(write_document(*state_->database, document));
  return transaction.commit();
}

Status Index::touch_document(const DocumentInfo& info) {
  WEFT_ASSIGN_OR_RETURN(Transaction transaction, state_->begin_change());
  WEFT_ASSIGN_OR_RETURN(Document document, state_->find(info.path));
  WEFT_RETURN_IF_ERROR(check_content(document, info.content_hash));
  document.info.size_bytes = info.size_bytes;
  document.info.modified_ns = info.modified_ns;
  if (!info.root.empty()) document.info.root = info.root;
  WEFT_RETURN_IF_ERROR(write_document(*state_->database, document));
  return transaction.commit();
}

Status Index::move_document(const std::string& from, const DocumentInfo& info) {
  WEFT_ASSIGN_OR_RETURN(Transaction transaction, state_->begin_change());
  WEFT_ASSIGN_OR_RETURN(Document document, state_->find(from));
  WEFT_RETURN_IF_ERROR(check_content(document, info.content_hash));
  const auto there = state_->find(info.path);
  if (there.is_ok()) return invalid_argument(info.path + ": is in the index already");
  if (there.status().code() != StatusCode::kNotFound) return there.status();
  std::string title = std::move(document.info.title);
  if (title != info.title) document.status = DocumentStatus::kCatalogued;
  document.info = info;
  document.info.title = std::move(title);
  WEFT_RETURN_IF_ERROR(write_document(*state_->database, document));
  return transaction.commit();
}

Status Index::remove_document(const std::string& name) {
  Database& database = *state_->database;
  WEFT_ASSIGN_OR_RETURN(Transaction transaction, state_->begin_change());
  WEFT_ASSIGN_OR_RETURN(const Document document, state_->find(name));
  WEFT_ASSIGN_OR_RETURN(const auto chunks, chunks_of(document.id));
  WEFT_RETURN_IF_ERROR(remove_chunks(database, document.id));
  WEFT_ASSIGN_OR_RETURN(Statement remove, database.prepare("DELETE FROM documents WHERE id = ?"));
  WEFT_RETURN_IF_ERROR(remove.bind(document.id).run());
  WEFT_RETURN_IF_ERROR(note_unneeded(database, records_of(chunks)));
  return transaction.commit();
}

Status Index::begin_roots(std::span<const IngestRoot> roots) {
  WEFT_ASSIGN_OR_RETURN(Transaction transaction, state_->begin_change());
  for (const IngestRoot& root : roots) {
    WEFT_RETURN_IF_ERROR(write_unfinished_root(*state_->database, root));
  }
  return transaction.commit();
}

Status Index::end_roots(std::span<const std::string> roots) {
  WEFT_ASSIGN_OR_RETURN(Transaction transaction, state_->begin_change());
  for (const std::string& root : roots) {
    WEFT_RETURN_IF_ERROR(erase_unfinished_root(*state_->database, root));
  }
  return transaction.commit();
}

Result<bool> Index::if_empty(FunctionRef<Status()> take_away) {
  WEFT_ASSIGN_OR_RETURN(const Transaction transaction, state_->begin_change());
  WEFT_ASSIGN_OR_RETURN(const Counts there, counts());
  WEFT_ASSIGN_OR_RETURN(const Unfinished left, unfinished());
  if (there.documents > 0 || there.chunks > 0 || !left.roots.empty()) return false;
  WEFT_RETURN_IF_ERROR(take_away());
  return true;
}

// -------------------------------------------------------------------------------------- records

Result<bool> Index::has_record(const Hash128& record) {
  WEFT_RETURN_IF_ERROR(state_->check_up_to_date());
  WEFT_ASSIGN_OR_RETURN(const auto reading, state_->begin_reading());
  return chunk_has(*state_->database, record);
}

Status Index::put_record(const Hash128& record, FunctionRef<Status()> put) {
  // A read transaction is enough: a process that removes chunks cannot commit before it ends.
  WEFT_ASSIGN_OR_RETURN(const Transaction reading,
                        Transaction::begin(*state_->database, Transaction::Kind::kRead));
  WEFT_ASSIGN_OR_RETURN(const bool needed, has_record(record));
  return needed ? put() : Status::ok();
}

Status Index::remove_unneeded(std::span<const Hash128> records,
                              FunctionRef<Status(const Hash128&)> remove) {
  while (!records.empty()) {
    // Nothing in the index changes; the lock keeps others from adding the record's chunk.
    WEFT_ASSIGN_OR_RETURN(const Transaction transaction, state_->begin_change());
    const auto batch = records.first(std::min(records.size(), kRecordsPerBatch));
    for (const Hash128& record : batch) {
      WEFT_ASSIGN_OR_RETURN(const bool needed, has_record(record));
      if (!needed) WEFT_RETURN_IF_ERROR(remove(record));
    }
    records = records.subspan(batch.size());
  }
  return Status::ok();
}

Status Index::sweep(FunctionRef<Status(const Hash128&)> remove) {
  Database& database = *state_->database;
  constexpr std::string_view kAny = "SELECT count(*) FROM (SELECT 1 FROM unneeded_records LIMIT 1)";
  while (true) {
    WEFT_ASSIGN_OR_RETURN(const int64_t any, read_integer(database, kAny));
    if (any == 0) return Status::ok();
    WEFT_ASSIGN_OR_RETURN(Transaction transaction, state_->begin_change());
    std::vector<std::string> names;
    {
      WEFT_ASSIGN_OR_RETURN(Statement rows,
                            database.prepare("SELECT record FROM unneeded_records LIMIT ?"));
      rows.bind(int64_t{kRecordsPerBatch});
      ReadLimit limit(database);
      while (true) {
        WEFT_ASSIGN_OR_RETURN(const bool has_row, rows.step());
        if (!has_row) break;
        names.push_back(rows.bytes(0));
        WEFT_RETURN_IF_ERROR(limit.add(names.back()));
      }
    }
    WEFT_ASSIGN_OR_RETURN(
        Statement forget,
        database.prepare("DELETE FROM unneeded_records WHERE record = ? RETURNING 1"));
    for (const std::string& name : names) {
      if (const auto record = parse_record(name)) {
        WEFT_ASSIGN_OR_RETURN(const bool needed, has_record(*record));
        if (!needed) WEFT_RETURN_IF_ERROR(remove(*record));
      }
      WEFT_ASSIGN_OR_RETURN(const bool was_there,
                            forget.bind_blob(std::as_bytes(std::span(name))).step());
      // A damaged row can be listed and not found: it would be listed for ever.
      if (!was_there) {
        return corrupt(path() +
                       ": the records to be removed: damaged; remove this file and ingest "
                       "again (stored KV is found again)");
      }
      WEFT_RETURN_IF_ERROR(forget.run());
    }
    WEFT_RETURN_IF_ERROR(transaction.commit());
  }
}

// -------------------------------------------------------------------------------------- reading

namespace {

Result<std::vector<Document>> read_documents(Database& database, const Rows& as, Statement& rows) {
  std::vector<Document> documents;
  ReadLimit limit(database);
  while (true) {
    WEFT_ASSIGN_OR_RETURN(const bool has_row, rows.step());
    if (!has_row) return documents;
    WEFT_ASSIGN_OR_RETURN(Document document, as.document(rows));
    WEFT_RETURN_IF_ERROR(limit.add(document));
    documents.push_back(std::move(document));
  }
}

}  // namespace

Result<std::vector<Document>> Index::documents() {
  WEFT_ASSIGN_OR_RETURN(const auto reading, state_->begin_reading());
  WEFT_ASSIGN_OR_RETURN(Statement rows, state_->database->prepare(fmt::format(
                                            "SELECT {} FROM documents d ORDER BY d.path",
                                            state_->rows.document_columns())));
  return read_documents(*state_->database, state_->rows, rows);
}

Result<std::vector<Document>> Index::documents_named(std::string_view file_name) {
  WEFT_ASSIGN_OR_RETURN(const auto reading, state_->begin_reading());
  WEFT_ASSIGN_OR_RETURN(Statement rows, state_->database->prepare(
                                            fmt::format("SELECT {} FROM documents d"
                                                        " WHERE substr(d.path, -length(?1)) = ?1"
                                                        " ORDER BY d.path",
                                                        state_->rows.document_columns())));
  rows.bind_text("/" + std::string(file_name));
  return read_documents(*state_->database, state_->rows, rows);
}

Result<std::optional<Document>> Index::find_document(const std::string& name) {
  WEFT_ASSIGN_OR_RETURN(const auto reading, state_->begin_reading());
  auto document = state_->find(name);
  if (document.status().code() == StatusCode::kNotFound) return std::optional<Document>();
  if (!document.is_ok()) return document.status();
  return std::optional(std::move(*document));
}

Result<std::vector<Chunk>> Index::chunks_of(int64_t document) {
  WEFT_ASSIGN_OR_RETURN(const auto reading, state_->begin_reading());
  WEFT_ASSIGN_OR_RETURN(Statement rows,
                        state_->database->prepare(fmt::format(
                            "SELECT {} FROM chunks c WHERE c.document_id = ? ORDER BY c.ordinal",
                            state_->rows.chunk_columns())));
  rows.bind(document);
  std::vector<Chunk> chunks;
  ReadLimit limit(*state_->database);
  while (true) {
    WEFT_ASSIGN_OR_RETURN(const bool has_row, rows.step());
    if (!has_row) return chunks;
    WEFT_ASSIGN_OR_RETURN(Chunk chunk, state_->rows.chunk(rows));
    WEFT_RETURN_IF_ERROR(limit.add(chunk));
    chunks.push_back(std::move(chunk));
  }
}

Result<Chunk> Index::chunk(int64_t id) {
  WEFT_ASSIGN_OR_RETURN(const auto reading, state_->begin_reading());
  WEFT_ASSIGN_OR_RETURN(
      Statement row, state_->database->prepare(fmt::format("SELECT {} FROM chunks c WHERE c.id = ?",
                                                           state_->rows.chunk_columns())));
  WEFT_ASSIGN_OR_RETURN(const bool exists, row.bind(id).step());
  if (!exists) return not_found(fmt::format("{}: no chunk {}", path(), id));
  return state_->rows.chunk(row);
}

Result<std::optional<Chunk>> Index::first_chunk(int64_t document_id) {
  WEFT_ASSIGN_OR_RETURN(const auto reading, state_->begin_reading());
  WEFT_ASSIGN_OR_RETURN(Statement row,
                        state_->database->prepare(fmt::format(
                            "SELECT {} FROM chunks c WHERE c.document_id = ? AND c.ordinal = 0",
                            state_->rows.chunk_columns())));
  WEFT_ASSIGN_OR_RETURN(const bool exists, row.bind(document_id).step());
  if (!exists) return std::optional<Chunk>();
  WEFT_ASSIGN_OR_RETURN(Chunk chunk, state_->rows.chunk(row));
  return std::optional<Chunk>(std::move(chunk));
}

Result<Counts> Index::counts() {
  WEFT_ASSIGN_OR_RETURN(const auto reading, state_->begin_reading());
  WEFT_ASSIGN_OR_RETURN(
      Statement row, state_->database->prepare("SELECT (SELECT count(*) FROM documents), count(*),"
                                               " ifnull(sum(n_tokens), 0) FROM chunks"));
  WEFT_RETURN_IF_ERROR(row.step().status());
  const Counts counts{row.integer(0), row.integer(1), row.integer(2)};
  ReadLimit limit(*state_->database);
  if (counts.tokens < 0 || counts.tokens > kMaxId) {
    return corrupt(path() +
                   ": the tokens of its chunks: out of range: damaged; remove this file and ingest "
                   "again (stored KV is found again)");
  }
  WEFT_RETURN_IF_ERROR(limit.add(Document{.n_tokens = counts.tokens}));
  return counts;
}

Status Index::all_chunks(FunctionRef<Status(const Chunk&)> fn) {
  return walk_chunks(state_->rows, fn);
}

/// Batches in transactions of their own, so that writers need not wait for the whole walk; ids must
/// increase, or a loop in a damaged file would never end.
Status Index::walk_chunks(const Rows& as, FunctionRef<Status(const Chunk&)> fn) {
  for (int64_t after = 0;;) {
    std::vector<Chunk> batch;
    {
      WEFT_ASSIGN_OR_RETURN(const auto reading, state_->begin_reading());
      WEFT_ASSIGN_OR_RETURN(
          Statement rows,
          state_->database->prepare(fmt::format(
              "SELECT {} FROM chunks c WHERE c.id > ? ORDER BY c.id LIMIT ?", as.chunk_columns())));
      rows.bind(after).bind(kChunksPerBatch);
      ReadLimit limit(*state_->database);
      while (true) {
        WEFT_ASSIGN_OR_RETURN(const bool has_row, rows.step());
        if (!has_row) break;
        WEFT_ASSIGN_OR_RETURN(Chunk chunk, as.chunk(rows));
        WEFT_RETURN_IF_ERROR(limit.add(chunk));
        if (chunk.id <= after) return corrupt(path() + ": chunks out of order: damaged");
        after = chunk.id;
        batch.push_back(std::move(chunk));
      }
    }
    if (batch.empty()) return Status::ok();
    for (const Chunk& chunk : batch) WEFT_RETURN_IF_ERROR(fn(chunk));
  }
}

Result<Unfinished> Index::unfinished() {
  Unfinished out;
  WEFT_ASSIGN_OR_RETURN(const auto reading, state_->begin_reading());
  if (state_->rows.version() > kVersionWithoutLines) {
    WEFT_ASSIGN_OR_RETURN(out.roots,
                          read_unfinished_roots(*state_->database, state_->rows.version()));
  }
  WEFT_ASSIGN_OR_RETURN(Statement rows,
                        state_->database->prepare(fmt::format(
                            "SELECT {} FROM documents d WHERE d.status != 1 ORDER BY d.path",
                            state_->rows.document_columns())));
  out.ingest_did_not_end = !out.roots.empty();
  std::map<std::string, IngestRoot> roots;
  for (const IngestRoot& root : out.roots) roots.emplace(root.path, root);
  ReadLimit limit(*state_->database);
  while (true) {
    WEFT_ASSIGN_OR_RETURN(const bool has_row, rows.step());
    if (!has_row) break;
    WEFT_ASSIGN_OR_RETURN(const Document document, state_->rows.document(rows));
    WEFT_RETURN_IF_ERROR(limit.add(document));
    ++out.documents;
    // Where the root is not known (an older weft), the document's own path does.
    const std::string& root = document.info.root.empty() ? document.info.path : document.info.root;
    roots.emplace(root, IngestRoot{.path = root});
  }
  out.roots.clear();
  for (auto& [path, root] : roots) out.roots.push_back(std::move(root));
  return out;
}

Status Index::verify_documents() {
  WEFT_ASSIGN_OR_RETURN(const auto all, documents());
  for (const Document& listed : all) {
    // Together, and not longer than one document takes: writers wait meanwhile.
    WEFT_ASSIGN_OR_RETURN(const Transaction reading,
                          Transaction::begin(*state_->database, Transaction::Kind::kRead));
    WEFT_ASSIGN_OR_RETURN(const auto document, find_document(listed.info.path));
    if (!document) continue;  // removed meanwhile
    WEFT_ASSIGN_OR_RETURN(const auto chunks, chunks_of(document->id));
    int64_t n_tokens = 0;
    bool in_order = true;
    for (int64_t i = 0; i < std::ssize(chunks); ++i) {
      in_order = in_order && chunks[i].ordinal == i;
      n_tokens += std::ssize(chunks[i].tokens);
    }
    if (in_order && std::ssize(chunks) == document->n_chunks && n_tokens == document->n_tokens) {
      continue;
    }
    return corrupt(fmt::format(
        "{}: document {}: {} chunks of {} tokens, {} of {} are there: "
        "damaged; remove this file and ingest again",
        path(), document->id, document->n_chunks, document->n_tokens, chunks.size(), n_tokens));
  }
  return Status::ok();
}

Status Index::drop_former_terms() {
  WEFT_ASSIGN_OR_RETURN(Transaction transaction, state_->begin_change());
  WEFT_RETURN_IF_ERROR(
      state_->database->execute("INSERT INTO chunk_terms(chunk_terms) VALUES('optimize')"));
  return transaction.commit();
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
  {
    WEFT_ASSIGN_OR_RETURN(Statement check, database.prepare("PRAGMA foreign_key_check"));
    WEFT_ASSIGN_OR_RETURN(const bool orphan, check.step());
    if (orphan) {
      return corrupt(
          fmt::format("{}: chunk {} is no document's: damaged; remove it and ingest "
                      "again",
                      path(), check.integer(1)));
    }
  }
  if (!is_read_only()) {  // SQLite takes this check for a write
    WEFT_RETURN_IF_ERROR(database.execute(
        "INSERT INTO chunk_terms(chunk_terms, rank) VALUES('integrity-check', 1)"));
  }
  for (const char* table : {"documents", "chunks"}) {
    WEFT_RETURN_IF_ERROR(last_id(database, table).status());
  }
  return verify_documents();
}

}  // namespace weft::retrieval
