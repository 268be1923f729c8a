// How much memory a step takes beside the pages of the KV cache: integers alone, before anything is
// run, so that a limit can leave room for it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention_scratch.h"
#include "kernels/context.h"
#include "kernels/paged_kv.h"
#include "kernels/workspace_size.h"
#include "model/config.h"
#include "model/model.h"

namespace weft::model {

/// The longest step of those that are to run. Numbers at most; sums of what different steps need
/// are fine.
struct StepShape {
  int64_t n_rows() const { return most_rows > 0 ? most_rows : prompt_rows + decode_rows; }

  int64_t prompt_rows = 0;  // RowKind::kPrompt
  int64_t decode_rows = 0;  // the other kinds
  int64_t most_rows = 0;    // of both together; 0: their sum
  int64_t n_slots = 0;      // that a row may see
  int64_t logit_rows = 0;   // whose logits are held at once
  bool scores = false;      // logits by prefill's kernels too, as in perplexity
  bool receives = false;    // LayerHooks::received is asked for
};

/// Of one model and compute path. Any thread; refers to the model.
class StepScratch {
 public:
  /// Asks oneDNN for its sizes where the path is bf16, which takes some ms.
  StepScratch(const Model& model, const kernels::Context& context, const kernels::KvLayout& layout);

  /// The forward pass's scratch, the batch, the ops' workspace (of n_workers threads; 0: the
  /// context's) and the logits. Grows with each number of the shape. Not counted: code that oneDNN
  /// generates, and what an allocation takes beyond its size.
  int64_t bytes(const StepShape& step, int n_workers = 0) const;

 private:
  int64_t workspace_bytes(const StepShape& step, int n_workers) const;
  int64_t block_bytes(int64_t n_rows) const;
  int64_t batch_bytes(const StepShape& step) const;
  kernels::AttentionShape attention_of(const StepShape& step, int32_t window) const;

  const ModelConfig& config_;
  kernels::Context context_;
  kernels::KvLayout layout_;
  std::vector<kernels::WeightMatrix> weights_;  // one of each type and number of in_features
  kernels::WeightMatrix head_;
  kernels::WorkspaceSize products_;  // of prefill: what does not depend on the rows
};

}  // namespace weft::model
