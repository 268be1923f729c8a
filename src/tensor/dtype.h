// Element types: plain floats and GGML's quantised blocks, with the numbers GGUF files use for
// them. A row of a quantised tensor is a whole number of blocks. This room computes nothing; the
// kernels do.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

/// Values are GGML's type ids, as a GGUF's tensor table has them. The gaps are types that were
/// removed (4, 5: Q4_2, Q4_3), that no file holds (9, 15: Q8_1, Q8_K) or that weft does not read.
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

/// Q4_K: {kQ4_K, "Q4_K", 256, 144}, that is 4.5 bits an element.
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
/// Aborts for a number that is no DType: file data is asked about with find_dtype.
const DTypeInfo& dtype_info(DType dtype);

inline bool is_quantised(DType dtype) { return dtype_info(dtype).block_elements > 1; }

/// Bytes of one row of `elements`, a whole number of blocks: row_bytes(kQ4_0, 64) is 36.
int64_t row_bytes(DType dtype, int64_t elements);

}  // namespace weft
