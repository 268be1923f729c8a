// The largest scores are found by their bits: of floats as integers of the same order the one that
// is to be the least taken is searched for by halving an interval, each half a count over all keys,
// a register at a time, without a branch. It ends when a count is the number wanted, after 15 to 20
// of them: 2,048 of 8,192 take 6.6 us (AVX2, Zen 3). Nothing is moved, equal scores need no care
// until the last pass, and no scores are worse than these by more than the counts to the last bit,
// where a histogram waits for its own counters and quickselect for its branches.
#include <float.h>
#include <math.h>

#include "kernels/simd_internal.h"
#include "kernels/top_pages_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

// ---- Groups of heads ----

/// NaN is made -inf, +inf the largest float.
F32 counted(F32 x) { return min(max(x, set1(-INFINITY)), set1(FLT_MAX)); }

/// The scores from i on that do not fill a register, -inf after them.
F32 load_last(const float* scores, int64_t i, int64_t n_pages) {
  float part[kLanes];
  for (int j = 0; j < kLanes; ++j) part[j] = i + j < n_pages ? scores[i + j] : -INFINITY;
  return load(part);
}

/// Calls fn(x) for each register of scores.
template <class Fn>
void for_scores(const float* scores, int64_t n_pages, const Fn& fn) {
  int64_t i = 0;
  for (; i + kLanes <= n_pages; i += kLanes) fn(counted(load(scores + i)));
  if (i < n_pages) fn(counted(load_last(scores, i, n_pages)));
}

/// A head's softmax over the pages: exp(x - top) / sum.
struct Softmax {
  F32 top;
  float sum;  // 0 where all scores are -inf
};
Softmax find_softmax(const float* scores, int64_t n_pages) {
  F32 tops = set1(-INFINITY), sums = set1(0.0f);
  for_scores(scores, n_pages, [&](F32 x) { tops = max(x, tops); });
  // Where all are -inf: their difference from 0 is, too.
  const float largest = reduce_max(tops);
  const F32 top = set1(largest == -INFINITY ? 0.0f : largest);
  for_scores(scores, n_pages, [&](F32 x) { sums = add(sums, exp(sub(x, top))); });
  return {top, reduce_add(sums)};
}

/// out = joined(score, out) of each page, a register at a time; what of `out` is not there yet may
/// be anything.
template <class Fn>
void join(const float* scores, int64_t n_pages, float* out, const Fn& joined) {
  int64_t i = 0;
  for (; i + kLanes <= n_pages; i += kLanes) {
    store(out + i, joined(counted(load(scores + i)), load(out + i)));
  }
  if (i == n_pages) return;
  float last[kLanes];
  store(last, joined(counted(load_last(scores, i, n_pages)), load_last(out, i, n_pages)));
  memcpy(out + i, last, (n_pages - i) * sizeof(float));
}

void group(const float* scores, int64_t stride, int32_t n_heads, int64_t n_pages, float* out) {
  for (int32_t h = 0; h < n_heads; ++h) {
    const float* const of_head = scores + h * stride;
    const Softmax softmax = find_softmax(of_head, n_pages);
    const F32 log_sum = set1(softmax.sum > 0 ? logf(softmax.sum) : 0.0f);
    const auto share = [&](F32 x) { return sub(sub(x, softmax.top), log_sum); };
    if (h == 0) {
      join(of_head, n_pages, out, [&](F32 x, F32) { return share(x); });
    } else {
      join(of_head, n_pages, out, [&](F32 x, F32 before) { return max(share(x), before); });
    }
  }
}

void sum_shares(const float* scores, int64_t stride, int32_t n_heads, int64_t n_pages, float* out) {
  for (int32_t h = 0; h < n_heads; ++h) {
    const float* const of_head = scores + h * stride;
    const Softmax softmax = find_softmax(of_head, n_pages);
    const F32 inverse = set1(softmax.sum > 0 ? 1.0f / softmax.sum : 0.0f);
    const auto share = [&](F32 x) { return mul(exp(sub(x, softmax.top)), inverse); };
    if (h == 0) {
      join(of_head, n_pages, out, [&](F32 x, F32) { return share(x); });
    } else {
      join(of_head, n_pages, out, [&](F32 x, F32 before) { return add(share(x), before); });
    }
  }
}

// ---- Choosing ----

/// An integer of the same order: of negative floats all bits but the sign's are turned round. -0 is
/// made 0, NaN -inf.
int32_t key_of(float x) {
  const float counted = (x == x ? x : -INFINITY) + 0.0f;
  int32_t bits;
  memcpy(&bits, &counted, sizeof(bits));
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

/// Below those of all floats.
constexpr int32_t kNoKey = INT32_MIN;

/// Four registers at a time, whose counts do not wait for each other.
int64_t count_above(const int32_t* keys, int64_t n_padded, int32_t limit) {
  int32_t counts[4 * kLanes] = {};
  I32 sums[4];
  for (int j = 0; j < 4; ++j) sums[j] = load_i32(counts);
  for (int64_t i = 0; i < n_padded; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      sums[j] = add_one_where(greater(load_i32(keys + i + j * kLanes), limit), sums[j]);
    }
  }
  memcpy(counts, sums, sizeof(counts));
  int64_t count = 0;
  for (const int32_t n : counts) count += n;
  return count;
}

struct Threshold {
  int32_t least;
  int64_t n_from;  // keys from it on: n_chosen or more, and no larger key has so many
};
Threshold find_threshold(const int32_t* keys, int64_t n_pages, int64_t n_padded, int64_t n_chosen) {
  int32_t first = keys[0], last = keys[0];
  for (int64_t i = 0; i < n_pages; ++i) {
    first = keys[i] < first ? keys[i] : first;
    last = keys[i] > last ? keys[i] : last;
  }
  // It lies in [low, high]; their distance may be more than an int32_t holds.
  int64_t low = first, high = last, n_from_low = n_pages;
  while (low < high && n_from_low != n_chosen) {
    const int64_t middle = low + (high - low + 1) / 2;
    const int64_t n_from = count_above(keys, n_padded, middle - 1);
    if (n_from >= n_chosen) {
      low = middle;
      n_from_low = n_from;
    } else {
      high = middle - 1;
    }
  }
  return {static_cast<int32_t>(low), n_from_low};
}

#if defined(__AVX512F__)
/// The indices of the keys above the limit come to the beginning of keys, never past those that
/// have been read.
void gather_above(int32_t* keys, int64_t n_padded, int32_t limit) {
  I32 places = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  int32_t* to = keys;
  for (int64_t i = 0; i < n_padded; i += kLanes) {
    const Mask counts = greater(load_i32(keys + i), limit);
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(counts, places));
    to += __builtin_popcount(mask_bits(counts));
    places = _mm512_add_epi32(places, _mm512_set1_epi32(kLanes));
  }
}
#else
/// Of each byte the places of its set bits, the lowest first.
struct BitPlaces {
  uint8_t of[256][8] = {};
  constexpr BitPlaces() {
    for (int bits = 0; bits < 256; ++bits) {
      int n = 0;
      for (int i = 0; i < 8; ++i) {
        if ((bits >> i & 1) != 0) of[bits][n++] = i;
      }
    }
  }
};
constexpr BitPlaces kPlaces;

/// The indices of the keys above the limit come to the beginning of keys. Eight are written at once
/// however many count, never past the keys that have been read. A key at a time, writing each index
/// and the next over it unless it counts, took 9 us of 13 for 2,048 of 8,192 (Zen 3).
void gather_above(int32_t* keys, int64_t n_padded, int32_t limit) {
  constexpr int kKeys = 16;
  int32_t* to = keys;
  for (int32_t i = 0; i < n_padded; i += kKeys) {
    uint32_t bits = 0;
#pragma GCC unroll 4
    for (int j = 0; j < kKeys; j += kLanes) {
      bits |= mask_bits(greater(load_i32(keys + i + j), limit)) << j;
    }
    for (int byte = 0; byte < 2; ++byte) {
      const uint32_t of_byte = bits >> (8 * byte) & 0xff;
      for (int j = 0; j < 8; ++j) to[j] = i + 8 * byte + kPlaces.of[of_byte][j];
      to += __builtin_popcount(of_byte);
    }
  }
}
#endif

void choose(const float* scores, int64_t n_pages, int32_t* keys, int32_t* chosen,
            int64_t n_chosen) {
  if (n_chosen == 0) return;
  const int64_t n_padded = padded_keys(n_pages);
  for (int64_t i = 0; i < n_pages; ++i) keys[i] = key_of(scores[i]);
  for (int64_t i = n_pages; i < n_padded; ++i) keys[i] = kNoKey;
  const auto [least, n_from] = find_threshold(keys, n_pages, n_padded, n_chosen);
  int64_t n_over = n_from - n_chosen;
  for (int64_t i = n_pages - 1; n_over > 0; --i) {
    if (keys[i] != least) continue;
    keys[i] = kNoKey;
    --n_over;
  }
  gather_above(keys, n_padded, least - 1);
  memcpy(chosen, keys, n_chosen * sizeof(int32_t));
}

}  // namespace

const TopPagesFns& top_pages_fns() {
  static constexpr TopPagesFns kFns = {group, sum_shares, choose};
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
