// Member by member what LoadPipeline, FusionPass and ChunkShifts hold; tests/step_scratch_test.cc
// runs fusions and counts.
#include "fusion/fusion_scratch.h"

#include "fusion/load_pipeline.h"
#include "fusion/record_type.h"

namespace weft::fusion {

int64_t fusion_scratch_bytes(const model::ModelConfig& config, int64_t n_tokens) {
  constexpr int64_t kFloat = sizeof(float);
  // Shorter chunks are possible and rare: of each there is one shift.
  constexpr int64_t kLeastChunkTokens = 16;
  // Ids, positions, rows, weights of changes, attention received: vectors, some doubled.
  constexpr int64_t kIntegers = 160;
  const int64_t width = config.kv_width();
  // f16's are the longest; an engine is made before it is known what a store has.
  const int64_t in_flight = LoadPipeline::kSlots * record_layer_bytes(config, DType::kF16, 1);
  int64_t rope_dims = 0;
  for (const kernels::RopeParams& rope : config.ropes) rope_dims += rope.n_dims;
  // Stored K and V, and their changes; V of the deviation check.
  const int64_t floats = 2 * width + 2 * width + width + 2 * rope_dims;
  const int64_t shift_bytes = (n_tokens / kLeastChunkTokens + 1) * 2 * width * kFloat;
  return n_tokens * (in_flight + kFloat * floats + kIntegers) + shift_bytes;
}

}  // namespace weft::fusion
