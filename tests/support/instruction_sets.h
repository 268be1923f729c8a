// The instruction sets that a test or a benchmark of kernels runs on: all that this machine has.
#pragma once

#include <vector>

#include "kernels/context.h"
#include "kernels/isa.h"

namespace weft::test {

/// Narrowest first.
std::vector<kernels::Isa> machine_isas();

/// The ways to compute prefill's products that it has.
std::vector<kernels::MatmulPath> machine_matmul_paths();

}  // namespace weft::test
