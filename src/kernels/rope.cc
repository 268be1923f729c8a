#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/rope_internal.h"

namespace weft::kernels {
namespace {

constexpr int64_t kRowsPerTask = 32;

RopeRow table_row(const RopeTable& table, int64_t row) {
  const int64_t offset = row * (table.n_dims / 2);
  return {table.cos.data() + offset, table.sin.data() + offset, table.n_dims,
          table.pairing == RopePairing::kNeox};
}

int64_t table_rows(const RopeTable& table) {
  return table.n_dims == 0 ? INT64_MAX
                           : static_cast<int64_t>(table.cos.size()) / (table.n_dims / 2);
}

}  // namespace

RopeTable make_rope_table(const RopeParams& params, std::span<const int32_t> positions) {
  WEFT_CHECK(params.n_dims >= 0 && params.n_dims % 2 == 0);
  const auto half = static_cast<size_t>(params.n_dims / 2);
  WEFT_CHECK(params.inverse_frequencies.size() == half);
  RopeTable table{.pairing = params.pairing, .n_dims = params.n_dims, .cos = {}, .sin = {}};
  table.cos.resize(positions.size() * half);
  table.sin.resize(positions.size() * half);
  const double magnitude = params.magnitude;
  for (size_t r = 0; r < positions.size(); ++r) {
    for (size_t i = 0; i < half; ++i) {
      const double angle = positions[r] * params.inverse_frequencies[i];
      table.cos[r * half + i] = static_cast<float>(std::cos(angle) * magnitude);
      table.sin[r * half + i] = static_cast<float>(std::sin(angle) * magnitude);
    }
  }
  return table;
}

void apply_rope(const Context& context, const RopeTable& table, int64_t table_begin, float* x,
                int64_t n_rows, int32_t n_heads, int32_t head_dim) {
  WEFT_CHECK(table_begin >= 0 && n_rows >= 0 && n_rows <= table_rows(table) - table_begin);
  WEFT_CHECK(table.n_dims <= head_dim && n_heads >= 0);
  const RopeFns& fns = pick_rope_fns(context.isa);
  const int64_t row_floats = static_cast<int64_t>(n_heads) * head_dim;
  const auto n_tasks = static_cast<int>((n_rows + kRowsPerTask - 1) / kRowsPerTask);
  context.pool.run(n_tasks, [&](int task, int) {
    const int64_t end = std::min(n_rows, (task + 1) * kRowsPerTask);
    for (int64_t r = task * kRowsPerTask; r < end; ++r) {
      fns.rotate(table_row(table, table_begin + r), x + r * row_floats, n_heads, head_dim);
    }
  });
}

void rotate_into_pages(const Context& context, const RopeTable& table, int64_t table_begin,
                       const uint16_t* k_raw, const uint16_t* v, int64_t n_tokens,
                       int32_t first_position, const int32_t* block_table, const PagedKv& kv,
                       const KvShift& shift) {
  WEFT_CHECK(n_tokens >= 0 && table_begin >= 0 && first_position >= 0);
  WEFT_CHECK(n_tokens <= table_rows(table) - table_begin);
  WEFT_CHECK(is_valid(kv) && table.n_dims <= kv.head_dim);
  WEFT_CHECK((shift.k == nullptr) == (shift.v == nullptr));
  const RopeFns& fns = pick_rope_fns(context.isa);
  const int64_t head_dim = kv.head_dim;
  const int64_t token_stride = kv.n_kv_heads * head_dim;
  const auto n_tasks = static_cast<int>((n_tokens + kRowsPerTask - 1) / kRowsPerTask);
  context.pool.run(n_tasks, [&](int task, int) {
    const int64_t end = std::min(n_tokens, (task + 1) * kRowsPerTask);
    // Head by head, so that what is written lies together in the page.
    for (int32_t head = 0; head < kv.n_kv_heads; ++head) {
      for (int64_t i = task * kRowsPerTask; i < end; ++i) {
        const int64_t src = i * token_stride + head * head_dim;
        const int64_t dst = kv_offset(kv, block_table, first_position + i, head);
        const RopeRow row = table_row(table, table_begin + i);
        if (shift.k == nullptr) {
          fns.rotate_f16(row, k_raw + src, kv.k + dst, kv.head_dim);
          std::memcpy(kv.v + dst, v + src, static_cast<size_t>(head_dim) * sizeof(uint16_t));
        } else {
          fns.shift_rotate_f16(row, k_raw + src, shift.k + head * head_dim, kv.k + dst,
                               kv.head_dim);
          fns.shift_f16(v + src, shift.v + head * head_dim, kv.v + dst, kv.head_dim);
        }
      }
    }
  });
}

void shift_in_pages(const Context& context, const RopeTable& table, int64_t table_begin,
                    const KvShift& shift, int64_t n_tokens, int32_t first_position,
                    const int32_t* block_table, const PagedKv& kv) {
  WEFT_CHECK(n_tokens >= 0 && table_begin >= 0 && first_position >= 0);
  WEFT_CHECK(n_tokens <= table_rows(table) - table_begin);
  WEFT_CHECK(is_valid(kv) && table.n_dims <= kv.head_dim);
  WEFT_CHECK((shift.k == nullptr) == (shift.v == nullptr));
  if (shift.k == nullptr) return;
  const RopeFns& fns = pick_rope_fns(context.isa);
  const auto n_tasks = static_cast<int>((n_tokens + kRowsPerTask - 1) / kRowsPerTask);
  context.pool.run(n_tasks, [&](int task, int) {
    const int64_t end = std::min(n_tokens, (task + 1) * kRowsPerTask);
    float turned[kMaxHeadDim];
    for (int32_t head = 0; head < kv.n_kv_heads; ++head) {
      const float* k = shift.k + int64_t{head} * kv.head_dim;
      const float* v = shift.v + int64_t{head} * kv.head_dim;
      for (int64_t i = task * kRowsPerTask; i < end; ++i) {
        const int64_t at = kv_offset(kv, block_table, first_position + i, head);
        std::copy_n(k, kv.head_dim, turned);
        fns.rotate(table_row(table, table_begin + i), turned, 1, kv.head_dim);
        fns.shift_f16(kv.k + at, turned, kv.k + at, kv.head_dim);
        fns.shift_f16(kv.v + at, v, kv.v + at, kv.head_dim);
      }
    }
  });
}

}  // namespace weft::kernels
