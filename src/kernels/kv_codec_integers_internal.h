// Decode's two products over blocks of GGUF as products of integers, for sets with VNNI. Only for
// kv_codec_*_cpu.cc. A Codec has besides what kv_codec_blocks_internal.h asks of it
//   static constexpr int kOffset = …;            of key_columns: value = scale * (byte - kOffset)
//   static constexpr bool kSignedWeights = …;    whether V's scales may be negative
//   static void key_columns(const KeyRows& blocks, __m512i (&columns)[8]);
//     of 16 keys' blocks: lane i of column c has the bytes of elements 4 c … 4 c + 3 of key i
//   static void value_columns(const uint8_t* a, const uint8_t* b, const uint8_t* c,
//                             const uint8_t* d, __m512i (&columns)[2]);
//     of four keys' blocks: lane i of column c has the bytes of element 16 c + i of keys 0 … 3;
//     with kSignedWeights plus kOffset, as key_columns, else signed
//
// Both products are vpdpbusd, 64 multiply-adds an instruction, with lanes in which nothing has to
// be added up: of K a lane is a key, of V a dimension. Getting the bytes there takes shuffles, but
// once for all heads that share them. The unsigned operand is K or V, and kOffset times the sum of
// the other one is subtracted.
//
// K: a query is quantised per block of 32 with a scale in f32, once a task. V: the weights of a
// block of keys, each times the scale of its key's block of V, are rounded to 16 bits as a share of
// the largest (so by 2^-16 of it at most, where V itself is by 2^-8), and their two bytes
// multiplied one after the other. The sums of 64 keys are exact in 32 bits.
#pragma once

#include <stddef.h>

#include "kernels/kv_codec_blocks_internal.h"

#if defined(__AVX512VNNI__)

namespace weft::kernels::WEFT_ISA {
namespace {

constexpr int kMaxBlocks = kMaxHeadDim / kBlock;
/// A block of a query. It takes the place of its floats.
struct QueryBlock {
  int8_t q[kBlock];
  float scale;
  int32_t bias;  // -kOffset times the sum of q
};

typedef int32_t Word __attribute__((may_alias, aligned(1)));

inline __m512i broadcast_word(const void* word) {
  return _mm512_set1_epi32(*static_cast<const Word*>(word));
}

/// 16 vectors, `stride` bytes from one to the next; lanes[i] is vector 4 i. Four pointers and two
/// indices reach all of them within x86's addressing; given one pointer, GCC 12 kept 16 of them, in
/// vector registers, and getting them out took as long as the products.
struct KeyRows {
  const uint8_t* lanes[4];
  int64_t stride, stride3;

  KeyRows(const uint8_t* first, int64_t bytes) : stride(bytes), stride3(3 * bytes) {
    asm("" : "+r"(stride3));
    for (int i = 0; i < 4; ++i) lanes[i] = first + 4 * i * bytes;
  }
  void advance(int64_t bytes) {
    for (const uint8_t*& lane : lanes) {
      lane += bytes;
      asm("" : "+r"(lane));
    }
  }
  const uint8_t* row(int lane, int i) const {
    return lanes[lane] + (i == 3 ? stride3 : i * stride);
  }
};

/// The scales before 16 blocks, by loads that broadcast into one lane each: written one by one to
/// memory and read back together they cannot be forwarded, and put together in general registers
/// they were a tenth of all instructions.
inline F32 load_scales(const KeyRows& blocks) {
  const auto load_word = [&](int lane, int i) { return broadcast_word(blocks.row(lane, i)); };
  __m512i lanes[4];
#pragma GCC unroll 4
  for (int lane = 0; lane < 4; ++lane) {
    __m512i four = load_word(lane, 0);
    four = _mm512_mask_mov_epi32(four, 0x2222, load_word(lane, 1));
    four = _mm512_mask_mov_epi32(four, 0x4444, load_word(lane, 2));
    lanes[lane] = _mm512_mask_mov_epi32(four, 0x8888, load_word(lane, 3));
  }
  __m512i all = _mm512_mask_mov_epi32(lanes[0], 0x00f0, lanes[1]);
  all = _mm512_mask_mov_epi32(all, 0x0f00, lanes[2]);
  all = _mm512_mask_mov_epi32(all, 0xf000, lanes[3]);
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(all));
}

/// 16 bytes of each of four places: a register.
inline __m512i load_quarters(const uint8_t* a, const uint8_t* b, const uint8_t* c,
                             const uint8_t* d) {
  const auto quarter = [](const uint8_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  };
  const __m512i first = _mm512_inserti32x4(_mm512_castsi128_si512(quarter(a)), quarter(b), 1);
  return _mm512_inserti32x4(_mm512_inserti32x4(first, quarter(c), 2), quarter(d), 3);
}

/// 32 bytes of each of two places.
inline __m512i load_halves(const uint8_t* a, const uint8_t* b) {
  const auto half = [](const uint8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  };
  return _mm512_inserti64x4(_mm512_castsi256_si512(half(a)), half(b), 1);
}

/// Of each 128 bits: 4 registers of 4 words, rows become columns.
inline void transpose_words(__m512i (&x)[4]) {
  const __m512i ab_low = _mm512_unpacklo_epi32(x[0], x[1]);
  const __m512i ab_high = _mm512_unpackhi_epi32(x[0], x[1]);
  const __m512i cd_low = _mm512_unpacklo_epi32(x[2], x[3]);
  const __m512i cd_high = _mm512_unpackhi_epi32(x[2], x[3]);
  x[0] = _mm512_unpacklo_epi64(ab_low, cd_low);
  x[1] = _mm512_unpackhi_epi64(ab_low, cd_low);
  x[2] = _mm512_unpacklo_epi64(ab_high, cd_high);
  x[3] = _mm512_unpackhi_epi64(ab_high, cd_high);
}

/// Of each 128 bits: 4 words of 4 bytes, rows become columns.
inline __m512i transpose_bytes(__m512i x) {
  return _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6,
                                                                     10, 14, 3, 7, 11, 15)));
}

/// sums + unsigned bytes times signed ones, four a lane. Not the intrinsic: GCC 12 copies the sums
/// to another register and back at each product, and never takes the broadcast into it. By value:
/// of what asm changes in an array GCC keeps the whole in memory.
[[gnu::always_inline]] inline __m512i add_dots(__m512i sums, __m512i bytes, __m512i signed_bytes) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(bytes), "v"(signed_bytes));
  return sums;
}
[[gnu::always_inline]] inline __m512i add_dots_of_word(__m512i sums, __m512i bytes,
                                                       const void* word) {
  asm("vpdpbusd %2%{1to16%}, %1, %0"
      : "+v"(sums)
      : "v"(bytes), "m"(*static_cast<const Word*>(word)));
  return sums;
}

template <class Codec>
struct IntegerKv {
  static constexpr int kBytes = Codec::kBytes;
  /// With a sign hi * 256 + lo has both bytes signed.
  static constexpr float kMaxWeight = Codec::kSignedWeights ? 32512 : 65535;

  static void prepare_queries(const GroupRows& rows, int32_t head_dim, float* q) {
    for (int32_t h = 0; h < rows.group; ++h) {
      QueryBlock blocks[kMaxBlocks];
      const int32_t n_blocks = head_dim / kBlock;
      for (int32_t b = 0; b < n_blocks; ++b) {
        QueryBlock& block = blocks[b];
        block.scale = quantise_block(q + h * rows.stride + b * kBlock, block.q);
        int32_t sum = 0;
        for (int i = 0; i < kBlock; ++i) sum += block.q[i];
        block.bias = -Codec::kOffset * sum;
      }
      memcpy(q + h * rows.stride, blocks, n_blocks * sizeof(QueryBlock));
    }
  }

  /// Scores of 16 keys for kHeads heads.
  template <int kHeads>
  [[gnu::always_inline]] static void score_keys(const uint8_t* k, const PagedKv& kv, int32_t stride,
                                                const float* q, float* scores) {
    const int32_t n_blocks = kv.layout.head_dim / kBlock;
    F32 acc[kHeads];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) acc[h] = set1(0.0f);
    KeyRows blocks(k, kv.k_bytes);
    for (int32_t b = 0; b < n_blocks; ++b, blocks.advance(kBytes)) {
      __m512i columns[8];
      Codec::key_columns(blocks, columns);
      const F32 key_scales = load_scales(blocks);
      const auto* query = reinterpret_cast<const uint8_t*>(q) + b * sizeof(QueryBlock);
      const int64_t next = stride * sizeof(float);
      // Two sums a head: one would be eight products long, and waits for each of them.
      __m512i dots[kHeads], dots_high[kHeads];
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        dots[h] = broadcast_word(query + h * next + offsetof(QueryBlock, bias));
        dots_high[h] = _mm512_setzero_si512();
      }
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) {
          const uint8_t* words = query + h * next;
          dots[h] = add_dots_of_word(dots[h], columns[c], words + 4 * c);
          dots_high[h] = add_dots_of_word(dots_high[h], columns[c + 4], words + 4 * (c + 4));
        }
      }
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        dots[h] = _mm512_add_epi32(dots[h], dots_high[h]);
        const F32 scale =
            _mm512_castsi512_ps(broadcast_word(query + h * next + offsetof(QueryBlock, scale)));
        acc[h] = fmadd(_mm512_cvtepi32_ps(dots[h]), mul(key_scales, scale), acc[h]);
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) WEFT_ISA::store(scores + h * kBlockKeys, acc[h]);
  }

  /// As PlainKv's, 16 keys at a time. What is missing of the last 16 is zeros.
  static void score(const KeyBlock& keys, const GroupRows& rows, const float* q, float* scores) {
    const PagedKv& kv = *keys.kv;
    for_runs(keys, [&](int64_t slot, int32_t first, int32_t n) {
      const uint8_t* k = k_at(kv, keys.block_table, slot, keys.kv_head);
      const int64_t ahead = k_ahead(keys, slot, k);
      uint8_t last[16 * kMaxBlocks * kBytes];
      for (int32_t j = 0; j < n; j += 16) {
        const uint8_t* from = k + int64_t{j} * kv.k_bytes;
        prefetch(from + ahead, 16 * kv.k_bytes);
        if (n - j < 16) {
          const int64_t n_bytes = int64_t{n - j} * kv.k_bytes;
          memcpy(last, from, n_bytes);
          memset(last + n_bytes, 0, 16 * kv.k_bytes - n_bytes);
          from = last;
        }
        for_head_batches(rows.group, [&]<int kHeads>(int32_t h) {
          score_keys<kHeads>(from, kv, rows.stride, q + h * rows.stride,
                             scores + h * kBlockKeys + first + j);
        });
      }
    });
  }

  /// Of a head and a block of V, the weights of a block of keys. Keys 16 t + 4 i … + 3
  /// are number 4 i + t of the words, which is how packing leaves them, and of Values::columns.
  struct Weights {
    alignas(64) uint8_t high[kBlockKeys];
    alignas(64) uint8_t low[kBlockKeys];
    float unit;
    int32_t bias;  // with signed weights -kOffset times their sum
  };

  /// One block of V of a block of keys, ready for the products.
  struct Values {
    __m512i columns[kBlockKeys / 4][2];
    F32 scales[kBlockKeys / kLanes];  // times 1 / unit
    float unit;                       // the largest scale / kMaxWeight
  };

  /// Divides the scales by their unit. What is not finite makes the unit so, and with it all sums.
  /// False where scales have a sign that the weights have none for.
  static bool make_unit(Values& values) {
    F32 largest = set1(0.0f);
    Mask infinite = 0, negative = 0;
    for (const F32 x : values.scales) {
      largest = max(_mm512_abs_ps(x), largest);
      infinite |= _mm512_fpclass_ps_mask(x, 0x99);  // NaN or infinite
      negative |= _mm512_cmp_ps_mask(x, set1(0.0f), _CMP_LT_OQ);
    }
    values.unit = infinite != 0 ? NAN : reduce_max(largest) * (1 / kMaxWeight);
    const F32 inverse = set1(values.unit > 0 ? 1.0f / values.unit : 0.0f);
    for (F32& x : values.scales) x = mul(x, inverse);
    return Codec::kSignedWeights || negative == 0;
  }

  /// p [kBlockKeys]: of one head, as shares of the largest.
  [[gnu::always_inline]] static void round_weights(const F32 (&p)[4], const Values& values,
                                                   float p_largest, Weights& weights) {
    __m512i whole[4];
#pragma GCC unroll 4
    for (int t = 0; t < 4; ++t) whole[t] = _mm512_cvtps_epi32(mul(p[t], values.scales[t]));
    const auto low = [](__m512i x) { return _mm512_and_si512(x, _mm512_set1_epi16(255)); };
    if constexpr (Codec::kSignedWeights) {
      const __m512i first = _mm512_packs_epi32(whole[0], whole[1]);
      const __m512i second = _mm512_packs_epi32(whole[2], whole[3]);
      const auto high = [](__m512i x) {
        return _mm512_srai_epi16(_mm512_add_epi16(x, _mm512_set1_epi16(128)), 8);
      };
      _mm512_store_si512(weights.high, _mm512_packs_epi16(high(first), high(second)));
      _mm512_store_si512(weights.low, _mm512_packus_epi16(low(first), low(second)));
      const __m512i ones = _mm512_set1_epi16(1);
      weights.bias =
          -Codec::kOffset * _mm512_reduce_add_epi32(_mm512_add_epi32(
                                _mm512_madd_epi16(first, ones), _mm512_madd_epi16(second, ones)));
    } else {
      const __m512i first = _mm512_packus_epi32(whole[0], whole[1]);
      const __m512i second = _mm512_packus_epi32(whole[2], whole[3]);
      const auto high = [](__m512i x) { return _mm512_srli_epi16(x, 8); };
      _mm512_store_si512(weights.high, _mm512_packus_epi16(high(first), high(second)));
      _mm512_store_si512(weights.low, _mm512_packus_epi16(low(first), low(second)));
    }
    weights.unit = p_largest * values.unit;
  }

  /// The unsigned operand is V where weights are signed, else the weights.
  [[gnu::always_inline]] static __m512i add_products(__m512i sums, __m512i v, __m512i w) {
    return Codec::kSignedWeights ? add_dots(sums, v, w) : add_dots(sums, w, v);
  }

  /// out[h] += weights[h] V over one block's dimensions.
  template <int kHeads>
  [[gnu::always_inline]] static void add_block(const Values& values, const Weights* weights,
                                               int32_t stride, float* out) {
    __m512i high[kHeads][2], low[kHeads][2];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      high[h][0] = high[h][1] = _mm512_setzero_si512();
      low[h][0] = low[h][1] = _mm512_set1_epi32(Codec::kSignedWeights ? weights[h].bias : 0);
    }
    for (int32_t g = 0; g < kBlockKeys / 4; ++g) {
      const __m512i v0 = values.columns[g][0], v1 = values.columns[g][1];
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        const __m512i w_high = broadcast_word(weights[h].high + 4 * g);
        const __m512i w_low = broadcast_word(weights[h].low + 4 * g);
        high[h][0] = add_products(high[h][0], v0, w_high);
        high[h][1] = add_products(high[h][1], v1, w_high);
        low[h][0] = add_products(low[h][0], v0, w_low);
        low[h][1] = add_products(low[h][1], v1, w_low);
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const F32 unit = set1(weights[h].unit);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        float* const sums = out + h * stride + i * kLanes;
        const __m512i whole = _mm512_add_epi32(_mm512_slli_epi32(high[h][i], 8), low[h][i]);
        WEFT_ISA::store(sums, fmadd(_mm512_cvtepi32_ps(whole), unit, WEFT_ISA::load(sums)));
      }
    }
  }

  /// Keys 16 t … 16 t + 15.
  [[gnu::always_inline]] static void load_sixteen(const uint8_t* v, int64_t stride,
                                                  int32_t n_blocks, int32_t t, Values* values) {
    KeyRows rows(v, stride);
    for (int32_t b = 0; b < n_blocks; ++b, rows.advance(kBytes)) {
      values[b].scales[t] = load_scales(rows);
#pragma GCC unroll 4
      for (int32_t i = 0; i < 4; ++i) {
        Codec::value_columns(rows.row(i, 0), rows.row(i, 1), rows.row(i, 2), rows.row(i, 3),
                             values[b].columns[4 * i + t]);
      }
    }
  }

  /// Brings a block of keys' V into `values` [n_blocks]. Keys have their places by slot, so that
  /// 16 that lie together are in one page; of 16 that are not all seen the others are zeros. False:
  /// as make_unit.
  static bool load_values(const KeyBlock& keys, Values* values) {
    const PagedKv& kv = *keys.kv;
    const int32_t n_blocks = kv.layout.head_dim / kBlock;
    if (keys.end - keys.begin < kBlockKeys) memset(values, 0, n_blocks * sizeof(values[0]));
    for_runs(keys, [&](int64_t slot, int32_t, int32_t n) {
      const uint8_t* v = v_at(kv, keys.block_table, slot, keys.kv_head);
      const int64_t ahead = v_ahead(keys, slot, v);
      const int32_t first = slot % kBlockKeys, end = first + n;
      for (int32_t t = first / 16; t * 16 < end; ++t) {
        const uint8_t* from = v + (int64_t{t} * 16 - first) * kv.v_bytes;
        prefetch(from + ahead, 16 * kv.v_bytes);
        uint8_t some[16 * kMaxBlocks * kBytes];
        if (t * 16 < first || t * 16 + 16 > end) {
          const int32_t skipped = t * 16 < first ? first - t * 16 : 0;
          const int32_t seen_end = t * 16 + 16 > end ? end - t * 16 : 16;
          memset(some, 0, 16 * kv.v_bytes);
          memcpy(some + skipped * kv.v_bytes, from + skipped * kv.v_bytes,
                 (seen_end - skipped) * kv.v_bytes);
          from = some;
        }
        load_sixteen(from, kv.v_bytes, n_blocks, t, values);
      }
    });
    bool can_weigh = true;
    for (int32_t b = 0; b < n_blocks; ++b) can_weigh &= make_unit(values[b]);
    return can_weigh;
  }

  template <int kHeads>
  [[gnu::always_inline]] static void add_heads(const KeyBlock& keys, const Values* values,
                                               int32_t n_blocks, int32_t stride,
                                               const float* scores, float* out) {
    const int32_t place = keys.begin % kBlockKeys, n = keys.end - keys.begin;
    F32 p[kHeads][4];
    float largest[kHeads];
    for (int h = 0; h < kHeads; ++h) {
      alignas(64) float padded[kBlockKeys] = {};
      const float* from = scores + h * kBlockKeys;
      if (n < kBlockKeys) {
        memcpy(padded + place, from, n * sizeof(float));
        from = padded;
      }
      for (int t = 0; t < 4; ++t) p[h][t] = WEFT_ISA::load(from + t * kLanes);
      largest[h] = reduce_max(max(max(p[h][0], p[h][1]), max(p[h][2], p[h][3])));
      const F32 inverse = set1(largest[h] > 0 ? 1.0f / largest[h] : 0.0f);
      for (int t = 0; t < 4; ++t) p[h][t] = mul(p[h][t], inverse);
    }
    // All weights first: a block's products are as many instructions as the CPU looks ahead.
    Weights weights[kMaxBlocks][kHeads];
    for (int32_t b = 0; b < n_blocks; ++b) {
      for (int h = 0; h < kHeads; ++h) round_weights(p[h], values[b], largest[h], weights[b][h]);
    }
    for (int32_t b = 0; b < n_blocks; ++b) {
      add_block<kHeads>(values[b], weights[b], stride, out + b * kBlock);
    }
  }

  static void add_values(const KeyBlock& keys, const GroupRows& rows, const float* scores,
                         float* out) {
    const int32_t n_blocks = keys.kv->layout.head_dim / kBlock;
    Values values[kMaxBlocks];
    if (!load_values(keys, values)) return BlockKv<Codec>::add_values(keys, rows, scores, out);
    for_head_batches(rows.group, [&]<int kHeads>(int32_t h) {
      add_heads<kHeads>(keys, values, n_blocks, rows.stride, scores + h * kBlockKeys,
                        out + h * rows.stride);
    });
  }
};

}  // namespace
}  // namespace weft::kernels::WEFT_ISA

#endif  // __AVX512VNNI__

namespace weft::kernels::WEFT_ISA {
namespace {

/// The table of a type in blocks: decode's products over integers where the set has them.
template <class Codec>
const KvCodecFns& block_kv_fns() {
  using Kv = BlockKv<Codec>;
#if defined(__AVX512VNNI__)
  using Decode = IntegerKv<Codec>;
  static constexpr auto kPrepareQueries = Decode::prepare_queries;
#else
  using Decode = Kv;
  static constexpr void (*kPrepareQueries)(const GroupRows&, int32_t, float*) = nullptr;
#endif
  static constexpr KvCodecFns kFns = {Kv::load_array, Kv::store_array,    Kv::rotate,     Kv::shift,
                                      Decode::score,  Decode::add_values, kPrepareQueries};
  return kFns;
}

}  // namespace
}  // namespace weft::kernels::WEFT_ISA
