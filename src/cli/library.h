// A folder of ingested documents: the chunk store, the index of documents and chunks beside it, and
// what both were made with. The folder remembers its model and its anchor; nothing else may be
// mixed into it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/rag_prompt.h"
#include "retrieval/index.h"
#include "store/chunk_store.h"

namespace weft::cli {

struct LibraryOptions {
  std::string dir;
  uint64_t memory_limit_bytes = uint64_t{1} << 30;
  uint64_t store_limit_bytes = 0;  // 0: none
  std::string prompt;              // chat or fewshot; "": as the folder, or the model, has it
};

class Library {
 public:
  /// For ingest: makes the folder where it is missing. `anchor_flag` is empty to take the folder's
  /// own (or the default for a new one); another anchor, form of prompt or model than the folder's
  /// is kInvalidArgument.
  static Result<Library> create(Env& env, const LibraryOptions& options, engine::Engine& engine,
                                const std::string& anchor_flag);
  /// For ask: the folder must exist and hold something for the engine's model.
  static Result<Library> open(Env& env, const LibraryOptions& options, engine::Engine& engine);

  store::ChunkStore& store() { return *store_; }
  retrieval::Index& index() { return *index_; }
  const engine::RagPrompt& rag() const { return rag_; }
  const std::vector<int32_t>& anchor() const { return anchor_; }

  /// A store over the same folder whose memory tier is empty.
  Status reopen_store(Env& env);

 private:
  Library(LibraryOptions options, engine::RagPrompt rag)
      : options_(std::move(options)), rag_(std::move(rag)) {}
  static Result<std::unique_ptr<store::ChunkStore>> open_store(Env& env,
                                                               const LibraryOptions& options,
                                                               bool create);
  Status read_anchor();

  LibraryOptions options_;
  engine::RagPrompt rag_;
  std::unique_ptr<store::ChunkStore> store_;
  std::unique_ptr<retrieval::Index> index_;
  std::vector<int32_t> anchor_;
};

}  // namespace weft::cli
