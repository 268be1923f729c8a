#include "model/key_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/narrow.h"

namespace weft::model {
namespace {

// Bases go up to 1e7; beyond 1e12 a file is damaged, and cosines of such angles mean nothing.
constexpr double kMaxNumber = 1e12;

}  // namespace

Result<int32_t> KeyReader::integer(std::string_view name, uint64_t low, uint64_t high) const {
  WEFT_ASSIGN_OR_RETURN(const uint64_t value, file_.get_uint(full_name(name)));
  return bounded(name, value, low, high);
}

Result<int32_t> KeyReader::integer_or(std::string_view name, int32_t fallback, uint64_t low,
                                      uint64_t high) const {
  WEFT_ASSIGN_OR_RETURN(const uint64_t value,
                        file_.get_uint_or(full_name(name), narrow<uint64_t>(fallback)));
  return bounded(name, value, low, high);
}

Result<float> KeyReader::positive_or(std::string_view name, float fallback) const {
  if (!has(name)) return fallback;
  WEFT_ASSIGN_OR_RETURN(const float value, file_.get_float(full_name(name)));
  if (!std::isfinite(value) || value <= 0 || value > kMaxNumber) {
    return bad(name, fmt::format("is {}, must be positive and finite", double{value}));
  }
  return value;
}

Result<float> KeyReader::not_negative_or(std::string_view name, float fallback) const {
  if (!has(name)) return fallback;
  WEFT_ASSIGN_OR_RETURN(const float value, file_.get_float(full_name(name)));
  if (!std::isfinite(value) || value < 0 || value > kMaxNumber) {
    return bad(name, fmt::format("is {}, must be 0 or more and finite", double{value}));
  }
  return value;
}

Result<std::string_view> KeyReader::string_or(std::string_view name,
                                              std::string_view fallback) const {
  return file_.get_string_or(full_name(name), fallback);
}

Result<std::vector<bool>> KeyReader::flags(std::string_view name, int32_t n) const {
  const gguf::Value* value = file_.find(full_name(name));
  const auto* array = value == nullptr ? nullptr : std::get_if<gguf::Array>(&value->data);
  if (array == nullptr) return bad(name, "is missing or no array, wanted an array of bool");
  if (std::cmp_not_equal(array->size, n)) {
    return bad(name, fmt::format("has {} elements, must have one for each of the {} layers",
                                 array->size, n));
  }
  if (array->element_type == gguf::ValueType::kBool) {
    std::vector<bool> flags;
    gguf::for_each_element(*array, array->size, [&](const gguf::Value& element) {
      flags.push_back(std::get<bool>(element.data));
    });
    return flags;
  }
  // Some converters write flags as integers.
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, file_.get_int_array(full_name(name)));
  return std::vector<bool>(numbers.begin(), numbers.end());
}

Status KeyReader::bad(std::string_view name, std::string_view what) const {
  return corrupt(about(name, what));
}

Status KeyReader::not_supported(std::string_view name, std::string_view what) const {
  return unsupported(about(name, what));
}

std::string KeyReader::about(std::string_view name, std::string_view what) const {
  return fmt::format("{}: key '{}' {}", file_.path(), full_name(name), what);
}

Result<int32_t> KeyReader::bounded(std::string_view name, uint64_t value, uint64_t low,
                                   uint64_t high) const {
  if (value < low || value > high) {
    return bad(name, fmt::format("is {}, must be {} to {}", value, low, high));
  }
  return narrow<int32_t>(value);
}

}  // namespace weft::model
