// What the loops of the decode kernels share: matmul_decode_cpu.cc and matmul_decode_rows_cpu.cc
// include this, which brings the instruction set's types with it.
#pragma once

#include <stdint.h>

#include "kernels/matmul_decode_internal.h"

#if defined(__AVX512VNNI__)
#include "kernels/decode_avx512_internal.h"
#elif defined(__AVX2__)
#include "kernels/decode_avx2_internal.h"
#else
#include "kernels/decode_baseline_internal.h"
#endif

namespace weft::kernels::WEFT_ISA {
namespace {

template <int kValue>
struct Index {
  constexpr operator int() const { return kValue; }  // NOLINT(google-explicit-constructor)
};

/// Calls body(Index<0>), …, body(Index<kCount - 1>), written out: GCC keeps an array of sums in
/// registers only when every index is a constant before its loop passes run.
template <int kCount, int kFirst = 0, class Body>
[[gnu::always_inline]] inline void repeat(const Body& body) {
  if constexpr (kFirst < kCount) {
    body(Index<kFirst>{});
    repeat<kCount, kFirst + 1>(body);
  }
}

/// A tile's rows lie one after another, so the line that is as far into the next tile is the one
/// that this stream comes to next: fetching it gains a quarter to a third over a fixed 2 KB, which
/// for short rows is mostly another row of this tile (Ice Lake: Q4_0 9.2 to 11.4 GB/s a core,
/// Q8_0 10.9 to 12.5). Bounded, so that tiles of long rows don't push the activations out of the L1
/// cache.
inline int64_t prefetch_distance(int64_t tile_bytes) {
  constexpr int64_t kMost = 16 << 10;
  return tile_bytes < kMost ? tile_bytes : kMost;
}

template <int64_t kBytes>
[[gnu::always_inline]] inline void prefetch(const uint8_t* p) {
  repeat<(kBytes + 63) / 64>([&](auto line) __attribute__((always_inline)) {
    __builtin_prefetch(p + 64 * line);
  });
}

/// The rows [begin, begin + n) of activations. row_groups stay where they are: MatmulDecodeRowFns
/// go through all rows themselves.
inline DecodeInput some_rows(const DecodeInput& in, int64_t begin, int64_t n) {
  DecodeInput part = in;
  part.x += begin * in.x_stride;
  part.groups += begin * in.n_groups;
  part.n_rows = n;
  return part;
}

}  // namespace
}  // namespace weft::kernels::WEFT_ISA
