// The types of K and V that tests go through, which are all that the product has, and how exact
// each is: a new type is said in kv_error() and every test of types has it.
#pragma once

#include <string>
#include <vector>

#include "base/check.h"
#include "fusion/record_type.h"
#include "kernels/kv_codec.h"

namespace weft::test {

inline std::vector<DType> kv_types() {
  std::vector<DType> types;
  for (const std::string& name : kernels::kv_type_names()) {
    types.push_back(*kernels::parse_kv_type(name));
  }
  return types;
}

/// Each type as K's, and each as V's, beside another one.
inline std::vector<kernels::KvTypes> mixed_kv_types() {
  const std::vector<DType> types = kv_types();
  std::vector<kernels::KvTypes> pairs;
  for (size_t i = 0; i < types.size(); ++i)
    pairs.push_back({types[i], types[(i + 1) % types.size()]});
  return pairs;
}
/// These, and each for both.
inline std::vector<kernels::KvTypes> kv_type_pairs() {
  std::vector<kernels::KvTypes> pairs = mixed_kv_types();
  for (const DType type : kv_types()) pairs.push_back({type, type});
  return pairs;
}

/// Those of chunk records that the model's heads take.
inline std::vector<DType> record_types(const model::ModelConfig& config) {
  std::vector<DType> types;
  for (const DType type : fusion::kRecordTypes.values()) {
    if (fusion::check_record_type(config, type).is_ok()) types.push_back(type);
  }
  return types;
}

/// In blocks of 32: not every head size takes them.
inline bool has_blocks(const kernels::KvTypes& types) {
  return is_quantised(types.k) || is_quantised(types.v);
}

/// What one rounding to the type changes at most, as a share of the largest value beside it, which
/// is below a power of two: half a unit in the last place, half a step of q8_0, of which the
/// largest value is at least 119.9, and a whole one of q4_0, which has no +8 to meet -8.
inline double kv_error(DType type) {
  switch (type) {
    case DType::kF32:
      return 0x1p-25;
    case DType::kF16:
      return 0x1p-12;
    case DType::kBF16:
      return 0x1p-9;
    case DType::kQ8_0:
      return 0.5 / 119.5;
    case DType::kQ4_0:
      return 1.0 / 8;
    default:
      WEFT_CHECK(!"a type of K and V whose precision no test knows");
      return 0;
  }
}

}  // namespace weft::test
