#include "support/instruction_sets.h"

namespace weft::test {

std::vector<kernels::Isa> machine_isas() {
  std::vector<kernels::Isa> isas;
  for (const kernels::Isa isa : kernels::kIsas) {
    if (kernels::cpu_has(isa)) isas.push_back(isa);
  }
  return isas;
}

}  // namespace weft::test
