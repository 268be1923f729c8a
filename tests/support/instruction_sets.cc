#include "support/instruction_sets.h"

namespace weft::test {

std::vector<kernels::Isa> machine_isas() {
  using kernels::Isa;
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (kernels::cpu_has(isa)) isas.push_back(isa);
  }
  return isas;
}

}  // namespace weft::test
