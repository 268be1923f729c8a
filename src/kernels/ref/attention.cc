#include "kernels/ref/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/ref/kv_codec.h"

namespace weft::kernels::ref {
namespace {

/// Softmax probabilities of the keys that `row` sees, and the log of their sum.
struct Probabilities {
  int64_t first_key = 0;
  const int32_t* block_table = nullptr;
  std::vector<double> p;  // of the keys from first_key on
  double log_sum_exp = 0;
};

Probabilities probabilities(const AttentionArgs& args, const AttentionSequence& sequence,
                            int64_t row, int32_t head) {
  const int32_t head_dim = args.kv.layout.head_dim;
  const int32_t kv_head = head / (args.n_heads / args.kv.layout.n_kv_heads);
  const float* q = args.q + (row * args.n_heads + head) * head_dim;
  Probabilities result;
  result.first_key = args.first_slots == nullptr ? 0 : args.first_slots[row];
  const bool is_sparse = !sequence.heads.empty();
  const auto& pages = is_sparse ? sequence.heads[static_cast<size_t>(kv_head)]
                                : HeadPages{sequence.block_table, args.slots[row]};
  result.block_table = pages.block_table;
  for (int64_t j = result.first_key; j <= pages.last_slot; ++j) {
    const uint8_t* k = k_at(args.kv, pages.block_table, j, kv_head);
    double score = 0;
    for (int32_t d = 0; d < head_dim; ++d) {
      score += static_cast<double>(q[d]) * kv_element(args.kv.layout.k_type, k, d);
    }
    score *= static_cast<double>(args.scale);
    if (args.softcap > 0) {
      const double cap = args.softcap;
      score = cap * std::tanh(score / cap);
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
  result.out.resize(static_cast<size_t>(n_rows * args.n_heads * head_dim));
  result.log_sum_exp.resize(static_cast<size_t>(n_rows * args.n_heads));
  for (const AttentionSequence& sequence : args.sequences) {
    for (int64_t row = sequence.row_begin; row < sequence.row_end; ++row) {
      for (int32_t head = 0; head < args.n_heads; ++head) {
        const Probabilities result_of_row = probabilities(args, sequence, row, head);
        const int32_t kv_head = head / (args.n_heads / args.kv.layout.n_kv_heads);
        const auto index = static_cast<size_t>(row * args.n_heads + head);
        double* out = result.out.data() + index * static_cast<size_t>(head_dim);
        for (size_t j = 0; j < result_of_row.p.size(); ++j) {
          const int64_t key = result_of_row.first_key + static_cast<int64_t>(j);
          const uint8_t* v = v_at(args.kv, result_of_row.block_table, key, kv_head);
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

std::vector<double> attention_mass(const AttentionArgs& args, int64_t n_keys) {
  std::vector<double> mass(static_cast<size_t>(n_keys));
  const AttentionSequence& sequence = args.sequences[0];
  for (int64_t row = sequence.row_begin; row < sequence.row_end; ++row) {
    for (int32_t head = 0; head < args.n_heads; ++head) {
      const Probabilities seen = probabilities(args, sequence, row, head);
      const auto first = static_cast<size_t>(seen.first_key);
      for (size_t j = first; j < std::min(first + seen.p.size(), mass.size()); ++j) {
        mass[j] += seen.p[j - first];
      }
    }
  }
  return mass;
}

}  // namespace weft::kernels::ref
