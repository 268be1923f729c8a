// Which type each tensor of a model gets when the file is quantised: the mixes that people know by
// name ("Q4_K_M"), tensor by tensor as llama.cpp's quantiser without an importance matrix chooses
// them (llama.cpp, src/llama-quant.cpp). Computes nothing and writes nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"

namespace weft::gguf {

struct Recipe {
  std::string_view name;
  DType base = DType::kF32;  // of most matrices
  uint32_t file_type = 0;    // general.file_type
};

/// All that find_recipe knows, as it spells them.
std::vector<std::string> recipe_names();

/// By name, upper or lower case; Q4_K and Q5_K mean their _M mixes, as they do for llama.cpp's
/// quantiser. kInvalidArgument lists the names.
Result<Recipe> find_recipe(std::string_view name);

struct TensorPlan {
  DType dtype = DType::kF32;
  bool fell_back = false;  // its rows are no whole blocks of the type that the recipe wanted
};

/// One for each of file.tensors(), in order. Norms, biases and everything of one dimension keep
/// their type, as do an expert layer's router and what else is small and sensitive. Errors only for
/// metadata of the wrong type.
Result<std::vector<TensorPlan>> plan_tensors(const File& file, const Recipe& recipe);

}  // namespace weft::gguf
