// Puts documents into a library: finds what is new, changed or gone under the paths that were
// named, cuts it into chunks, catalogues it, and has each chunk's KV computed once and stored. It
// prints nothing and reads no flags; who runs it is told through IngestEvents.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "engine/engine.h"
#include "fusion/fusor.h"
#include "library/library.h"
#include "retrieval/scan.h"

namespace weft::library {

/// What there is to do, before it is begun.
struct IngestPlan {
  int64_t documents = 0;
  int64_t chunks = 0;
  int64_t tokens = 0;
  int64_t new_chunks = 0;  // whose KV is not stored yet, each once
  int64_t new_tokens = 0;  // theirs
  uint64_t new_bytes = 0;  // of that KV
  uint64_t free_bytes = 0;
  std::string largest_path;  // of the documents that need new KV; "" without any
  uint64_t largest_bytes = 0;
};

/// Told when a document's turn comes, and for each chunk whose KV was stored or was there.
struct IngestProgress {
  int64_t done_tokens = 0;
  int64_t total_tokens = 0;
  int64_t computed_tokens = 0;  // of the done ones, those whose KV was not there
  std::string_view path;        // of the document
};

/// Callbacks for whoever shows the ingest. All may be empty; they run on the ingest's thread.
struct IngestEvents {
  std::function<void(const retrieval::SkippedFile&)> skipped;
  /// A document was read by a guess (documents::Document::guess).
  std::function<void(const std::string& path, const std::string& guess)> guessed;
  /// A document that goes in has no text: nothing of it can be found.
  std::function<void(const std::string& path)> empty;
  std::function<void(const std::string& line)> noted;  // as ScanResult::notes
  std::function<void(const IngestPlan&)> planned;
  std::function<void(const IngestProgress&)> stored;
  /// Asked for each file that is looked at and before each step, which computes a chunk or several
  /// short ones; true ends with kCancelled.
  std::function<bool()> cancelled;
};

/// Documents by what was done with them.
struct IngestCounts {
  int64_t added = 0;
  int64_t changed = 0;
  int64_t completed = 0;
  int64_t moved = 0;
  int64_t deleted = 0;
  int64_t skipped_now = 0;  // of the deleted ones, those that are there and not read any more
  int64_t unchanged = 0;
  int64_t skipped = 0;

  /// Whether any document is in the library that was named.
  bool took_something() const { return added + changed + completed + moved + unchanged > 0; }
};

/// To be used from one thread.
class Ingester {
 public:
  /// All must outlive the ingester.
  Ingester(Env& env, engine::Engine& engine, Library& library, IngestEvents events);
  ~Ingester();
  Ingester(const Ingester&) = delete;
  Ingester& operator=(const Ingester&) = delete;

  /// When it is ok, the library has the documents under `paths` as they were when they were read,
  /// durably, and no others. After an error, each as it was before or as it is now. A file that is
  /// gone when it is to be read is as one that was never there; one that cannot be read any more is
  /// skipped. The scan's store is the library's own. kResourceExhausted, with nothing changed,
  /// where the new KV cannot fit the disk and the library has no limit of its own.
  Result<IngestCounts> run(const std::vector<std::string>& paths,
                           retrieval::ScanOptions options = {});

  /// What run() planned to store and has not: bytes on disk, also after an error. 0 before the
  /// plan.
  uint64_t bytes_left() const { return bytes_left_; }

 private:
  struct CutChunk;
  struct CutDocument;
  /// A document that is in the index, and whose chunks' KV waits for a step, its own or one that
  /// several documents share.
  struct WaitingDocument {
    int64_t id = 0;  // the index's
    std::string path;
    std::string content_hash;
    std::vector<std::vector<int32_t>> chunks;  // tokens of those whose KV was not there
    size_t n_stored = 0;                       // the first of them
  };

  Result<std::optional<retrieval::LoadedDocument>> load(retrieval::ScannedFile& file);
  Result<std::optional<CutDocument>> load_and_cut(retrieval::ScannedFile& file);
  Result<CutDocument> cut(retrieval::LoadedDocument document) const;
  Status find_incomplete(std::vector<retrieval::ScannedFile>& files);
  Status find_incomplete_move(retrieval::ScannedFile& file);
  Status plan(std::vector<retrieval::ScannedFile>& files);
  Status ingest_document(retrieval::ScannedFile& file);
  Status store_waiting(int64_t fewest_tokens);
  Status store_step();
  Status end_stored();
  Status mark_stored(const WaitingDocument& document);
  void tell(std::string_view path) const;
  Status stopped_at(const std::string& path, const Status& status) const;
  std::string room_needed() const;
  Status take_over(retrieval::ScannedFile& file);
  Status forget(const std::string& path);
  Result<bool> is_incomplete(const std::string& path);
  Status apply(retrieval::ScannedFile& file);
  Status check_stopped() const;
  Status check_room(const IngestPlan& plan, const std::vector<retrieval::ScannedFile>& files);
  Result<retrieval::ScanResult> prepare(const std::vector<std::string>& paths);
  Result<IngestCounts> carry_out(retrieval::ScanResult& scanned);
  Status begin_roots(const retrieval::ScanResult& scanned);
  Status end_roots();
  bool is_asked(const std::string& path) const;
  bool needs_work(const retrieval::ScannedFile& file) const;

  Env& env_;
  engine::Engine& engine_;
  Library& library_;
  const IngestEvents events_;
  fusion::Fusor& fusor_;
  retrieval::ScanOptions options_;
  std::vector<std::string> outer_roots_;  // retrieval::outermost of what was named
  int64_t n_skipped_ = 0;
  int64_t done_tokens_ = 0;
  int64_t total_tokens_ = 0;
  int64_t computed_tokens_ = 0;
  int64_t stored_chunks_ = 0;
  uint64_t bytes_left_ = 0;
  std::deque<WaitingDocument> waiting_;
  int64_t waiting_tokens_ = 0;
  std::set<std::string> cut_anew_;  // moved documents that are not whole as they are
};

}  // namespace weft::library
