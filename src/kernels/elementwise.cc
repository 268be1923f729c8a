#include "kernels/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

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
  const auto n_tasks = static_cast<int>((n + piece - 1) / piece);
  pool.run(n_tasks, [&](int task, int) {
    const int64_t begin = task * piece;
    fn(begin, std::min(n, begin + piece));
  });
}

/// Calls fn(row) for all rows of n elements.
void for_rows(ThreadPool& pool, int64_t n_rows, int64_t n, FunctionRef<void(int64_t)> fn) {
  WEFT_CHECK(n_rows >= 0 && n >= 0);
  run_pieces(pool, n_rows, std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, n)),
             [&](int64_t begin, int64_t end) {
               for (int64_t r = begin; r < end; ++r) fn(r);
             });
}

}  // namespace

void rms_norm(const Context& context, const float* x, const float* weight, float eps,
              int64_t n_rows, int64_t n, float* y) {
  WEFT_CHECK(n_rows >= 0 && n > 0);
  const ElementwiseFns& fns = pick_elementwise_fns(context.isa);
  run_pieces(context.pool, n_rows, std::max<int64_t>(1, kTaskElements / n),
             [&](int64_t begin, int64_t end) {
               fns.rms_norm(x + begin * n, weight, eps, end - begin, n, y + begin * n);
             });
}

void silu_multiply(const Context& context, float* gate, const float* up, int64_t n_rows,
                   int64_t n) {
  WEFT_CHECK(n_rows >= 0 && n >= 0);
  const ElementwiseFns& fns = pick_elementwise_fns(context.isa);
  run_pieces(context.pool, n_rows * n,
             kTaskElements / 4,  // an exp each: more work than an addition
             [&](int64_t begin, int64_t end) {
               fns.silu_multiply(gate + begin, up + begin, end - begin);
             });
}

void gelu_multiply(const Context& context, float* gate, const float* up, int64_t n_rows,
                   int64_t n) {
  WEFT_CHECK(n_rows >= 0 && n >= 0);
  const ElementwiseFns& fns = pick_elementwise_fns(context.isa);
  run_pieces(context.pool, n_rows * n, kTaskElements / 4, [&](int64_t begin, int64_t end) {
    fns.gelu_multiply(gate + begin, up + begin, end - begin);
  });
}

void add_in_place(const Context& context, float* x, const float* y, int64_t n) {
  WEFT_CHECK(n >= 0);
  const ElementwiseFns& fns = pick_elementwise_fns(context.isa);
  run_pieces(context.pool, n, kTaskElements, [&](int64_t begin, int64_t end) {
    fns.add_in_place(x + begin, y + begin, end - begin);
  });
}

void scale_in_place(const Context& context, float* x, float factor, int64_t n) {
  WEFT_CHECK(n >= 0);
  const ElementwiseFns& fns = pick_elementwise_fns(context.isa);
  run_pieces(context.pool, n, kTaskElements, [&](int64_t begin, int64_t end) {
    fns.scale_in_place(x + begin, factor, end - begin);
  });
}

void add_bias(const Context& context, float* x, const float* bias, int64_t n_rows, int64_t n) {
  const ElementwiseFns& fns = pick_elementwise_fns(context.isa);
  for_rows(context.pool, n_rows, n, [&](int64_t r) { fns.add_in_place(x + r * n, bias, n); });
}

void scale_rows(const Context& context, float* x, const float* factors, int64_t n_rows, int64_t n) {
  const ElementwiseFns& fns = pick_elementwise_fns(context.isa);
  for_rows(context.pool, n_rows, n, [&](int64_t r) {
    if (factors[r] != 1.0f) fns.scale_in_place(x + r * n, factors[r], n);
  });
}

void gather_rows(const Context& context, const float* x, const int64_t* rows, int64_t n_rows,
                 int64_t n, float* y) {
  for_rows(context.pool, n_rows, n, [&](int64_t i) {
    std::memcpy(y + i * n, x + rows[i] * n, static_cast<size_t>(n) * sizeof(float));
  });
}

void add_scaled_rows(const Context& context, float* x, const int64_t* rows, const float* factors,
                     const float* y, int64_t n_rows, int64_t n) {
  const ElementwiseFns& fns = pick_elementwise_fns(context.isa);
  for_rows(context.pool, n_rows, n,
           [&](int64_t i) { fns.add_scaled(x + rows[i] * n, factors[i], y + i * n, n); });
}

void softcap_in_place(const Context& context, float* x, float cap, int64_t n) {
  WEFT_CHECK(n >= 0 && cap > 0);
  const ElementwiseFns& fns = pick_elementwise_fns(context.isa);
  run_pieces(context.pool, n, kTaskElements / 4, [&](int64_t begin, int64_t end) {
    fns.softcap_in_place(x + begin, cap, end - begin);
  });
}

void log_softmax(const float* logits, int64_t n, float* out) {
  WEFT_CHECK(n > 0);
  const double largest = *std::max_element(logits, logits + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(logits[i] - largest);
  const double log_sum = largest + std::log(sum);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(logits[i] - log_sum);
}

}  // namespace weft::kernels
