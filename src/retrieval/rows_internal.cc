// Reading a row means checking it: its hash, then each number against its range, before anything is
// allocated or indexed by it. SQLite's own checks find damaged pages, not a flipped bit in a value,
// and a flipped bit in token ids would be another prompt. The hash is XXH3-64 over all columns,
// with the length before each string, so that no two different rows have the same bytes. It
// protects against damage only; ranges are checked besides, since a forged row has the right hash.
//
// Rows of older versions are read by the same code: their SELECT fills in constants for the columns
// that they lack (chunk_columns, document_columns), and their hash covers only what they had.
#include "retrieval/rows_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "retrieval/unspaced_internal.h"

namespace weft::retrieval {
namespace {

static_assert(std::endian::native == std::endian::little);  // token ids are stored as they are

constexpr size_t kLeastRowBytes = 16;         // that any row takes in the file
constexpr size_t kNotYetInTheFile = 1 << 20;  // what an open transaction may have in memory

/// Gathers a row's values as bytes and hashes them. Lengths come first, so that ("ab", "c") and
/// ("a", "bc") differ.
class RowHash {
 public:
  RowHash& integer(int64_t value) { return raw(&value, sizeof value); }
  RowHash& bytes(std::string_view value) {
    integer(std::ssize(value));
    return raw(value.data(), value.size());
  }
  /// As SQLite keeps it: an integer with a sign.
  int64_t finish() const { return static_cast<int64_t>(hash64(std::as_bytes(std::span(bytes_)))); }

 private:
  RowHash& raw(const void* data, size_t n_bytes) {
    bytes_.append(static_cast<const char*>(data), n_bytes);
    return *this;
  }
  std::string bytes_;
};

bool is_count(int64_t n) { return n >= 0 && n <= kMaxId; }
bool is_range(int64_t begin, int64_t end) { return begin >= 0 && begin <= end; }

std::string_view token_bytes(std::span<const int32_t> tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()};
}

/// A row of `chunks` in SQLite's own types.
struct ChunkRow {
  int64_t id = 0;
  int64_t document_id = 0;
  int64_t ordinal = 0;
  int64_t byte_begin = 0;
  int64_t byte_end = 0;
  std::string_view text;
  std::string_view tokens;  // bytes
  int64_t n_tokens = 0;
  std::string_view record;
  int64_t line_begin = 0;
  int64_t line_end = 0;
  std::string_view pieces;
};

int64_t chunk_hash(const ChunkRow& row, int64_t version) {
  RowHash hash;
  hash.integer(row.id).integer(row.document_id).integer(row.ordinal);
  hash.integer(row.byte_begin).integer(row.byte_end).bytes(row.text).bytes(row.tokens);
  hash.integer(row.n_tokens).bytes(row.record);
  if (version > kVersionWithoutLines) {
    hash.integer(row.line_begin).integer(row.line_end).bytes(row.pieces);
  }
  return hash.finish();
}

int64_t document_hash(const Document& document, int64_t status, int64_t version) {
  RowHash hash;
  hash.integer(document.id).bytes(document.info.path).bytes(document.info.title);
  hash.integer(static_cast<int64_t>(document.info.size_bytes)).integer(document.info.modified_ns);
  hash.bytes(document.info.content_hash).integer(status).integer(document.n_chunks);
  hash.integer(document.n_tokens);
  if (version > kVersionWithoutLines) hash.bytes(document.info.root);
  return hash.finish();
}

/// As the index keeps them: a zero byte after each.
std::string joined_patterns(const IngestRoot& root) {
  std::string joined;
  for (const std::string& pattern : root.exclude) joined.append(pattern).push_back('\0');
  return joined;
}

int64_t root_hash(const IngestRoot& root, std::string_view patterns, int64_t version) {
  RowHash hash;
  hash.bytes(root.path);
  if (version > kVersionWithoutFlags) {
    hash.bytes(patterns).bytes(root.encoding);
    hash.integer(root.reads_ignore_files ? 0 : 1).integer(root.rehash ? 1 : 0);
  }
  return hash.finish();
}

/// A chunk as its row has it; `tokens`, `record` and `pieces` are the row's bytes.
ChunkRow row_of(const Chunk& chunk, std::string_view tokens, std::string_view record,
                std::string_view pieces) {
  return {.id = chunk.id,
          .document_id = chunk.document_id,
          .ordinal = chunk.ordinal,
          .byte_begin = static_cast<int64_t>(chunk.byte_begin),
          .byte_end = static_cast<int64_t>(chunk.byte_end),
          .text = chunk.text,
          .tokens = tokens,
          .n_tokens = std::ssize(chunk.tokens),
          .record = record,
          .line_begin = static_cast<int64_t>(chunk.line_begin),
          .line_end = static_cast<int64_t>(chunk.line_end),
          .pieces = pieces};
}

int64_t settlement_hash(const Settlement& s, int64_t version) {
  RowHash hash;
  hash.bytes(s.model).bytes(s.model_name).bytes(s.ropes).integer(s.context_tokens);
  hash.bytes(s.prompt).bytes(s.anchor).bytes(s.anchor_passages).bytes(s.scope);
  if (version > kVersionWithoutTypes) hash.bytes(s.record_type);
  return hash.finish();
}

}  // namespace

ReadLimit::ReadLimit(const Database& database)
    : path_(database.path()),
      left_(static_cast<size_t>(std::max<int64_t>(database.file_bytes(), 0)) + kNotYetInTheFile) {}

Status ReadLimit::add(const Chunk& chunk) {
  return take(chunk.text.size() + chunk.tokens.size() * sizeof(int32_t));
}

Status ReadLimit::add(const Document& document) {
  const DocumentInfo& info = document.info;
  // Its chunks' token ids are in the file, too; both counts were read in range.
  const size_t n_tokens = document.n_tokens;
  const size_t n_chunks = document.n_chunks;
  return take(info.path.size() + info.title.size() + info.content_hash.size() + info.root.size() +
              n_tokens * sizeof(int32_t) + n_chunks * kLeastRowBytes);
}

Status ReadLimit::add(std::string_view value) { return take(value.size()); }

Status ReadLimit::take(size_t n_bytes) {
  n_bytes += kLeastRowBytes;
  if (n_bytes > left_) {
    return corrupt(path_ +
                   ": its rows say more than the file has bytes: damaged; remove this file"
                   " and ingest again (stored KV is found again)");
  }
  left_ -= n_bytes;
  return Status::ok();
}

std::string_view Rows::chunk_columns() const {
  switch (version_) {
    case kVersionWithoutHashes:
      return " c.id, c.document_id, c.ordinal, c.byte_begin, c.byte_end, c.text, c.tokens,"
             " c.n_tokens, x'', 0, 0, '', 0 ";
    case kVersionWithoutLines:
      return " c.id, c.document_id, c.ordinal, c.byte_begin, c.byte_end, c.text, c.tokens,"
             " c.n_tokens, c.record, 0, 0, '', c.hash ";
    default:
      return " c.id, c.document_id, c.ordinal, c.byte_begin, c.byte_end, c.text, c.tokens,"
             " c.n_tokens, c.record, c.line_begin, c.line_end, c.pieces, c.hash ";
  }
}

std::string_view Rows::document_columns() const {
  switch (version_) {
    case kVersionWithoutHashes:
      return " d.id, d.path, d.title, d.size_bytes, d.modified_ns, d.content_hash, d.status,"
             " (SELECT count(*) FROM chunks WHERE document_id = d.id),"
             " (SELECT ifnull(sum(n_tokens), 0) FROM chunks WHERE document_id = d.id), '', 0 ";
    case kVersionWithoutLines:
      return " d.id, d.path, d.title, d.size_bytes, d.modified_ns, d.content_hash, d.status,"
             " d.n_chunks, d.n_tokens, '', d.hash ";
    default:
      return " d.id, d.path, d.title, d.size_bytes, d.modified_ns, d.content_hash, d.status,"
             " d.n_chunks, d.n_tokens, d.root, d.hash ";
  }
}

Status Rows::damaged(std::string_view row, int64_t id, std::string_view why) const {
  return corrupt(fmt::format(
      "{}: {} {}: {}: damaged; remove this file and ingest again (stored KV is found again)", path_,
      row, id, why));
}

Result<Chunk> Rows::chunk(const Statement& row, int first) const {
  const int64_t id = row.integer(first);
  const int64_t ordinal = row.integer(first + 2);
  Chunk chunk{.id = id,
              .document_id = row.integer(first + 1),
              .ordinal = static_cast<int32_t>(ordinal),
              .byte_begin = static_cast<uint64_t>(row.integer(first + 3)),
              .byte_end = static_cast<uint64_t>(row.integer(first + 4)),
              .line_begin = static_cast<uint64_t>(row.integer(first + 9)),
              .line_end = static_cast<uint64_t>(row.integer(first + 10)),
              .text = row.bytes(first + 5)};
  if (id <= 0 || id > kMaxId) return damaged("chunk", id, "its id is out of range");
  const std::string ids = row.bytes(first + 6);
  const int64_t n_tokens = row.integer(first + 7);
  const std::string record = row.bytes(first + 8);
  if (version_ != kVersionWithoutHashes) {
    const std::string pieces = row.bytes(first + 11);
    ChunkRow said = row_of(chunk, ids, record, pieces);
    said.ordinal = ordinal;
    said.n_tokens = n_tokens;
    if (row.integer(first + 12) != chunk_hash(said, version_)) {
      return damaged("chunk", id, "its hash differs");
    }
  }
  if (ids.size() % sizeof(int32_t) != 0 ||
      std::cmp_not_equal(ids.size() / sizeof(int32_t), n_tokens)) {
    return damaged("chunk", id,
                   fmt::format("{} bytes of token ids for {} tokens", ids.size(), n_tokens));
  }
  const bool is_placed = ordinal == chunk.ordinal && ordinal >= 0 &&
                         is_range(row.integer(first + 3), row.integer(first + 4)) &&
                         is_range(row.integer(first + 9), row.integer(first + 10));
  if (!is_placed) return damaged("chunk", id, "its place is out of range");
  chunk.tokens.resize(ids.size() / sizeof(int32_t));
  if (!ids.empty()) std::memcpy(chunk.tokens.data(), ids.data(), ids.size());
  for (const int32_t token : chunk.tokens) {
    if (!token_limit_ || (token >= 0 && token < *token_limit_)) continue;
    return damaged("chunk", id,
                   fmt::format("token id {} is not in the vocabulary of {}", token, *token_limit_));
  }
  if (const auto name = parse_record(record)) chunk.record = *name;
  return chunk;
}

Result<Document> Rows::document(const Statement& row, int first) const {
  const int64_t status = row.integer(first + 6);
  Document document{.id = row.integer(first),
                    .info = {.path = row.bytes(first + 1),
                             .title = row.bytes(first + 2),
                             .size_bytes = static_cast<uint64_t>(row.integer(first + 3)),
                             .modified_ns = row.integer(first + 4),
                             .content_hash = row.bytes(first + 5),
                             .root = row.bytes(first + 9)},
                    .status = status == 1 ? DocumentStatus::kStored : DocumentStatus::kCatalogued,
                    .n_chunks = row.integer(first + 7),
                    .n_tokens = row.integer(first + 8)};
  if (version_ != kVersionWithoutHashes &&
      row.integer(first + 10) != document_hash(document, status, version_)) {
    return damaged("document", document.id, "its hash differs");
  }
  if (document.id <= 0 || document.id > kMaxId) {
    return damaged("document", document.id, "its id is out of range");
  }
  if (!is_count(document.n_chunks) || !is_count(document.n_tokens) || row.integer(first + 3) < 0) {
    return damaged("document", document.id, "its counts are out of range");
  }
  return document;
}

Status insert_chunk(Database& database, int64_t id, int64_t document_id, int64_t ordinal,
                    std::string_view title, const ChunkText& chunk) {
  WEFT_ASSIGN_OR_RETURN(
      Statement insert,
      database.prepare("INSERT INTO chunks(id, document_id, ordinal, byte_begin, byte_end, text,"
                       " tokens, n_tokens, record, line_begin, line_end, pieces, hash)"
                       " VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  const std::string record = record_bytes(chunk.record);
  const std::string pieces = pieces_of(title, chunk.text);
  const ChunkRow row{.id = id,
                     .document_id = document_id,
                     .ordinal = ordinal,
                     .byte_begin = static_cast<int64_t>(chunk.byte_begin),
                     .byte_end = static_cast<int64_t>(chunk.byte_end),
                     .text = chunk.text,
                     .tokens = token_bytes(chunk.tokens),
                     .n_tokens = std::ssize(chunk.tokens),
                     .record = record,
                     .line_begin = static_cast<int64_t>(chunk.line_begin),
                     .line_end = static_cast<int64_t>(chunk.line_end),
                     .pieces = pieces};
  insert.bind(row.id).bind(row.document_id).bind(row.ordinal);
  insert.bind(row.byte_begin).bind(row.byte_end).bind_text(row.text);
  insert.bind_blob(std::as_bytes(chunk.tokens)).bind(row.n_tokens);
  insert.bind_blob(std::as_bytes(std::span(record)));
  insert.bind(row.line_begin).bind(row.line_end).bind_text(row.pieces);
  return insert.bind(chunk_hash(row, kSchemaVersion)).run();
}

Status rewrite_chunk(Database& database, const Chunk& chunk, std::string_view title,
                     const Hash128& record) {
  WEFT_ASSIGN_OR_RETURN(
      Statement update,
      database.prepare("UPDATE chunks SET record = ?, pieces = ?, hash = ? WHERE id = ?"));
  const std::string name = record_bytes(record);
  const std::string pieces = pieces_of(title, chunk.text);
  update.bind_blob(std::as_bytes(std::span(name))).bind_text(pieces);
  update.bind(chunk_hash(row_of(chunk, token_bytes(chunk.tokens), name, pieces), kSchemaVersion));
  return update.bind(chunk.id).run();
}

Status write_document(Database& database, const Document& document) {
  WEFT_ASSIGN_OR_RETURN(
      Statement write,
      database.prepare(
          "INSERT INTO documents(id, path, title, size_bytes, modified_ns, content_hash, status,"
          " n_chunks, n_tokens, root, hash) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
          " ON CONFLICT(id) DO UPDATE SET path = excluded.path, title = excluded.title,"
          " size_bytes = excluded.size_bytes, modified_ns = excluded.modified_ns,"
          " content_hash = excluded.content_hash, status = excluded.status,"
          " n_chunks = excluded.n_chunks, n_tokens = excluded.n_tokens, root = excluded.root,"
          " hash = excluded.hash"));
  const DocumentInfo& info = document.info;
  const auto status = static_cast<int64_t>(document.status);
  write.bind(document.id).bind_text(info.path).bind_text(info.title);
  write.bind(static_cast<int64_t>(info.size_bytes)).bind(info.modified_ns);
  write.bind_text(info.content_hash).bind(status).bind(document.n_chunks).bind(document.n_tokens);
  write.bind_text(info.root);
  return write.bind(document_hash(document, status, kSchemaVersion)).run();
}

Result<std::optional<Settlement>> read_settlement(Database& database, int64_t version) {
  const bool has_type = version > kVersionWithoutTypes;
  WEFT_ASSIGN_OR_RETURN(Statement row,
                        database.prepare(fmt::format(
                            "SELECT model, model_name, ropes, context_tokens, prompt, anchor,"
                            " anchor_passages, scope, hash{} FROM settlement",
                            has_type ? ", record_type" : "")));
  WEFT_ASSIGN_OR_RETURN(const bool exists, row.step());
  if (!exists) return std::optional<Settlement>();
  Settlement settlement{.model = row.bytes(0),
                        .model_name = row.bytes(1),
                        .ropes = row.bytes(2),
                        .context_tokens = row.integer(3),
                        .prompt = row.bytes(4),
                        .anchor = row.bytes(5),
                        .anchor_passages = row.bytes(6),
                        .scope = row.bytes(7)};
  if (has_type) settlement.record_type = row.bytes(9);
  if (row.integer(8) != settlement_hash(settlement, version)) {
    return corrupt(
        fmt::format("{}: the settlement (model and anchor): its hash differs: damaged; remove this "
                    "file and ingest again (stored KV is found again)",
                    database.path()));
  }
  return std::optional(std::move(settlement));
}

Status write_settlement(Database& database, const Settlement& settlement) {
  WEFT_ASSIGN_OR_RETURN(
      Statement write,
      database.prepare("INSERT OR REPLACE INTO settlement(id, model, model_name, ropes,"
                       " context_tokens, prompt, anchor, anchor_passages, scope, record_type, hash)"
                       " VALUES(1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  write.bind_text(settlement.model).bind_text(settlement.model_name).bind_text(settlement.ropes);
  write.bind(settlement.context_tokens).bind_text(settlement.prompt).bind_text(settlement.anchor);
  write.bind_text(settlement.anchor_passages).bind_text(settlement.scope);
  write.bind_text(settlement.record_type);
  return write.bind(settlement_hash(settlement, kSchemaVersion)).run();
}

size_t IngestRoot::exclude_bytes() const {
  size_t n = 0;
  for (const std::string& pattern : exclude) n += pattern.size() + 1;
  return n;
}

Result<std::vector<IngestRoot>> read_unfinished_roots(Database& database, int64_t version) {
  const bool has_flags = version > kVersionWithoutFlags;
  WEFT_ASSIGN_OR_RETURN(Statement rows,
                        database.prepare(fmt::format(
                            "SELECT path, {}, hash FROM unfinished_roots ORDER BY path",
                            has_flags ? "exclude, encoding, no_ignore, rehash" : "x'', '', 0, 0")));
  std::vector<IngestRoot> roots;
  ReadLimit limit(database);
  while (true) {
    WEFT_ASSIGN_OR_RETURN(const bool has_row, rows.step());
    if (!has_row) return roots;
    IngestRoot root{.path = rows.bytes(0),
                    .encoding = rows.bytes(2),
                    .reads_ignore_files = rows.integer(3) == 0,
                    .rehash = rows.integer(4) != 0};
    const std::string patterns = rows.bytes(1);
    WEFT_RETURN_IF_ERROR(limit.add(std::string_view(root.path)));
    const bool is_bounded = patterns.size() <= IngestRoot::kMaxExcludeBytes &&
                            root.encoding.size() <= IngestRoot::kMaxEncodingBytes;
    // Any number that is not 0 reads as true, so the flags' columns are compared with 0 and 1, too.
    if (!is_bounded || rows.integer(5) != root_hash(root, patterns, version) ||
        rows.integer(3) != (root.reads_ignore_files ? 0 : 1) ||
        rows.integer(4) != (root.rehash ? 1 : 0)) {
      return corrupt(database.path() +
                     ": an unfinished root: its hash differs: damaged; remove this file and ingest "
                     "again (stored KV is found again)");
    }
    for (size_t at = 0; at < patterns.size();) {
      const size_t end = std::min(patterns.find('\0', at), patterns.size());
      root.exclude.push_back(patterns.substr(at, end - at));
      WEFT_RETURN_IF_ERROR(limit.add(std::string_view(root.exclude.back())));  // an empty one, too
      at = end + 1;
    }
    roots.push_back(std::move(root));
  }
}

Status write_unfinished_root(Database& database, const IngestRoot& root) {
  const size_t n_bytes = root.exclude_bytes();
  if (n_bytes > IngestRoot::kMaxExcludeBytes ||
      root.encoding.size() > IngestRoot::kMaxEncodingBytes) {
    return invalid_argument(fmt::format("{}: {} bytes of patterns to exclude by; at most {}",
                                        root.path, n_bytes, IngestRoot::kMaxExcludeBytes));
  }
  WEFT_ASSIGN_OR_RETURN(
      Statement write,
      database.prepare("INSERT OR REPLACE INTO unfinished_roots(path, exclude, encoding, no_ignore,"
                       " rehash, hash) VALUES(?, ?, ?, ?, ?, ?)"));
  const std::string patterns = joined_patterns(root);
  write.bind_text(root.path).bind_blob(std::as_bytes(std::span(patterns)));
  write.bind_text(root.encoding).bind(root.reads_ignore_files ? 0 : 1).bind(root.rehash ? 1 : 0);
  return write.bind(root_hash(root, patterns, kSchemaVersion)).run();
}

Status erase_unfinished_root(Database& database, std::string_view path) {
  WEFT_ASSIGN_OR_RETURN(Statement erase,
                        database.prepare("DELETE FROM unfinished_roots WHERE path = ?"));
  return erase.bind_text(path).run();
}

Status rebuild_terms(Database& database) {
  return database.execute("INSERT INTO chunk_terms(chunk_terms) VALUES('rebuild')");
}

Result<int64_t> read_integer(Database& database, std::string_view sql) {
  WEFT_ASSIGN_OR_RETURN(Statement statement, database.prepare(sql));
  WEFT_ASSIGN_OR_RETURN(const bool has_row, statement.step());
  return has_row ? statement.integer(0) : 0;
}

std::string record_bytes(const Hash128& record) {
  std::string bytes;
  for (const uint64_t half : {record.high, record.low}) {
    for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(half >> shift);
  }
  return bytes;
}

std::optional<Hash128> parse_record(std::string_view bytes) {
  if (bytes.size() != 16) return std::nullopt;
  uint64_t halves[2] = {};
  for (size_t i = 0; i < bytes.size(); ++i) {
    halves[i / 8] = halves[i / 8] << 8 | byte_of(bytes[i]);
  }
  return Hash128{.high = halves[0], .low = halves[1]};
}

}  // namespace weft::retrieval
