// By tensor/half.h's portable conversions, which half_test.cc tries on every bit pattern; bytes are
// copied, so that vectors may lie at any address.
#include "kernels/ref/kv_codec.h"

#include <cstring>

#include "base/check.h"
#include "tensor/half.h"

namespace weft::kernels::ref {

float kv_element(DType type, const uint8_t* bytes, int64_t i) {
  if (type == DType::kF32) {
    float value;
    std::memcpy(&value, bytes + 4 * i, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes + 2 * i, sizeof(bits));
  WEFT_CHECK(type == DType::kF16 || type == DType::kBF16);
  return type == DType::kF16 ? f32_from_f16(bits) : f32_from_bf16(bits);
}

void set_kv_element(DType type, float value, int64_t i, uint8_t* bytes) {
  if (type == DType::kF32) {
    std::memcpy(bytes + 4 * i, &value, sizeof(value));
    return;
  }
  WEFT_CHECK(type == DType::kF16 || type == DType::kBF16);
  const uint16_t bits = type == DType::kF16 ? f16_from_f32(value) : bf16_from_f32(value);
  std::memcpy(bytes + 2 * i, &bits, sizeof(bits));
}

}  // namespace weft::kernels::ref
