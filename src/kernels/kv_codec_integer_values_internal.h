// Decode's weighted sums of V over blocks of GGUF as products of integers;
// kv_codec_integers_internal.h says how.
#pragma once

#include "kernels/kv_codec_integer_lanes_internal.h"
#include "kernels/kv_codec_runs_internal.h"

#if defined(__AVX512VNNI__)

namespace weft::kernels::WEFT_ISA {
namespace {

template <class Codec>
struct IntegerValues {
  static constexpr int kBytes = Codec::kBytes;
  /// With a sign hi * 256 + lo has both bytes signed.
  static constexpr float kMaxWeight = Codec::kSignedWeights ? 32512 : 65535;

  /// Keys in groups of four: those from 16 t + 4 i on are number 8 (t / 2) + 2 i + t % 2, which is
  /// how packing leaves the weights.
  static constexpr int kFours = kBlockKeys / 4;
  static constexpr int four_of(int t, int i) { return t / 2 * 8 + i * 2 + t % 2; }

  /// Where a block of keys' V lies, and what to ask for ahead, 16 keys at a time. Keys have their
  /// places by slot, so that 16 that lie together are in one page; of 16 that are not all seen the
  /// others are zeros.
  struct Places {
    const uint8_t* sixteen[kBlockKeys / 16];
    const uint8_t* ahead[kBlockKeys / 16];
    uint8_t some[kBlockKeys / 16][16 * kMaxBlocks * kBytes];
  };

  static void find_values(const KeyBlock& keys, Places& places) {
    const PagedKv& kv = *keys.kv;
    if (keys.end - keys.begin < kBlockKeys || keys.entry_tokens < kBlockKeys) {
      return find_scattered_values(keys, places);
    }
    const uint8_t* const v = v_of(keys, keys.begin);
    const int64_t ahead = v_ahead(keys, keys.begin, v);
    for (int32_t t = 0; t < kBlockKeys / 16; ++t) {
      places.sixteen[t] = v + t * 16 * kv.v_bytes;
      places.ahead[t] = places.sixteen[t] + ahead;
    }
  }

  [[gnu::noinline]] static void find_scattered_values(const KeyBlock& keys, Places& places) {
    const PagedKv& kv = *keys.kv;
    for (int32_t t = 0; t < kBlockKeys / 16; ++t) {
      memset(places.some[t], 0, 16 * kv.v_bytes);
      places.sixteen[t] = places.ahead[t] = places.some[t];
    }
    for_runs(keys, [&](int64_t slot, int32_t, int32_t n) {
      const uint8_t* v = v_of(keys, slot);
      const int32_t first = slot % kBlockKeys, end = first + n;
      for (int32_t t = first / 16; t * 16 < end; ++t) {
        const uint8_t* from = v + (int64_t{t} * 16 - first) * kv.v_bytes;
        const int64_t ahead = v_ahead(keys, slot, v);
        if (t * 16 < first || t * 16 + 16 > end) {
          const int32_t skipped = t * 16 < first ? first - t * 16 : 0;
          const int32_t seen_end = t * 16 + 16 > end ? end - t * 16 : 16;
          const uint8_t* seen = from + skipped * kv.v_bytes;
          const int64_t n_bytes = int64_t{seen_end - skipped} * kv.v_bytes;
          memcpy(places.some[t] + skipped * kv.v_bytes, seen, n_bytes);
          prefetch(seen + ahead, n_bytes);
        } else {
          places.sixteen[t] = from;
          places.ahead[t] = from + ahead;
        }
      }
    });
  }

  /// The scales of a block of V of a block of keys, as shares of the largest times kMaxWeight.
  struct Shares {
    F32 of_largest[kBlockKeys / kLanes];
    float unit;  // largest / kMaxWeight
  };

  /// False where a scale is not finite, or has a sign that the weights have none for.
  static bool load_shares(const Places& places, const PagedKv& kv, Shares* shares) {
    __m128i largest_of_all = _mm_setzero_si128();
    for (int32_t b = 0; b < kv.layout.head_dim / kBlock; ++b) {
      __m256i scales[4], magnitudes[4];
#pragma GCC unroll 4
      for (int t = 0; t < 4; ++t) {
        scales[t] = load_scales(KeyRows(places.sixteen[t] + b * kBytes, kv.v_bytes));
        magnitudes[t] = Codec::kSignedWeights
                            ? _mm256_and_si256(scales[t], _mm256_set1_epi16(0x7fff))
                            : scales[t];
      }
      // As integers without sign they are in the order of their values, those that are not finite
      // or have a sign after all others.
      const __m256i most = _mm256_max_epu16(_mm256_max_epu16(magnitudes[0], magnitudes[1]),
                                            _mm256_max_epu16(magnitudes[2], magnitudes[3]));
      const __m128i flipped = _mm_xor_si128(
          _mm_max_epu16(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1)),
          _mm_set1_epi16(-1));
      const __m128i largest = _mm_xor_si128(_mm_minpos_epu16(flipped), _mm_set1_epi16(-1));
      largest_of_all = _mm_max_epu16(largest_of_all, largest);
      const __m128 unit = _mm_mul_ps(_mm_cvtph_ps(largest), _mm_set1_ps(1 / kMaxWeight));
      const F32 inverse = _mm512_broadcastss_ps(over(1, unit));
#pragma GCC unroll 4
      for (int t = 0; t < 4; ++t) {
        shares[b].of_largest[t] = mul(_mm512_cvtph_ps(scales[t]), inverse);
      }
      shares[b].unit = _mm_cvtss_f32(unit);
    }
    return _mm_extract_epi16(largest_of_all, 0) < 0x7c00;
  }

  /// One block of V of a block of keys, ready for the products.
  struct Columns {
    __m512i words[kFours][2];
  };

  [[gnu::always_inline]] static void load_columns(const Places& places, int32_t b, int64_t v_bytes,
                                                  Columns& columns) {
#pragma GCC unroll 4
    for (int t = 0; t < kBlockKeys / 16; ++t) {
      FourRows rows(places.sixteen[t] + b * kBytes, v_bytes);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i, rows.first += 4 * v_bytes) {
        Codec::value_columns(rows, columns.words[four_of(t, i)]);
      }
    }
  }

  /// The weights of a block of keys for a head and a block of V: of each two fours of keys the low
  /// bytes, then the high ones.
  struct Weights {
    alignas(64) uint8_t bytes[2 * kBlockKeys];
    const uint8_t* low(int four) const { return bytes + four / 2 * 16 + four % 2 * 4; }
    const uint8_t* high(int four) const { return low(four) + 8; }
  };

  /// Those for all heads that are taken together.
  template <int kHeads>
  struct Weighing {
    Weights weights[kHeads];
    alignas(16) float units[4];
    alignas(16) int32_t biases[4];  // with signed weights -kOffset times their sum
  };

  /// Of a block of keys the weights of a few heads, as shares of each head's largest.
  template <int kHeads>
  struct Scores {
    F32 of_largest[kHeads][kBlockKeys / kLanes];
    __m128 largest;
  };

  template <int kHeads>
  [[gnu::always_inline]] static void load_scores(const KeyBlock& keys, const float* scores,
                                                 Scores<kHeads>& p) {
    const int32_t n = keys.end - keys.begin;
    alignas(64) float padded[kHeads][kBlockKeys];
    if (n < kBlockKeys) {
      memset(padded, 0, sizeof(padded));
      for (int h = 0; h < kHeads; ++h) {
        memcpy(padded[h] + keys.begin % kBlockKeys, scores + h * kBlockKeys, n * sizeof(float));
      }
      scores = padded[0];
    }
    __m512i tops[4] = {};
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
      for (int t = 0; t < 4; ++t) {
        p.of_largest[h][t] = WEFT_ISA::load(scores + h * kBlockKeys + t * kLanes);
        tops[h] = Largest()(tops[h], _mm512_castps_si512(p.of_largest[h][t]));
      }
    }
    p.largest = _mm_castsi128_ps(join_lanes(tops, Largest()));
    alignas(16) float inverses[4];
    _mm_store_ps(inverses, over(1, p.largest));
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      for (F32& x : p.of_largest[h]) x = mul(x, set1(inverses[h]));
    }
  }

  /// Returns the weights' sum, in parts, if they are signed.
  [[gnu::always_inline]] static __m512i round_weights(const F32 (&p)[4], const F32 (&shares)[4],
                                                      Weights& weights) {
    const __m512i bytes_apart =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    __m512i whole[4], sums = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int t = 0; t < 4; ++t) whole[t] = _mm512_cvtps_epi32(mul(p[t], shares[t]));
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      __m512i packed;
      if constexpr (Codec::kSignedWeights) {
        packed = _mm512_packs_epi32(whole[2 * i], whole[2 * i + 1]);
        sums = _mm512_add_epi32(sums, _mm512_madd_epi16(packed, _mm512_set1_epi16(1)));
        // The low byte has a sign too, so the high one is of the nearest multiple of 256.
        const __m512i half = _mm512_set1_epi16(128);
        packed = _mm512_xor_si512(_mm512_add_epi16(packed, half), half);
      } else {
        packed = _mm512_packus_epi32(whole[2 * i], whole[2 * i + 1]);
      }
      _mm512_store_si512(weights.bytes + i * 64, _mm512_shuffle_epi8(packed, bytes_apart));
    }
    return sums;
  }

  template <int kHeads>
  [[gnu::always_inline]] static void weigh(const Scores<kHeads>& p, const Shares& shares,
                                           Weighing<kHeads>& weighing) {
    __m512i sums[4] = {};
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      sums[h] = round_weights(p.of_largest[h], shares.of_largest, weighing.weights[h]);
    }
    if constexpr (Codec::kSignedWeights) {
      _mm_store_si128(reinterpret_cast<__m128i*>(weighing.biases),
                      _mm_mullo_epi32(join_lanes(sums, Sum()), _mm_set1_epi32(-Codec::kOffset)));
    }
    _mm_store_ps(weighing.units, _mm_mul_ps(p.largest, _mm_set1_ps(shares.unit)));
  }

  /// The unsigned operand is V where weights are signed, else the weights.
  [[gnu::always_inline]] static __m512i add_products(__m512i sums, __m512i v, __m512i w) {
    return Codec::kSignedWeights ? add_dots(sums, v, w) : add_dots(sums, w, v);
  }

  /// out[h] += weights[h] V over one block's dimensions.
  template <int kHeads>
  [[gnu::always_inline]] static void add_block(const Places& places, int32_t b,
                                               const Columns& columns,
                                               const Weighing<kHeads>& weighing, int32_t stride,
                                               float* out) {
    __m512i high[kHeads][2], low[kHeads][2];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      high[h][0] = high[h][1] = _mm512_setzero_si512();
      low[h][0] = low[h][1] = _mm512_set1_epi32(Codec::kSignedWeights ? weighing.biases[h] : 0);
    }
    for (int32_t t = 0; t < kBlockKeys / 16; ++t) {
      const uint8_t* const ahead = places.ahead[t] + b * 16 * kBytes;
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const int32_t four = 4 * t + i;
        prefetch_part<16 * kBytes, 4>(ahead, i);
        const __m512i v0 = columns.words[four][0], v1 = columns.words[four][1];
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) {
          const __m512i w_high = broadcast_word(weighing.weights[h].high(four));
          const __m512i w_low = broadcast_word(weighing.weights[h].low(four));
          high[h][0] = add_products(high[h][0], v0, w_high);
          high[h][1] = add_products(high[h][1], v1, w_high);
          low[h][0] = add_products(low[h][0], v0, w_low);
          low[h][1] = add_products(low[h][1], v1, w_low);
        }
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const F32 unit = set1(weighing.units[h]);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        float* const sums = out + h * stride + i * kLanes;
        const __m512i whole = _mm512_add_epi32(_mm512_slli_epi32(high[h][i], 8), low[h][i]);
        WEFT_ISA::store(sums, fmadd(_mm512_cvtepi32_ps(whole), unit, WEFT_ISA::load(sums)));
      }
    }
  }

  static void add_values(const KeyBlock& keys, const GroupRows& rows, const float* scores,
                         float* out) {
    const PagedKv& kv = *keys.kv;
    const int32_t n_blocks = kv.layout.head_dim / kBlock;
    Places places;
    find_values(keys, places);
    Shares shares[kMaxBlocks];
    if (!load_shares(places, kv, shares)) {
      return BlockKv<Codec>::add_values(keys, rows, scores, out);
    }
    Columns columns[kMaxBlocks];
    for_head_batches(rows.group, [&]<int kHeads>(int32_t h) {
      Scores<kHeads> p;
      load_scores(keys, scores + h * kBlockKeys, p);
      // All weights first: a block's products are as many instructions as the CPU looks ahead.
      Weighing<kHeads> weighings[kMaxBlocks];
      for (int32_t b = 0; b < n_blocks; ++b) {
        if (h == 0) load_columns(places, b, kv.v_bytes, columns[b]);
        weigh(p, shares[b], weighings[b]);
      }
      float* const sums = out + h * rows.stride;
      for (int32_t b = 0; b < n_blocks; ++b) {
        add_block(places, b, columns[b], weighings[b], rows.stride, sums + b * kBlock);
      }
    });
  }
};

}  // namespace
}  // namespace weft::kernels::WEFT_ISA

#endif  // __AVX512VNNI__
