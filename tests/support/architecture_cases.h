// The random models that weft and llama.cpp are compared on: one row for every architecture and
// option. `weft-random-model --case NAME` writes one; tools/make_architecture_references.py puts
// another program's logits for it into tests/data/architectures/NAME.json, which
// architectures_test.cc reads.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "gguf/random_model.h"

namespace weft::test {

struct ArchitectureCase {
  friend void PrintTo(const ArchitectureCase& c, std::ostream* out) { *out << c.name; }
  std::string name;
  gguf::RandomModelOptions model;
};

/// The cases in F32.
std::vector<ArchitectureCase> f32_architecture_cases();
std::vector<ArchitectureCase> quantised_architecture_cases();
std::vector<ArchitectureCase> all_architecture_cases();

}  // namespace weft::test
