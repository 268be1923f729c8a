// Puts documents into a library: finds what is new, changed or gone under the paths that were
// named, cuts it into chunks, catalogues it, and has each chunk's KV computed once and stored. It
// prints nothing and reads no flags; who runs it is told through IngestEvents.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "cli/library.h"
#include "engine/engine.h"
#include "fusion/fusor.h"
#include "retrieval/scan.h"

namespace weft::cli {

/// What there is to do, before it is begun.
struct IngestPlan {
  int64_t documents = 0;
  int64_t chunks = 0;
  int64_t tokens = 0;
  uint64_t new_bytes = 0;  // of KV that is not stored yet
  uint64_t free_bytes = 0;
};

/// All may be empty.
struct IngestEvents {
  std::function<void(const retrieval::SkippedFile&)> skipped;
  std::function<void(const IngestPlan&)> planned;
  std::function<void(int64_t done_tokens, int64_t total_tokens)> stored;
  std::function<bool()> cancelled;  // asked before each chunk; true ends with kCancelled
};

/// Documents by what was done with them.
struct IngestCounts {
  int64_t added = 0;
  int64_t changed = 0;
  int64_t completed = 0;
  int64_t moved = 0;
  int64_t deleted = 0;
  int64_t unchanged = 0;
  int64_t skipped = 0;
};

/// One thread.
class Ingester {
 public:
  /// All must outlive the ingester.
  Ingester(Env& env, engine::Engine& engine, Library& library, IngestEvents events);
  ~Ingester();
  Ingester(const Ingester&) = delete;
  Ingester& operator=(const Ingester&) = delete;

  /// When it is ok, the library has the documents under `paths` as they were when they were read,
  /// durably, and no others. After an error, each as it was before or as it is now.
  Result<IngestCounts> run(const std::vector<std::string>& paths);

 private:
  struct CutChunk;
  struct CutDocument;

  Result<CutDocument> cut(const std::string& path) const;
  Status find_incomplete(std::vector<retrieval::ScannedFile>& files);
  Status plan(const std::vector<retrieval::ScannedFile>& files);
  Status ingest_document(const retrieval::ScannedFile& file);
  Status take_over(const retrieval::ScannedFile& file);
  Status forget(const std::string& path);
  Result<bool> is_incomplete(const std::string& path);
  Status apply(const retrieval::ScannedFile& file);
  Status begin_roots(const retrieval::ScanResult& scanned);
  Status end_roots(const std::vector<std::string>& roots);
  bool needs_work(const retrieval::ScannedFile& file) const;

  Env& env_;
  engine::Engine& engine_;
  Library& library_;
  const IngestEvents events_;
  std::unique_ptr<fusion::Fusor> fusor_;
  int64_t done_tokens_ = 0;
  int64_t total_tokens_ = 0;
  int64_t stored_chunks_ = 0;
  std::set<std::string> cut_anew_;  // moved documents that are not whole as they are
};

}  // namespace weft::cli
