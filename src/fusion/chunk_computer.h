// Computes a chunk's KV by itself, after the model's anchor and nothing else, and makes a record
// of it. The anchor's pages are kept from one chunk to the next, unless others need them. Short
// chunks share a step, which changes no bit of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "fusion/record_type.h"
#include "kv/cache.h"
#include "model/executor.h"
#include "model/forward.h"
#include "tensor/dtype.h"
#include "tensor/matrix_view.h"

namespace weft::fusion {

/// One chunk's KV as a record has it: K before rotation. A layer is
/// [n_tokens][n_kv_heads][head_dim] of K, then the same of V, both of `type`.
struct ChunkKv {
  DType type = kUsualRecordType;
  int32_t n_tokens = 0;
  std::vector<std::vector<std::byte>> layers;
};

/// Rows of a step over several chunks at most: more cost more memory, and are not quicker. A longer
/// chunk has its step to itself.
inline constexpr int64_t kChunkStepRows = 512;

class ChunkPass;

/// Not thread-safe.
class ChunkComputer {
 public:
  /// `forward` and `cache` must outlive the computer; `anchor` may be empty; `type` is what it
  /// gives, whatever the cache holds, and one that check_record_type takes.
  ChunkComputer(model::ForwardPass& forward, kv::Cache& cache, const kernels::Context& context,
                std::vector<int32_t> anchor, DType type = kUsualRecordType);
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

  /// The same as passes that rest between layers, the anchor's first. It is there once that pass is
  /// finished, and start_first needs it.
  bool has_anchor() const {
    return anchor_.empty() || (anchor_sequence_ && cache_.contains(*anchor_sequence_));
  }
  Result<std::unique_ptr<model::Pass>> start_anchor();
  Result<std::unique_ptr<ChunkPass>> start_first(std::span<const std::span<const int32_t>> chunks);

  const std::vector<int32_t>& anchor() const { return anchor_; }

 private:
  class AnchorPass;
  friend class ChunkPass;

  bool has_free_pages_for(int64_t n_tokens) const;

  model::ForwardPass& forward_;
  kv::Cache& cache_;
  const kernels::Context& context_;
  std::vector<int32_t> anchor_;
  const DType type_;
  std::optional<kv::SequenceId> anchor_sequence_;  // expendable: it may be gone
};

/// Some chunks on their way through the layers, together. What it refers to must outlive it.
class ChunkPass : public model::RowsPass {
 public:
  /// Of the chunks, in their order; once, after the pass.
  std::vector<ChunkKv> take_chunks() { return std::move(step_.chunks); }

 private:
  friend class ChunkComputer;

  struct Step {
    model::Rows rows;                          // a group for each chunk
    std::vector<ChunkKv> chunks;               // each with room for all its layers
    std::vector<kv::OwnedSequence> sequences;  // forks of the anchor's
    std::vector<kv::Reservation> reservations;

    Status add(ChunkComputer& computer, std::span<const int32_t> tokens);
  };
  struct Keep {
    ChunkPass* pass;
    void operator()(int64_t row_begin, MatrixView<const float> k, MatrixView<const float> v) {
      pass->keep(row_begin, k, v);
    }
  };

  ChunkPass(ChunkComputer& computer, Step step);
  void keep(int64_t row_begin, MatrixView<const float> k, MatrixView<const float> v);

  const model::ModelConfig& config_;
  const kernels::Isa isa_;
  Step step_;
  const std::vector<model::RowGroup> groups_;
  size_t layer_ = 0;
  Keep keep_{this};
  const model::LayerHooks::KvSink sink_{keep_};
};

}  // namespace weft::fusion
