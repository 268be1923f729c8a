// Sums what forward.cc, batch.cc and the ops take, member by member; step_scratch_test.cc (tests)
// runs steps and counts the bytes that operator new gave out meanwhile, so neither side can change
// alone.
#include "model/step_scratch.h"

#include <algorithm>

#include "model/batch.h"

namespace weft::model {
namespace {

using kernels::KernelClass;
using kernels::WeightMatrix;

constexpr int64_t kFloat = sizeof(float);

void add_unless_known(std::vector<WeightMatrix>& weights, const WeightMatrix& added) {
  const bool is_known = std::ranges::any_of(weights, [&](const WeightMatrix& one) {
    return one.dtype == added.dtype && one.in_features == added.in_features;
  });
  if (!is_known && added.data != nullptr) weights.push_back(added);
}

std::vector<WeightMatrix> kinds_of_weights(const Weights& all) {
  std::vector<WeightMatrix> kinds;
  for (const LayerWeights& layer : all.layers) {
    for (const WeightMatrix& w : {layer.q, layer.k, layer.v, layer.o, layer.router}) {
      add_unless_known(kinds, w);
    }
    for (const FeedForwardWeights& expert : layer.experts) {
      for (const WeightMatrix& w : {expert.gate, expert.up, expert.down}) {
        add_unless_known(kinds, w);
      }
    }
  }
  return kinds;
}

}  // namespace

StepScratch::StepScratch(const Model& model, const kernels::Context& context,
                         const kernels::KvLayout& layout)
    : config_(model.config()),
      context_(context),
      layout_(layout),
      weights_(kinds_of_weights(model.weights())),
      head_(model.weights().output) {
  kernels::WorkspaceSize one_row;
  for (const WeightMatrix& weight : weights_) {
    kernels::count_matmul(context_, weight, 1, KernelClass::kPrefill, one_row);
  }
  products_ = one_row.products();
}

int64_t StepScratch::bytes(const StepShape& step, int n_workers) const {
  const int64_t n_rows = step.n_rows();
  const int64_t block_rows = std::min(std::max(step.prompt_rows, step.decode_rows), kBlockRows);
  // The head's input is gathered in the scratch, too.
  return block_bytes(std::max(block_rows, std::min({step.logit_rows, n_rows, kBlockRows}))) +
         batch_bytes(step) +
         workspace_bytes(step, n_workers == 0 ? context_.pool.size() : n_workers) +
         kFloat * step.logit_rows * config_.vocab_size;
}

/// ForwardPass::reserve.
int64_t StepScratch::block_bytes(int64_t n_rows) const {
  const ModelConfig& c = config_;
  int64_t floats =
      2 * c.n_embd + 2 * c.q_width() + 2 * c.kv_width() + 2 * int64_t{c.n_ff} + c.n_heads;
  int64_t router_bytes = 0;
  if (c.n_experts > 0) {
    floats += 2 * c.n_embd + c.n_experts;
    router_bytes = c.n_experts * (sizeof(int64_t) + kFloat);  // each expert may get every row
  }
  return n_rows * (kFloat * floats + router_bytes);
}

/// What a Batch has for each row, and the plan of its attention: vectors that grow by doubling, and
/// the copy that a stable sort makes.
int64_t StepScratch::batch_bytes(const StepShape& step) const {
  const ModelConfig& c = config_;
  const int64_t n_rows = step.n_rows();
  const std::vector<int32_t> windows = c.group_windows();
  int64_t rope_dims = 0;
  for (const kernels::RopeParams& rope : c.ropes) rope_dims += rope.n_dims;
  constexpr int64_t kIntegers = 2 * 3 * sizeof(int32_t);  // token, slot, position
  const int64_t n_windows = std::ssize(windows) - std::ranges::count(windows, 0);
  const int64_t scale_bytes = c.temperature_factor != 0 ? 2 * kFloat : 0;
  const int64_t row_bytes =
      kIntegers + 2 * sizeof(int32_t) * n_windows + scale_bytes + kFloat * (rope_dims + c.n_embd);
  int64_t plan_bytes = 0;
  for (const int32_t window : windows) {
    plan_bytes += kernels::attention_plan_bytes(attention_of(step, window));
  }
  const int64_t layer_bytes = sizeof(kernels::PagedKv) + sizeof(int64_t);
  return n_rows * row_bytes + 3 * plan_bytes + 2 * c.n_layers * layer_bytes;
}

kernels::AttentionShape StepScratch::attention_of(const StepShape& step, int32_t window) const {
  return {.layout = layout_,
          .n_heads = config_.n_heads,
          .n_slots = step.n_slots,
          .window_tokens = window,
          .n_prompt_rows = step.prompt_rows,
          .n_decode_rows = step.decode_rows,
          .receives = step.receives};
}

int64_t StepScratch::workspace_bytes(const StepShape& step, int n_workers) const {
  const int64_t prompt_rows = std::min(step.prompt_rows, kBlockRows);
  const int64_t decode_rows = std::min(step.decode_rows, kBlockRows);
  kernels::WorkspaceSize size;
  if (prompt_rows > 0) size = products_;
  for (const WeightMatrix& weight : weights_) {
    kernels::count_matmul(context_, weight, prompt_rows, KernelClass::kPrefill, size);
    kernels::count_matmul(context_, weight, decode_rows, KernelClass::kDecode, size);
  }
  const int64_t head_rows = std::min(step.logit_rows, kBlockRows);
  kernels::count_matmul(context_, head_, head_rows,
                        step.scores ? KernelClass::kPrefill : KernelClass::kDecode, size);
  for (const int32_t window : config_.group_windows()) {
    kernels::AttentionShape shape = attention_of(step, window);
    shape.n_prompt_rows = prompt_rows;
    shape.n_decode_rows = decode_rows;
    kernels::count_attention(context_.isa, shape, size);
  }
  return size.bytes(n_workers);
}

}  // namespace weft::model
