// Decode's two products over blocks of GGUF as products of integers, for sets with VNNI. Only for
// kv_codec_*_cpu.cc. A Codec has besides what kv_codec_blocks_internal.h asks of it
//   static constexpr int kOffset = …;            of key_step: value = scale * (byte - kOffset)
//   static constexpr bool kSignedWeights = …;    whether V's scales may be negative
//   template <int kStep> static void key_step(const KeyRows& blocks, __m512i (&columns)[8]);
//     one of kKeySteps steps that load 16 keys' blocks and bring them to columns: after the last,
//     lane i of column c has the bytes of elements 4 c … 4 c + 3 of key i
//   static void value_columns(const FourRows& blocks, __m512i (&columns)[2]);
//     of four keys' blocks: lane i of column c has the bytes of element 16 c + i of keys 0 … 3;
//     with kSignedWeights plus kOffset, as key_step, else signed
//
// Both products are vpdpbusd, 64 multiply-adds an instruction, with lanes in which nothing has to
// be added up: of K a lane is a key, of V a dimension. Getting the bytes there takes shuffles, but
// once for all heads that share them. One operand of vpdpbusd is unsigned: that is K, with kOffset
// added, and kOffset times the sum of the query is subtracted; of V's product the weights, but for
// q4_0, whose scales have signs: there it is V as K.
//
// K: a query is quantised per block of 32 with a scale in f32, once a task. V: the weights of a
// block of keys, each times the scale of its key's block of V, are rounded to 16 bits as a share of
// the largest weight times the largest scale, and their two bytes multiplied one after the other.
// That is by 2^-17 at most of what the largest weight's key would give with the largest V, where V
// itself is by 2^-8: less than V's own rounding unless a key whose V is hundreds of times larger
// than the others' has next to no weight. The sums of 64 keys are exact in 32 bits.
//
// What made it faster, and what did not (Sapphire Rapids, a 1B model's shape, one thread, 512 keys
// in the L2, where a layer of q8_0 took 30.0 us, takes 25.3, and f16 44.7). Most steps wait for the
// one before, and the CPU looks ahead over a hundred instructions or so; hence what waits has to
// lie among what does not. K's shuffles between the products of the keys before: 0.7 us. Queries
// quantised four blocks at a time: 0.9. V's scales compared as integers, one shuffle that parts the
// bytes of weights, the largest weights of four heads together: 1.2. Lines asked for one at a time
// (prefetch_part): 0.8, and at 16,384 keys 60 of 960. The softmax of four heads together: 1.0.
//
// V's shuffles are after its scales are asked for and before its weights are rounded: before the
// scales they take 1.5 us more, between V's products 0.4. The products of each block of V as soon
// as it has its weights: 0.6 more. The scales by vpgatherdd: 0.2 less, of q4_0 0.4, but that is
// slow on other CPUs, by microcode or by the mitigation of Downfall. Weights of one byte would save
// half of V's products, but where one key has most of the weight they would be further off than V.
#pragma once

#include <stddef.h>

#include "kernels/kv_codec_blocks_internal.h"

#if defined(__AVX512VNNI__)

namespace weft::kernels::WEFT_ISA {
namespace {

constexpr int kMaxBlocks = kMaxHeadDim / kBlock;
/// Steps that bring K's blocks to columns: one between the products of two columns.
constexpr int kKeySteps = 8;

/// A block of a query. It takes the place of its floats.
struct QueryBlock {
  int8_t q[kBlock];
  float scale;
  int32_t bias;  // -kOffset times the sum of q
};

/// May alias: after memcpy GCC 12 takes a word through a general register, which is one more
/// shuffle for each product.
typedef int32_t Word __attribute__((may_alias, aligned(1)));

inline __m512i broadcast_word(const void* word) {
  return _mm512_set1_epi32(*static_cast<const Word*>(word));
}

/// Four vectors, `stride` bytes from one to the next.
struct FourRows {
  const uint8_t* first;
  int64_t stride, stride3;

  FourRows(const uint8_t* rows, int64_t bytes) : first(rows), stride(bytes), stride3(3 * bytes) {
    asm("" : "+r"(stride3));
  }
  const uint8_t* row(int i) const { return first + (i == 3 ? stride3 : i * stride); }
};

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

/// The scales before 16 blocks, in f16, by loads that broadcast into one lane each: written one by
/// one to memory and read back together they cannot be forwarded, and put together in general
/// registers they were a tenth of all instructions.
inline __m256i load_scales(const KeyRows& blocks) {
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
  // As vpmovdw, in one shuffle where that takes two.
  const __m512i even = _mm512_castsi256_si512(
      _mm256_setr_epi16(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30));
  return _mm512_castsi512_si256(_mm512_permutexvar_epi16(even, all));
}

// What follows stays in the order in which it is written, asm volatile. GCC 12 puts the products of
// one sum one after the other, where each waits for the last, and they fill the CPU's scheduler so
// that it does not get to the shuffles of what comes next.
#define WEFT_IN_ORDER(name, instruction)                                \
  [[gnu::always_inline]] inline __m512i name(__m512i a, __m512i b) {    \
    __m512i x;                                                          \
    asm volatile(instruction " %2, %1, %0" : "=v"(x) : "v"(a), "v"(b)); \
    return x;                                                           \
  }
WEFT_IN_ORDER(unpack_low_words, "vpunpckldq")
WEFT_IN_ORDER(unpack_high_words, "vpunpckhdq")
WEFT_IN_ORDER(unpack_low_pairs, "vpunpcklqdq")
WEFT_IN_ORDER(unpack_high_pairs, "vpunpckhqdq")
WEFT_IN_ORDER(exclusive_or, "vpxord")
#undef WEFT_IN_ORDER

template <int kPlaces>
[[gnu::always_inline]] inline __m512i shuffle_quarters(__m512i a, __m512i b) {
  __m512i x;
  asm volatile("vshufi32x4 %3, %2, %1, %0" : "=v"(x) : "v"(a), "v"(b), "i"(kPlaces));
  return x;
}

/// Of each 128 bits: the words (the pairs of words) of a and b in turns, the first ones into a, the
/// last ones into b. Two rounds of both make columns of four rows.
[[gnu::always_inline]] inline void interleave_words(__m512i& a, __m512i& b) {
  const __m512i first = unpack_low_words(a, b);
  b = unpack_high_words(a, b);
  a = first;
}
[[gnu::always_inline]] inline void interleave_pairs(__m512i& a, __m512i& b) {
  const __m512i first = unpack_low_pairs(a, b);
  b = unpack_high_pairs(a, b);
  a = first;
}

template <int kBytes>
struct [[gnu::may_alias]] Bytes {
  uint8_t bytes[kBytes];
};

/// 32 bytes, and 32 more after them.
[[gnu::always_inline]] inline __m512i load_half(const uint8_t* from) {
  __m512i x;
  asm volatile("vmovdqu64 %1, %t0" : "=v"(x) : "m"(*reinterpret_cast<const Bytes<32>*>(from)));
  return x;
}
[[gnu::always_inline]] inline __m512i insert_half(__m512i half, const uint8_t* from) {
  __m512i x;
  asm volatile("vinserti64x4 $1, %2, %1, %0"
               : "=v"(x)
               : "v"(half), "m"(*reinterpret_cast<const Bytes<32>*>(from)));
  return x;
}

/// 16 bytes of each of four places: a register.
template <int kQuarter>
[[gnu::always_inline]] inline __m512i insert_quarter(__m512i quarters, const uint8_t* from) {
  __m512i x;
  asm volatile("vinserti32x4 %3, %2, %1, %0"
               : "=v"(x)
               : "v"(quarters), "m"(*reinterpret_cast<const Bytes<16>*>(from)), "i"(kQuarter));
  return x;
}
[[gnu::always_inline]] inline __m512i load_quarters(const uint8_t* a, const uint8_t* b,
                                                    const uint8_t* c, const uint8_t* d) {
  __m512i x;
  asm volatile("vmovdqu64 %1, %x0" : "=v"(x) : "m"(*reinterpret_cast<const Bytes<16>*>(a)));
  return insert_quarter<3>(insert_quarter<2>(insert_quarter<1>(x, b), c), d);
}

[[gnu::always_inline]] inline __m512i broadcast_in_order(const void* word) {
  __m512i x;
  asm volatile("vpbroadcastd %1, %0" : "=v"(x) : "m"(*static_cast<const Word*>(word)));
  return x;
}

/// sums + unsigned bytes times signed ones, four a lane. Not the intrinsic: GCC 12 copies the sums
/// to another register and back at each product, and never takes the broadcast into it. By value:
/// of what asm changes in an array GCC keeps the whole in memory.
[[gnu::always_inline]] inline __m512i add_dots(__m512i sums, __m512i bytes, __m512i signed_bytes) {
  asm volatile("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(bytes), "v"(signed_bytes));
  return sums;
}
[[gnu::always_inline]] inline __m512i add_dots_of_word(__m512i sums, __m512i bytes,
                                                       const void* word) {
  asm volatile("vpdpbusd %2%{1to16%}, %1, %0"
               : "+v"(sums)
               : "v"(bytes), "m"(*static_cast<const Word*>(word)));
  return sums;
}

/// Of each 128 bits: 4 words of 4 bytes, rows become columns.
inline __m512i transpose_bytes(__m512i x) {
  return _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6,
                                                                     10, 14, 3, 7, 11, 15)));
}

/// Word i is all lanes of x[i] joined by `join`, which takes __m256i and __m128i: four registers
/// together take half of the shuffles that each alone would.
template <class Join>
[[gnu::always_inline]] inline __m128i join_lanes(const __m512i (&x)[4], const Join& join) {
  __m256i halves[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    halves[i] = join(_mm512_castsi512_si256(x[i]), _mm512_extracti64x4_epi64(x[i], 1));
  }
  const auto pairs = [&](__m256i a, __m256i b) {
    return join(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  };
  const __m256i ab = pairs(halves[0], halves[1]), cd = pairs(halves[2], halves[3]);
  const __m256i all = join(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
  return join(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

struct Sum {
  __m256i operator()(__m256i a, __m256i b) const { return _mm256_add_epi32(a, b); }
  __m128i operator()(__m128i a, __m128i b) const { return _mm_add_epi32(a, b); }
};
/// Of floats that are not negative, which as integers are in the same order; NaN is the largest.
struct Largest {
  __m512i operator()(__m512i a, __m512i b) const { return _mm512_max_epi32(a, b); }
  __m256i operator()(__m256i a, __m256i b) const { return _mm256_max_epi32(a, b); }
  __m128i operator()(__m128i a, __m128i b) const { return _mm_max_epi32(a, b); }
};

/// factor / x, and 0 for what is not greater than 0.
inline __m128 over(float factor, __m128 x) {
  return _mm_maskz_div_ps(_mm_cmp_ps_mask(x, _mm_setzero_ps(), _CMP_GT_OQ), _mm_set1_ps(factor), x);
}

template <class Codec>
struct IntegerKv {
  static constexpr int kBytes = Codec::kBytes;
  /// With a sign hi * 256 + lo has both bytes signed.
  static constexpr float kMaxWeight = Codec::kSignedWeights ? 32512 : 65535;

  /// Four blocks of queries at a time, each in place of its own floats or of some before. What is
  /// not finite makes the scale so.
  static void prepare_queries(const GroupRows& rows, int32_t head_dim, float* q) {
    const int32_t n_blocks = head_dim / kBlock, n = rows.group * n_blocks;
    for (int32_t first = 0; first < n; first += 4) {
      F32 x[4][2];
      __m512i tops[4], sums[4];
      QueryBlock* blocks[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const int32_t index = first + i < n ? first + i : n - 1;
        float* const head = q + index / n_blocks * rows.stride;
        const float* const from = head + index % n_blocks * kBlock;
        blocks[i] = reinterpret_cast<QueryBlock*>(head) + index % n_blocks;
        for (int j = 0; j < 2; ++j) x[i][j] = WEFT_ISA::load(from + j * kLanes);
        tops[i] = Largest()(_mm512_castps_si512(_mm512_abs_ps(x[i][0])),
                            _mm512_castps_si512(_mm512_abs_ps(x[i][1])));
      }
      const __m128 largest = _mm_castsi128_ps(join_lanes(tops, Largest()));
      alignas(16) float scales[4], inverses[4];
      alignas(16) int32_t biases[4];
      _mm_store_ps(scales, _mm_mul_ps(largest, _mm_set1_ps(1 / 127.0f)));
      _mm_store_ps(inverses, over(127, largest));
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        __m512i whole[2];
        for (int j = 0; j < 2; ++j) {
          whole[j] = _mm512_cvtps_epi32(mul(x[i][j], set1(inverses[i])));
          _mm_storeu_si128(reinterpret_cast<__m128i*>(blocks[i]->q + j * kLanes),
                           _mm512_cvtsepi32_epi8(whole[j]));
        }
        sums[i] = _mm512_add_epi32(whole[0], whole[1]);
      }
      _mm_store_si128(reinterpret_cast<__m128i*>(biases),
                      _mm_mullo_epi32(join_lanes(sums, Sum()), _mm_set1_epi32(-Codec::kOffset)));
      for (int i = 0; i < 4; ++i) {
        blocks[i]->scale = scales[i];
        blocks[i]->bias = biases[i];
      }
    }
  }

  /// 16 keys' blocks as columns, or on their way there.
  struct Tile {
    __m512i columns[8];
    __m256i scales;
  };

  template <int kStep>
  [[gnu::always_inline]] static void bring(const KeyRows& blocks, Tile& tile) {
    Codec::template key_step<kStep>(blocks, tile.columns);
    if constexpr (kStep == 6) tile.scales = load_scales(blocks);
  }

  /// Calls fn<0>() to fn<kKeySteps - 1>().
  template <class Fn>
  [[gnu::always_inline]] static void for_steps(const Fn& fn) {
    fn.template operator()<0>();
    fn.template operator()<1>();
    fn.template operator()<2>();
    fn.template operator()<3>();
    fn.template operator()<4>();
    fn.template operator()<5>();
    fn.template operator()<6>();
    fn.template operator()<7>();
  }

  /// acc[h] += scores of a tile of a block of K; between the products of two columns the next tile,
  /// if there is one, comes a step nearer to its columns: its shuffles all take one of the two
  /// ports that the products share. One sum a head is enough: a step is as long as a product takes.
  template <int kHeads, bool kHasNext>
  [[gnu::always_inline]] static void score_tile(const Tile& tile, const uint8_t* ahead,
                                                const uint8_t* query, int64_t stride,
                                                const KeyRows& next_rows, Tile& next,
                                                F32 (&acc)[kHeads]) {
    int64_t stride3 = 3 * stride;
    asm("" : "+r"(query), "+r"(stride), "+r"(stride3));
    const auto of_head = [&](int h) { return query + (h == 3 ? stride3 : h * stride); };
    __m512i dots[kHeads];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      dots[h] = broadcast_in_order(of_head(h) + offsetof(QueryBlock, bias));
    }
    for_steps([&]<int kStep>() {
      prefetch_part<16 * kBytes, kKeySteps>(ahead, kStep);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        dots[h] = add_dots_of_word(dots[h], tile.columns[kStep], of_head(h) + 4 * kStep);
      }
      if constexpr (kHasNext) bring<kStep>(next_rows, next);
    });
    const F32 key_scales = _mm512_cvtph_ps(tile.scales);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const F32 scale =
          _mm512_castsi512_ps(broadcast_word(of_head(h) + offsetof(QueryBlock, scale)));
      acc[h] = fmadd(_mm512_cvtepi32_ps(dots[h]), mul(key_scales, scale), acc[h]);
    }
  }

  /// Scores of n keys, a multiple of 16, that lie together, for kHeads heads.
  template <int kHeads>
  [[gnu::always_inline]] static void score_heads(const PagedKv& kv, const uint8_t* k, int32_t n,
                                                 int64_t ahead, const float* q, int32_t stride,
                                                 float* scores) {
    const int32_t n_blocks = kv.layout.head_dim / kBlock;
    const int64_t to_next_keys = 16 * int64_t{kv.k_bytes} - (n_blocks - 1) * kBytes;
    KeyRows rows(k, kv.k_bytes);
    Tile tile;
    for_steps([&]<int kStep>() { bring<kStep>(rows, tile); });
    const uint8_t* next_block = k + ahead;
    for (int32_t j = 0; j < n; j += 16) {
      F32 acc[kHeads];
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) acc[h] = set1(0.0f);
      const auto* query = reinterpret_cast<const uint8_t*>(q);
      for (int32_t b = 0; b < n_blocks; ++b, query += sizeof(QueryBlock)) {
        const bool is_last = b + 1 == n_blocks;
        if (is_last && j + 16 == n) {
          score_tile<kHeads, false>(tile, next_block, query, stride * sizeof(float), rows, tile,
                                    acc);
        } else {
          Tile next;
          rows.advance(is_last ? to_next_keys : kBytes);
          score_tile<kHeads, true>(tile, next_block, query, stride * sizeof(float), rows, next,
                                   acc);
          tile = next;
        }
        next_block += 16 * kBytes;
      }
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) WEFT_ISA::store(scores + h * kBlockKeys + j, acc[h]);
    }
  }

  /// As PlainKv's. What is missing of the last 16 is zeros.
  static void score(const KeyBlock& keys, const GroupRows& rows, const float* q, float* scores) {
    const PagedKv& kv = *keys.kv;
    const auto score_some = [&](const uint8_t* k, int32_t n, int64_t ahead, float* to) {
      for_head_batches(rows.group, [&]<int kHeads>(int32_t h) {
        score_heads<kHeads>(kv, k, n, ahead, q + h * rows.stride, rows.stride, to + h * kBlockKeys);
      });
    };
    for_runs(keys, [&](int64_t slot, int32_t first, int32_t n) {
      const uint8_t* k = k_at(kv, keys.block_table, slot, keys.kv_head);
      const int32_t whole = n & -16;
      if (whole > 0) score_some(k, whole, k_ahead(keys, slot, k), scores + first);
      if (whole == n) return;
      uint8_t last[16 * kMaxBlocks * kBytes];
      const int64_t n_bytes = int64_t{n - whole} * kv.k_bytes;
      memcpy(last, k + int64_t{whole} * kv.k_bytes, n_bytes);
      memset(last + n_bytes, 0, 16 * kv.k_bytes - n_bytes);
      score_some(last, 16, 0, scores + first + whole);
    });
  }

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
    if (keys.end - keys.begin < kBlockKeys || kv.layout.page_tokens < kBlockKeys) {
      return find_scattered_values(keys, places);
    }
    const uint8_t* const v = v_at(kv, keys.block_table, keys.begin, keys.kv_head);
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
      const uint8_t* v = v_at(kv, keys.block_table, slot, keys.kv_head);
      const int32_t first = slot % kBlockKeys, end = first + n;
      for (int32_t t = first / 16; t * 16 < end; ++t) {
        const uint8_t* from = v + (int64_t{t} * 16 - first) * kv.v_bytes;
        places.ahead[t] = from + v_ahead(keys, slot, v);
        if (t * 16 < first || t * 16 + 16 > end) {
          const int32_t skipped = t * 16 < first ? first - t * 16 : 0;
          const int32_t seen_end = t * 16 + 16 > end ? end - t * 16 : 16;
          memcpy(places.some[t] + skipped * kv.v_bytes, from + skipped * kv.v_bytes,
                 (seen_end - skipped) * kv.v_bytes);
        } else {
          places.sixteen[t] = from;
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
