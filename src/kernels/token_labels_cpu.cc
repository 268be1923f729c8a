// Sixteen tokens at a time: their labels are looked up as bytes and multiplied by what a dimension
// is worth to a head, in bytes as well (label_levels_internal.h).
//
// What a dimension is worth, the query's element times the width M - m, differs from page to page.
// It is rounded to bytes of which the page's largest is 127: of 64 dimensions a hundredth of that
// one is lost, much less than by what a label leaves out. The middle counts exactly.
//
// Labels are read in lists of pages; memory is asked for some pages ahead.
#include "kernels/code_lanes_internal.h"
#include "kernels/kv_codec_runs_internal.h"
#include "kernels/label_gains_internal.h"
#include "kernels/label_levels_internal.h"
#include "kernels/label_weights_internal.h"
#include "kernels/simd_internal.h"
#include "kernels/token_labels_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

// ---- Making labels ----

// Eight dimensions: two registers without AVX2. One after the other they took three times as long
// (AVX2): GCC makes no lanes of such a loop by itself.
typedef float Floats __attribute__((vector_size(32)));
typedef int32_t Words __attribute__((vector_size(32)));
constexpr int32_t kWordLanes = 8;

/// A dimension's bit in a token's four bytes of a block: bit j of byte i is dimension 4 j + i's.
constexpr Words kBitsOfQuads = {1 << 0, 1 << 8, 1 << 16, 1 << 24, 1 << 1, 1 << 9, 1 << 17, 1 << 25};
constexpr int32_t kQuadsOfWords = kWordLanes / kQuad;

/// All bits of eight words. By a pointer: without AVX2 a call with 32 bytes of vector has no ABI.
inline uint32_t joined(const Words* x) {
  uint32_t bits = 0;
  for (int32_t i = 0; i < kWordLanes; ++i) bits |= (*x)[i];
  return bits;
}

void make_sides(const KvCodecFns& codec, const PagedKv& kv, const uint8_t* k, const uint8_t* digest,
                const LabelLayout& layout, const uint8_t* order, uint8_t* label) {
  const int32_t head_dim = layout.head_dim, n_blocks = n_side_blocks(head_dim);
  float step;
  memcpy(&step, digest, sizeof(step));
  const auto* const codes = reinterpret_cast<const int8_t*>(digest + sizeof(step));
  float highs[kMaxHeadDim], middles[kMaxHeadDim], lows[kMaxHeadDim], x[kMaxHeadDim];
  float halves[kMaxHeadDim];  // of the deviation
  float of_key[kMaxHeadDim];
  for (int32_t d = 0; d < head_dim; ++d) {
    highs[d] = step * static_cast<float>(codes[d]);
    middles[d] = 0.5f * step * static_cast<float>(codes[d] + codes[head_dim + d]);
    lows[d] = step * static_cast<float>(codes[head_dim + d]);
    halves[d] = 0.25f * step * static_cast<float>(codes[d] - codes[head_dim + d]);
  }
  for (int32_t d = head_dim; d < n_blocks * kSideBlockDims; ++d) {  // all bits are 0
    x[d] = halves[d] = 0;
    highs[d] = middles[d] = lows[d] = INFINITY;
  }
  const int32_t n_first = n_first_side_blocks(head_dim);
  uint8_t* const rest = label + side_bytes(layout);
  uint8_t* const lowest = rest + side_bytes(layout);
  for (int32_t t = 0; t < layout.page_tokens; ++t) {
    codec.load(k + int64_t{t} * kv.k_bytes, head_dim, of_key);
    for (int32_t d = 0; d < head_dim; ++d) x[d] = of_key[order == nullptr ? d : order[d]];
    for (int32_t block = 0; block < n_blocks; ++block) {
      Words side_bits = {}, upper_bits = {}, lowest_bits = {};
      for (int32_t i = 0; i < kSideBlockDims / kWordLanes; ++i) {
        const int32_t d = block * kSideBlockDims + i * kWordLanes;
        Floats key, middle, high, low, half;
        memcpy(&key, x + d, sizeof(key));
        memcpy(&middle, middles + d, sizeof(middle));
        memcpy(&high, highs + d, sizeof(high));
        memcpy(&low, lows + d, sizeof(low));
        memcpy(&half, halves + d, sizeof(half));
        const Words is_above = key >= middle;
        const Words is_upper = is_above ? key > high : key >= low;
        const Floats in_upper = is_above ? middle + 3.0f * half : middle - half;
        const Floats in_lower = is_above ? middle + half : middle - 3.0f * half;
        const Words is_lowest = key >= (is_upper ? in_upper : in_lower);
        const Words bits = kBitsOfQuads << (i * kQuadsOfWords);
        side_bits |= is_above & bits;
        upper_bits |= is_upper & bits;
        lowest_bits |= is_lowest & bits;
      }
      const uint32_t sides = joined(&side_bits), uppers = joined(&upper_bits);
      const int32_t at = (t / kTokens * n_blocks + block) * kSideBlockBytes + t % kTokens * kQuad;
      memcpy(label + at, &sides, sizeof(sides));
      memcpy(rest + at, &uppers, sizeof(uppers));
      if (block >= n_first) continue;
      const uint32_t lowests = joined(&lowest_bits);
      const int32_t lowest_at =
          (t / kTokens * n_first + block) * kSideBlockBytes + t % kTokens * kQuad;
      memcpy(lowest + lowest_at, &lowests, sizeof(lowests));
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
  layout.kind == LabelKind::kSides ? make_sides(codec, kv, k, digest, layout, channels, label)
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

void pack_sides(const float* of_head, int32_t n, const uint8_t* order, float scale, int16_t* to,
                float& factor) {
  float q[kMaxHeadDim];
  for (int32_t i = 0; i < n; ++i) q[i] = of_head[order == nullptr ? i : order[i]];
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
  factor = scale * whole_numbers(cut, kLabelChannels, kLargestQuery, whole);
  for (int32_t i = 0; i < kLabelChannels; ++i) to[i] = static_cast<int16_t>(whole[i]);
}

void pack(const LabelLayout& layout, const float* q, float scale, const uint8_t* channels,
          int32_t head, const PackedLabelQuery& packed) {
  const int32_t n = n_label_channels(layout);
  int16_t* const to = packed.elements + int64_t{head} * n;
  float& factor = packed.factors[head];
  // Any of q that is not finite makes the score NaN, in the label's dimensions or not; so does a
  // sum that overflows.
  if (isnan(most_of_parity(q, layout.head_dim))) {
    factor = NAN;
    memset(to, 0, n * sizeof(to[0]));
  } else if (layout.kind == LabelKind::kSides) {
    pack_sides(q, n, channels, scale, to, factor);
  } else {
    pack_channels(q, channels, scale, to, factor);
  }
}

// ---- Scores ----

#if defined(__AVX512F__)

inline void store_i32(int32_t* p, I32 x) { _mm512_storeu_si512(p, x); }
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

inline void store_i32(int32_t* p, I32 x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
inline I32 add_pairs(const uint8_t* bytes, const int16_t* pair, I32 sums) {
  int32_t both;
  memcpy(&both, pair, sizeof(both));
  return add_products(widen_bytes(bytes), _mm256_set1_epi32(both), sums);
}

#else

inline void store_i32(int32_t* p, I32 x) { memcpy(p, &x, sizeof(x)); }
inline I32 add_pairs(const uint8_t* bytes, const int16_t* pair, I32 sums) {
  I16 pairs = {pair[0], pair[1], pair[0], pair[1], pair[0], pair[1], pair[0], pair[1]};
  return add_products(widen_bytes(bytes), pairs, sums);
}

#endif

/// What the tokens of some pages are worth to the heads of a batch, in the query's and the label's
/// steps.
template <int kHeads>
using TokenSums = int32_t[kHeads][kMostLabelledTokens];

/// Adds the levels of blocks [begin, end) to the sums of some tokens, whose bits of block 0 `bits`
/// points to; those of the next plane follow `plane` bytes on, of the lowest at `lowest`.
template <int kBits, int kHeads>
[[gnu::always_inline]] inline void add_blocks(int32_t begin, int32_t end, const uint8_t* bits,
                                              int32_t plane, const uint8_t* lowest,
                                              const Gains (&gains)[kHeads],
                                              LevelSums (&sums)[kHeads]) {
  for (int32_t block = begin; block < end; ++block) {
    const int32_t at = block * kSideBlockBytes;
    const Bytes sides = load_bytes(bits + at);
    const Levels<kBits> levels(sides, kBits > 1 ? load_bytes(bits + plane + at) : sides,
                               kBits > 2 ? load_bytes(lowest + at) : sides);
#pragma GCC unroll 8
    for (int quad = 0; quad < kQuads; ++quad) {
      const Bytes of_quad = levels.of(quad);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        int32_t four;
        memcpy(&four, gains[h].of_dims + block * kSideBlockDims + quad * kQuad, sizeof(four));
        sums[h].add(of_quad, four);
      }
    }
#pragma GCC unroll 4
    for (LevelSums& sum : sums) sum.end_block();
  }
}

/// Of the tokens of one page; their middles' level is taken off.
template <int kHeads, LabelDepth kDepth>
[[gnu::always_inline]] inline void sum_sides(int32_t head_dim, int32_t page_tokens,
                                             const uint8_t* label, const Gains (&gains)[kHeads],
                                             int32_t at, TokenSums<kHeads>& out) {
  const int32_t n_blocks = n_side_blocks(head_dim), n_first = n_first_side_blocks(head_dim);
  const int32_t plane = page_tokens / kTokens * n_blocks * kSideBlockBytes;
  for (int32_t begin = 0; begin < page_tokens; begin += kLanes) {
    const int32_t sixteen = begin / kTokens, token = begin % kTokens * kQuad;
    const uint8_t* const bits = label + sixteen * n_blocks * kSideBlockBytes + token;
    const uint8_t* const lowest = label + 2 * plane + sixteen * n_first * kSideBlockBytes + token;
    LevelSums sums[kHeads];
    if constexpr (kDepth == LabelDepth::kSide) {
      add_blocks<1>(0, n_first, bits, plane, lowest, gains, sums);
    } else {
      add_blocks<3>(0, n_first, bits, plane, lowest, gains, sums);
      add_blocks<2>(n_first, n_blocks, bits, plane, lowest, gains, sums);
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      sums[h].store(out[h] + at + begin, -kMiddleLevel<kDepth> * gains[h].of_all);
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

inline float step_at(const uint8_t* bytes) {
  float step;
  memcpy(&step, bytes, sizeof(step));
  return step;
}

/// Pages ahead that memory is asked for: the list's lie apart, so that the CPU foresees none. Eight
/// took 1.05 times as long (Cascade Lake).
constexpr int64_t kAhead = 4;

inline void prefetch(const uint8_t* bytes, int32_t n) {
  for (int32_t at = 0; at < n; at += 64) __builtin_prefetch(bytes + at, 0, 3);
}

/// Asks for what comes kAhead places after `at`, of a list that ends at `end`. Always inline: GCC
/// drops calls of a function that does nothing but to ask.
template <LabelKind kKind, LabelDepth kDepth>
[[gnu::always_inline]] inline void ask_ahead(const LabelRows& rows, int64_t at, int64_t end) {
  const int32_t page = rows.pages[rows.places[at + kAhead < end ? at + kAhead : end - 1]];
  const uint8_t* const label = label_at(rows.labels, page, rows.kv_head);
  if constexpr (kDepth == LabelDepth::kAll) {
    prefetch(label, rows.labels.bytes);
  } else {
    const LabelLayout& layout = rows.labels.layout;
    for (int32_t begin = 0; begin < layout.page_tokens; begin += kTokens) {
      prefetch(label + begin / kTokens * n_side_blocks(layout.head_dim) * kSideBlockBytes,
               n_first_side_blocks(layout.head_dim) * kSideBlockBytes);
    }
  }
  if constexpr (kKind == LabelKind::kSides) {
    prefetch(digest_at(rows.digests, page, rows.kv_head), rows.digests.bytes);
  }
}

constexpr int32_t kMostParts = kMostLabelledTokens / kRunTokens;

/// Of some pages and the heads of a batch, of which `first` is the first: what tokens are worth, in
/// units, and what their middles are. Units and middles are of each of a page's parts.
template <int kHeads>
struct PageSums {
  int32_t first;
  int32_t n_parts;  // of a page
  const int16_t* q;
  alignas(64) TokenSums<kHeads> tokens;
  float units[kHeads][kMostParts];
  float middles[kHeads][kMostParts];

  void set_page(int h, int64_t at, float unit, float middle) {
    for (int64_t part = at * n_parts; part < (at + 1) * n_parts; ++part) {
      units[h][part] = unit;
      middles[h][part] = middle;
    }
  }
};

/// Of the places [begin, end) of a list that ends at list_end. kHeadDim: of pages of 16 tokens, or
/// 0 for any.
template <LabelDepth kDepth, int kHeads, int32_t kHeadDim>
void sum_side_pages(const LabelRows& rows, int64_t begin, int64_t end, int64_t list_end,
                    PageSums<kHeads>& out) {
  constexpr int kPages = kPagesAtOnce<kHeads>;
  const LabelLayout& layout = rows.labels.layout;
  const int32_t head_dim = kHeadDim > 0 ? kHeadDim : layout.head_dim;
  const int32_t page_tokens = kHeadDim > 0 ? kTokens : layout.page_tokens;
  GainParts<kHeads> queries{};
  for (int h = 0; h < kHeads; ++h) queries.q[h] = out.q + h * head_dim;
  for (int64_t i = begin; i < end; i += kPages) {
    const auto place_of = [&](int page) { return i + page < end ? i + page : end - 1; };
    GainParts<kHeads> parts = queries;
    parts.n = head_dim;
    float factors[4] = {};
    for (int page = 0; page < kPages; ++page) {
      ask_ahead<LabelKind::kSides, kDepth>(rows, place_of(page), list_end);
      const int32_t number = rows.pages[rows.places[place_of(page)]];
      const uint8_t* const digest = digest_at(rows.digests, number, rows.kv_head);
      parts.high[page] = reinterpret_cast<const int8_t*>(digest + sizeof(float));
      parts.low[page] = parts.high[page] + head_dim;
      for (int h = 0; h < kHeads; ++h) {
        factors[page * kHeads + h] = rows.query.factors[out.first + h] * step_at(digest);
      }
    }
    PaddedGainParts<kHeads> padded;
    if (head_dim % kSideBlockDims != 0) padded.pad(head_dim, parts);
    parts.n_looked_up =
        kDepth == LabelDepth::kAll ? parts.n : n_first_side_blocks(head_dim) * kSideBlockDims;
    Gains gains[kPages][kHeads];
    make_gains<kDepth>(parts, factors, gains[0]);
    // Four bytes are broadcast from memory. GCC would take them from the registers that they were
    // stored from, by two shuffles each.
    asm("" : "+m"(gains));
    for (int page = 0; page < kPages; ++page) {
      const int64_t place = place_of(page);
      const auto at = static_cast<int32_t>(place - begin);
      for (int h = 0; h < kHeads; ++h) {
        out.set_page(h, at, gains[page][h].unit, gains[page][h].middle);
      }
      const uint8_t* const label =
          label_at(rows.labels, rows.pages[rows.places[place]], rows.kv_head);
      sum_sides<kHeads, kDepth>(head_dim, page_tokens, label, gains[page], at * page_tokens,
                                out.tokens);
    }
  }
}

template <int kHeads>
void sum_channel_pages(const LabelRows& rows, int64_t begin, int64_t end, int64_t list_end,
                       PageSums<kHeads>& out) {
  for (int64_t i = begin; i < end; ++i) {
    ask_ahead<LabelKind::kChannels, LabelDepth::kAll>(rows, i, list_end);
    const uint8_t* const label = label_at(rows.labels, rows.pages[rows.places[i]], rows.kv_head);
    const int32_t page_tokens = rows.labels.layout.page_tokens;
    for (int h = 0; h < kHeads; ++h) {
      out.set_page(h, i - begin, rows.query.factors[out.first + h] * step_at(label), 0.0f);
    }
    sum_channels<kHeads>(page_tokens, label, out.q, static_cast<int32_t>(i - begin) * page_tokens,
                         out.tokens);
  }
}

/// Page after page, and of each the heads of a batch; then what the sums of pages, or of their
/// runs, weigh, in a loop of its own, as each is a chain of operations that wait for each other.
template <LabelKind kKind, LabelDepth kDepth, int kHeads, int32_t kHeadDim>
void score_heads(const LabelRows& rows, int32_t head, int64_t begin, int64_t end) {
  const LabelLayout& layout = rows.labels.layout;
  const int64_t n_at_once = kMostLabelledTokens / layout.page_tokens;
  PageSums<kHeads> sums;
  sums.first = rows.kv_head * rows.group + head;
  sums.n_parts = layout.page_tokens / rows.part_tokens;
  sums.q = rows.query.elements + int64_t{sums.first} * n_label_channels(layout);
  for (int64_t some = begin; some < end; some += n_at_once) {
    const int64_t some_end = some + n_at_once < end ? some + n_at_once : end;
    if constexpr (kKind == LabelKind::kSides) {
      sum_side_pages<kDepth, kHeads, kHeadDim>(rows, some, some_end, end, sums);
    } else {
      sum_channel_pages(rows, some, some_end, end, sums);
    }
    const int64_t n_pages = some_end - some, n = n_pages * sums.n_parts;
    for (int h = 0; h < kHeads; ++h) {
      int32_t tops[kMostParts];
      float shares[kMostParts];
      if (rows.part_tokens == kRunTokens) {
        weigh_runs(sums.tokens[h], n, sums.units[h], tops, shares);
      } else {
        weigh_pages(sums.tokens[h], layout.page_tokens, n_pages, sums.units[h], tops, shares);
      }
      float* const scores = rows.scores + (head + h) * rows.stride + some * sums.n_parts;
      for (int64_t i = 0; i < n; ++i) {
        scores[i] =
            static_cast<float>(tops[i]) * sums.units[h][i] + sums.middles[h][i] + log_of(shares[i]);
      }
    }
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
