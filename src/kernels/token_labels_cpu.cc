// Sixteen tokens at a time. Two dimensions' bits of sixteen keys are a mask, under which what the
// dimensions are worth to a head is added to all of their sums, in 16 bits: one masked addition
// (AVX-512) where unpacking a key's bits would take several for each key, and its sum ten more. The
// mask is read once for the heads of a group. With sums of 32 bits, a dimension each, scoring took
// 1.7 times as long (Zen 5, one core).
//
// A page's score is a sum of exponentials and not its largest token's score: with the largest alone
// SmolLM2 found 85 % of the pass keys at a budget of 208 of 4,096 tokens instead of 90 %, and its
// perplexity was 21.96 instead of 21.53. The sum costs a third of scoring.
//
// So that 16 bits hold a sum, a query is cut to whole numbers whose magnitudes are together at most
// kMostOfQuery in the even dimensions, and in the odd ones; what a dimension is worth is a multiple
// of 256 of them (by both bits, whose sums are larger, of 512), to nearest: much less than what a
// label leaves out.
//
// Labels are read in lists of pages; memory is asked for some pages ahead.
#include "kernels/code_lanes_internal.h"
#include "kernels/kv_codec_runs_internal.h"
#include "kernels/simd_internal.h"
#include "kernels/token_labels_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

constexpr int kTokens = 16;  // of a mask
constexpr int kParts = kTokens / kLanes;

/// Of the sides of kSides labels; what comes after them takes as many.
int32_t side_bytes(const LabelLayout& layout) { return layout.page_tokens / 8 * layout.head_dim; }

// ---- Making labels ----

void make_sides(const KvCodecFns& codec, const PagedKv& kv, const uint8_t* k, const uint8_t* digest,
                const LabelLayout& layout, uint8_t* label) {
  const int32_t head_dim = layout.head_dim;
  float step;
  memcpy(&step, digest, sizeof(step));
  const auto* const codes = reinterpret_cast<const int8_t*>(digest + sizeof(step));
  float highs[kMaxHeadDim], middles[kMaxHeadDim], lows[kMaxHeadDim], x[kMaxHeadDim];
  for (int32_t d = 0; d < head_dim; ++d) {
    highs[d] = step * static_cast<float>(codes[d]);
    middles[d] = 0.5f * step * static_cast<float>(codes[d] + codes[head_dim + d]);
    lows[d] = step * static_cast<float>(codes[head_dim + d]);
  }
  uint8_t* const planes[2] = {label, label + side_bytes(layout)};
  for (int32_t begin = 0; begin < layout.page_tokens; begin += kTokens) {
    uint32_t bits[2][kMaxHeadDim] = {};  // of a token every second
    for (int32_t t = 0; t < kTokens; ++t) {
      codec.load(k + int64_t{begin + t} * kv.k_bytes, head_dim, x);
      for (int32_t d = 0; d < head_dim; ++d) {
        const uint32_t is_above = x[d] >= middles[d] ? 1 : 0;
        const uint32_t is_upper = is_above != 0 ? x[d] > highs[d] : x[d] >= lows[d];
        bits[0][d] |= is_above << (2 * t);
        bits[1][d] |= is_upper << (2 * t);
      }
    }
    for (int plane = 0; plane < 2; ++plane) {
      uint8_t* const to = planes[plane] + begin / 8 * head_dim;
      for (int32_t d = 0; d < head_dim; d += 2) {
        const uint32_t pair = bits[plane][d] | bits[plane][d + 1] << 1;
        memcpy(to + d * 2, &pair, sizeof(pair));
      }
    }
  }
}

void make_channels(const KvCodecFns& codec, const PagedKv& kv, const uint8_t* k,
                   const LabelLayout& layout, const uint8_t* channels, uint8_t* label) {
  float x[kMaxHeadDim], largest = 0;
  const auto for_keys = [&](const auto& fn) {
    for (int32_t t = 0; t < layout.page_tokens; ++t) {
      codec.load(k + int64_t{t} * kv.k_bytes, layout.head_dim, x);
      float cut[kLabelChannels];
      for (int32_t c = 0; c < kLabelChannels; ++c) cut[c] = x[channels[c]];
      fn(t, cut);
    }
  };
  // The other dimensions count where they are not finite, as they do in the digest.
  for_keys([&](int32_t, const float* cut) {
    if (!(largest_of(x, layout.head_dim, 0.0f) < INFINITY)) largest = NAN;
    largest = largest_of(cut, kLabelChannels, largest);
  });
  const float step = largest < INFINITY ? step_of(largest) : NAN;
  memcpy(label, &step, sizeof(step));
  auto* const bytes = reinterpret_cast<int8_t*>(label + sizeof(step));
  if (!(largest < INFINITY)) {
    memset(bytes, 0, layout.page_tokens * kLabelChannels);
    return;
  }
  for_keys([&](int32_t t, const float* cut) {
    int8_t* const to = bytes + t / kTokens * kTokens * kLabelChannels + t % kTokens * 2;
    for (int32_t c = 0; c < kLabelChannels; ++c) {
      to[c / 2 * 2 * kTokens + c % 2] = static_cast<int8_t>(rounded(cut[c] / step));
    }
  });
}

void make(const KvCodecFns& codec, const PagedKv& kv, const uint8_t* k, const uint8_t* digest,
          const LabelLayout& layout, const uint8_t* channels, uint8_t* label) {
  layout.kind == LabelKind::kSides ? make_sides(codec, kv, k, digest, layout, label)
                                   : make_channels(codec, kv, k, layout, channels, label);
}

/// Half a unit for each of 256 dimensions, of q and of what they are worth, is not yet 32767.
constexpr float kMostOfQuery = 32000.0f;

/// The larger sum of magnitudes, of the even dimensions and of the odd ones; NaN where it is not
/// finite.
float most_of_parity(const float* q, int32_t n) {
  float sums[8] = {};  // in an order that no register has a say in
  for (int32_t i = 0; i < n; i += 8) {
    for (int32_t j = 0; j < 8; ++j) sums[j] += fabsf(q[i + j]);
  }
  const float even = (sums[0] + sums[4]) + (sums[2] + sums[6]);
  const float odd = (sums[1] + sums[5]) + (sums[3] + sums[7]);
  if (!(even + odd < INFINITY)) return NAN;
  return even > odd ? even : odd;
}

void pack_sides(const float* q, int32_t n, float scale, int16_t* to, float& factor) {
  const float most = most_of_parity(q, n);
  const float exact_unit = most / kMostOfQuery;
  const float unit = exact_unit < FLT_MIN ? FLT_MIN : exact_unit;
  factor = most == 0 ? 0.0f : scale * unit;
  for (int32_t i = 0; i < n; ++i) to[i] = static_cast<int16_t>(rounded(q[i] / unit));
}

void pack_channels(const float* q, const uint8_t* channels, float scale, int16_t* to,
                   float& factor) {
  float cut[kLabelChannels], whole[kLabelChannels];
  for (int32_t i = 0; i < kLabelChannels; ++i) cut[i] = q[channels[i]];
  factor = scale * whole_numbers(cut, kLabelChannels, whole);
  for (int32_t i = 0; i < kLabelChannels; ++i) to[i] = static_cast<int16_t>(whole[i]);
}

void pack(const LabelLayout& layout, const float* q, float scale, const uint8_t* channels,
          int32_t head, const PackedLabelQuery& packed) {
  const int32_t n = label_query_elements(layout);
  int16_t* const to = packed.elements + int64_t{head} * n;
  float& factor = packed.factors[head];
  // Any of q that is not finite makes the score NaN, in the label's dimensions or not; so does a
  // sum that overflows.
  if (isnan(most_of_parity(q, layout.head_dim))) {
    factor = NAN;
    memset(to, 0, n * sizeof(to[0]));
  } else if (layout.kind == LabelKind::kSides) {
    pack_sides(q, n, scale, to, factor);
  } else {
    pack_channels(q, channels, scale, to, factor);
  }
}

// ---- Scores ----

#if defined(__AVX512F__)

/// Of the lanes of a part, two for each token.
using PairMask = __mmask32;
inline PairMask mask_of(uint32_t bits, int) { return bits; }
/// pair: two int16. sums + pair where the mask is.
inline I16 add_where(PairMask mask, int32_t pair, I16 sums) {
  return _mm512_mask_add_epi16(sums, mask, sums, _mm512_set1_epi32(pair));
}
inline I16 set1_i16(int16_t x) { return _mm512_set1_epi16(x); }
inline I32 set1_i32(int32_t x) { return _mm512_set1_epi32(x); }
inline I32 sub_i32(I32 a, I32 b) { return _mm512_sub_epi32(a, b); }
inline I32 max_i32(I32 a, I32 b) { return _mm512_max_epi32(a, b); }
inline int32_t reduce_max_i32(I32 x) { return _mm512_reduce_max_epi32(x); }
inline void store_i32(int32_t* p, I32 x) { _mm512_storeu_si512(p, x); }
inline F32 to_f32(I32 x) { return _mm512_cvtepi32_ps(x); }
/// 16 pairs of bytes with 16 pairs of q.
inline I32 add_pairs(const uint8_t* bytes, const int16_t* pair, I32 sums) {
  int32_t both;
  memcpy(&both, pair, sizeof(both));
#if defined(__AVX512VNNI__)
  return _mm512_dpwssd_epi32(sums, widen_bytes(bytes), _mm512_set1_epi32(both));
#else
  return add_products(widen_bytes(bytes), _mm512_set1_epi32(both), sums);
#endif
}

#elif defined(__AVX2__)

using PairMask = __m256i;
inline PairMask mask_of(uint32_t bits, int part) {
  const __m256i lanes = _mm256_set_epi16(-32768, 16384, 8192, 4096, 2048, 1024, 512, 256, 128, 64,
                                         32, 16, 8, 4, 2, 1);
  const __m256i own = _mm256_set1_epi16(static_cast<int16_t>(bits >> (part * 2 * kLanes)));
  return _mm256_cmpeq_epi16(_mm256_and_si256(own, lanes), lanes);
}
inline I16 add_where(PairMask mask, int32_t pair, I16 sums) {
  return _mm256_add_epi16(sums, _mm256_and_si256(mask, _mm256_set1_epi32(pair)));
}
inline I16 set1_i16(int16_t x) { return _mm256_set1_epi16(x); }
inline I32 set1_i32(int32_t x) { return _mm256_set1_epi32(x); }
inline I32 sub_i32(I32 a, I32 b) { return _mm256_sub_epi32(a, b); }
inline I32 max_i32(I32 a, I32 b) { return _mm256_max_epi32(a, b); }
inline int32_t reduce_max_i32(I32 x) {
  __m128i half = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}
inline void store_i32(int32_t* p, I32 x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
inline F32 to_f32(I32 x) { return _mm256_cvtepi32_ps(x); }
inline I32 add_pairs(const uint8_t* bytes, const int16_t* pair, I32 sums) {
  int32_t both;
  memcpy(&both, pair, sizeof(both));
  return add_products(widen_bytes(bytes), _mm256_set1_epi32(both), sums);
}

#else

using PairMask = I16;
inline I16 set1_i16(int16_t x) { return I16{x, x, x, x, x, x, x, x}; }
inline PairMask mask_of(uint32_t bits, int part) {
  const I16 lanes = {1, 2, 4, 8, 16, 32, 64, 128};
  return (set1_i16(static_cast<int16_t>(bits >> (part * 2 * kLanes) & 0xff)) & lanes) == lanes;
}
inline I16 add_where(PairMask mask, int32_t pair, I16 sums) {
  I16 both;
  const I32 pairs = {pair, pair, pair, pair};
  memcpy(&both, &pairs, sizeof(both));
  return sums + (mask & both);
}
inline I32 set1_i32(int32_t x) { return I32{x, x, x, x}; }
inline I32 sub_i32(I32 a, I32 b) { return a - b; }
inline I32 max_i32(I32 a, I32 b) { return a > b ? a : b; }
inline int32_t reduce_max_i32(I32 x) {
  const int32_t even = x[0] > x[2] ? x[0] : x[2], odd = x[1] > x[3] ? x[1] : x[3];
  return even > odd ? even : odd;
}
inline void store_i32(int32_t* p, I32 x) { memcpy(p, &x, sizeof(x)); }
inline F32 to_f32(I32 x) { return __builtin_convertvector(x, F32); }
inline I32 add_pairs(const uint8_t* bytes, const int16_t* pair, I32 sums) {
  I16 pairs = {pair[0], pair[1], pair[0], pair[1], pair[0], pair[1], pair[0], pair[1]};
  return add_products(widen_bytes(bytes), pairs, sums);
}

#endif

/// What the tokens of some pages are worth to the heads of a batch, in the query's and the label's
/// steps.
template <int kHeads>
using TokenSums = int32_t[kHeads][kMostLabelledTokens];

/// What the dimensions of a page are worth to a head, in 16 bits.
struct Gains {
  int16_t of_sides[kMaxHeadDim];  // of a key's side, in units of 256, or with kAll of 512
  int16_t of_rest[kMaxHeadDim];   // of the label's lower bit, in units of 512
  int32_t least;                  // of a key whose bits are all 0
};

/// With kAll a key's value is m - 3/8 w + 9/8 w * (side) + 5/8 w * (lower bit), w = M - m.
template <LabelDepth kDepth>
[[gnu::always_inline]] inline void make_gains(const int8_t* high, const int8_t* low,
                                              const int16_t* q, int32_t head_dim, Gains& gains) {
  const auto part = [](int16_t x, int32_t of) {  // x * of / 2^15, to nearest
    return static_cast<int16_t>(((x * static_cast<int16_t>(of) >> 14) + 1) >> 1);
  };
  int32_t least = 0;
  for (int32_t d = 0; d < head_dim; ++d) {
    const int32_t width = high[d] - low[d];
    if constexpr (kDepth == LabelDepth::kSide) {
      gains.of_sides[d] = part(q[d], width * 128);
      least += q[d] * low[d];
    } else {
      gains.of_sides[d] = part(q[d], width * 72);
      gains.of_rest[d] = part(q[d], width * 40);
      least += q[d] * (8 * low[d] - 3 * width);
    }
  }
  gains.least = kDepth == LabelDepth::kSide ? least : (least + 4) >> 3;
}

template <int kHeads, LabelDepth kDepth>
[[gnu::always_inline]] inline void sum_sides(int32_t head_dim, int32_t page_tokens,
                                             const uint8_t* digest, const uint8_t* label,
                                             const int16_t* q, int32_t at, TokenSums<kHeads>& out) {
  // So many additions are under way, as each waits two cycles for the one before it.
  constexpr int kChains = kHeads * kParts >= 4 ? 1 : kHeads * kParts >= 2 ? 2 : 4;
  constexpr bool kTwo = kDepth == LabelDepth::kAll;
  const auto* const high = reinterpret_cast<const int8_t*>(digest + sizeof(float));
  alignas(64) Gains gains[kHeads];
  for (int h = 0; h < kHeads; ++h) {
    make_gains<kDepth>(high, high + head_dim, q + h * head_dim, head_dim, gains[h]);
  }
  const int32_t rest = page_tokens / 8 * head_dim;
  for (int32_t begin = 0; begin < page_tokens; begin += kTokens) {
    const auto* const bits = label + begin / 8 * head_dim;
    I16 sums[kChains][kHeads][kParts];
    for (auto& chain : sums) {
      for (auto& of_head : chain) {
        for (I16& sum : of_head) sum = set1_i16(0);
      }
    }
    const auto add_dimension = [&](const uint8_t* from, int32_t d, auto of, auto& chain) {
      uint32_t of_tokens;
      memcpy(&of_tokens, from + d * 2, sizeof(of_tokens));
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        const PairMask mask = mask_of(of_tokens, part);
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) {
          int32_t pair;
          memcpy(&pair, &(gains[h].*of)[d], sizeof(pair));
          chain[h][part] = add_where(mask, pair, chain[h][part]);
        }
      }
    };
#pragma GCC unroll 2
    for (int32_t four = 0; four < head_dim; four += 2 * kChains) {
#pragma GCC unroll 4
      for (int chain = 0; chain < kChains; ++chain) {
        const int32_t d = four + 2 * chain;
        add_dimension(bits, d, &Gains::of_sides, sums[chain]);
        if constexpr (kTwo) add_dimension(bits + rest, d, &Gains::of_rest, sums[chain]);
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        I32 sum = set1_i32(gains[h].least);
#pragma GCC unroll 4
        for (int chain = 0; chain < kChains; ++chain) {
          sum = add_products(sums[chain][h][part], set1_i16(kTwo ? 512 : 256), sum);
        }
        store_i32(out[h] + at + begin + part * kLanes, sum);
      }
    }
  }
}

template <int kHeads>
[[gnu::always_inline]] inline void sum_channels(int32_t page_tokens, const uint8_t* label,
                                                const int16_t* q, int32_t at,
                                                TokenSums<kHeads>& out) {
  const uint8_t* bytes = label + sizeof(float);
  for (int32_t begin = 0; begin < page_tokens; begin += kTokens) {
    for (int part = 0; part < kParts; ++part) {
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        I32 sums = set1_i32(0);
        for (int32_t c = 0; c < kLabelChannels; c += 2) {
          sums = add_pairs(bytes + (c * kTokens + part * 2 * kLanes), q + h * kLabelChannels + c,
                           sums);
        }
        store_i32(out[h] + at + begin + part * kLanes, sums);
      }
    }
    bytes += kTokens * kLabelChannels;
  }
}

/// 2^x for x <= 0, 1e-4 off at most, relative. Without fused products and in one order of adding,
/// as all that scores are made of: the same bits on every instruction set.
inline F32 power_of_two(F32 x) {
  const F32 least = max(x, set1(-126.0f));
  const F32 n = round_to_even(least);
  const F32 f = sub(least, n);
  F32 p = add(mul(f, set1(0x1.c2a214p-5f)), set1(0x1.f00c4cp-3f));
  p = add(mul(f, p), set1(0x1.62f5fap-1f));
  return scale_by_power(add(mul(f, p), set1(1.0f)), n, x);
}

/// log(x) for x in [1, 2^127), 1e-4 off at most. For plain loops.
inline float log_of(float x) {
  const uint32_t bits = bits_from_float(x);
  const auto exponent = static_cast<float>(static_cast<int32_t>(bits >> 23) - 127);
  const float t = float_from_bits((bits & 0x7fffff) | 0x3f800000) - 1;
  const float p = (0x1.506832p-4f * t - 0x1.e99754p-3f) * t + 0x1.c14150p-2f;
  return 0x1.62e430p-1f * (exponent + t + t * (1 - t) * p);
}

/// The largest of a page's sums, and how many times its weight all tokens have together.
struct PageWeight {
  int32_t top;
  float share;
};

/// unit: what 1 of a sum is worth.
inline PageWeight page_weight(const int32_t* sums, int32_t page_tokens, float unit) {
  I32 tops = load_i32(sums);
  for (int32_t t = kLanes; t < page_tokens; t += kLanes) tops = max_i32(tops, load_i32(sums + t));
  const int32_t top = reduce_max_i32(tops);
  const F32 exponent = set1(unit * 0x1.715476p+0f);
  F32 parts[kParts];
  for (F32& part : parts) part = set1(0.0f);
  for (int32_t begin = 0; begin < page_tokens; begin += kTokens) {
    for (int part = 0; part < kParts; ++part) {
      const I32 below = sub_i32(load_i32(sums + begin + part * kLanes), set1_i32(top));
      parts[part] = add(parts[part], power_of_two(mul(to_f32(below), exponent)));
    }
  }
  for (int half = kParts / 2; half > 0; half /= 2) {
    for (int part = 0; part < half; ++part) parts[part] = add(parts[part], parts[part + half]);
  }
  return {top, reduce_add(parts[0])};
}

/// Pages ahead that memory is asked for: the list's lie apart, so that the CPU foresees none.
constexpr int64_t kAhead = 4;

inline void prefetch(const uint8_t* bytes, int32_t n) {
  for (int32_t at = 0; at < n; at += 64) __builtin_prefetch(bytes + at, 0, 3);
}

/// Page after page, and of each the heads of a batch; then what the pages' sums weigh, in a loop of
/// its own, as each is a chain of operations that wait for each other. kHeadDim:
/// of pages of 16 tokens, or 0 for any.
template <LabelKind kKind, LabelDepth kDepth, int kHeads, int32_t kHeadDim>
void score_heads(const LabelRows& rows, int32_t head, int64_t begin, int64_t end) {
  const LabelLayout& layout = rows.labels.layout;
  const int32_t head_dim = kHeadDim > 0 ? kHeadDim : layout.head_dim;
  const int32_t page_tokens = kHeadDim > 0 ? kTokens : layout.page_tokens;
  const int32_t first = rows.kv_head * rows.group + head;
  const int16_t* const q = rows.query.elements + int64_t{first} * label_query_elements(layout);
  const int64_t n_at_once = kMostLabelledTokens / page_tokens;
  alignas(64) TokenSums<kHeads> sums;
  float steps[kMostLabelledTokens / kTokens];
  float shares[kHeads][kLabelBlockPages];
  for (int64_t some = begin; some < end; some += n_at_once) {
    const int64_t some_end = some + n_at_once < end ? some + n_at_once : end;
    for (int64_t i = some; i < some_end; ++i) {
      const int32_t page = rows.pages[rows.places[i]];
      const int32_t coming = rows.pages[rows.places[i + kAhead < end ? i + kAhead : end - 1]];
      const uint8_t* const digest = digest_at(rows.digests, page, rows.kv_head);
      const uint8_t* const label = label_at(rows.labels, page, rows.kv_head);
      const auto at = static_cast<int32_t>(i - some) * page_tokens;
      prefetch(label_at(rows.labels, coming, rows.kv_head),
               kDepth == LabelDepth::kAll ? rows.labels.bytes : side_bytes(layout));
      if constexpr (kKind == LabelKind::kSides) {
        prefetch(digest_at(rows.digests, coming, rows.kv_head), rows.digests.bytes);
        memcpy(&steps[i - some], digest, sizeof(float));
        sum_sides<kHeads, kDepth>(head_dim, page_tokens, digest, label, q, at, sums);
      } else {
        memcpy(&steps[i - some], label, sizeof(float));
        sum_channels<kHeads>(page_tokens, label, q, at, sums);
      }
    }
    for (int h = 0; h < kHeads; ++h) {
      for (int64_t i = some; i < some_end; ++i) {
        const float unit = rows.query.factors[first + h] * steps[i - some];
        const PageWeight weight =
            page_weight(sums[h] + (i - some) * page_tokens, page_tokens, unit);
        rows.scores[(head + h) * rows.stride + i] = static_cast<float>(weight.top) * unit;
        shares[h][i - begin] = weight.share;
      }
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    float* const scores = rows.scores + (head + h) * rows.stride + begin;
    for (int64_t i = 0; i < end - begin; ++i) scores[i] += log_of(shares[h][i]);
  }
}

template <LabelKind kKind, LabelDepth kDepth, int32_t kHeadDim>
void score_as(const LabelRows& rows, int64_t begin, int64_t end) {
  for_head_batches(rows.group, [&]<int kHeads>(int32_t h) {
    score_heads<kKind, kDepth, kHeads, kHeadDim>(rows, h, begin, end);
  });
}

/// Loops of the usual lengths are known when they are compiled: 0.8 to 0.9 of the time.
template <LabelDepth kDepth>
void score_sides(const LabelRows& rows, int64_t begin, int64_t end) {
  const LabelLayout& layout = rows.labels.layout;
  const int32_t usual_dim = layout.page_tokens == kTokens ? layout.head_dim : 0;
  if (usual_dim == 64) {
    score_as<LabelKind::kSides, kDepth, 64>(rows, begin, end);
  } else if (usual_dim == 128) {
    score_as<LabelKind::kSides, kDepth, 128>(rows, begin, end);
  } else {
    score_as<LabelKind::kSides, kDepth, 0>(rows, begin, end);
  }
}

void score(const LabelRows& rows, int64_t begin, int64_t end) {
  if (rows.labels.layout.kind == LabelKind::kChannels) {
    score_as<LabelKind::kChannels, LabelDepth::kAll, 0>(rows, begin, end);
  } else if (rows.depth == LabelDepth::kAll) {
    score_sides<LabelDepth::kAll>(rows, begin, end);
  } else {
    score_sides<LabelDepth::kSide>(rows, begin, end);
  }
}

}  // namespace

const TokenLabelsFns& token_labels_fns() {
  static constexpr TokenLabelsFns kFns = {make, pack, score};
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
