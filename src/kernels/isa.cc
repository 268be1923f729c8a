// What the CPU has is asked once for each set and never assumed from its name: a virtual machine
// may hide instructions that its CPU has, and an operating system may not save the registers that
// they use. Sets are whole lists: "avx512" means foundation, BW, DQ, VL, CD and VNNI together,
// since what is compiled for it may use any of them. CPUs with AVX-512 and no VNNI (Skylake-X) run
// avx2's.
#include "kernels/isa.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace weft::kernels {
namespace {

/// CPUID leaf 1; clang 14's __builtin_cpu_supports does not know the name.
bool cpu_has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// What each set's CPU must have; __builtin_cpu_supports also asks the kernel (XGETBV) whether it
// saves the registers of 256 and 512 bits.
bool cpu_has_baseline() { return true; }

bool cpu_has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c() &&
         __builtin_cpu_supports("bmi2");
}

bool cpu_has_avx512() {
  return cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd") &&
         __builtin_cpu_supports("avx512vnni");
}

bool cpu_has_avx512bf16() { return cpu_has_avx512() && __builtin_cpu_supports("avx512bf16"); }

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
#define WEFT_ISA_NAME(constant, name, compiled, ...) \
  case Isa::constant:                                \
    return #name;
    WEFT_ISAS(WEFT_ISA_NAME)
#undef WEFT_ISA_NAME
  }
  return "unknown";
}

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (const Isa isa : kIsas) names.emplace_back(isa_name(isa));
  return names;
}

bool cpu_has(Isa isa) {
  switch (isa) {
#define WEFT_ISA_CPU_HAS(constant, name, compiled, ...) \
  case Isa::constant:                                   \
    return cpu_has_##name();
    WEFT_ISAS(WEFT_ISA_CPU_HAS)
#undef WEFT_ISA_CPU_HAS
  }
  return false;
}

// The last that the CPU has: sets are listed smallest first and each includes those before it,
// which isa_test.cc checks on the machine that it runs on.
Isa best_isa() {
  Isa best = kIsas[0];
  for (const Isa isa : kIsas) {
    if (cpu_has(isa)) best = isa;
  }
  return best;
}

Result<Isa> parse_isa(std::string_view name) {
  for (const Isa isa : kIsas) {
    if (name != isa_name(isa)) continue;
    if (!cpu_has(isa)) return unsupported(fmt::format("this CPU has no {}", name));
    return isa;
  }
  return invalid_argument(fmt::format("no instruction set is called '{}': must be one of {}", name,
                                      fmt::join(isa_names(), ", ")));
}

}  // namespace weft::kernels
