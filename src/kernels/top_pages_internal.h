// What top_pages.cc needs from top_pages_cpu.cc: one KV head's scores, one thread each.
#pragma once

#include <stdint.h>

#include "kernels/isa.h"

namespace weft::kernels {

/// Keys come in whole runs of so many: four registers of every set.
inline constexpr int kKeyRun = 64;

/// What `choose` needs of keys.
static inline int64_t padded_keys(int64_t n_pages) {
  return (n_pages + kKeyRun - 1) / kKeyRun * kKeyRun;
}

struct TopPagesFns {
  /// out [n_pages] = the largest log softmax of the heads; scores [n_heads][stride]. out overlaps
  /// with no score.
  void (*group)(const float* scores, int64_t stride, int32_t n_heads, int64_t n_pages, float* out);
  /// out [n_pages] = the sum of the heads' shares, likewise.
  void (*sum_shares)(const float* scores, int64_t stride, int32_t n_heads, int64_t n_pages,
                     float* out);
  /// chosen [n_chosen], 0 <= n_chosen <= n_pages; keys [padded_keys(n_pages)] is scratch.
  void (*choose)(const float* scores, int64_t n_pages, int32_t* keys, int32_t* chosen,
                 int64_t n_chosen);
};

WEFT_ISA_TABLE(TopPagesFns, top_pages_fns)

}  // namespace weft::kernels
