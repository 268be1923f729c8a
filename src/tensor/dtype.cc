#include "tensor/dtype.h"

#include <algorithm>
#include <array>

#include "base/ascii.h"
#include "base/check.h"
#include "base/narrow.h"

namespace weft {
namespace {

// The one list of types. Sixteen entries: a search from the front is as quick as a table by id,
// which would have holes.
constexpr std::array kInfos{
    DTypeInfo{DType::kF32, "F32", 1, 4},           DTypeInfo{DType::kF16, "F16", 1, 2},
    DTypeInfo{DType::kBF16, "BF16", 1, 2},         DTypeInfo{DType::kQ8_0, "Q8_0", 32, 34},
    DTypeInfo{DType::kQ4_0, "Q4_0", 32, 18},       DTypeInfo{DType::kQ4_1, "Q4_1", 32, 20},
    DTypeInfo{DType::kQ5_0, "Q5_0", 32, 22},       DTypeInfo{DType::kQ5_1, "Q5_1", 32, 24},
    DTypeInfo{DType::kQ4_K, "Q4_K", 256, 144},     DTypeInfo{DType::kQ5_K, "Q5_K", 256, 176},
    DTypeInfo{DType::kQ6_K, "Q6_K", 256, 210},     DTypeInfo{DType::kQ2_K, "Q2_K", 256, 84},
    DTypeInfo{DType::kQ3_K, "Q3_K", 256, 110},     DTypeInfo{DType::kIQ4_NL, "IQ4_NL", 32, 18},
    DTypeInfo{DType::kIQ4_XS, "IQ4_XS", 256, 136}, DTypeInfo{DType::kMXFP4, "MXFP4", 32, 17},
};

}  // namespace

const DTypeInfo* find_dtype(uint32_t ggml_type_id) {
  for (const DTypeInfo& info : kInfos) {
    if (to_underlying(info.dtype) == ggml_type_id) return &info;
  }
  return nullptr;
}

const DTypeInfo* find_dtype(std::string_view name) {
  for (const DTypeInfo& info : kInfos) {
    if (equals_ignoring_case(info.name, name)) return &info;
  }
  return nullptr;
}

const DTypeInfo& dtype_info(DType dtype) {
  const DTypeInfo* info = find_dtype(to_underlying(dtype));
  WEFT_CHECK(info != nullptr);
  return *info;
}

int64_t row_bytes(DType dtype, int64_t elements) {
  const DTypeInfo& info = dtype_info(dtype);
  WEFT_CHECK(elements % info.block_elements == 0);
  return elements / info.block_elements * info.block_bytes;
}

}  // namespace weft
