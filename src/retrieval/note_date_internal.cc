// Only dates that begin with the year are read (ISO 8601 with -, _, . or nothing between).
// 03/04/2024 is March or April depending on the country, and a wrong day would put an old note
// first.
#include "retrieval/note_date_internal.h"

#include <algorithm>
#include <cstddef>

#include "base/ascii.h"

namespace weft::retrieval {
namespace {

constexpr size_t kYearDigits = 4;
constexpr size_t kMaxLines = 64;  // of front matter

/// The number that the `n_digits` digits at text[at] make; -1 where there are fewer.
int32_t number_at(std::string_view text, size_t at, size_t n_digits) {
  if (at + n_digits > text.size()) return -1;
  int32_t number = 0;
  for (const char c : text.substr(at, n_digits)) {
    if (!is_ascii_digit(c)) return -1;
    number = number * 10 + (c - '0');
  }
  return number;
}

int32_t days_of(int32_t year, int32_t month) {
  constexpr int32_t kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  return kDays[month - 1] + (month == 2 && is_leap ? 1 : 0);
}

/// The day that is written at text[at], as year * 10000 + month * 100 + day; 0 where there is none.
NoteDate date_at(std::string_view text, size_t at) {
  constexpr std::string_view kBetween = "-_.";
  const int32_t year = number_at(text, at, kYearDigits);
  size_t next = at + kYearDigits;
  if (year < 1900 || year > 2199 || next >= text.size()) return 0;
  const char between = text[next];
  const size_t gap = kBetween.find(between) == std::string_view::npos ? 0 : 1;
  next += gap;
  const int32_t month = number_at(text, next, 2);
  next += 2;
  if (gap == 1 && (next >= text.size() || text[next] != between)) return 0;
  next += gap;
  const int32_t day = number_at(text, next, 2);
  next += 2;
  const bool is_valid = month >= 1 && month <= 12 && day >= 1 && day <= days_of(year, month) &&
                        (next >= text.size() || !is_ascii_digit(text[next]));
  return is_valid ? year * 10'000 + month * 100 + day : 0;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\"'";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

bool is_date_key(std::string_view key) { return equals_ignoring_case(key, "date"); }

}  // namespace

NoteDate date_in_name(std::string_view name) {
  for (size_t at = 0; at < name.size(); ++at) {
    if (!is_ascii_digit(name[at]) || (at > 0 && is_ascii_digit(name[at - 1]))) continue;
    if (const NoteDate date = date_at(name, at); date != 0) return date;
  }
  return 0;
}

NoteDate date_in_front_matter(std::string_view text) {
  for (size_t n = 0; n < kMaxLines && !text.empty(); ++n) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) return 0;
    const size_t separator = line.find_first_of(":=");
    if (separator == std::string_view::npos || !is_date_key(trimmed(line.substr(0, separator)))) {
      continue;
    }
    return date_at(trimmed(line.substr(separator + 1)), 0);
  }
  return 0;
}

}  // namespace weft::retrieval
