// What a command runs at most in one step, and how much memory that takes beside the pages of the
// KV cache: what --kv-limit sets aside for it. Integers; nothing is run.
#pragma once

#include <cstdint>

#include "model/step_scratch.h"
#include "sparse/options.h"

namespace weft::engine {

/// The steps that a command runs, as far as it decides them. The default: one sequence, whose
/// prompt goes in steps as long as memory allows.
struct StepNeeds {
  int32_t n_sequences = 1;       // that decode in one step
  bool batches = false;          // a Batcher runs them: what is preempted computes its answer again
  bool makes_chunks = false;     // chunks are computed, in steps of their own
  bool fuses = false;            // prompts over chunks, of which every row is in one step
  int64_t whole_rows = 0;        // rows of prompts that cannot be divided
  int64_t logit_rows = 0;        // held at once; 0: what the sequences' are, old and new
  bool scores = false;           // Engine::score
  int32_t draft_tokens = 0;      // of each that decodes, at most; the engine's to say
  int64_t turned_tokens = 0;     // whose K is turned at once, at most; the engine's to say
  sparse::SparseOptions sparse;  // the engine's to say
};

/// Of one model, compute path and command. The model must outlive it.
class StepMemory {
 public:
  /// As model::StepScratch: with bf16 some ms.
  StepMemory(const model::Model& model, const kernels::Context& context,
             const kernels::KvLayout& layout, const StepNeeds& needs);

  /// Bytes of the longest step, where the cache holds so many tokens, of which a sequence has
  /// `context_tokens` at most, and prompts that can be divided go in steps of `step_rows`. Grows
  /// with each of them.
  int64_t bytes(int64_t capacity_tokens, int64_t context_tokens, int64_t step_rows) const;

  /// Rows of the largest block of it that goes through a layer together.
  int64_t block_rows(int64_t capacity_tokens, int64_t context_tokens, int64_t step_rows) const;

 private:
  model::StepShape shape(int64_t capacity_tokens, int64_t context_tokens, int64_t step_rows) const;

  const model::Model& model_;
  kernels::Context context_;
  StepNeeds needs_;
  kernels::KvLayout layout_;
  model::StepScratch scratch_;
};

}  // namespace weft::engine
