// K and V as they were computed: twice the bytes of f16, no rounding. For comparing.
#include "kernels/kv_codec_plain_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

struct F32Codec {
  using Element = float;
  static F32 load(const float* p) { return WEFT_ISA::load(p); }
  static void store(float* p, F32 x) { WEFT_ISA::store(p, x); }
};

}  // namespace

const KvCodecFns& kv_codec_f32_fns() { return PlainKv<F32Codec>::kFns; }

}  // namespace weft::kernels::WEFT_ISA
