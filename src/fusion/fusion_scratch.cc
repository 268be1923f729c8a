// Member by member what LoadPipeline, FusionPass and ChunkShifts hold; tests/step_scratch_test.cc
// runs fusions and counts.
#include "fusion/fusion_scratch.h"

#include "fusion/chunk_computer.h"
#include "fusion/load_pipeline.h"

namespace weft::fusion {

int64_t fusion_scratch_bytes(const model::ModelConfig& config, int64_t n_tokens) {
  constexpr int64_t kFloat = sizeof(float);
  // Shorter chunks are possible and rare: of each there is one shift.
  constexpr int64_t kLeastChunkTokens = 16;
  // Ids, positions, rows, weights of changes, attention received: vectors, some doubled.
  constexpr int64_t kIntegers = 160;
  const int64_t width = config.kv_width();
  const int64_t in_flight = LoadPipeline::kSlots * (record_token_bytes(config) / config.n_layers);
  int64_t rope_dims = 0;
  for (const kernels::RopeParams& rope : config.ropes) rope_dims += rope.n_dims;
  // Stored K and V, and their changes; V of the deviation check.
  const int64_t floats = 2 * width + 2 * width + width + 2 * rope_dims;
  const int64_t shift_bytes = (n_tokens / kLeastChunkTokens + 1) * 2 * width * kFloat;
  return n_tokens * (in_flight + kFloat * floats + kIntegers) + shift_bytes;
}

}  // namespace weft::fusion
