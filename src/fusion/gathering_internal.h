// Chunks that the store does not have, computed several in a step, and stored: work that may rest
// between two layers. Used by fusor.cc and prefill.cc alone.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fusion/chunk_source.h"
#include "fusion/fusor.h"

namespace weft::fusion {

/// Not thread-safe.
class Gathering {
 public:
  /// Fills the sources that `found` has not; `fusor`, `chunks` and `found` must outlive it.
  Gathering(Fusor& fusor, std::span<const Fusor::NamedChunk> chunks,
            std::span<std::optional<ChunkSource>> found);

  /// Runs the next layer; returns how many rows went into it. 0: every source is there. Errors are
  /// ChunkComputer's; what was computed before one is stored.
  Result<int64_t> advance();

 private:
  Status start();
  void keep();

  Fusor& fusor_;
  std::span<const Fusor::NamedChunk> chunks_;
  std::span<std::optional<ChunkSource>> found_;
  std::vector<size_t> missing_;  // of the chunks, those to come
  std::vector<std::span<const int32_t>> tokens_;
  size_t n_done_ = 0;
  std::unique_ptr<model::Pass> anchor_;  // one of the two is under way, or none
  std::unique_ptr<ChunkPass> pass_;
};

}  // namespace weft::fusion
