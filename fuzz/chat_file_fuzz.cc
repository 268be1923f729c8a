// Hostile conversations: nothing may crash or take long, an error is one line without the file's
// control characters, and what is read is written and read back as it was. Every input is read as a
// whole file, as one message's content, and as a message again and again up to the file's limit.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "cli/chat_file.h"
#include "time_limit.h"

namespace weft::cli {
namespace {

constexpr size_t kMaxBytes = 4 << 20;

void read_file(std::string_view json) {
  const auto turns = parse_turns(json);
  if (!turns.is_ok()) {
    const std::string_view message = turns.status().message();
    WEFT_CHECK(!message.empty() && message.size() < 1000);
    WEFT_CHECK(std::ranges::none_of(message, [](unsigned char c) { return c < ' ' || c == 127; }));
    return;
  }
  const std::string written = write_conversation(*turns);
  const auto again = parse_turns(written);
  WEFT_CHECK(again.is_ok() && again->size() == turns->size());
  WEFT_CHECK(write_conversation(*again) == written);
  for (size_t i = 0; i < turns->size(); ++i) WEFT_CHECK((*again)[i].role == (*turns)[i].role);
}

/// What a user said, whatever bytes it has, is saved as a file that can be loaded.
void write_and_read(std::string_view content) {
  const text::Turn turns[] = {{text::Role::kUser, std::string(content)}};
  const auto read = parse_turns(write_conversation(turns));
  WEFT_CHECK(read.is_ok() && read->size() == 1 && read->front().role == text::Role::kUser);
}

/// A list of the same message, `a,a,a…`.
std::string repeated(std::string_view message) {
  if (message.empty()) return "[]";
  std::string json = "[";
  while (json.size() + message.size() < kMaxBytes) {
    json += message;
    json += ',';
  }
  json.back() = ']';
  return json;
}

}  // namespace
}  // namespace weft::cli

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft::cli;
  const weft::fuzz::TimeLimit limit(size + kMaxBytes);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_file(text);
  write_and_read(text);
  // Long files are dear: of one input in 64, chosen by its bytes so that a run can be repeated.
  if (size > 0 && data[size - 1] % 64 == 0) read_file(repeated(text.substr(0, size - 1)));
  return 0;
}
