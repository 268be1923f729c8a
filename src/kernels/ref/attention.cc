// softmax(scale * q K^T) V as the papers write it: all scores of a row first, the maximum taken
// off, no blocks and no running sums, so that it shares no trick with the kernels that it checks.
#include "kernels/ref/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/ref/kv_codec.h"

namespace weft::kernels::ref {
namespace {

/// Softmax probabilities of the keys that `row` sees, and the log of their sum.
struct Probabilities {
  int64_t first_key = 0;
  HeadPages pages;
  std::vector<double> p;  // of the keys from first_key on
  double log_sum_exp = 0;
};

Probabilities probabilities(const AttentionArgs& args, const AttentionSequence& sequence,
                            int64_t row, int32_t head) {
  const int32_t head_dim = args.kv.layout.head_dim;
  const int32_t kv_head = head / (args.n_heads / args.kv.layout.n_kv_heads);
  const std::span<const float> q = args.q.in_rows_of(head_dim).row(row * args.n_heads + head);
  Probabilities result;
  result.first_key = args.first_slots.empty() ? 0 : args.first_slots[row];
  const bool is_sparse = !sequence.heads.empty();
  const KvLayout& layout = args.kv.layout;
  const HeadPages pages =
      is_sparse ? sequence.heads[kv_head]
                : HeadPages{sequence.block_table, args.slots[row], layout.page_tokens};
  result.pages = pages;
  for (int64_t j = result.first_key; j <= pages.last_slot; ++j) {
    const PagedSlot at = find_slot(layout, pages.table, pages.entry_tokens, j);
    const uint8_t* k = k_in_page(args.kv, at, kv_head);
    double score = 0;
    for (int32_t d = 0; d < head_dim; ++d) {
      score += double{q[d]} * kv_element(args.kv.layout.k_type, k, d);
    }
    score *= args.scale;
    if (args.softcap > 0) {
      const double cap = args.softcap;
      score = cap * std::tanh(score / cap);
    }
    if (pages.weights != nullptr) {
      score += std::log(double{pages.weights[j / pages.entry_tokens]});
    }
    result.p.push_back(score);
  }
  const double largest = *std::max_element(result.p.begin(), result.p.end());
  double sum = 0;
  for (const double score : result.p) sum += std::exp(score - largest);
  result.log_sum_exp = largest + std::log(sum);
  for (double& p : result.p) p = std::exp(p - result.log_sum_exp);
  return result;
}

}  // namespace

AttentionResult attention(const AttentionArgs& args, int64_t n_rows) {
  const int32_t head_dim = args.kv.layout.head_dim;
  AttentionResult result;
  result.out.resize(n_rows * args.n_heads * head_dim);
  result.log_sum_exp.resize(n_rows * args.n_heads);
  for (const AttentionSequence& sequence : args.sequences) {
    for (int64_t row = sequence.row_begin; row < sequence.row_end; ++row) {
      for (int32_t head = 0; head < args.n_heads; ++head) {
        const Probabilities result_of_row = probabilities(args, sequence, row, head);
        const int32_t kv_head = head / (args.n_heads / args.kv.layout.n_kv_heads);
        const int64_t index = row * args.n_heads + head;
        double* out = result.out.data() + index * head_dim;
        for (int64_t j = 0; j < std::ssize(result_of_row.p); ++j) {
          const int64_t key = result_of_row.first_key + j;
          const HeadPages& pages = result_of_row.pages;
          const PagedSlot at = find_slot(args.kv.layout, pages.table, pages.entry_tokens, key);
          const uint8_t* v = v_in_page(args.kv, at, kv_head);
          for (int32_t d = 0; d < head_dim; ++d) {
            out[d] += result_of_row.p[j] * kv_element(args.kv.layout.v_type, v, d);
          }
        }
        result.log_sum_exp[index] = result_of_row.log_sum_exp;
      }
    }
  }
  return result;
}

std::vector<double> attention_received(const AttentionArgs& args, int64_t n_keys) {
  std::vector<double> received(n_keys);
  const AttentionSequence& sequence = args.sequences[0];
  for (int64_t row = sequence.row_begin; row < sequence.row_end; ++row) {
    for (int32_t head = 0; head < args.n_heads; ++head) {
      const Probabilities seen = probabilities(args, sequence, row, head);
      const int64_t end = std::min(seen.first_key + std::ssize(seen.p), n_keys);
      for (int64_t j = seen.first_key; j < end; ++j) received[j] += seen.p[j - seen.first_key];
    }
  }
  return received;
}

}  // namespace weft::kernels::ref
