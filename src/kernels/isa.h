// Instruction sets. Every *_cpu.cc of this room is compiled for baseline, AVX2 and AVX-512, each
// into a namespace of its own (weft::kernels::baseline, ::avx2, …), and chosen once at start.
// WEFT_ISAS below is the one list of them: names, dispatch, help and what CMake compiles come from
// it. Asking for a set that the CPU lacks is an error, never a fallback. avx512bf16 runs avx512's
// kernels: what it adds is oneDNN's products in bf16 (matmul_onednn.cc). No kernel of our own used
// its instructions, and compiling all for it again was a twelfth of the build.
//
// In a *_cpu.cc: include only C headers, immintrin.h and plain structs; put everything into the
// set's namespace or an anonymous one. An inline function of a library compiled there could be
// picked by the linker for the whole program and run on a CPU that lacks the instructions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

/// X(constant, name, compiled, …) for each set, smallest first: its constant in Isa, its name, and
/// the set whose kernels it runs. A new one needs besides: what its CPU must have, cpu_has_<name>()
/// in isa.cc, and if it has kernels of its own, what they are compiled with, WEFT_ISA_FLAGS_<name>
/// in cmake/weft.cmake, which reads these lines. avx2 is with FMA and F16C, avx512 with VNNI.
#define WEFT_ISAS(X, ...)                       \
  X(kBaseline, baseline, baseline, __VA_ARGS__) \
  X(kAvx2, avx2, avx2, __VA_ARGS__)             \
  X(kAvx512, avx512, avx512, __VA_ARGS__)       \
  X(kAvx512Bf16, avx512bf16, avx512, __VA_ARGS__)

namespace weft::kernels {

#define WEFT_ISA_CONSTANT(constant, name, compiled, ...) constant,
enum class Isa { WEFT_ISAS(WEFT_ISA_CONSTANT) };
#undef WEFT_ISA_CONSTANT

/// All sets, smallest first.
#define WEFT_ISA_CONSTANT(constant, name, compiled, ...) Isa::constant,
inline constexpr Isa kIsas[] = {WEFT_ISAS(WEFT_ISA_CONSTANT)};
#undef WEFT_ISA_CONSTANT

const char* isa_name(Isa isa);
/// Of all sets, smallest first.
std::vector<std::string> isa_names();
bool cpu_has(Isa isa);
/// The largest set that this CPU and kernel offer.
Isa best_isa();
/// By name ("avx2"); kUnsupported when the CPU lacks it, kInvalidArgument, which lists the names,
/// when there is no such set.
Result<Isa> parse_isa(std::string_view name);

}  // namespace weft::kernels

/// Declares `const Table& fn()` in each set's namespace and `pick_fn(isa)`, which chooses among
/// them: in op_internal.h, WEFT_ISA_TABLE(AttentionFns, attention_fns); each op_cpu.cc defines
/// `const Table& attention_fns()` inside namespace weft::kernels::WEFT_ISA.
#define WEFT_ISA_TABLE(Table, fn)                              \
  WEFT_ISAS(WEFT_ISA_DECLARE_TABLE, Table, fn)                 \
  inline const Table& pick_##fn(Isa isa) {                     \
    switch (isa) { WEFT_ISAS(WEFT_ISA_PICK_TABLE, Table, fn) } \
    return baseline::fn();                                     \
  }
#define WEFT_ISA_DECLARE_TABLE(constant, name, compiled, Table, fn) \
  namespace compiled {                                              \
  const Table& fn();                                                \
  }
#define WEFT_ISA_PICK_TABLE(constant, name, compiled, Table, fn) \
  case Isa::constant:                                            \
    return compiled::fn();
