#include "kernels/isa.h"

#include <cpuid.h>
#include <fmt/format.h>

namespace weft::kernels {
namespace {

/// CPUID leaf 1; clang 14's __builtin_cpu_supports does not know the name.
bool cpu_has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return "baseline";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512bf16";
  }
  return "unknown";
}

bool cpu_has(Isa isa) {
  // __builtin_cpu_supports also asks the kernel (XGETBV) whether it saves the wide registers.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    cpu_has_f16c() && __builtin_cpu_supports("bmi2");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512vnni");
  switch (isa) {
    case Isa::kBaseline:
      return true;
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvx512:
      return avx512;
    case Isa::kAvx512Bf16:
      return avx512 && __builtin_cpu_supports("avx512bf16");
  }
  return false;
}

Isa best_isa() {
  for (const Isa isa : {Isa::kAvx512Bf16, Isa::kAvx512, Isa::kAvx2}) {
    if (cpu_has(isa)) return isa;
  }
  return Isa::kBaseline;
}

Result<Isa> parse_isa(std::string_view name) {
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (name != isa_name(isa)) continue;
    if (!cpu_has(isa)) return unsupported(fmt::format("this CPU has no {}", name));
    return isa;
  }
  return invalid_argument(
      fmt::format("no instruction set is called '{}': baseline, avx2, avx512 or avx512bf16", name));
}

}  // namespace weft::kernels
