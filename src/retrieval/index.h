// The catalogue of what was ingested: documents, their chunks with text and token ids, and a BM25
// search over them. It cuts no text, tokenises nothing for a model and stores no KV.
//
// One SQLite file with a rollback journal and full syncs: a change is there whole or not at all,
// also after kill -9 or a power cut, and several processes may use the file at once (a writer waits
// for the others). Not WAL: its side files would keep a read-only folder from being asked.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"

namespace weft::retrieval {

/// A file as it was when it was read.
struct DocumentInfo {
  std::string path;  // the document's name in the index; unique
  std::string title;
  uint64_t size_bytes = 0;
  int64_t modified_ns = 0;   // since the Unix epoch
  std::string content_hash;  // compared for equality only
};

enum class DocumentStatus {
  kCatalogued = 0,  // its chunks are in the index; not all of their KV need be in the store
  kStored = 1,      // the KV of each chunk was stored
};

struct Document {
  int64_t id = 0;
  DocumentInfo info;
  DocumentStatus status = DocumentStatus::kCatalogued;
  int64_t n_chunks = 0;
  int64_t n_tokens = 0;
};

/// A piece of a document, as it goes in.
struct ChunkText {
  uint64_t byte_begin = 0;  // of the document's bytes [byte_begin, byte_end)
  uint64_t byte_end = 0;
  std::string_view text;
  std::span<const int32_t> tokens;  // what stands for the chunk in a prompt; the caller decides
};

/// The same, as it comes out.
struct Chunk {
  int64_t id = 0;  // never used again for another chunk
  int64_t document_id = 0;
  int32_t ordinal = 0;  // 0, 1, … in the document
  uint64_t byte_begin = 0;
  uint64_t byte_end = 0;
  std::string text;
  std::vector<int32_t> tokens;
};

struct Hit {
  Chunk chunk;
  std::string path;
  std::string title;
  double score = 0;  // BM25; larger is better
};

struct Counts {
  int64_t documents = 0;
  int64_t chunks = 0;
  int64_t tokens = 0;
};

/// Errors of every call name the file: kCorrupt for a damaged or foreign one, kResourceExhausted
/// when another process holds it for very long or the disk is full. One thread at a time; each
/// thread may open an Index of its own on the same file.
class Index {
 public:
  enum class Mode {
    kReadOnly,   // the file must exist; changes are refused
    kReadWrite,  // the file must exist
    kCreate,     // made when missing
  };
  static Result<std::unique_ptr<Index>> open(const std::string& path, Mode mode);
  ~Index();

  /// Values are any bytes. No such key: no value.
  Result<std::optional<std::string>> meta(std::string_view key);
  Status set_meta(std::string_view key, std::string_view value);

  /// Puts the document in, in place of the one with its path: at once and whole. Its status is
  /// kCatalogued. Returns its id, which it keeps when it is replaced.
  Result<int64_t> replace_document(const DocumentInfo& info, std::span<const ChunkText> chunks);
  /// kNotFound when there is no such document, as for the next two.
  Status set_document_status(int64_t document_id, DocumentStatus status);
  /// The file's size and time changed, its content did not.
  Status touch_document(const DocumentInfo& info);
  Status remove_document(const std::string& path);

  /// Sorted by path, bytewise.
  Result<std::vector<Document>> documents();
  Result<std::optional<Document>> find_document(const std::string& path);
  /// In order; none for an unknown document.
  Result<std::vector<Chunk>> chunks_of(int64_t document_id);
  Result<Chunk> chunk(int64_t id);
  Result<Counts> counts();
  /// Calls fn for every chunk by ascending id, until it fails. The file is not locked meanwhile: fn
  /// may change the index, and others' changes may or may not be seen.
  Status all_chunks(FunctionRef<Status(const Chunk&)> fn);

  /// The k best chunks for a question, best first; ties by path, then by place in the document. Any
  /// bytes may be asked: they are split as the texts are (letters and digits, case and diacritics
  /// folded), and chunks or titles with any of the first kMaxQueryTerms terms are found.
  Result<std::vector<Hit>> search(std::string_view question, int k);
  static constexpr size_t kMaxQueryTerms = 256;

  /// Reads everything: ok, or kCorrupt with the first thing that is wrong. A read-only index's
  /// search terms are not compared with its texts.
  Status verify();

 private:
  struct State;
  explicit Index(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace weft::retrieval
