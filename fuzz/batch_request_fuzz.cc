// Hostile lines of a batch file (weft generate --batch): nothing may crash, throw or take long, an
// error is one short line, and what is read can be generated with. Every input is read as a whole
// line, as one value of each key, and, again and again, as a list of stop texts.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "cli/batch_requests.h"
#include "engine/generation.h"
#include "time_limit.h"

namespace weft::cli {
namespace {

constexpr size_t kMaxBytes = 4 << 20;
constexpr int32_t kMostTokens = 1 << 24;

/// Whether it was read.
bool read_line(std::string_view line) {
  const auto read = parse_batch_line(line, {}, kMostTokens);
  if (!read.is_ok()) {
    const std::string_view message = read.status().message();
    WEFT_CHECK(!message.empty() && message.size() < 1000 && is_valid_utf8(message));
    WEFT_CHECK(std::ranges::none_of(message, [](unsigned char c) { return c < ' '; }));
    return false;
  }
  WEFT_CHECK(engine::check_options(read->options).is_ok());
  const int32_t n = read->options.max_tokens;
  WEFT_CHECK(n == engine::kNoTokenLimit || (n >= 1 && n <= kMostTokens));
  WEFT_CHECK(is_valid_utf8(read->prompt) && read->prompt.size() < line.size());
  return true;
}

void read_values(std::string_view value) {
  constexpr const char* kKeys[] = {"n",    "temp", "top_k", "top_p", "min_p",
                                   "seed", "stop", "raw",   "prompt"};
  for (const char* key : kKeys) {
    std::string line = R"({"prompt":"","n":1,")";
    line += key;
    line += "\":";
    line += value;
    line += '}';
    // What is read with one value more stays a line with another after it.
    if (!read_line(line)) continue;
    line.pop_back();
    WEFT_CHECK(read_line(line + ",\"prompt\":\"x\"}"));
  }
}

/// `{"stop":[a,a,a…`.
std::string repeated(std::string_view text) {
  std::string line = R"({"prompt":"","stop":[)";
  while (line.size() + text.size() < kMaxBytes) {
    line += text;
    line += ',';
  }
  line.back() = ']';
  return line + "}";
}

}  // namespace
}  // namespace weft::cli

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft::cli;
  const weft::fuzz::TimeLimit limit(size + kMaxBytes);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_line(text);
  read_values(text);
  // Long lines are dear: of one input in 64, chosen by its bytes so that a run can be repeated.
  if (size > 0 && data[size - 1] % 64 == 0) read_line(repeated(text.substr(0, size - 1)));
  return 0;
}
