// Scalar twins of attention.h, in double. Never used to compute anything but what a test expects.
#pragma once

#include <vector>

#include "kernels/attention.h"

namespace weft::kernels::ref {

struct AttentionResult {
  std::vector<double> out;          // as AttentionArgs::out; rows of no sequence stay 0
  std::vector<double> log_sum_exp;  // [n_rows][n_heads]
};

/// args.out and args.log_sum_exp are not used.
AttentionResult attention(const AttentionArgs& args, int64_t n_rows);

/// received [n_keys] of the step's one sequence.
std::vector<double> attention_received(const AttentionArgs& args, int64_t n_keys);

}  // namespace weft::kernels::ref
