// Element types: plain floats and GGML's quantised blocks, with the numbers GGUF files use for
// them. A row of a quantised tensor is a whole number of blocks. This room computes nothing; the
// kernels do.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

/// Values are GGML's type ids, as they stand in a GGUF tensor table.
enum class DType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBF16 = 30,
  kMXFP4 = 39,
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;  // as llama.cpp prints it: "Q4_K"
  int block_elements;     // 1 for plain floats
  int block_bytes;
};

/// Null for an id that weft does not read.
const DTypeInfo* find_dtype(uint32_t ggml_type_id);
/// By name, upper or lower case.
const DTypeInfo* find_dtype(std::string_view name);
const DTypeInfo& dtype_info(DType dtype);

inline bool is_quantised(DType dtype) { return dtype_info(dtype).block_elements > 1; }

/// Bytes of one row of `elements`; elements must be a whole number of blocks.
int64_t row_bytes(DType dtype, int64_t elements);

}  // namespace weft
