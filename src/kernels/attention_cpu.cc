// Attention with queries in the lanes: the queries of a tile are transposed once, scores and output
// are kept as [key][query] and [dim][query]. K and V are then read by scalar broadcasts, just as
// they are widened from the pages, softmax needs no sums across lanes, and masking is per lane.
//
// Both products use a register tile of kTileRows keys (or dims) by kTileVectors registers of
// queries. With AVX-512 8 x 3: 24 accumulators, 3 operands and a broadcast of 32 registers; 24
// independent chains cover 4 cycles of latency on 2 FMA units three times, and a step loads 11
// values for 24 FMAs. AVX2 4 x 3, of 16 registers.
//
// Keys are gone through in blocks of kBlockKeys, with a running maximum and sum for each query
// (FlashAttention; Dao, Fu, Ermon, Rudra and Ré 2022, algorithm 1):
//   m' = max(m, max S),  P = 2^(S - m'),  l' = l 2^(m - m') + sum P,  O' = O 2^(m - m') + P V,
// and out = O / l. Blocks lie at multiples of kBlockKeys slots, lanes never meet, and a key that a
// query may not see is skipped in its lane: so a row's result has the same bits whatever rows are
// computed with it.
//
// On one core of an Ice Lake at 2.8 GHz (peak measured: 172 GFLOP/s) SmolLM2's prefill does 131
// GFLOP/s at 4,096 rows and 116 at 512; before packing and writing went by 4 x 4 transposes and the
// maximum by four chains these were 117 and 98.
//
// A window costs what its keys cost: blocks that no row of the task sees are neither widened nor
// multiplied. With 512 of 4,096 prefill's attention in Gemma 3 270M's shape takes 77.5 ms, dense
// 270.6 (one thread). The dense path must not pay for that: masks are looked at only in blocks
// where some lane's range begins or ends, and it is as fast as it was before there were windows
// (0.98 to 1.00 of its time).
#include <math.h>

#include "kernels/attention_internal.h"
#include "kernels/simd_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kTileRows = 8;
constexpr int kTileVectors = 3;
#elif defined(__AVX2__)
constexpr int kTileRows = 4;
constexpr int kTileVectors = 3;
#else
constexpr int kTileRows = 4;
constexpr int kTileVectors = 2;
#endif
constexpr int kTileQueries = kTileVectors * kLanes;
constexpr int kTaskTiles = kTaskQueries / kTileQueries;
static_assert(kTaskQueries % kTileQueries == 0 && kBlockKeys % kTileRows == 0);

constexpr float kLog2E = 0x1.715476p+0f;
constexpr float kLn2 = 0x1.62e430p-1f;
/// The maximum of no scores. Finite, so that a lane that sees nothing of a block keeps what it has
/// (-inf - -inf is NaN), and so low that 2^(it - score) is 0.
constexpr float kLowest = -0x1p126f;

// The state of a tile of queries, a query a lane. In base 2: scores are multiplied by log2(e) once,
// with the scale, in q.
struct alignas(64) Tile {
  int32_t width;                 // queries in use, rounded up to registers: the stride of q, out
  int32_t slots[kTileQueries];   // lanes past the last query repeat it
  int32_t firsts[kTileQueries];  // the first that each sees
  int32_t lows[kTileQueries];    // the keys [low, limit) of the current block are visible
  int32_t limits[kTileQueries];
  int32_t begin, end;              // keys that some lane sees, or between such: the others of
                                   // the block are never looked at
  int32_t plain_begin, plain_end;  // keys among them that every lane sees: no masks there; from
                                   // plain_begin on no lane's low matters
  float max[kTileQueries];
  float sum[kTileQueries];
  float correction[kTileQueries];
  float* q;       // [head_dim][width], scaled
  float* out;     // [head_dim][width]
  float* scores;  // [kBlockKeys][width]
};

int32_t clamp(int64_t x, int32_t low, int32_t high) { return x < low ? low : x > high ? high : x; }

/// The index of a query in [n_rows][n_heads]. With 9 heads over 3 KV heads query 4 of KV head 1 is
/// row 1, head 4: 13.
int64_t query_index(const AttentionRows& rows, int32_t kv_head, int64_t query) {
  return query / rows.group * rows.n_heads + kv_head * rows.group + query % rows.group;
}

void set_range(const AttentionRows& rows, int64_t row, int32_t lane, Tile& t) {
  t.slots[lane] = rows.slots[row];
  t.firsts[lane] = first_visible(rows, row);
}

/// t.q [head_dim][width] = the queries [begin, begin + n), transposed and scaled, four lanes at a
/// time. Lanes past n repeat the last query, so that none computes with what the memory held
/// before; their results are not written. A width of whole registers, not of the whole tile: a tile
/// that is a third full costs a third.
void pack_queries(const AttentionRows& rows, int32_t kv_head, int64_t begin, int64_t n, Tile& t) {
  t.width = (n + kLanes - 1) / kLanes * kLanes;
  const int32_t head_dim = rows.kv.layout.head_dim;
  const float factor = rows.softcap > 0 ? rows.scale / rows.softcap : rows.scale * kLog2E;
  for (int32_t lane = 0; lane < t.width; lane += 4) {
    const float* q[4];
    for (int i = 0; i < 4; ++i) {
      const int64_t query = begin + (lane + i < n ? lane + i : n - 1);
      set_range(rows, query / rows.group, lane + i, t);
      q[i] = rows.q + query_index(rows, kv_head, query) * head_dim;
    }
    for (int32_t d = 0; d < head_dim; d += 4) {
      F32x4 x[4] = {load4(q[0] + d), load4(q[1] + d), load4(q[2] + d), load4(q[3] + d)};
      transpose4(x);
      for (int i = 0; i < 4; ++i) store4(t.q + (d + i) * t.width + lane, x[i] * factor);
    }
  }
}

/// The keys that the lanes see of the block's n_keys keys from slot `block` on; false if none.
/// Slots, and with them lows and limits, ascend with the lanes. Rows 5, 6, 7 without a window in
/// the block from slot 0: limits 6, 7, 8, so keys 0 … 5 are plain, 6 and 7 are masked.
bool set_limits(int64_t block, int32_t n_keys, Tile& t) {
  const auto limit = [&](int32_t lane) { return clamp(t.slots[lane] + 1 - block, 0, n_keys); };
  const auto low = [&](int32_t lane) { return clamp(t.firsts[lane] - block, 0, n_keys); };
  const int32_t last = t.width - 1;
  t.begin = low(0);
  t.end = limit(last);
  if (t.begin >= t.end) return false;
  t.plain_begin = clamp(low(last), t.begin, t.end);
  t.plain_end = clamp(limit(0), t.plain_begin, t.end);
  if (t.plain_begin == t.begin && t.plain_end == t.end) return true;  // lows, limits: not looked at
  bool any = false;
  for (int32_t lane = 0; lane < t.width; ++lane) {
    t.lows[lane] = low(lane);
    t.limits[lane] = limit(lane);
    any = any || t.lows[lane] < t.limits[lane];
  }
  return any;
}

/// Whether one of the rows [row_begin, row_end) sees one of the keys [begin, end).
bool is_seen(const AttentionRows& rows, int64_t row_begin, int64_t row_end, int64_t begin,
             int64_t end) {
  int64_t row = row_begin, last = row_end;
  while (row < last) {  // of the rows that are not before `begin` the first sees furthest back
    const int64_t middle = (row + last) / 2;
    if (rows.slots[middle] < begin) {
      row = middle + 1;
    } else {
      last = middle;
    }
  }
  return row < row_end && first_visible(rows, row) < end;
}

/// dst [end - begin][head_dim] = the vectors of a KV head in the slots [begin, end), by k_at or
/// v_at, without the pages of which no row of [row_begin, row_end) sees a key there: those may have
/// been freed.
template <class At>
void widen_block(const AttentionRows& rows, const KvCodecFns& codec, const At& at, int32_t kv_head,
                 int64_t row_begin, int64_t row_end, int64_t begin, int64_t end, float* dst) {
  const KvLayout& kv = rows.kv.layout;
  for (int64_t slot = begin; slot < end;) {
    const int64_t page_end = (slot / kv.page_tokens + 1) * kv.page_tokens;
    const int64_t run_end = page_end < end ? page_end : end;
    const int64_t n = (run_end - slot) * kv.head_dim;
    if (is_seen(rows, row_begin, row_end, slot, run_end)) {
      codec.load(at(rows.kv, rows.block_table, slot, kv_head), n, dst);
    }
    dst += n;
    slot = run_end;
  }
}

void widen_keys(const AttentionRows& rows, int32_t kv_head, int64_t row_begin, int64_t row_end,
                int64_t begin, int64_t end, float* dst) {
  widen_block(rows, *rows.k_codec, k_at, kv_head, row_begin, row_end, begin, end, dst);
}

void widen_values(const AttentionRows& rows, int32_t kv_head, int64_t row_begin, int64_t row_end,
                  int64_t begin, int64_t end, float* dst) {
  widen_block(rows, *rows.v_codec, v_at, kv_head, row_begin, row_end, begin, end, dst);
}

/// scores [key][query] = K q for the keys [begin, end), and what else shares their kTileRows.
template <int kVectors>
void compute_scores(const float* k, int32_t head_dim, const Tile& t) {
  constexpr int kWidth = kVectors * kLanes;
  const int32_t begin = t.begin / kTileRows * kTileRows;
  const float* rows = k + int64_t{begin} * head_dim;
  float* scores = t.scores + begin * kWidth;
  for (int32_t left = t.end - begin; left > 0; left -= kTileRows) {
    F32 acc[kTileRows][kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[i][v] = set1(0.0f);
    }
    const float* q = t.q;
    for (int64_t d = 0; d < head_dim; ++d, q += kWidth) {
      F32 b[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) b[v] = load(q + v * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kTileRows; ++i) {
        const F32 a = set1(rows[int64_t{i} * head_dim + d]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) acc[i][v] = fmadd(a, b[v], acc[i][v]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        store(scores + i * kWidth + v * kLanes, acc[i][v]);
      }
    }
    rows += int64_t{kTileRows} * head_dim;
    scores += kTileRows * kWidth;
  }
}

/// score = cap * tanh(q.k * scale / cap). q was scaled by scale / cap; softcap is in base 2, as the
/// scores are from here on.
template <int kVectors>
void cap_scores(float softcap, const Tile& t) {
  const F32 caps = set1(softcap);
  constexpr int kWidth = kVectors * kLanes;
  for (int32_t i = t.begin * kWidth; i < t.end * kWidth; i += kLanes) {
    store(t.scores + i, mul(tanh(load(t.scores + i)), caps));
  }
}

/// The scores of a register of queries where not all of them are visible.
template <int kWidth>
struct MaskedScores {
  float* scores;  // of keys kWidth apart
  I32 lows, limits;

  /// The larger of `top` and the visible of [begin, end).
  F32 max_with(F32 top, int32_t begin, int32_t end) const {
    for (int32_t j = begin; j < end; ++j) {
      top = select(within(lows, limits, j), max(load(scores + j * kWidth), top), top);
    }
    return top;
  }
  /// [begin, end) become exp(score - top), 0 where masked; `sum` plus them.
  F32 exp_and_add(F32 top, F32 sum, int32_t begin, int32_t end) const {
    for (int32_t j = begin; j < end; ++j) {
      const F32 p = exp2(sub(load(scores + j * kWidth), top));
      const F32 visible = select(within(lows, limits, j), p, set1(0.0f));
      store(scores + j * kWidth, visible);
      sum = add(sum, visible);
    }
    return sum;
  }
};

/// Scores become exp(score - running maximum), 0 where masked; updates max, sum and correction.
template <int kVectors>
void softmax(Tile& t) {
  constexpr int kWidth = kVectors * kLanes;
  for (int v = 0; v < kVectors; ++v) {
    float* scores = t.scores + v * kLanes;
    const MaskedScores<kWidth> masked = {scores, load_i32(t.lows + v * kLanes),
                                         load_i32(t.limits + v * kLanes)};
    const F32 old_max = load(t.max + v * kLanes);
    F32 tops[4] = {old_max, old_max, old_max, old_max};  // one chain would wait for itself
    int32_t j = t.plain_begin;
    for (; j + 4 <= t.plain_end; j += 4) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) tops[i] = max(load(scores + (j + i) * kWidth), tops[i]);
    }
    F32 top = max(max(tops[0], tops[1]), max(tops[2], tops[3]));
    for (; j < t.plain_end; ++j) top = max(load(scores + j * kWidth), top);
    top = masked.max_with(top, t.begin, t.plain_begin);
    top = masked.max_with(top, t.plain_end, t.end);
    F32 sum = masked.exp_and_add(top, set1(0.0f), t.begin, t.plain_begin);
    for (j = t.plain_begin; j < t.plain_end; ++j) {
      const F32 p = exp2(sub(load(scores + j * kWidth), top));
      store(scores + j * kWidth, p);
      sum = add(sum, p);
    }
    sum = masked.exp_and_add(top, sum, t.plain_end, t.end);
    const F32 correction = exp2(sub(old_max, top));
    store(t.max + v * kLanes, top);
    store(t.correction + v * kLanes, correction);
    store(t.sum + v * kLanes, fmadd(load(t.sum + v * kLanes), correction, sum));
  }
}

/// out [dim][query] = out * correction + V^T scores of the keys [begin, end), of which those before
/// plain_end are visible to all lanes. A key that a query may not see is left out of that lane, not
/// multiplied by 0: it may be NaN. kLows: some lane's window may begin after one of the keys.
template <int kVectors, bool kLows>
void add_values(const float* v_block, int32_t head_dim, int32_t begin, int32_t plain_end,
                int32_t end, const Tile& t) {
  constexpr int kWidth = kVectors * kLanes;
  for (int32_t dim = 0; dim < head_dim; dim += kTileRows) {
    F32 acc[kTileRows][kVectors];
    float* out = t.out + dim * kWidth;
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        acc[i][v] = mul(load(out + i * kWidth + v * kLanes), load(t.correction + v * kLanes));
      }
    }
    const float* values = v_block + int64_t{begin} * head_dim + dim;
    const float* p = t.scores + begin * kWidth;
    int32_t j = begin;
    for (; j < plain_end; ++j, values += head_dim, p += kWidth) {
      F32 b[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) b[v] = load(p + v * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kTileRows; ++i) {
        const F32 a = set1(values[i]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) acc[i][v] = fmadd(a, b[v], acc[i][v]);
      }
    }
    for (; j < end; ++j, values += head_dim, p += kWidth) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const I32 limits = load_i32(t.limits + v * kLanes);
        const Mask visible =
            kLows ? within(load_i32(t.lows + v * kLanes), limits, j) : greater(limits, j);
        const F32 b = load(p + v * kLanes);
#pragma GCC unroll 8
        for (int i = 0; i < kTileRows; ++i) {
          acc[i][v] = fmadd_where(visible, set1(values[i]), b, acc[i][v]);
        }
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) store(out + i * kWidth + v * kLanes, acc[i][v]);
    }
  }
}

/// The same of all of the block's keys.
template <int kVectors>
void add_values(const float* v_block, int32_t head_dim, Tile& t) {
  if (t.begin < t.plain_begin) {  // where windows begin; rarely, so not a third loop above
    add_values<kVectors, true>(v_block, head_dim, t.begin, t.begin, t.plain_begin, t);
    for (int v = 0; v < kVectors; ++v) store(t.correction + v * kLanes, set1(1.0f));
  }
  add_values<kVectors, false>(v_block, head_dim, t.plain_begin, t.plain_end, t.end, t);
}

/// One step of the online softmax. Each part is compiled for one, two or three registers of
/// queries, so that their sums are registers and not an array.
template <int kVectors>
void attend_block(const float* k, const float* v, int32_t head_dim, float softcap, Tile& t) {
  compute_scores<kVectors>(k, head_dim, t);
  if (softcap > 0) cap_scores<kVectors>(softcap, t);
  softmax<kVectors>(t);
  add_values<kVectors>(v, head_dim, t);
}

void attend_block(const float* k, const float* v, int32_t head_dim, float softcap, Tile& t) {
  switch (t.width / kLanes) {
    case 1:
      return attend_block<1>(k, v, head_dim, softcap, t);
    case 2:
      return attend_block<2>(k, v, head_dim, softcap, t);
    default:
      return attend_block<kTileVectors>(k, v, head_dim, softcap, t);
  }
}

/// out = O / l, transposed back; and the log of the sum of exp(score), back in base e: m ln 2 + ln
/// l.
void finish(const AttentionRows& rows, int32_t kv_head, int64_t begin, int64_t n, const Tile& t) {
  const int32_t head_dim = rows.kv.layout.head_dim;
  for (int32_t lane = 0; lane < n; lane += 4) {
    const int32_t n_lanes = n - lane < 4 ? n - lane : 4;
    float* out[4];
    for (int i = 0; i < n_lanes; ++i) {
      const int64_t index = query_index(rows, kv_head, begin + lane + i);
      out[i] = rows.out + index * head_dim;
      if (rows.log_sum_exp != nullptr) {
        rows.log_sum_exp[index] = t.max[lane + i] * kLn2 + logf(t.sum[lane + i]);
      }
    }
    const F32x4 factors = 1.0f / load4(t.sum + lane);
    for (int32_t d = 0; d < head_dim; d += 4) {
      F32x4 x[4];
      for (int i = 0; i < 4; ++i) x[i] = load4(t.out + (d + i) * t.width + lane) * factors;
      transpose4(x);
      for (int i = 0; i < n_lanes; ++i) store4(out[i] + d, x[i]);
    }
  }
}

/// K and V of a block, q and out of every tile, and the scores of one: at head_dim 64 and AVX-512
/// 119 KB, most of it q and out, which the second-level cache holds.
int64_t prefill_scratch(int32_t head_dim) {
  return 2 * kBlockKeys * head_dim + 2 * kTaskQueries * head_dim + kBlockKeys * kTileQueries;
}

/// A block of K and V is widened once for all tiles of the task, which is why there are several: at
/// kTaskQueries 144 and AVX-512 three tiles of 48.
void prefill(const AttentionRows& rows, int32_t kv_head, int64_t begin, int64_t end,
             float* scratch) {
  const int32_t head_dim = rows.kv.layout.head_dim;
  float* k = scratch;
  float* v = k + kBlockKeys * head_dim;
  float* tile_memory = v + kBlockKeys * head_dim;
  float* scores = tile_memory + 2 * kTaskQueries * head_dim;
  Tile tiles[kTaskTiles];
  int n_tiles = 0;
  for (int64_t first = begin; first < end; first += kTileQueries, ++n_tiles) {
    Tile& t = tiles[n_tiles];
    const int64_t n = end - first < kTileQueries ? end - first : kTileQueries;
    t.q = tile_memory + n_tiles * 2 * kTileQueries * head_dim;
    t.out = t.q + kTileQueries * head_dim;
    t.scores = scores;
    pack_queries(rows, kv_head, first, n, t);
    memset(t.out, 0, kTileQueries * head_dim * sizeof(float));
    for (int lane = 0; lane < kTileQueries; ++lane) {
      t.max[lane] = kLowest;
      t.sum[lane] = 0;
    }
  }
  const int64_t row_begin = begin / rows.group, row_end = (end - 1) / rows.group + 1;
  const int64_t n_visible = rows.slots[row_end - 1] + int64_t{1};
  const int64_t first_key = first_visible(rows, row_begin);
  for (int64_t block = first_key / kBlockKeys * kBlockKeys; block < n_visible;
       block += kBlockKeys) {
    const int32_t n_keys = clamp(n_visible - block, 0, kBlockKeys);
    if (!is_seen(rows, row_begin, row_end, block, block + n_keys)) continue;
    widen_keys(rows, kv_head, row_begin, row_end, block, block + n_keys, k);
    widen_values(rows, kv_head, row_begin, row_end, block, block + n_keys, v);
    for (int i = 0; i < n_tiles; ++i) {
      if (set_limits(block, n_keys, tiles[i])) {
        attend_block(k, v, head_dim, rows.softcap * kLog2E, tiles[i]);
      }
    }
  }
  for (int i = 0; i < n_tiles; ++i) {
    const int64_t first = begin + i * kTileQueries;
    const int64_t n = end - first < kTileQueries ? end - first : kTileQueries;
    finish(rows, kv_head, first, n, tiles[i]);
  }
}

int64_t packed_tile(int32_t head_dim) { return (head_dim + 1) * kTileQueries; }

// A packed tile: q [head_dim][width], then [kTileQueries] what is subtracted from a score to make
// it the logarithm (base 2) of a probability: infinity for lanes past the last query.
void pack(const AttentionRows& rows, int64_t n_rows, int32_t kv_head, int64_t tile, float* packed) {
  const int64_t begin = tile * kTileQueries;
  const int64_t left = n_rows * rows.group - begin;
  const int64_t n = left < kTileQueries ? left : kTileQueries;
  Tile t;
  t.q = packed;
  pack_queries(rows, kv_head, begin, n, t);
  float* log_sum = packed + kTileQueries * rows.kv.layout.head_dim;
  for (int64_t lane = 0; lane < kTileQueries; ++lane) {
    const int64_t index = query_index(rows, kv_head, begin + lane);
    log_sum[lane] = lane < n ? rows.log_sum_exp[index] * kLog2E : INFINITY;
  }
}

/// sums [key][lane] += the probabilities of the tile's queries: 2^(score - log2 of the row's sum).
/// Lanes are added up at the end of all tiles, once a key.
template <int kVectors>
void add_received(const float* k, int32_t head_dim, float softcap, const float* log_sum,
                  const Tile& t, float* sums) {
  constexpr int kWidth = kVectors * kLanes;
  compute_scores<kVectors>(k, head_dim, t);
  if (softcap > 0) cap_scores<kVectors>(softcap, t);
  for (int v = 0; v < kVectors; ++v) {
    const I32 lows = load_i32(t.lows + v * kLanes);
    const I32 limits = load_i32(t.limits + v * kLanes);
    const F32 log_sums = load(log_sum + v * kLanes);
    int32_t j = t.begin;
    const auto add_masked = [&](int32_t end) __attribute__((always_inline)) {
      for (; j < end; ++j) {
        const F32 p = exp2(sub(load(t.scores + j * kWidth + v * kLanes), log_sums));
        const F32 visible = select(within(lows, limits, j), p, set1(0.0f));
        store(sums + j * kLanes, add(load(sums + j * kLanes), visible));
      }
    };
    add_masked(t.plain_begin);
    for (; j < t.plain_end; ++j) {
      const F32 p = exp2(sub(load(t.scores + j * kWidth + v * kLanes), log_sums));
      store(sums + j * kLanes, add(load(sums + j * kLanes), p));
    }
    add_masked(t.end);
  }
}

int64_t received_scratch(int32_t head_dim) {
  return kBlockKeys * head_dim + kBlockKeys * kTileQueries + kBlockKeys * kLanes;
}

void received(const AttentionRows& rows, int64_t n_rows, int64_t begin, int64_t end,
              const float* packed, float* scratch, float* received) {
  const int32_t head_dim = rows.kv.layout.head_dim;
  const int64_t n_queries = n_rows * rows.group;
  const int32_t n_keys = end - begin;
  const float softcap = rows.softcap * kLog2E;
  float* k = scratch;
  float* scores = k + kBlockKeys * head_dim;
  float* sums = scores + kBlockKeys * kTileQueries;  // [kBlockKeys][kLanes]
  memset(sums, 0, sizeof(float) * kBlockKeys * kLanes);
  for (int32_t head = 0; head < rows.kv.layout.n_kv_heads; ++head) {
    widen_keys(rows, head, 0, n_rows, begin, end, k);
    for (int64_t first = 0; first < n_queries; first += kTileQueries) {
      Tile t;
      const int64_t n = n_queries - first < kTileQueries ? n_queries - first : kTileQueries;
      t.width = (n + kLanes - 1) / kLanes * kLanes;
      for (int32_t lane = 0; lane < t.width; ++lane) {
        set_range(rows, (first + (lane < n ? lane : n - 1)) / rows.group, lane, t);
      }
      // Packed by `pack`, only read here.
      t.q = const_cast<float*>(packed);
      t.scores = scores;
      const bool any = set_limits(begin, n_keys, t);
      const float* log_sum = packed + kTileQueries * head_dim;
      packed += packed_tile(head_dim);
      if (!any) continue;
      switch (t.width / kLanes) {
        case 1:
          add_received<1>(k, head_dim, softcap, log_sum, t, sums);
          break;
        case 2:
          add_received<2>(k, head_dim, softcap, log_sum, t, sums);
          break;
        default:
          add_received<kTileVectors>(k, head_dim, softcap, log_sum, t, sums);
      }
    }
  }
  for (int32_t j = 0; j < n_keys; ++j) received[begin + j] += reduce_add(load(sums + j * kLanes));
}

}  // namespace

const AttentionFns& attention_fns() {
  static constexpr AttentionFns kFns = {prefill_scratch,  prefill, kTileQueries, packed_tile, pack,
                                        received_scratch, received};
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
