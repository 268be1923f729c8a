// The kernels of a type of K and V in GGUF's blocks: 32 elements with a scale in f16 before them.
// Such a type is a Codec with
//   static constexpr int kBytes = …;                    of a block
//   static F32 load(const uint8_t* block, int d);       kLanes elements from d on, without scale
//   static void store(const float* src, uint8_t* block);
// Only for kv_codec_*_cpu.cc. Shapes and order of sums are as in kv_codec_plain_internal.h: a
// register of K or V is widened and scaled once for all heads that share it.
#pragma once

#include <math.h>
#include <string.h>

#include "kernels/cpu_half_internal.h"
#include "kernels/kv_codec_internal.h"
#include "kernels/kv_codec_runs_internal.h"
#include "kernels/rope_lanes_internal.h"
#include "kernels/simd_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

constexpr int kBlock = 32;

inline float block_scale(const uint8_t* block) {
  uint16_t half;
  memcpy(&half, block, sizeof(half));
  return half_to_float(half);
}

inline void store_scale(float scale, uint8_t* block) {
  uint16_t halves[kLanes];
  narrow(halves, set1(scale));
  memcpy(block, halves, sizeof(halves[0]));
}

/// dst [32] = src / scale, rounded to nearest even; returns the scale. What is not finite makes the
/// scale so, and with it the block.
inline float quantise_block(const float* src, int8_t* dst) {
#if defined(__AVX512F__)
  const F32 x[2] = {load(src), load(src + kLanes)};
  if (_mm512_cmp_ps_mask(x[0], x[1], _CMP_UNORD_Q) == 0) {
    const float largest = reduce_max(max(_mm512_abs_ps(x[0]), _mm512_abs_ps(x[1])));
    const F32 over_scale = set1(largest > 0 ? 1.0f / (largest / 127) : 0.0f);
    for (int i = 0; i < 2; ++i) {
      const F32 q = round_to_even(mul(x[i], over_scale));
      const Mask fits = _mm512_cmp_ps_mask(_mm512_abs_ps(q), set1(127.0f), _CMP_LE_OQ);
      const __m512i whole = _mm512_cvtps_epi32(select(fits, q, set1(127.0f)));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i * kLanes), _mm512_cvtepi32_epi8(whole));
    }
    return largest / 127;
  }
#endif
  float most = 0;
  for (int i = 0; i < kBlock; ++i) {
    const float magnitude = fabsf(src[i]);
    if (magnitude > most || magnitude != magnitude) most = magnitude;
  }
  const float scale = most / 127;
  const F32 inverse = set1(most > 0 ? 1.0f / scale : 0.0f);
  float q[kBlock];
  for (int i = 0; i < kBlock; i += kLanes) {
    store(q + i, round_to_even(mul(load(src + i), inverse)));
  }
  for (int i = 0; i < kBlock; ++i) dst[i] = fabsf(q[i]) <= 127 ? q[i] : 127.0f;
  return scale;
}

template <class Codec>
struct BlockKv {
  static const uint8_t* block_at(const uint8_t* vector, int32_t d) {
    return vector + d / kBlock * Codec::kBytes;
  }
  /// kLanes elements from dimension d of a vector on.
  static F32 load_at(const uint8_t* vector, int32_t d) {
    const uint8_t* block = block_at(vector, d);
    return mul(Codec::load(block, d % kBlock), set1(block_scale(block)));
  }

  static void load_array(const uint8_t* src, int64_t n, float* dst) {
    for (int64_t i = 0; i < n; i += kBlock, src += Codec::kBytes) {
      const F32 scale = set1(block_scale(src));
      for (int d = 0; d < kBlock; d += kLanes)
        WEFT_ISA::store(dst + i + d, mul(Codec::load(src, d), scale));
    }
  }
  static void store_array(const float* src, int64_t n, uint8_t* dst) {
    for (int64_t i = 0; i < n; i += kBlock, dst += Codec::kBytes) Codec::store(src + i, dst);
  }

  static void load_shifted(const uint8_t* src, const float* shift, int32_t head_dim, float* x) {
    load_array(src, head_dim, x);
    if (shift == nullptr) return;
    for (int32_t i = 0; i < head_dim; ++i) x[i] += shift[i];
  }
  static void rotate(const RopeRow& row, const uint8_t* src, const float* shift, uint8_t* dst,
                     int32_t head_dim) {
    float x[kMaxHeadDim];
    load_shifted(src, shift, head_dim, x);
    rotate_head(row, x);
    store_array(x, head_dim, dst);
  }
  static void shift(const uint8_t* src, const float* shift, uint8_t* dst, int32_t head_dim) {
    float x[kMaxHeadDim];
    load_shifted(src, shift, head_dim, x);
    store_array(x, head_dim, dst);
  }

  /// As PlainKv's: four keys at a time, a whole number of four scores.
  template <int kHeads>
  [[gnu::always_inline]] static void score_run(const uint8_t* k, const PagedKv& kv, int32_t n,
                                               int32_t stride, const float* q, float* scores) {
    const int32_t head_dim = kv.layout.head_dim;
    for (int32_t j = 0; j < n; j += 4) {
      F32 acc[kHeads][4];
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) acc[h][i] = set1(0.0f);
      }
      const uint8_t* keys[4];
      for (int i = 0; i < 4; ++i) keys[i] = k + int64_t{j + i < n ? j + i : n - 1} * kv.k_bytes;
      for (int32_t d = 0; d < head_dim; d += kLanes) {
        F32 widened[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) widened[i] = load_at(keys[i], d);
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) {
          const F32 b = WEFT_ISA::load(q + h * stride + d);
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i) acc[h][i] = fmadd(widened[i], b, acc[h][i]);
        }
      }
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        reduce_add4(acc[h][0], acc[h][1], acc[h][2], acc[h][3], scores + h * kBlockKeys + j);
      }
    }
  }

  /// out[h] += scores[h] V over the dims [d, d + kRegisters * kLanes), which stay in registers.
  template <int kHeads, int kRegisters>
  [[gnu::always_inline]] static void add_dims(const uint8_t* v, const PagedKv& kv, int32_t n,
                                              int32_t stride, const float* scores, int32_t d,
                                              float* out) {
    F32 acc[kHeads][kRegisters];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
      for (int i = 0; i < kRegisters; ++i) {
        acc[h][i] = WEFT_ISA::load(out + h * stride + d + i * kLanes);
      }
    }
    for (int32_t j = 0; j < n; ++j, v += kv.v_bytes) {
      F32 widened[kRegisters];
#pragma GCC unroll 4
      for (int i = 0; i < kRegisters; ++i) widened[i] = load_at(v, d + i * kLanes);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        const F32 p = set1(scores[h * kBlockKeys + j]);
#pragma GCC unroll 4
        for (int i = 0; i < kRegisters; ++i) acc[h][i] = fmadd(p, widened[i], acc[h][i]);
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
      for (int i = 0; i < kRegisters; ++i) {
        WEFT_ISA::store(out + h * stride + d + i * kLanes, acc[h][i]);
      }
    }
  }

  static void score(const KeyBlock& keys, const GroupRows& rows, const float* q, float* scores) {
    for_runs(keys, [&](int64_t slot, int32_t first, int32_t n) {
      const uint8_t* k = k_of(keys, slot);
      for_head_batches(rows.group, [&]<int kHeads>(int32_t h) {
        score_run<kHeads>(k, *keys.kv, n, rows.stride, q + h * rows.stride,
                          scores + h * kBlockKeys + first);
      });
    });
  }

  static void add_values(const KeyBlock& keys, const GroupRows& rows, const float* scores,
                         float* out) {
    const int32_t head_dim = keys.kv->layout.head_dim;
    for_runs(keys, [&](int64_t slot, int32_t first, int32_t n) {
      const uint8_t* v = v_of(keys, slot);
      for_head_batches(rows.group, [&]<int kHeads>(int32_t h) {
        const float* p = scores + h * kBlockKeys + first;
        float* sums = out + h * rows.stride;
        int32_t d = 0;
        for (; d + 4 * kLanes <= head_dim; d += 4 * kLanes) {
          add_dims<kHeads, 4>(v, *keys.kv, n, rows.stride, p, d, sums);
        }
        for (; d < head_dim; d += kLanes) {
          add_dims<kHeads, 1>(v, *keys.kv, n, rows.stride, p, d, sums);
        }
      });
    });
  }
};

}  // namespace
}  // namespace weft::kernels::WEFT_ISA
