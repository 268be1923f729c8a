// The rotation of floats in place, for the rows that a step computes; stored chunks are rotated by
// their type's own kernels (kv_codec_plain_internal.h), which fall back on the same rotate_head.
#include "kernels/paged_kv.h"
#include "kernels/rope_internal.h"
#include "kernels/rope_lanes_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

void rotate(const RopeRow& row, float* x, int32_t n_heads, int32_t head_dim) {
  for (int32_t h = 0; h < n_heads; ++h) rotate_head(row, x + int64_t{h} * head_dim);
}

}  // namespace

const RopeFns& rope_fns() {
  static constexpr RopeFns kFns = {rotate};
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
