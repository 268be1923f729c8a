// The instruction sets that a test or a benchmark of kernels runs on: all that this machine has.
#pragma once

#include <vector>

#include "kernels/isa.h"

namespace weft::test {

/// Narrowest first.
std::vector<kernels::Isa> machine_isas();

}  // namespace weft::test
