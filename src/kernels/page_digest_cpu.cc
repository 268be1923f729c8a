// Making digests and scoring them. Of a digest of two vectors M, m a dimension's part of the score
// is max(q M, q m): q M where q >= 0 and q m where q < 0. So what is multiplied is chosen by q's
// sign, a register at a time. (The product of (M, m) with (max(q, 0), min(q, 0)) needs no choice
// and twice the products: one core of Zen 3 scored four heads at 9.5 GB/s so, digests in its L2,
// and at 10.3 GB/s by choosing, both in 15 bits.)
//
// Int8: a query's magnitudes are rounded to 7 bits, so that bytes are multiplied by bytes
// (vpdpbusd, vpmaddubsw) and a sum is exact, at most 256 * 127 * 127. In 15 bits, digests widened
// to 16, one core took 1.5 times as long with AVX2, and 1.2 times with AVX-512 (Cascade Lake; now
// two threads score at 0.6 to 0.7 of memory's speed there: page_digest_bench). Of the ten largest
// tokens Quest finds 0.805 and 0.924 in place of 0.806 and 0.925 (SmolLM2, 208 and 512 of 4,096
// tokens).
#include <float.h>
#include <math.h>

#include "kernels/code_lanes_internal.h"
#include "kernels/cpu_half_internal.h"
#include "kernels/kv_codec_runs_internal.h"
#include "kernels/page_digest_internal.h"
#include "kernels/simd_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

constexpr float kLargestHalf = 65504.0f;
constexpr uint16_t kNanHalf = 0x7e00;

// ---- Making digests ----

enum class Rounding { kNearest, kUp, kDown };

/// What is written of a page and KV head, in f32.
struct Vectors {
  float x[2][kMaxHeadDim] = {};  // 0 after head_dim
  int n = 0;
  bool is_finite = true;
};

/// Calls fn(d, x) for each register of each token's key.
template <class Fn>
void for_keys(const KvCodecFns& codec, const PagedKv& kv, const uint8_t* k, const Fn& fn) {
  float x[kMaxHeadDim] = {};
  for (int32_t token = 0; token < kv.layout.page_tokens; ++token) {
    codec.load(k + int64_t{token} * kv.k_bytes, kv.layout.head_dim, x);
    for (int32_t d = 0; d < kv.layout.head_dim; d += kLanes) fn(d, load(x + d));
  }
}

/// 0 times what is not finite is NaN, which stays in a sum. max() and min() may pass it over.
struct FiniteProbe {
  F32 sum = set1(0.0f);
  void see(F32 x) { sum = add(sum, mul(x, set1(0.0f))); }
  bool is_finite() const { return reduce_add(sum) == 0; }
};

void find_mean(const KvCodecFns& codec, const PagedKv& kv, const uint8_t* k, Vectors& out) {
  float* const sums = out.x[0];
  for_keys(codec, kv, k, [&](int32_t d, F32 x) { store(sums + d, add(load(sums + d), x)); });
  const float inverse = 1.0f / kv.layout.page_tokens;  // a power of two: exact
  for (int32_t d = 0; d < kv.layout.head_dim; ++d) sums[d] *= inverse;
  out.n = 1;
}

void find_extremes(const KvCodecFns& codec, const PagedKv& kv, const uint8_t* k, Vectors& out) {
  float* const high = out.x[0];
  float* const low = out.x[1];
  FiniteProbe probe;
  for (int32_t d = 0; d < kv.layout.head_dim; ++d) {
    high[d] = -INFINITY;
    low[d] = INFINITY;
  }
  for_keys(codec, kv, k, [&](int32_t d, F32 x) {
    store(high + d, max(x, load(high + d)));
    store(low + d, min(x, load(low + d)));
    probe.see(x);
  });
  out.n = 2;
  out.is_finite = probe.is_finite();
}

/// From the extremes: c + d and c - d. The keys are decoded a second time, which costs less than
/// keeping up to 256 KB of them.
void shrink_to_mean(const KvCodecFns& codec, const PagedKv& kv, const uint8_t* k, Vectors& out) {
  float centres[kMaxHeadDim] = {}, distances[kMaxHeadDim] = {};
  const int32_t head_dim = kv.layout.head_dim;
  for (int32_t d = 0; d < head_dim; ++d) centres[d] = (out.x[0][d] + out.x[1][d]) * 0.5f;
  for_keys(codec, kv, k, [&](int32_t d, F32 x) {
    const F32 centre = load(centres + d);
    const F32 distance = max(sub(x, centre), sub(centre, x));
    store(distances + d, add(load(distances + d), distance));
  });
  const float inverse = 1.0f / kv.layout.page_tokens;
  for (int32_t d = 0; d < head_dim; ++d) {
    const float distance = distances[d] * inverse;
    out.x[0][d] = centres[d] + distance;
    out.x[1][d] = centres[d] - distance;
  }
}

void write_int8(const float* x, int32_t n, float step, Rounding rounding, int8_t* out) {
  for (int32_t d = 0; d < n; ++d) {
    const float near = rounded(x[d] / step);
    const float up = near * step < x[d] ? 1.0f : 0.0f;
    const float down = near * step > x[d] ? 1.0f : 0.0f;
    out[d] = near + (rounding == Rounding::kUp ? up : rounding == Rounding::kDown ? -down : 0.0f);
  }
}

/// The next half up or down. It never meets a 0 of the other sign: what is above -0, say, was not
/// rounded to it.
uint16_t moved(uint16_t half, bool up) {
  const bool is_negative = half >= 0x8000;
  return is_negative == up ? half - 1 : half + 1;
}

void write_f16(const float* x, int32_t n, Rounding rounding, uint8_t* out) {
  for (int32_t d = 0; d < n; d += kLanes) {
    uint16_t halves[kLanes];
    float clamped[kLanes], back[kLanes];
    store(clamped, min(max(load(x + d), set1(-kLargestHalf)), set1(kLargestHalf)));
    narrow(halves, load(clamped));
    store(back, widen(halves));
    const int32_t n_now = n - d < kLanes ? n - d : kLanes;
    for (int32_t i = 0; i < n_now; ++i) {
      if (rounding == Rounding::kUp && back[i] < clamped[i]) halves[i] = moved(halves[i], true);
      if (rounding == Rounding::kDown && back[i] > clamped[i]) halves[i] = moved(halves[i], false);
    }
    memcpy(out + 2 * d, halves, n_now * sizeof(halves[0]));
  }
}

void write_nan(const DigestLayout& layout, uint8_t* digest) {
  const int32_t n = digest_elements(layout);
  if (layout.type == DigestType::kF16) {
    for (int32_t d = 0; d < n; ++d) memcpy(digest + 2 * d, &kNanHalf, sizeof(kNanHalf));
    return;
  }
  const float nan = float_from_bits(0x7fc00000u);
  memcpy(digest, &nan, sizeof(nan));
  memset(digest + sizeof(nan), 0, n);
}

/// Element i of what comes is x[order[i]].
void put_in_order(const uint8_t* order, int32_t n, float* x) {
  float copy[kMaxHeadDim];
  memcpy(copy, x, n * sizeof(float));
  for (int32_t d = 0; d < n; ++d) x[d] = copy[order[d]];
}

void make(const KvCodecFns& codec, const PagedKv& kv, const uint8_t* k, const DigestLayout& layout,
          const uint8_t* order, uint8_t* digest) {
  Vectors vectors;
  if (layout.kind == DigestKind::kMean) {
    find_mean(codec, kv, k, vectors);
  } else {
    find_extremes(codec, kv, k, vectors);
    if (layout.kind == DigestKind::kCuboidMean) shrink_to_mean(codec, kv, k, vectors);
  }
  const int32_t head_dim = layout.head_dim;
  for (int i = 0; order != nullptr && i < vectors.n; ++i) {
    put_in_order(order, head_dim, vectors.x[i]);
  }
  float largest = 0;
  for (int i = 0; i < vectors.n; ++i) largest = largest_of(vectors.x[i], head_dim, largest);
  if (!vectors.is_finite || !(largest < INFINITY)) return write_nan(layout, digest);
  const float step = step_of(largest);
  if (layout.type == DigestType::kInt8) memcpy(digest, &step, sizeof(step));
  for (int i = 0; i < vectors.n; ++i) {
    const Rounding rounding = layout.kind != DigestKind::kMinMax ? Rounding::kNearest
                              : i == 0                           ? Rounding::kUp
                                                                 : Rounding::kDown;
    if (layout.type == DigestType::kInt8) {
      write_int8(vectors.x[i], head_dim, step, rounding,
                 reinterpret_cast<int8_t*>(digest + sizeof(step)) + i * head_dim);
    } else {
      write_f16(vectors.x[i], head_dim, rounding, digest + 2 * i * head_dim);
    }
  }
}

// ---- Queries ----

/// What is not finite makes all of the head's scores NaN: by the factor, or by the floats.
void pack(const DigestLayout& layout, const float* q, float scale, const uint8_t* order,
          int32_t head, const PackedQuery& packed) {
  const int32_t stride = query_stride(layout);
  const int64_t at = int64_t{head} * stride;
  float x[kMaxHeadDim] = {};  // 0 after head_dim
  if (layout.type == DigestType::kF16) {
    packed.factors[head] = scale;
    for (int32_t d = 0; d < layout.head_dim; ++d) x[d] = q[d] * scale;
    if (order != nullptr) put_in_order(order, layout.head_dim, x);
    float* const to = static_cast<float*>(packed.elements) + at;
    memcpy(to, x, stride * sizeof(float));
    if (!(largest_of(q, layout.head_dim, 0.0f) < INFINITY)) to[0] = NAN;
    return;
  }
  packed.factors[head] = scale * whole_numbers(q, layout.head_dim, kLargestCode, x);
  if (order != nullptr) put_in_order(order, layout.head_dim, x);
  int8_t* const to = static_cast<int8_t*>(packed.elements) + at;
  for (int32_t d = 0; d < stride; ++d) to[d] = x[d];
}

// ---- Scores ----

typedef int32_t I32x4 __attribute__((vector_size(16)));

/// The four sums of lanes.
inline I32x4 reduce_add4(I32 a, I32 b, I32 c, I32 d) {
#if defined(__AVX2__)
#if defined(__AVX512F__)
  const auto fold = [](__m512i x) {
    return _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
  };
#else
  const auto fold = [](__m256i x) { return x; };
#endif
  const __m256i pairs =
      _mm256_hadd_epi32(_mm256_hadd_epi32(fold(a), fold(b)), _mm256_hadd_epi32(fold(c), fold(d)));
  return I32x4(_mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1)));
#else
  const auto sum = [](I32 x) { return x[0] + x[1] + x[2] + x[3]; };
  return I32x4{sum(a), sum(b), sum(c), sum(d)};
#endif
}

#if defined(__AVX512F__)
/// Lane i: the sum of the lanes of x[i / 4][i % 4]. Each step halves how many lanes a sum lies in
/// and puts two of them where one was.
inline I32 reduce_add16(const I32 (&x)[4][4]) {
  I32 s[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const I32 a = x[i / 4][i % 4], b = x[i / 4 + 2][i % 4];
    s[i] =
        _mm512_add_epi32(_mm512_mask_blend_epi32(0xff00, a, b), _mm512_shuffle_i64x2(a, b, 0x4e));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const I32 w = _mm512_mask_blend_epi32(0x0f0f, s[i], s[i + 4]);
    s[i] = _mm512_add_epi32(_mm512_mask_blend_epi32(0xf0f0, s[i], s[i + 4]),
                            _mm512_shuffle_i64x2(w, w, 0xb1));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m512d a = _mm512_castsi512_pd(s[i]), b = _mm512_castsi512_pd(s[i + 2]);
    s[i] = _mm512_add_epi32(_mm512_mask_blend_epi32(0xcccc, s[i], s[i + 2]),
                            _mm512_castpd_si512(_mm512_shuffle_pd(a, b, 0x55)));
  }
  const I32 w = _mm512_mask_blend_epi32(0x5555, s[0], s[1]);
  return _mm512_add_epi32(_mm512_mask_blend_epi32(0xaaaa, s[0], s[1]),
                          _mm512_shuffle_epi32(w, _MM_PERM_CDAB));
}
#endif

using FourDigests = const uint8_t* [4];

struct Int8Digest {
  using Query = int8_t;
  using Sum = I32;
  static constexpr int kElements = kI8Lanes;
  static constexpr int kElementBytes = 1;
  static const uint8_t* elements(const uint8_t* digest) { return digest + sizeof(float); }
  static I8 load(const uint8_t* p) { return load_i8(p); }
  static I8 load_first(const uint8_t* p, int32_t n) { return load_first_i8(p, n); }
  /// What the query's magnitudes are multiplied with where it is negative.
  static I8 turned(I8 low) { return negated(low); }
  struct QueryPart {
    I8 x;
    Mask8 is_negative;
    I8 pick(I8 high, I8 low) const { return select(is_negative, low, high); }
  };
  static QueryPart load_query(const int8_t* p) {
    const I8 q = load_i8(reinterpret_cast<const uint8_t*>(p));
    return {magnitudes(q), signs(q)};
  }
  static I32 zero() { return zero_i32(); }
  static I32 add_product(I8 picked, const QueryPart& part, I32 sum) {
    return add_byte_products(part.x, picked, sum);
  }
  /// What a sum is multiplied with, besides the head's factor.
  static F32x4 steps(const FourDigests& digests) {
    float steps[4];
    for (int i = 0; i < 4; ++i) memcpy(steps + i, digests[i], sizeof(float));
    return load4(steps);
  }
  /// The same roundings on every set.
  template <int kHeads>
  static void finish(const I32 (&sums)[kHeads][4], const float* factors, F32x4 steps,
                     F32x4 (&scores)[kHeads]) {
#if defined(__AVX512F__)
    if constexpr (kHeads == 4) return finish_all(sums, factors, steps, scores);
#endif
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const I32x4 whole = reduce_add4(sums[h][0], sums[h][1], sums[h][2], sums[h][3]);
      scores[h] = __builtin_convertvector(whole, F32x4) * factors[h] * steps;
    }
  }
#if defined(__AVX512F__)
  static void finish_all(const I32 (&sums)[4][4], const float* factors, F32x4 steps,
                         F32x4 (&scores)[4]) {
    const __m512i quadrupled = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    const I32 whole = reduce_add16(sums);
    const F32 x =
        mul(mul(_mm512_cvtepi32_ps(whole),
                _mm512_permutexvar_ps(quadrupled, _mm512_castps128_ps512(_mm_loadu_ps(factors)))),
            _mm512_broadcast_f32x4(__m128(steps)));
    scores[0] = F32x4(_mm512_castps512_ps128(x));
    scores[1] = F32x4(_mm512_extractf32x4_ps(x, 1));
    scores[2] = F32x4(_mm512_extractf32x4_ps(x, 2));
    scores[3] = F32x4(_mm512_extractf32x4_ps(x, 3));
  }
#endif
};

struct F16Digest {
  using Query = float;
  using Sum = F32;
  static constexpr int kElements = kLanes;
  static constexpr int kElementBytes = 2;
  static const uint8_t* elements(const uint8_t* digest) { return digest; }
  static F32 load(const uint8_t* p) { return widen(reinterpret_cast<const uint16_t*>(p)); }
  /// The first n, zeros after them: what comes after the last digest is nobody's.
  static F32 load_first(const uint8_t* p, int32_t n) {
    uint16_t halves[kLanes] = {};
    memcpy(halves, p, n * sizeof(halves[0]));
    return widen(halves);
  }
  struct QueryPart {
    F32 x;
    Mask has_no_sign;
    F32 pick(F32 high, F32 low) const { return select(has_no_sign, high, low); }
  };
  static QueryPart load_query(const float* p) {
    int32_t bits[kLanes];
    memcpy(bits, p, sizeof(bits));
    return {WEFT_ISA::load(p), greater(load_i32(bits), -1)};
  }
  static F32 zero() { return set1(0.0f); }
  static F32 turned(F32 low) { return low; }
  static F32 add_product(F32 picked, const QueryPart& part, F32 sum) {
    return fmadd(picked, part.x, sum);
  }
  static F32x4 steps(const FourDigests&) { return F32x4{}; }
  template <int kHeads>
  static void finish(const F32 (&sums)[kHeads][4], const float*, F32x4, F32x4 (&scores)[kHeads]) {
    for (int h = 0; h < kHeads; ++h) {
      float of_head[4];
      WEFT_ISA::reduce_add4(sums[h][0], sums[h][1], sums[h][2], sums[h][3], of_head);
      scores[h] = load4(of_head);
    }
  }
};

/// Four pages' digests of a KV head and the packed queries of some of its heads.
template <class Digest>
struct Tile {
  FourDigests digests;
  int32_t head_dim;
  int32_t q_stride;
  const typename Digest::Query* q;  // [heads][q_stride]
  const float* factors;             // [heads]
  float* scores;                    // [heads][stride], of which n_pages are written
  int64_t stride;
  int64_t n_pages;
};

/// Adds the products of a register's elements, from d on.
template <class Digest, int kVectors, int kHeads, class Load>
[[gnu::always_inline]] inline void add_products(const Tile<Digest>& tile, int32_t d,
                                                const Load& load,
                                                typename Digest::Sum (&sums)[kHeads][4]) {
  typename Digest::QueryPart part[kHeads];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) part[h] = Digest::load_query(tile.q + h * tile.q_stride + d);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const uint8_t* const elements = Digest::elements(tile.digests[i]) + d * Digest::kElementBytes;
    const auto high = load(elements);
    const auto low = Digest::turned(
        kVectors == 1 ? high : load(elements + tile.head_dim * Digest::kElementBytes));
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      sums[h][i] = Digest::add_product(part[h].pick(high, low), part[h], sums[h][i]);
    }
  }
}

template <class Digest, int kHeads>
[[gnu::always_inline]] inline void finish_tile(const Tile<Digest>& tile,
                                               const typename Digest::Sum (&sums)[kHeads][4]) {
  F32x4 scores[kHeads];
  Digest::template finish<kHeads>(sums, tile.factors, Digest::steps(tile.digests), scores);
  float* to = tile.scores;
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h, to += tile.stride) {
    if (tile.n_pages == 4) {
      store4(to, scores[h]);
    } else {
      memcpy(to, scores + h, tile.n_pages * sizeof(float));
    }
  }
}

// With AVX-512 a function of its own, as within the loops around it GCC 12 moves sums from register
// to register; with the other sets a tile has one or two heads, and the call costs more than that.
#if defined(__AVX512F__)
#define WEFT_TILE_FUNCTION [[gnu::noinline]]
#else
#define WEFT_TILE_FUNCTION [[gnu::always_inline]] inline
#endif

template <class Digest, int kVectors, int kHeads, bool kHasPart>
WEFT_TILE_FUNCTION void score_tile(const Tile<Digest>& tile) {
  typename Digest::Sum sums[kHeads][4];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sums[h][i] = Digest::zero();
  }
  const int32_t n_whole = tile.head_dim / Digest::kElements * Digest::kElements;
  if constexpr (kHasPart) {
    const int32_t n = tile.head_dim - n_whole;
    add_products<Digest, kVectors>(
        tile, n_whole, [n](const uint8_t* p) { return Digest::load_first(p, n); }, sums);
  }
  int32_t d = 0;
  if (kHasPart && n_whole == 0) return finish_tile<Digest>(tile, sums);
  do {
    add_products<Digest, kVectors>(
        tile, d, [](const uint8_t* p) { return Digest::load(p); }, sums);
    d += Digest::kElements;
  } while (d < n_whole);
  finish_tile<Digest>(tile, sums);
}

/// The pages that a worker's first block begins with, as far as blocks ask for the next one's: a
/// line of each fourth one in turn, as they do.
void ask_for_first(const ScoreRows& rows, int64_t begin, int64_t end) {
  const int64_t n_parts = rows.n_parts_ahead;
  const int32_t n_bytes = rows.digests.bytes * rows.digests.layout.n_kv_heads;
  for (int64_t part = 0; part < n_parts; ++part) {
    for (int32_t byte = 0; byte < n_bytes; byte += 64) {
      for (int64_t i = begin + part; i < end && i < begin + 4 * n_parts; i += n_parts) {
        __builtin_prefetch(digest_at(rows.digests, rows.pages[i], 0) + byte, 0, 3);
      }
    }
  }
}

/// Four pages at a time, KV head after KV head, as they lie in memory; what later ones have at the
/// same place is asked for meanwhile (without that, with four streams of a 1B model's 132 bytes at
/// a time, it read 5.0 GB/s, not 8.8, on one core of Zen 3): the next four, or of the next sixteen
/// each fourth in turn, which lie in other 4 KB (0.141 ms a layer in place of 0.162 with two
/// threads of a Sapphire Rapids); at the block's end those that the worker's next one begins with.
/// Pages past the last repeat it.
template <class Digest, int kVectors, bool kHasPart>
void score_as(const ScoreRows& rows, int64_t begin, int64_t end) {
  const PagedDigests& digests = rows.digests;
  const DigestLayout& layout = digests.layout;
  const int32_t group = rows.n_heads / layout.n_kv_heads;
  // Whole ones: what is left over is in the next head's first line, or in the next page's.
  const int32_t n_lines = digests.bytes < 64 ? 1 : digests.bytes / 64;
  const auto* const q = static_cast<const typename Digest::Query*>(rows.query.elements);
  const int64_t last = rows.n_pages - 1, n_parts = rows.n_parts_ahead;
  Tile<Digest> tile = {
      .head_dim = layout.head_dim, .q_stride = query_stride(layout), .stride = rows.stride};
  if (rows.is_first) ask_for_first(rows, begin, end);
  for (int64_t i = begin; i < end; i += 4) {
    const uint8_t* now[4];
    const uint8_t* next[4];
    const int64_t turn = (i - begin) / 4 % n_parts, parts_end = i + 4 * (n_parts - turn);
    for (int j = 0; j < 4; ++j) {
      now[j] = digest_at(digests, rows.pages[i + j < end ? i + j : end - 1], 0);
      const int64_t after = (parts_end < end ? parts_end : rows.next_begin) + j * n_parts + turn;
      next[j] = digest_at(digests, rows.pages[after < last ? after : last], 0);
    }
    tile.n_pages = end - i < 4 ? end - i : 4;
    for (int32_t kv_head = 0; kv_head < layout.n_kv_heads; ++kv_head) {
      const int64_t at = int64_t{kv_head} * digests.bytes;
      for (int j = 0; j < 4; ++j) {
        tile.digests[j] = now[j] + at;
        for (int32_t line = 0; line < n_lines; ++line) {
          __builtin_prefetch(next[j] + at + 64 * line, 0, 3);
        }
      }
      for_head_batches(group, [&]<int kHeads>(int32_t h) {
        const int32_t head = kv_head * group + h;
        tile.q = q + int64_t{head} * tile.q_stride;
        tile.factors = rows.query.factors + head;
        tile.scores = rows.scores + head * rows.stride + i - begin;
        score_tile<Digest, kVectors, kHeads, kHasPart>(tile);
      });
    }
  }
}

template <class Digest>
void score_with(const ScoreRows& rows, int64_t begin, int64_t end) {
  const DigestLayout& layout = rows.digests.layout;
  const bool has_part = layout.head_dim % Digest::kElements != 0;
  if (layout.kind == DigestKind::kMean) {
    has_part ? score_as<Digest, 1, true>(rows, begin, end)
             : score_as<Digest, 1, false>(rows, begin, end);
  } else {
    has_part ? score_as<Digest, 2, true>(rows, begin, end)
             : score_as<Digest, 2, false>(rows, begin, end);
  }
}

void score(const ScoreRows& rows, int64_t begin, int64_t end) {
  rows.digests.layout.type == DigestType::kInt8 ? score_with<Int8Digest>(rows, begin, end)
                                                : score_with<F16Digest>(rows, begin, end);
}

}  // namespace

const PageDigestFns& page_digest_fns() {
  static constexpr PageDigestFns kFns = {make, pack, score};
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
