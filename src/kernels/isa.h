// Instruction sets. Every *_cpu.cc of this room is compiled for baseline, AVX2 and AVX-512, each
// into a namespace of its own (weft::kernels::baseline, ::avx2, …), and chosen once at start. The
// same list is in cmake/weft.cmake. Asking for a set that the CPU lacks is an error, never a
// fallback. avx512bf16 runs avx512's kernels: what it adds is oneDNN's products in bf16
// (matmul_onednn.cc). No kernel of our own used its instructions, and compiling all for it again
// was a twelfth of the build.
//
// In a *_cpu.cc: include only C headers, immintrin.h and plain structs; put everything into the
// set's namespace or an anonymous one. An inline function of a library compiled there could be
// picked by the linker for the whole program and run on a CPU that lacks the instructions.
#pragma once

#include <string_view>

#include "base/status.h"

namespace weft::kernels {

enum class Isa { kBaseline, kAvx2, kAvx512, kAvx512Bf16 };
inline constexpr int kIsaCount = 4;

/// "baseline", "avx2" (with FMA, F16C), "avx512" (with VNNI), "avx512bf16".
const char* isa_name(Isa isa);
bool cpu_has(Isa isa);
/// The largest set that this CPU and kernel offer.
Isa best_isa();
/// By name; kUnsupported when the CPU lacks it, kInvalidArgument when there is no such set.
Result<Isa> parse_isa(std::string_view name);

}  // namespace weft::kernels

/// Declares `const Table& fn()` in each set's namespace and `pick_fn(isa)`, which chooses among
/// them: in op_internal.h, WEFT_ISA_TABLE(AttentionFns, attention_fns); each op_cpu.cc defines
/// `const Table& attention_fns()` inside namespace weft::kernels::WEFT_ISA.
#define WEFT_ISA_TABLE(Table, fn)          \
  namespace baseline {                     \
  const Table& fn();                       \
  }                                        \
  namespace avx2 {                         \
  const Table& fn();                       \
  }                                        \
  namespace avx512 {                       \
  const Table& fn();                       \
  }                                        \
  inline const Table& pick_##fn(Isa isa) { \
    switch (isa) {                         \
      case Isa::kAvx2:                     \
        return avx2::fn();                 \
      case Isa::kAvx512:                   \
      case Isa::kAvx512Bf16:               \
        return avx512::fn();               \
      case Isa::kBaseline:                 \
        break;                             \
    }                                      \
    return baseline::fn();                 \
  }
