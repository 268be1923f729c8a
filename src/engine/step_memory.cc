#include "engine/step_memory.h"

#include <algorithm>

#include "engine/prefill_rates.h"
#include "fusion/chunk_computer.h"
#include "fusion/fusion_scratch.h"
#include "sparse/selector.h"

namespace weft::engine {
namespace {

/// Angles of each token (model/context_shift.cc) for each of the model's RoPEs, and how far it is
/// turned.
int64_t turn_bytes(const model::ModelConfig& config, int64_t n_tokens) {
  int64_t token_bytes = 4 * sizeof(int32_t);
  for (const kernels::RopeParams& rope : config.ropes) token_bytes += rope.n_dims * sizeof(float);
  return n_tokens * token_bytes;
}

}  // namespace

StepMemory::StepMemory(const model::Model& model, const kernels::Context& context,
                       const kernels::KvLayout& layout, const StepNeeds& needs)
    : model_(model),
      context_(context),
      needs_(needs),
      layout_(layout),
      scratch_(model, context, layout) {}

model::StepShape StepMemory::shape(int64_t capacity_tokens, int64_t context_tokens,
                                   int64_t step_rows) const {
  const int64_t context = std::min(context_tokens, capacity_tokens);
  int64_t prompt_rows = std::max(step_rows, needs_.whole_rows);
  // A chunk is no longer than a context, and several go together.
  if (needs_.makes_chunks) prompt_rows = std::max({prompt_rows, context, fusion::kChunkStepRows});
  if (needs_.fuses) prompt_rows = std::max(prompt_rows, context);
  prompt_rows = std::min(prompt_rows, capacity_tokens);
  const int64_t n_sequences = std::min<int64_t>(needs_.n_sequences, capacity_tokens);
  const int64_t n_tried =
      std::min<int64_t>(n_sequences * (1 + needs_.draft_tokens), capacity_tokens);
  // What was preempted takes prompts' rows for what it had generated.
  const int64_t recomputed = needs_.batches ? std::min(step_rows, capacity_tokens) : 0;
  const int64_t logit_rows =
      needs_.logit_rows > 0 ? needs_.logit_rows : (needs_.batches ? 1 : 2) * n_tried;
  return {.prompt_rows = prompt_rows,
          .decode_rows = n_tried + recomputed,
          .most_rows = prompt_rows + n_tried,
          .n_slots = context,
          .logit_rows = logit_rows,
          .scores = needs_.scores,
          .receives = needs_.fuses};
}

int64_t StepMemory::block_rows(int64_t capacity_tokens, int64_t context_tokens,
                               int64_t step_rows) const {
  const model::StepShape longest = shape(capacity_tokens, context_tokens, step_rows);
  return std::min(std::max(longest.prompt_rows, longest.decode_rows), model::kBlockRows);
}

int64_t StepMemory::bytes(int64_t capacity_tokens, int64_t context_tokens,
                          int64_t step_rows) const {
  const model::StepShape longest = shape(capacity_tokens, context_tokens, step_rows);
  const int64_t context = std::min(context_tokens, capacity_tokens);
  const int64_t selecting =
      sparse::selection_bytes(context_, needs_.sparse,
                              {.layout = layout_,
                               .n_heads = model_.config().n_heads,
                               .n_rows = std::min(longest.decode_rows, model::kBlockRows),
                               .n_slots = context,
                               .n_layers = model_.config().n_layers});
  const int64_t step_bytes = scratch_.bytes(longest) + selecting;
  const int64_t turned = turn_bytes(model_.config(), std::min(context, needs_.turned_tokens));
  if (!needs_.fuses) return std::max(step_bytes, turned);
  return std::max(step_bytes + fusion::fusion_scratch_bytes(model_.config(), context),
                  prefill_rates_bytes(scratch_, model_.config(), capacity_tokens));
}

}  // namespace weft::engine
