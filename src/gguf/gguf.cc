// What the model's loader asks a checked File. The parser has made sure that a value is there and
// whole; these say whether it is of the type that the caller needs. The width that a converter
// chose does not matter (a block_count may be u32 or u64), the kind does: a float for a count, or a
// string for a float, is refused by name and never converted.
#include "gguf/gguf.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "base/narrow.h"

namespace weft::gguf {
namespace {

bool is_integer(ValueType type) {
  return type != ValueType::kF32 && type != ValueType::kF64 && type != ValueType::kBool &&
         type != ValueType::kString && type != ValueType::kArray;
}

}  // namespace

uint64_t File::size_bytes() const {
  uint64_t total = 0;
  for (const FilePart& part : parts_) total += part.bytes.size();
  return total;
}

const Value* File::find(std::string_view key) const {
  const auto it = entry_index_.find(key);
  return it == entry_index_.end() ? nullptr : &entries_[it->second].value;
}

const TensorInfo* File::find_tensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

Result<const Value*> File::require(std::string_view key) const {
  if (const Value* value = find(key)) return value;
  return not_found(fmt::format("{}: key '{}' is missing", path_, printable(key)));
}

Status File::wrong_type(std::string_view key, const Value& value, const char* wanted) const {
  std::string found = value_type_name(value.type);
  if (const auto* array = std::get_if<Array>(&value.data)) {
    found += fmt::format(" of {}", value_type_name(array->element_type));
  }
  return corrupt(
      fmt::format("{}: key '{}' is {}, wanted {}", path_, printable(key), found, wanted));
}

// A signed key is taken where it is not negative: what counts is the number.
Result<uint64_t> File::get_uint(std::string_view key) const {
  WEFT_ASSIGN_OR_RETURN(const Value* value, require(key));
  if (const auto* number = std::get_if<uint64_t>(&value->data)) return *number;
  const auto* number = std::get_if<int64_t>(&value->data);
  if (number == nullptr) return wrong_type(key, *value, "an integer");
  if (*number < 0) {
    return corrupt(
        fmt::format("{}: key '{}' is {}, must not be negative", path_, printable(key), *number));
  }
  return narrow<uint64_t>(*number);
}

Result<uint64_t> File::get_uint_or(std::string_view key, uint64_t fallback) const {
  if (find(key) == nullptr) return fallback;
  return get_uint(key);
}

// The bound is float's, not double's: an f64 of 1e300 is finite, but the float that a model
// computes with would be infinite. Written so that NaN is refused as well.
Result<float> File::get_float(std::string_view key) const {
  WEFT_ASSIGN_OR_RETURN(const Value* value, require(key));
  const auto* number = std::get_if<double>(&value->data);
  if (number == nullptr) return wrong_type(key, *value, "f32 or f64");
  if (!(std::abs(*number) <= std::numeric_limits<float>::max())) {
    return corrupt(
        fmt::format("{}: key '{}' is {}, must be finite", path_, printable(key), *number));
  }
  return *number;
}

Result<bool> File::get_bool_or(std::string_view key, bool fallback) const {
  const Value* value = find(key);
  if (value == nullptr) return fallback;
  if (const auto* flag = std::get_if<bool>(&value->data)) return *flag;
  return wrong_type(key, *value, "bool");
}

Result<std::string_view> File::get_string(std::string_view key) const {
  WEFT_ASSIGN_OR_RETURN(const Value* value, require(key));
  if (const auto* text = std::get_if<std::string_view>(&value->data)) return *text;
  return wrong_type(key, *value, "string");
}

Result<std::string_view> File::get_string_or(std::string_view key,
                                             std::string_view fallback) const {
  if (find(key) == nullptr) return fallback;
  return get_string(key);
}

Result<const Array*> File::require_array(std::string_view key, const char* wanted) const {
  WEFT_ASSIGN_OR_RETURN(const Value* value, require(key));
  if (const auto* array = std::get_if<Array>(&value->data)) return array;
  return wrong_type(key, *value, wanted);
}

Result<std::vector<std::string_view>> File::get_string_array(std::string_view key) const {
  constexpr const char* kWanted = "array of string";
  WEFT_ASSIGN_OR_RETURN(const Array* array, require_array(key, kWanted));
  if (array->element_type != ValueType::kString) return wrong_type(key, *find(key), kWanted);
  std::vector<std::string_view> out;
  out.reserve(array->size);
  for_each_element(*array, array->size, [&](const Value& value) {
    out.push_back(std::get<std::string_view>(value.data));
  });
  return out;
}

Result<std::vector<float>> File::get_float_array(std::string_view key) const {
  constexpr const char* kWanted = "array of f32 or f64";
  WEFT_ASSIGN_OR_RETURN(const Array* array, require_array(key, kWanted));
  if (array->element_type != ValueType::kF32 && array->element_type != ValueType::kF64) {
    return wrong_type(key, *find(key), kWanted);
  }
  std::vector<float> out;
  out.reserve(array->size);
  for_each_element(*array, array->size,
                   [&](const Value& value) { out.push_back(std::get<double>(value.data)); });
  // After the conversion, so that a double beyond float's range is found as well.
  for (size_t i = 0; i < out.size(); ++i) {
    if (!std::isfinite(out[i])) {
      return corrupt(fmt::format("{}: key '{}': element {} is {}, must be finite", path_,
                                 printable(key), i, out[i]));
    }
  }
  return out;
}

// int64_t holds every element but those of u64 arrays from 2^63 on. No real file has one; a hostile
// one would turn up as a negative size.
Result<std::vector<int64_t>> File::get_int_array(std::string_view key) const {
  constexpr const char* kWanted = "array of integers";
  WEFT_ASSIGN_OR_RETURN(const Array* array, require_array(key, kWanted));
  if (!is_integer(array->element_type)) return wrong_type(key, *find(key), kWanted);
  std::vector<int64_t> out;
  out.reserve(array->size);
  Status too_large = Status::ok();
  for_each_element(*array, array->size, [&](const Value& value) {
    if (const auto* number = std::get_if<int64_t>(&value.data)) return out.push_back(*number);
    const uint64_t number = std::get<uint64_t>(value.data);
    if (too_large.is_ok() && !std::in_range<int64_t>(number)) {
      too_large = corrupt(fmt::format("{}: key '{}': element {} is {}, must be below 2^63", path_,
                                      printable(key), out.size(), number));
    }
    out.push_back(number);
  });
  WEFT_RETURN_IF_ERROR(too_large);
  return out;
}

}  // namespace weft::gguf
