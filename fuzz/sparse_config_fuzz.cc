// Hostile configuration files: nothing may crash or take long, an error is one line without the
// file's control characters, and what is read can be run with.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "sparse/sparse_config.h"
#include "time_limit.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const weft::fuzz::TimeLimit limit(size);
  const std::string_view yaml(reinterpret_cast<const char*>(data), size);
  const auto options = weft::sparse::parse_sparse_config(yaml, "a file");
  if (options.is_ok()) {
    WEFT_CHECK(options->is_on() && options->lock.is_on() && options->check(16).is_ok());
    return 0;
  }
  const std::string_view message = options.status().message();
  WEFT_CHECK(message.starts_with("a file: ") && message.size() < 1000);
  const auto is_control = [](unsigned char c) { return (c < ' ' && c != '\t') || c == 127; };
  WEFT_CHECK(std::ranges::none_of(message, is_control));
  return 0;
}
