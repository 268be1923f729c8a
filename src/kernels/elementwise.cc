// Shapes are checked here, rows or elements are divided into tasks, and elementwise_cpu.cc does the
// arithmetic. These ops are bound by memory, or by an exp: what there is to gain is that they run
// on all workers and that a task is long enough to be worth handing out.
#include "kernels/elementwise.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/elementwise_internal.h"

namespace weft::kernels {
namespace {

// Elements of one task: some 64 KB of floats, a few microseconds, against about one to hand a task
// out. A whole number of registers of every set, so that a border changes no result.
constexpr int64_t kTaskElements = 16384;

/// Calls fn(begin, end) for pieces of [0, n) of about `piece`.
void run_pieces(ThreadPool& pool, int64_t n, int64_t piece,
                FunctionRef<void(int64_t, int64_t)> fn) {
  pool.run((n + piece - 1) / piece, [&](int64_t task, int) {
    const int64_t begin = task * piece;
    fn(begin, std::min(n, begin + piece));
  });
}

/// Rows of so many elements that are one task.
int64_t rows_of_task(int64_t n) {
  return std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, n));
}

/// Calls fn(row) for all rows of n elements.
void for_rows(ThreadPool& pool, int64_t n_rows, int64_t n, FunctionRef<void(int64_t)> fn) {
  run_pieces(pool, n_rows, rows_of_task(n), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) fn(r);
  });
}

/// gate[i] = fn(gate[i], up[i]), by pieces of a quarter: an exp takes several times as long as a
/// sum.
void run_activation(ThreadPool& pool, MatrixView<float> gate, MatrixView<const float> up,
                    void (*fn)(float* gate, const float* up, int64_t n)) {
  WEFT_CHECK(same_shape(gate, up));
  float* const to = gate.elements().data();
  const float* const from = up.elements().data();
  run_pieces(pool, gate.size(), kTaskElements / 4,
             [&](int64_t begin, int64_t end) { fn(to + begin, from + begin, end - begin); });
}

}  // namespace

void rms_norm(const Context& context, MatrixView<const float> x, std::span<const float> weight,
              float eps, MatrixView<float> y) {
  WEFT_CHECK(same_shape(x, y) && x.columns > 0 && std::ssize(weight) == x.columns);
  WEFT_CHECK(x.is_dense() && y.is_dense());
  const ElementwiseFns& fns = pick_elementwise_fns(context.isa);
  run_pieces(context.pool, x.rows, rows_of_task(x.columns), [&](int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    fns.rms_norm(x.row_range(begin, n).data, weight.data(), eps, n, x.columns,
                 y.row_range(begin, n).data);
  });
}

void silu_multiply(const Context& context, MatrixView<float> gate, MatrixView<const float> up) {
  run_activation(context.pool, gate, up, pick_elementwise_fns(context.isa).silu_multiply);
}

void gelu_multiply(const Context& context, MatrixView<float> gate, MatrixView<const float> up) {
  run_activation(context.pool, gate, up, pick_elementwise_fns(context.isa).gelu_multiply);
}

void add_in_place(const Context& context, MatrixView<float> x, MatrixView<const float> y) {
  WEFT_CHECK(same_shape(x, y));
  const ElementwiseFns& fns = pick_elementwise_fns(context.isa);
  float* const to = x.elements().data();
  const float* const from = y.elements().data();
  run_pieces(context.pool, x.size(), kTaskElements, [&](int64_t begin, int64_t end) {
    fns.add_in_place(to + begin, from + begin, end - begin);
  });
}

void scale_in_place(const Context& context, MatrixView<float> x, float factor) {
  const ElementwiseFns& fns = pick_elementwise_fns(context.isa);
  float* const elements = x.elements().data();
  run_pieces(context.pool, x.size(), kTaskElements, [&](int64_t begin, int64_t end) {
    fns.scale_in_place(elements + begin, factor, end - begin);
  });
}

void add_bias(const Context& context, MatrixView<float> x, std::span<const float> bias) {
  WEFT_CHECK(std::ssize(bias) == x.columns);
  const ElementwiseFns& fns = pick_elementwise_fns(context.isa);
  for_rows(context.pool, x.rows, x.columns,
           [&](int64_t r) { fns.add_in_place(x.row(r).data(), bias.data(), x.columns); });
}

void scale_rows(const Context& context, MatrixView<float> x, std::span<const float> factors) {
  WEFT_CHECK(std::ssize(factors) == x.rows);
  const ElementwiseFns& fns = pick_elementwise_fns(context.isa);
  // A factor of 1 is left out for speed alone: the product would have the same bits.
  for_rows(context.pool, x.rows, x.columns, [&](int64_t r) {
    if (factors[r] != 1.0f) fns.scale_in_place(x.row(r).data(), factors[r], x.columns);
  });
}

void gather_rows(const Context& context, MatrixView<const float> x, std::span<const int64_t> rows,
                 MatrixView<float> y) {
  WEFT_CHECK(std::ssize(rows) == y.rows && x.columns == y.columns);
  for_rows(context.pool, y.rows, y.columns,
           [&](int64_t i) { std::ranges::copy(x.row(rows[i]), y.row(i).begin()); });
}

void add_scaled_rows(const Context& context, MatrixView<float> x, std::span<const int64_t> rows,
                     std::span<const float> factors, MatrixView<const float> y) {
  WEFT_CHECK(std::ssize(rows) == y.rows && x.columns == y.columns);
  WEFT_CHECK(factors.size() == rows.size());
  const ElementwiseFns& fns = pick_elementwise_fns(context.isa);
  for_rows(context.pool, y.rows, y.columns, [&](int64_t i) {
    fns.add_scaled(x.row(rows[i]).data(), factors[i], y.row(i).data(), y.columns);
  });
}

void softcap_in_place(const Context& context, MatrixView<float> x, float cap) {
  WEFT_CHECK(cap > 0);
  const ElementwiseFns& fns = pick_elementwise_fns(context.isa);
  float* const elements = x.elements().data();
  run_pieces(context.pool, x.size(), kTaskElements / 4, [&](int64_t begin, int64_t end) {
    fns.softcap_in_place(elements + begin, cap, end - begin);
  });
}

// The largest is taken off first: exp(1000) is infinite, exp(1000 - 1000) is 1. In double, as
// perplexity and KL add up thousands of these, and KLs of 3e-7 are told apart.
void log_softmax(std::span<const float> logits, std::span<float> out) {
  WEFT_CHECK(!logits.empty() && logits.size() == out.size());
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  const double log_sum = largest + std::log(sum);
  std::ranges::transform(logits, out.begin(),
                         [&](float logit) -> float { return logit - log_sum; });
}

}  // namespace weft::kernels
