// The index's tables as values: which columns there are, how a row is read, checked and written.
// Every row carries a hash over all it says, so that a damaged byte is an error and never another
// token. Internal to this room; decides nothing about when rows change.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "retrieval/database_internal.h"
#include "retrieval/index.h"

namespace weft::retrieval {

constexpr int64_t kVersionWithoutHashes = 1;  // nor records' names
constexpr int64_t kVersionWithoutLines = 2;   // nor roots, nor pieces
constexpr int64_t kVersionWithoutFlags = 3;   // of unfinished ingests
constexpr int64_t kVersionWithoutTypes = 4;   // of records
constexpr int64_t kSchemaVersion = 5;
constexpr int64_t kMaxId = int64_t{1} << 53;  // of documents and chunks: far past any that is given

/// Makes the schema in a new file where `create` says so; refuses a file that is somebody else's or
/// of an unknown version. Returns its version.
Result<int64_t> prepare_schema(Database& database, bool create);
Result<int64_t> schema_version(Database& database);
/// From an older version to kSchemaVersion, inside a write transaction. What rows of documents and
/// of unfinished roots say more is written; the settlement is for the caller to write, and from
/// before kVersionWithoutFlags the chunks and then the search terms (rewrite_chunk, rebuild_terms).
Status upgrade_schema(Database& database, int64_t from);
/// Makes the search terms anew from titles, texts and pieces.
Status rebuild_terms(Database& database);

/// How much may be kept of what a file's rows say: no more than the file has bytes. Of a hostile
/// file many rows may share the same pages.
class ReadLimit {
 public:
  explicit ReadLimit(const Database& database);
  /// kCorrupt when that is too much.
  Status add(const Chunk& chunk);
  Status add(const Document& document);
  Status add(std::string_view value);

 private:
  Status take(size_t n_bytes);

  const std::string& path_;
  size_t left_;
};

/// Reads rows of a schema's version: of an old one without their hashes.
class Rows {
 public:
  Rows(std::string path, int64_t version) : path_(std::move(path)), version_(version) {}

  int64_t version() const { return version_; }
  void set_version(int64_t version) { version_ = version; }
  /// Token ids must lie in 0 to n - 1.
  void set_token_limit(int32_t n) { token_limit_ = n; }

  /// Of the tables under the names c and d, as chunk() and document() read them.
  std::string_view chunk_columns() const;
  std::string_view document_columns() const;
  static constexpr int kChunkColumns = 13;
  static constexpr int kDocumentColumns = 11;

  /// The row's columns from `first` on; kCorrupt when they are not what was written.
  Result<Chunk> chunk(const Statement& row, int first = 0) const;
  Result<Document> document(const Statement& row, int first = 0) const;

 private:
  Status damaged(std::string_view row, int64_t id, std::string_view why) const;

  std::string path_;
  int64_t version_;
  std::optional<int32_t> token_limit_;
};

/// `title`: its document's.
Status insert_chunk(Database& database, int64_t id, int64_t document_id, int64_t ordinal,
                    std::string_view title, const ChunkText& chunk);
/// Gives a chunk that was read, from a row of any version, the name of its record, its pieces and
/// its hash.
Status rewrite_chunk(Database& database, const Chunk& chunk, std::string_view title,
                     const Hash128& record);
/// Inserts the document, or replaces the one with its id.
Status write_document(Database& database, const Document& document);

/// Of an index of this version, which has the table. Nothing in an index where nobody has settled
/// anything. kCorrupt for a damaged row.
Result<std::optional<Settlement>> read_settlement(Database& database, int64_t version);
Status write_settlement(Database& database, const Settlement& settlement);

/// Of an index of this version, which has the table. kCorrupt for a damaged row. Sorted.
Result<std::vector<IngestRoot>> read_unfinished_roots(Database& database, int64_t version);
/// In place of one with its path. kInvalidArgument past IngestRoot's bounds.
Status write_unfinished_root(Database& database, const IngestRoot& root);
Status erase_unfinished_root(Database& database, std::string_view path);

/// The first column of the first row; 0 when there is none.
Result<int64_t> read_integer(Database& database, std::string_view sql);

/// A record's name as the index keeps it: 16 bytes, high half first, as the file's name has them.
std::string record_bytes(const Hash128& record);
/// The reverse; nothing unless there are exactly 16 bytes.
std::optional<Hash128> parse_record(std::string_view bytes);

}  // namespace weft::retrieval
