// The default type: the processor widens and rounds f16 by itself (F16C, AVX-512F); without that
// both go by integer operations with the same results (simd_internal.h).
#include "kernels/kv_codec_plain_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

struct F16Codec {
  using Element = uint16_t;
  static F32 load(const uint16_t* p) { return widen(p); }
  static void store(uint16_t* p, F32 x) { narrow(p, x); }
};

}  // namespace

const KvCodecFns& kv_codec_f16_fns() { return PlainKv<F16Codec>::kFns; }

}  // namespace weft::kernels::WEFT_ISA
