#include "support/instruction_sets.h"

#include "kernels/matmul_prefill.h"

namespace weft::test {

std::vector<kernels::Isa> machine_isas() {
  std::vector<kernels::Isa> isas;
  for (const kernels::Isa isa : kernels::kIsas) {
    if (kernels::cpu_has(isa)) isas.push_back(isa);
  }
  return isas;
}

std::vector<kernels::MatmulPath> machine_matmul_paths() {
  std::vector<kernels::MatmulPath> paths{kernels::MatmulPath::kF32, kernels::MatmulPath::kInt8};
  if (kernels::onednn_takes_bf16()) paths.push_back(kernels::MatmulPath::kBf16);
  return paths;
}

}  // namespace weft::test
