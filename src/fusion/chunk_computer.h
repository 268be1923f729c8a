// Computes a chunk's KV by itself, behind the model's anchor and nothing else, and makes a record
// of it. The anchor's pages are kept from one chunk to the next. Short chunks share a step, which
// changes no bit of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "kv/cache.h"
#include "model/executor.h"
#include "model/forward.h"
#include "tensor/dtype.h"

namespace weft::fusion {

/// What records hold, whatever the KV cache does.
inline constexpr DType kRecordType = DType::kF16;
/// Of one token, all layers.
int64_t record_token_bytes(const model::ModelConfig& config);

/// One chunk's KV as a record has it: K before rotation. A layer is
/// [n_tokens][n_kv_heads][head_dim] of K, then the same of V, of kRecordType.
struct ChunkKv {
  int32_t n_tokens = 0;
  std::vector<std::vector<std::byte>> layers;
};

/// Rows of a step over several chunks at most: more cost more memory, and are not quicker. A longer
/// chunk has its step to itself.
inline constexpr int64_t kChunkStepRows = 512;

/// Not thread-safe.
class ChunkComputer {
 public:
  /// `forward` and `cache` must outlive the computer; `anchor` may be empty.
  ChunkComputer(model::ForwardPass& forward, kv::Cache& cache, const kernels::Context& context,
                std::vector<int32_t> anchor);
  ~ChunkComputer();
  ChunkComputer(const ChunkComputer&) = delete;
  ChunkComputer& operator=(const ChunkComputer&) = delete;

  /// kResourceExhausted when the cache has no pages for anchor and chunk, kInvalidArgument for no
  /// tokens or ids outside the vocabulary; the cache is as before.
  Result<ChunkKv> compute(std::span<const int32_t> tokens);

  /// The first of `chunks`, in one step: one at least, and as many more as kChunkStepRows and the
  /// cache's free pages allow. Each has the bits that compute() gives it. Errors as there;
  /// kCancelled where `cancelled`, which may be null and is asked before each layer, says so.
  Result<std::vector<ChunkKv>> compute_first(std::span<const std::span<const int32_t>> chunks,
                                             const model::Executor::Cancelled* cancelled = nullptr);

  /// Frees the anchor's pages; the next chunk computes it again.
  void drop_anchor();

  const std::vector<int32_t>& anchor() const { return anchor_; }

 private:
  struct Step;

  Status ensure_anchor();
  Status add_to(Step& step, std::span<const int32_t> tokens);
  bool has_free_pages_for(size_t n_tokens) const;

  model::ForwardPass& forward_;
  kv::Cache& cache_;
  const kernels::Context& context_;
  std::vector<int32_t> anchor_;
  std::optional<kv::SequenceId> anchor_sequence_;
};

}  // namespace weft::fusion
