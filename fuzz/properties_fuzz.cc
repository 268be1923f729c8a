// Hostile property files: nothing may crash, read out of bounds or take long, and what is read is
// what was written. Every input is read as a whole file, as the lines after a first one whose
// checksum is right, as such lines again and again up to the file's limit, and as one value that is
// written and read back.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/hash.h"
#include "store/properties.h"
#include "time_limit.h"

namespace weft::store {
namespace {

void read_file(std::string_view text) {
  const auto properties = decode_properties(text, "fuzz");
  if (!properties.is_ok()) {
    WEFT_CHECK(properties.status().message().starts_with("fuzz: "));
    WEFT_CHECK(properties.status().message().size() < 200);  // one line, none of the file's bytes
    return;
  }
  for (const auto& [name, value] : *properties) WEFT_CHECK(check_property_name(name).is_ok());
  const auto again = decode_properties(encode_properties(*properties), "fuzz");
  WEFT_CHECK(again.is_ok() && *again == *properties);
}

void read_lines(std::string_view lines) {
  const Hash128 checksum{0, hash64(std::as_bytes(std::span(lines)))};
  read_file("weft-store 1 " + checksum.to_hex().substr(16) + "\n" + std::string(lines));
}

/// The lines, `a.` to `z.` before their names, until the file is as long as one may be.
std::string repeated(std::string_view lines) {
  std::string text;
  if (lines.empty()) return text;
  for (size_t n = 0; text.size() < kMaxPropertiesBytes; ++n) {
    text += static_cast<char>('a' + n % 26);
    text += '.';
    text += lines;
  }
  return text;
}

void write_and_read(std::string_view value) {
  const Properties properties{{"a", std::string(value)}, {"b", ""}};
  const auto read = decode_properties(encode_properties(properties), "fuzz");
  WEFT_CHECK(read.is_ok() && *read == properties);
}

}  // namespace
}  // namespace weft::store

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft::store;
  const weft::fuzz::TimeLimit limit(size + kMaxPropertiesBytes);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_file(text);
  read_lines(text);
  read_lines(repeated(text));
  write_and_read(text);
  return 0;
}
