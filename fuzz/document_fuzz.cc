// Hostile files as documents: whatever the bytes, reading ends in time linear in them, gives valid
// UTF-8 of bounded size, a title of one short line and lines that the file has, or a refusal of one
// line; the same bytes read again give the same. Format: a byte that says the file's ending and the
// encoding that is asked for, then the file. Every input is read as it is, and of one in 64, chosen
// by its bytes so that a run can be repeated, its bytes again and again up to 256 KB.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "documents/document.h"
#include "documents/html.h"
#include "time_limit.h"

namespace weft::documents {
namespace {

constexpr size_t kMaxRepeatedBytes = 1 << 18;
// UTF-16 and Windows-1252 give at most three bytes for one; HTML at most six for one of those.
constexpr size_t kMaxGrowth = 3 * kMaxHtmlGrowth;

bool is_one_line(std::string_view text) {
  return std::ranges::none_of(text, [](unsigned char c) { return c < ' '; });
}

void check(const Document& document, std::string_view bytes) {
  WEFT_CHECK(is_valid_utf8(document.text) && is_valid_utf8(document.title));
  WEFT_CHECK(document.text.size() <= kMaxGrowth * bytes.size() + 1);
  WEFT_CHECK(document.title.size() <= kMaxTitleBytes && is_one_line(document.title));
  WEFT_CHECK(is_one_line(document.guess) && is_one_line(document.reading));
  const auto n_lines = static_cast<uint64_t>(std::ranges::count(bytes, '\n')) + 1;
  uint64_t before = 1;
  const size_t step = std::max<size_t>(document.text.size() / 100, 1);
  for (size_t at = 0; at <= document.text.size(); at += step) {
    const uint64_t line = document.lines.line_of(at);
    WEFT_CHECK(line >= before && line <= n_lines);
    before = line;
  }
}

void read(std::string_view bytes, uint8_t choice) {
  constexpr std::array<std::string_view, 5> kNames{"a", "a.md", "a.html", "a.xhtml", "a.txt"};
  const ReadOptions options{.name = kNames[choice % kNames.size()],
                            .encoding = static_cast<Encoding>(choice / kNames.size() % 7)};
  const auto document = read_document(std::string(bytes), options);
  if (const auto* refusal = std::get_if<Refusal>(&document)) {
    WEFT_CHECK(!refusal->kind.empty() && !refusal->reason.empty());
    WEFT_CHECK(refusal->reason.size() < 200 && is_one_line(refusal->reason));
    return;
  }
  check(std::get<Document>(document), bytes);
  const auto again = read_document(std::string(bytes), options);
  WEFT_CHECK(std::get<Document>(again).text == std::get<Document>(document).text);
  // What is refused by a file's ends is refused as a whole.
  WEFT_CHECK(!refused_by_ends(bytes, bytes, options.encoding));
}

}  // namespace
}  // namespace weft::documents

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft::documents;
  if (size == 0) return 0;
  const weft::fuzz::TimeLimit limit(size + kMaxRepeatedBytes);
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  read(bytes, data[0]);
  if (bytes.empty() || static_cast<unsigned char>(bytes.back()) % 64 != 0) return 0;
  std::string repeated;
  while (repeated.size() + bytes.size() < kMaxRepeatedBytes) repeated += bytes;
  read(repeated, data[0]);
  return 0;
}
