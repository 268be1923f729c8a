// The kernels of a type of K and V whose elements are numbers by themselves: f32, f16, bf16. Such a
// type is a Codec with
//   using Element = …;
//   static F32 load(const Element*);          kLanes elements
//   static void store(Element*, F32);
// A type in blocks has kernels of its own. Only for kv_codec_*_cpu.cc: each type's are compiled in
// a file of its own, since GCC 12 stops inlining where a file holds several.
//
// A chunk's K is rotated, and K and V are shifted, once for each time that it is used; scores and
// sums over K and V are decode's inner loops. Those two are written for a number of heads known
// when compiled (kHeads), so that their sums are registers: with grouped queries several heads read
// the same K and V, and each register that was widened serves all of them.
#pragma once

#include <string.h>

#include "kernels/kv_codec_internal.h"
#include "kernels/kv_codec_runs_internal.h"
#include "kernels/rope_lanes_internal.h"
#include "kernels/simd_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

template <class Codec>
struct PlainKv {
  using Element = typename Codec::Element;

  static const Element* elements(const uint8_t* p) { return reinterpret_cast<const Element*>(p); }
  static Element* elements(uint8_t* p) { return reinterpret_cast<Element*>(p); }

  /// The first n < kLanes elements at p, the other lanes 0. By way of memory: the bytes after the
  /// last vector of the last page are nobody's.
  static F32 load_part(const Element* p, int64_t n) {
    Element part[kLanes] = {};
    memcpy(part, p, n * sizeof(Element));
    return Codec::load(part);
  }
  static void store_part(Element* p, int64_t n, F32 x) {
    Element part[kLanes];
    Codec::store(part, x);
    memcpy(p, part, n * sizeof(Element));
  }

  static void load_array(const uint8_t* bytes, int64_t n, float* dst) {
    const Element* src = elements(bytes);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(dst + i, Codec::load(src + i));
    if (i == n) return;
    float last[kLanes];
    store(last, load_part(src + i, n - i));
    memcpy(dst + i, last, (n - i) * sizeof(float));
  }

  static void store_array(const float* src, int64_t n, uint8_t* bytes) {
    Element* dst = elements(bytes);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) Codec::store(dst + i, load(src + i));
    if (i == n) return;
    float last[kLanes] = {};
    memcpy(last, src + i, (n - i) * sizeof(float));
    store_part(dst + i, n - i, load(last));
  }

  /// Elements as they are, or with a shift added to each; kShifted is known when compiled.
  template <bool kShifted>
  struct Shifted {
    const Element* src;
    const float* shift;
    F32 at(int32_t i) const {
      const F32 x = Codec::load(src + i);
      return kShifted ? add(x, load(shift + i)) : x;
    }
  };

  /// From register to register where the dims fill registers, as those of almost all models do;
  /// else by way of an array. The same operations on each value either way.
  template <bool kShifted>
  static void rotate(const RopeRow& row, const uint8_t* src, const float* shift, uint8_t* dst_bytes,
                     int32_t head_dim) {
    const Shifted<kShifted> k{elements(src), shift};
    Element* dst = elements(dst_bytes);
    const int32_t half = row.n_dims / 2;
    const bool fills = row.n_dims == head_dim && (row.neox ? half : head_dim) % kLanes == 0;
    if (fills && row.neox) {
      for (int32_t i = 0; i < half; i += kLanes) {
        const F32 a = k.at(i), b = k.at(half + i);
        const F32 c = load(row.cos + i), s = load(row.sin + i);
        Codec::store(dst + i, sub(mul(a, c), mul(b, s)));
        Codec::store(dst + half + i, add(mul(b, c), mul(a, s)));
      }
    } else if (fills) {
      for (int32_t i = 0; i < head_dim; i += kLanes) {
        const F32 v = k.at(i);
        Codec::store(dst + i, fmaddsub(v, load_doubled(row.cos + i / 2),
                                       mul(swap_pairs(v), load_doubled(row.sin + i / 2))));
      }
    } else {
      float x[kMaxHeadDim];
      load_array(src, head_dim, x);
      if constexpr (kShifted) {
        for (int32_t i = 0; i < head_dim; ++i) x[i] += shift[i];
      }
      rotate_head(row, x);
      store_array(x, head_dim, dst_bytes);
    }
  }

  static void rotate_any(const RopeRow& row, const uint8_t* src, const float* shift, uint8_t* dst,
                         int32_t head_dim) {
    if (shift == nullptr) {
      rotate<false>(row, src, nullptr, dst, head_dim);
    } else {
      rotate<true>(row, src, shift, dst, head_dim);
    }
  }

  // head_dim is a multiple of 8 and may not fill the last register.
  static void shift_array(const uint8_t* src, const float* shift, uint8_t* dst, int32_t head_dim) {
    const Shifted<true> v{elements(src), shift};
    int32_t i = 0;
    for (; i + kLanes <= head_dim; i += kLanes) Codec::store(elements(dst) + i, v.at(i));
    if (i == head_dim) return;
    float x[kLanes] = {};
    store(x, load_part(elements(src) + i, head_dim - i));
    for (int32_t k = 0; i + k < head_dim; ++k) x[k] += shift[i + k];
    store_part(elements(dst) + i, head_dim - i, load(x));
  }

  /// scores[h][0 … n) = q[h] . k for kHeads heads; k [n][head_dim]. Four keys at a time: kHeads x 4
  /// sums hide the latency of the multiply-adds, and reduce_add4 adds up four registers together.
  /// Keys past n repeat the last one. Writes a whole number of four scores: a block's last run
  /// begins at its first key or at a multiple of 8 slots, so they lie within the block.
  template <int kHeads>
  [[gnu::always_inline]] static void score_run(const Element* k, const NextKeys* next,
                                               int32_t first, int32_t head_dim, int32_t n,
                                               int32_t stride, const float* q, float* scores) {
    for (int32_t j = 0; j < n; j += 4) {
      for (int i = 0; i < 4 && next != nullptr; ++i) {
        next->ask(first + j + i, 0, head_dim * sizeof(Element));
      }
      const Element* keys[4];
      for (int i = 0; i < 4; ++i) {
        const int32_t key = j + i < n ? j + i : n - 1;
        keys[i] = k + int64_t{key} * head_dim;
      }
      F32 acc[kHeads][4];
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) acc[h][i] = set1(0.0f);
      }
      for (int32_t d = 0; d < head_dim; d += kLanes) {
        F32 widened[4];
        if (d + kLanes <= head_dim) {
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i) widened[i] = Codec::load(keys[i] + d);
        } else {
          for (int i = 0; i < 4; ++i) widened[i] = load_part(keys[i] + d, head_dim - d);
        }
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) {
          const F32 b = load(q + h * stride + d);
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

  /// out[h] += scores[h] V for kHeads heads; v [n][head_dim]. Four registers of dims at a time stay
  /// in registers over all keys, so out is loaded and stored once a run; what is left of head_dim
  /// goes register by register. A sum's order is that of the keys either way.
  template <int kHeads>
  [[gnu::always_inline]] static void add_run(const Element* v, const NextKeys* next, int32_t first,
                                             int32_t head_dim, int32_t n, int32_t stride,
                                             const float* scores, float* out) {
    int32_t d = 0;
    for (; d + 4 * kLanes <= head_dim; d += 4 * kLanes) {
      F32 acc[kHeads][4];
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) acc[h][i] = load(out + h * stride + d + i * kLanes);
      }
      const Element* values = v + d;
      for (int32_t j = 0; j < n; ++j, values += head_dim) {
        if (next != nullptr) {
          next->ask(first + j, d * sizeof(Element), 4 * kLanes * sizeof(Element));
        }
        F32 widened[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) widened[i] = Codec::load(values + i * kLanes);
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) {
          const F32 p = set1(scores[h * kBlockKeys + j]);
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i) acc[h][i] = fmadd(p, widened[i], acc[h][i]);
        }
      }
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          store(out + h * stride + d + i * kLanes, acc[h][i]);
        }
      }
    }
    for (; d < head_dim; d += kLanes) {
      F32 acc[kHeads];
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) acc[h] = load(out + h * stride + d);
      for (int32_t j = 0; j < n; ++j) {
        const Element* values = v + int64_t{j} * head_dim + d;
        const F32 widened =
            d + kLanes <= head_dim ? Codec::load(values) : load_part(values, head_dim - d);
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) {
          acc[h] = fmadd(set1(scores[h * kBlockKeys + j]), widened, acc[h]);
        }
      }
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        store(out + h * stride + d, acc[h]);
      }
    }
  }

  static void score(const KeyBlock& keys, const GroupRows& rows, const float* q, float* scores) {
    const int32_t head_dim = keys.kv->layout.head_dim;
    const NextKeys next = NextKeys::of_k(keys);
    for_runs(keys, [&](int64_t slot, int32_t first, int32_t n) {
      const Element* k = elements(k_of(keys, slot));
      for_head_batches(rows.group, [&]<int kHeads>(int32_t h) {
        score_run<kHeads>(k, h == 0 ? &next : nullptr, first, head_dim, n, rows.stride,
                          q + h * rows.stride, scores + h * kBlockKeys + first);
      });
    });
  }

  static void add_values(const KeyBlock& keys, const GroupRows& rows, const float* scores,
                         float* out) {
    const int32_t head_dim = keys.kv->layout.head_dim;
    const NextKeys next = NextKeys::of_v(keys);
    for_runs(keys, [&](int64_t slot, int32_t first, int32_t n) {
      const Element* v = elements(v_of(keys, slot));
      for_head_batches(rows.group, [&]<int kHeads>(int32_t h) {
        add_run<kHeads>(v, h == 0 ? &next : nullptr, first, head_dim, n, rows.stride,
                        scores + h * kBlockKeys + first, out + h * rows.stride);
      });
    });
  }

  static constexpr KvCodecFns kFns = {load_array, store_array, rotate_any, shift_array,
                                      score,      add_values,  nullptr};
};

}  // namespace
}  // namespace weft::kernels::WEFT_ISA
