// Decode's scores over blocks of GGUF as products of integers; kv_codec_integers_internal.h says
// how.
#pragma once

#include <stddef.h>

#include "kernels/kv_codec_integer_lanes_internal.h"
#include "kernels/kv_codec_runs_internal.h"

#if defined(__AVX512VNNI__)

namespace weft::kernels::WEFT_ISA {
namespace {

/// Steps that bring K's blocks to columns: one between the products of two columns.
constexpr int kKeySteps = 8;

/// A block of a query. It takes the place of its floats.
struct QueryBlock {
  int8_t q[kBlock];
  float scale;
  int32_t bias;  // -kOffset times the sum of q
};

template <class Codec>
struct IntegerKeys {
  static constexpr int kBytes = Codec::kBytes;

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

  /// As PlainKv's. Sixteen that do not lie together, and what is there of the last, are brought
  /// together first; what is missing is zeros.
  static void score(const KeyBlock& keys, const GroupRows& rows, const float* q, float* scores) {
    const PagedKv& kv = *keys.kv;
    const auto score_some = [&](const uint8_t* k, int32_t n, int64_t ahead, float* to) {
      for_head_batches(rows.group, [&]<int kHeads>(int32_t h) {
        score_heads<kHeads>(kv, k, n, ahead, q + h * rows.stride, rows.stride, to + h * kBlockKeys);
      });
    };
    uint8_t some[16 * kMaxBlocks * kBytes];
    int32_t n_some = 0;
    for_runs(keys, [&](int64_t slot, int32_t first, int32_t n) {
      const uint8_t* k = k_of(keys, slot);
      const int64_t ahead = k_ahead(keys, slot, k);
      const int32_t whole = n_some > 0 ? 0 : n & -16;
      if (whole > 0) score_some(k, whole, ahead, scores + first);
      if (whole == n) return;
      const int64_t n_bytes = int64_t{n - whole} * kv.k_bytes;
      memcpy(some + int64_t{n_some} * kv.k_bytes, k + int64_t{whole} * kv.k_bytes, n_bytes);
      prefetch(k + int64_t{whole} * kv.k_bytes + ahead, n_bytes);
      n_some += n - whole;
      if ((slot + n) % 16 != 0 && slot + n < keys.end) return;
      memset(some + int64_t{n_some} * kv.k_bytes, 0, (16 - int64_t{n_some}) * kv.k_bytes);
      score_some(some, 16, 0, scores + (first + n - n_some));
      n_some = 0;
    });
  }
};

}  // namespace
}  // namespace weft::kernels::WEFT_ISA

#endif  // __AVX512VNNI__
