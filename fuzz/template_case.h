// A small file that says a large template and its variables: what lies between two bytes 1 is
// repeated until the whole has as many bytes as wanted, and a byte 3 in it is the repetition's
// number. After a zero byte: the variables, as JSON. For template_time_fuzz.cc and
// tests/template_time_test.cc, which share fuzz/corpus/template_time.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace weft::fuzz {

struct TemplateCase {
  std::string source;
  std::string json;  // empty: none given
};

/// `n_bytes` is about what source and JSON have together; an unpaired byte 1 repeats nothing.
inline TemplateCase expand_template_case(std::string_view text, size_t n_bytes) {
  const auto for_parts = [](std::string_view rest, auto fn) {  // fn(part, whether it is repeated)
    while (!rest.empty()) {
      const size_t open = std::min(rest.find('\1'), rest.size());
      fn(rest.substr(0, open), false);
      const size_t close = rest.find('\1', std::min(open + 1, rest.size()));
      if (close == std::string_view::npos) return;
      fn(rest.substr(open + 1, close - open - 1), true);
      rest.remove_prefix(close + 1);
    }
  };
  size_t n_fixed = 0;
  size_t n_repeated = 0;
  for_parts(text, [&](std::string_view part, bool repeated) {
    const auto n_numbers = static_cast<size_t>(std::count(part.begin(), part.end(), '\3'));
    if (repeated) {
      n_repeated += part.size() + 5 * n_numbers;
    } else {
      n_fixed += part.size();
    }
  });
  const size_t times = n_repeated == 0 || n_fixed >= n_bytes ? 0 : (n_bytes - n_fixed) / n_repeated;
  std::string whole;
  for_parts(text, [&](std::string_view part, bool repeated) {
    for (size_t i = 0; i < (repeated ? times : 1); ++i) {
      for (const char c : part) {
        if (c == '\3' && repeated) {
          whole += std::to_string(i);
        } else {
          whole += c;
        }
      }
    }
  });
  const size_t zero = std::min(whole.find('\0'), whole.size());
  return {whole.substr(0, zero), whole.substr(std::min(zero + 1, whole.size()))};
}

}  // namespace weft::fuzz
