// Reads `{architecture}.{name}` keys with their bounds. Every error is one line that names the file
// and the key.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"

namespace weft::model {

class KeyReader {
 public:
  /// `file` must outlive the reader.
  KeyReader(const gguf::File& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  const gguf::File& file() const { return file_; }
  std::string full_name(std::string_view name) const { return prefix_ + std::string(name); }
  bool has(std::string_view name) const { return file_.find(full_name(name)) != nullptr; }

  Result<int32_t> integer(std::string_view name, uint64_t low, uint64_t high) const;
  Result<int32_t> integer_or(std::string_view name, int32_t fallback, uint64_t low,
                             uint64_t high) const;
  /// Above 0 and finite.
  Result<float> positive_or(std::string_view name, float fallback) const;
  /// 0 or more, and finite.
  Result<float> not_negative_or(std::string_view name, float fallback) const;
  Result<std::string_view> string_or(std::string_view name, std::string_view fallback) const;
  /// An array of bool or of integers with n elements.
  Result<std::vector<bool>> flags(std::string_view name, int32_t n) const;

  /// "FILE: key 'KEY' WHAT" as kCorrupt, or kUnsupported.
  Status bad(std::string_view name, std::string_view what) const;
  Status not_supported(std::string_view name, std::string_view what) const;

 private:
  Result<int32_t> bounded(std::string_view name, uint64_t value, uint64_t low, uint64_t high) const;
  std::string about(std::string_view name, std::string_view what) const;

  const gguf::File& file_;
  std::string prefix_;
};

}  // namespace weft::model
