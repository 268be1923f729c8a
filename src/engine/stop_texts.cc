// Knuth, Morris and Pratt's automaton for each stop text, fed byte by byte as tokens come: a stop
// text may lie across any number of tokens, and begin inside one. What could still become one is
// held back, but never half a character.
#include "engine/stop_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace weft::engine {
namespace {

constexpr size_t kMaxCharBytes = 4;

/// `end`, or where the character begins that it would cut.
size_t char_begin(std::string_view text, size_t end) {
  size_t begin = end;
  while (begin > 0 && begin < text.size() && end - begin < kMaxCharBytes - 1 &&
         is_utf8_continuation(text[begin])) {
    --begin;
  }
  const bool cuts = begin < text.size() && !is_utf8_continuation(text[begin]);
  return cuts ? begin : end;
}

}  // namespace

Status check_stop_texts(const std::vector<std::string>& texts) {
  if (texts.size() > kMaxStopTexts) {
    return invalid_argument(
        fmt::format("stop: {} texts; at most {} can be given", texts.size(), kMaxStopTexts));
  }
  if (std::ranges::any_of(texts, &std::string::empty)) {
    return invalid_argument("stop '': must not be empty");
  }
  return Status::ok();
}

StopTexts::StopTexts(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    Pattern pattern{text, std::vector<size_t>(text.size(), 0)};
    size_t border = 0;
    for (size_t i = 1; i < text.size(); ++i) {
      while (border > 0 && text[i] != text[border]) border = pattern.borders[border - 1];
      if (text[i] == text[border]) ++border;
      pattern.borders[i] = border;
    }
    patterns_.push_back(std::move(pattern));
  }
}

bool StopTexts::Pattern::take(char byte) {
  while (matched > 0 && text[matched] != byte) matched = borders[matched - 1];
  if (text[matched] == byte) ++matched;
  return matched == text.size();
}

StopTexts::Certain StopTexts::push(std::string_view piece) {
  if (patterns_.empty()) return {std::string(piece)};
  for (const char byte : piece) {
    held_ += byte;
    size_t found = 0;
    for (Pattern& pattern : patterns_) {
      if (pattern.take(byte)) found = std::max(found, pattern.text.size());
    }
    if (found > 0) {
      held_.resize(held_.size() - found);
      return {std::exchange(held_, ""), true};
    }
  }
  size_t open = 0;
  for (const Pattern& pattern : patterns_) open = std::max(open, pattern.matched);
  const size_t certain = char_begin(held_, held_.size() - open);
  std::string text = held_.substr(0, certain);
  held_.erase(0, certain);
  return {std::move(text)};
}

std::string StopTexts::finish() {
  for (Pattern& pattern : patterns_) pattern.matched = 0;
  return std::exchange(held_, "");
}

}  // namespace weft::engine
