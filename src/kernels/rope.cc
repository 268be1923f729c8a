// RoPE turns each pair (a, b) of a head's dimensions by an angle, position * frequency (Su et al.
// 2021, equation 34):
//   a' = a cos - b sin,  b' = b cos + a sin.
// Angles add up, which is what reuse rests on: a stored chunk's K is kept before rotation, and
// turned to whatever position the chunk gets (rotate_into_pages).
//
// Angles are computed in double. Floats from 65,536 on are 2^-7 apart, so at position 131,071 the
// cos of the faster pairs would be off by up to 0.004; the table costs little, being made once a
// step for all layers and heads. Nor are angles of one position made from those of the position
// before: the errors would add up, and a row's bits would depend on where its step began.
#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/narrow.h"
#include "kernels/kv_codec.h"
#include "kernels/rope_internal.h"

namespace weft::kernels {
namespace {

constexpr int64_t kRowsPerTask = 32;

/// One row's cos and sin, for the kernels.
RopeRow table_row(const RopeTable& table, int64_t row) {
  const int64_t offset = row * (table.n_dims / 2);
  return {table.cos.data() + offset, table.sin.data() + offset, table.n_dims,
          table.pairing == RopePairing::kNeox};
}

/// Rows that the table has; without dimensions to turn it has as many as one likes.
int64_t table_rows(const RopeTable& table) {
  return table.n_dims == 0 ? INT64_MAX : std::ssize(table.cos) / (table.n_dims / 2);
}

}  // namespace

RopeTable make_rope_table(const RopeParams& params, std::span<const int32_t> positions) {
  WEFT_CHECK(params.n_dims >= 0 && params.n_dims % 2 == 0);
  const int64_t half = params.n_dims / 2;
  WEFT_CHECK(std::ssize(params.inverse_frequencies) == half);
  RopeTable table{.pairing = params.pairing, .n_dims = params.n_dims, .cos = {}, .sin = {}};
  table.cos.reserve(positions.size() * half);
  table.sin.reserve(positions.size() * half);
  const double magnitude = params.magnitude;
  for (const int32_t position : positions) {
    for (const double frequency : params.inverse_frequencies) {
      const double angle = position * frequency;
      table.cos.push_back(std::cos(angle) * magnitude);
      table.sin.push_back(std::sin(angle) * magnitude);
    }
  }
  return table;
}

void apply_rope(const Context& context, const RopeTable& table, int64_t table_begin,
                MatrixView<float> x, int32_t head_dim) {
  WEFT_CHECK(table_begin >= 0 && x.rows <= table_rows(table) - table_begin);
  WEFT_CHECK(table.n_dims <= head_dim && x.columns % head_dim == 0);
  const RopeFns& fns = pick_rope_fns(context.isa);
  const int64_t n_tasks = (x.rows + kRowsPerTask - 1) / kRowsPerTask;
  context.pool.run(n_tasks, [&](int64_t task, int) {
    const int64_t end = std::min(x.rows, (task + 1) * kRowsPerTask);
    for (int64_t r = task * kRowsPerTask; r < end; ++r) {
      fns.rotate(table_row(table, table_begin + r), x.row(r).data(), x.columns / head_dim,
                 head_dim);
    }
  });
}

namespace {

/// One type's elements to another's, with a shift and a rotation on the way, or neither. Where the
/// types are the same, which is the rule, a type's own kernels do it from register to register;
/// else by way of an array of floats. Either way a value is rounded once.
class Placer {
 public:
  Placer(Isa isa, DType from, DType to)
      : from_(kv_codec(isa, from)), to_(kv_codec(isa, to)), is_same_(from == to) {}

  /// dst = src (+ shift) [head_dim], rotated.
  void rotate(const RopeFns& fns, const RopeRow& row, const uint8_t* src, const float* shift,
              uint8_t* dst, int32_t head_dim) const {
    if (is_same_) return to_.rotate(row, src, shift, dst, head_dim);
    float x[kMaxHeadDim];
    load(src, shift, head_dim, x);
    fns.rotate(row, x, 1, head_dim);
    to_.store(x, head_dim, dst);
  }
  /// dst = src (+ shift) [head_dim], of n_bytes where it is a copy.
  void place(const uint8_t* src, const float* shift, uint8_t* dst, int32_t head_dim,
             int64_t n_bytes) const {
    if (is_same_ && shift == nullptr) {
      std::memcpy(dst, src, n_bytes);
    } else if (is_same_) {
      to_.shift(src, shift, dst, head_dim);
    } else {
      float x[kMaxHeadDim];
      load(src, shift, head_dim, x);
      to_.store(x, head_dim, dst);
    }
  }

 private:
  void load(const uint8_t* src, const float* shift, int32_t head_dim, float* x) const {
    from_.load(src, head_dim, x);
    if (shift == nullptr) return;
    for (int32_t d = 0; d < head_dim; ++d) x[d] += shift[d];
  }

  const KvCodecFns& from_;
  const KvCodecFns& to_;
  bool is_same_;
};

void check_tokens(const RopeTable& table, int64_t table_begin, int64_t n_tokens, int32_t first_slot,
                  const PagedKv& kv, const KvShift& shift) {
  WEFT_CHECK(n_tokens >= 0 && table_begin >= 0 && first_slot >= 0);
  WEFT_CHECK(n_tokens <= table_rows(table) - table_begin);
  WEFT_CHECK(kv.pages != nullptr && table.n_dims <= kv.layout.head_dim);
  const int64_t width = int64_t{kv.layout.n_kv_heads} * kv.layout.head_dim;
  WEFT_CHECK(shift.k.size() == shift.v.size());
  WEFT_CHECK(shift.k.empty() || std::ssize(shift.k) == width);
}

/// Calls fn(head, token) for all of them, head by head, so that what is written lies together in
/// the page.
template <class Fn>
void for_heads_and_tokens(const Context& context, int32_t n_kv_heads, int64_t n_tokens,
                          const Fn& fn) {
  const int64_t n_tasks = (n_tokens + kRowsPerTask - 1) / kRowsPerTask;
  context.pool.run(n_tasks, [&](int64_t task, int) {
    const int64_t end = std::min(n_tokens, (task + 1) * kRowsPerTask);
    for (int32_t head = 0; head < n_kv_heads; ++head) {
      for (int64_t i = task * kRowsPerTask; i < end; ++i) fn(head, i);
    }
  });
}

}  // namespace

void rotate_into_pages(const Context& context, const RopeTable& table, int64_t table_begin,
                       const KvRecord& record, int64_t n_tokens, int32_t first_slot,
                       const int32_t* block_table, const PagedKv& kv, const KvShift& shift) {
  check_tokens(table, table_begin, n_tokens, first_slot, kv, shift);
  const RopeFns& fns = pick_rope_fns(context.isa);
  const KvLayout& layout = kv.layout;
  const int32_t head_dim = layout.head_dim;
  const Placer keys(context.isa, record.type, layout.k_type);
  const Placer values(context.isa, record.type, layout.v_type);
  const int64_t bytes = row_bytes(record.type, head_dim);
  const auto* const k_raw = reinterpret_cast<const uint8_t*>(record.k);
  const auto* const v_raw = reinterpret_cast<const uint8_t*>(record.v);
  for_heads_and_tokens(context, layout.n_kv_heads, n_tokens, [&](int32_t head, int64_t i) {
    const int64_t from = (i * layout.n_kv_heads + head) * bytes;
    const int64_t of_head = int64_t{head} * head_dim;
    keys.rotate(fns, table_row(table, table_begin + i), k_raw + from,
                shift.k.empty() ? nullptr : &shift.k[of_head],
                k_at(kv, block_table, first_slot + i, head), head_dim);
    values.place(v_raw + from, shift.v.empty() ? nullptr : &shift.v[of_head],
                 v_at(kv, block_table, first_slot + i, head), head_dim, bytes);
  });
}

// A rotation is linear: R (k + s) = R k + R s. So a shift found after the keys were rotated is
// rotated itself and added, without the keys before rotation. It rounds K a second time, which
// rotate_into_pages with the same shift does not.
void shift_in_pages(const Context& context, const RopeTable& table, int64_t table_begin,
                    const KvShift& shift, int64_t n_tokens, int32_t first_slot,
                    const int32_t* block_table, const PagedKv& kv) {
  check_tokens(table, table_begin, n_tokens, first_slot, kv, shift);
  if (shift.k.empty()) return;
  const RopeFns& fns = pick_rope_fns(context.isa);
  const KvLayout& layout = kv.layout;
  const KvCodecFns& k_codec = kv_codec(context.isa, layout.k_type);
  const KvCodecFns& v_codec = kv_codec(context.isa, layout.v_type);
  for_heads_and_tokens(context, layout.n_kv_heads, n_tokens, [&](int32_t head, int64_t i) {
    const int64_t of_head = int64_t{head} * layout.head_dim;
    float turned[kMaxHeadDim];
    std::copy_n(&shift.k[of_head], layout.head_dim, turned);
    fns.rotate(table_row(table, table_begin + i), turned, 1, layout.head_dim);
    uint8_t* const k = k_at(kv, block_table, first_slot + i, head);
    uint8_t* const v = v_at(kv, block_table, first_slot + i, head);
    k_codec.shift(k, turned, k, layout.head_dim);
    v_codec.shift(v, &shift.v[of_head], v, layout.head_dim);
  });
}

namespace {

bool turns_nothing(const RopeTable& table, int64_t row) {
  const int64_t n = table.n_dims / 2;
  const auto of_row = [&](const std::vector<float>& x) { return std::span(x).subspan(row * n, n); };
  return std::ranges::count(of_row(table.sin), 0.0f) == n &&
         std::ranges::count(of_row(table.cos), 1.0f) == n;
}

}  // namespace

// R(p + d) k = R(d) R(p) k: what lies rotated in the pages is turned by the difference alone. A
// task is a KV head of a layer, its tokens in ascending order: no token is overwritten before it
// has moved, and a model with one KV head still has as many tasks as layers.
void move_in_pages(const Context& context, std::span<const MovedLayer> layers, int64_t n_tokens,
                   int32_t from_slot, int32_t to_slot) {
  WEFT_CHECK(n_tokens >= 0 && to_slot >= 0 && to_slot <= from_slot);
  if (layers.empty() || n_tokens == 0) return;
  const int64_t n_heads = layers.front().kv.layout.n_kv_heads;
  for (const MovedLayer& layer : layers) {
    WEFT_CHECK(layer.kv.layout.n_kv_heads == n_heads && layer.turn != nullptr);
    const int64_t n_turns = table_rows(*layer.turn) == 1 ? 1 : n_tokens;
    check_tokens(*layer.turn, 0, n_turns, from_slot, layer.kv, {});
  }
  context.pool.run(std::ssize(layers) * n_heads, [&](int64_t task, int) {
    const MovedLayer& layer = layers[task / n_heads];
    const auto head = narrow<int32_t>(task % n_heads);
    const PagedKv& kv = layer.kv;
    const KvCodecFns& k_codec = kv_codec(context.isa, kv.layout.k_type);
    const bool all_alike = table_rows(*layer.turn) == 1;
    for (int64_t i = 0; i < n_tokens; ++i) {
      const int64_t row = all_alike ? 0 : i;
      if (from_slot == to_slot && turns_nothing(*layer.turn, row)) continue;
      const RopeRow turn = table_row(*layer.turn, row);
      k_codec.rotate(turn, k_at(kv, layer.block_table, from_slot + i, head), nullptr,
                     k_at(kv, layer.block_table, to_slot + i, head), kv.layout.head_dim);
      std::memmove(v_at(kv, layer.block_table, to_slot + i, head),
                   v_at(kv, layer.block_table, from_slot + i, head), kv.v_bytes);
    }
  });
}

}  // namespace weft::kernels
