// Text is gathered word by word, and a line is begun only when its first word is there: so no line
// is ever taken back, and empty paragraphs, which web pages have many of, leave no empty lines.
// `gap_` is how many line ends are owed before the next word: 1 after a line, 2 after a paragraph,
// never more.
#include "cli/wrapped_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/utf8.h"

namespace weft::cli {
namespace {

constexpr size_t kIndent = 4;  // as wide as a marker

}  // namespace

/// The no-break space among them: in a page's text it is there for looks, and would make words that
/// are longer than a line.
bool is_white_space(char32_t c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || c == 0xA0 || c == 0x2028 || c == 0x2029;
}

WrappedText::WrappedText(int width) : width_(std::max(width, 20)) {}

void WrappedText::add(char32_t c) {
  if (is_white_space(c)) return end_word();
  if (!chars_.may_show(c)) return;
  text::append_utf8(c, word_);
  ++word_columns_;
}

void WrappedText::add(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const size_t n = text::utf8_char_bytes(bytes, at);
    add(n == 0 ? U'\uFFFD' : text::decode_utf8_char(bytes, at, n));
    at += std::max<size_t>(n, 1);
  }
}

/// A word goes on the line where it fits with a space, else on the next; one that is longer than a
/// line has a line of its own and goes over its end, since a URL that is cut is of no use.
void WrappedText::end_word() {
  if (word_columns_ == 0) return;
  if (columns_ == 0) {
    out_.append(gap_, '\n');
    gap_ = 0;
    begin_line();
  } else if (columns_ + 1 + word_columns_ > width_) {
    out_ += '\n';
    begin_line();
  } else {
    out_ += ' ';
    ++columns_;
  }
  out_ += word_;
  columns_ += word_columns_;
  word_.clear();
  word_columns_ = 0;
}

/// Indented by the depth of open lists, by half the width at most: a page of a thousand nested
/// lists still has room for words. The marker ("  - ", " 1. ") takes the place of the indent's end.
void WrappedText::begin_line() {
  const size_t indent = std::min(kIndent * lists_.size(), width_ / 2);
  out_.append(indent - std::min(indent, marker_.size()), ' ');
  out_ += marker_;
  columns_ = std::max(indent, marker_.size());
  marker_.clear();
}

void WrappedText::end_line(bool empty_line) {
  end_word();
  if (columns_ != 0) gap_ = std::max(gap_, 1);
  columns_ = 0;
  if (empty_line && !out_.empty()) gap_ = 2;
}

/// An empty line before and after the outermost list, none between nested ones.
void WrappedText::begin_list(bool numbered) {
  end_line(lists_.empty());
  lists_.push_back(numbered ? 1 : 0);
}

void WrappedText::begin_item() {
  end_line();
  marker_ = "  - ";
  if (!lists_.empty() && lists_.back() > 0) marker_ = fmt::format("{:>2}. ", lists_.back()++);
}

void WrappedText::end_item() {
  end_line();
  marker_.clear();
}

void WrappedText::end_list() {
  end_item();
  if (!lists_.empty()) lists_.pop_back();
  end_line(lists_.empty());
}

std::string WrappedText::finish() {
  end_word();
  if (!out_.empty()) out_ += '\n';
  return std::move(out_);
}

/// For plain text, whose lines are meant: each is wrapped by itself.
std::string wrap_text(std::string_view text, int width) {
  WrappedText lines(width);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    lines.add(line);
    lines.end_line(/*empty_line=*/line.find_first_not_of(" \t\r") == std::string_view::npos);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines.finish();
}

}  // namespace weft::cli
