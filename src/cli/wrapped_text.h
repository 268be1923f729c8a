// Text as wrapped lines for a terminal: words fill lines, paragraphs are kept, lists are numbered
// and indented. Takes untrusted text: what could drive a terminal or deceive (base/terminal_text.h)
// is left out, and the time is linear. It never prints.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/terminal_text.h"

namespace weft::cli {

/// What separates words, the no-break space included.
bool is_white_space(char32_t c);

/// Gathers characters into words and words into lines of at most `width` columns (>= 20), but for
/// longer words. A character is one column.
class WrappedText {
 public:
  explicit WrappedText(int width);

  /// A character of the text; white space ends a word.
  void add(char32_t c);
  /// UTF-8; bytes that are none become U+FFFD.
  void add(std::string_view bytes);
  void end_word();
  /// The next word begins a line, with an empty one before it where `empty_line`.
  void end_line(bool empty_line = false);
  /// Ends that have no beginning are passed over.
  void begin_list(bool numbered);
  void begin_item();
  void end_item();
  void end_list();
  /// All of it, ended by a line end; empty when there was no word. The object is spent afterwards.
  std::string finish();

 private:
  void begin_line();

  size_t width_;
  TerminalChars chars_;
  std::string out_;
  std::string word_;
  size_t word_columns_ = 0;
  size_t columns_ = 0;      // of the line so far; 0 before its first word
  int gap_ = 0;             // line ends to write before the next line
  std::string marker_;      // of the item whose first word has not come
  std::vector<int> lists_;  // of each open list the next number, 0 when it has none
};

/// The lines of a plain text, each wrapped.
std::string wrap_text(std::string_view text, int width);

}  // namespace weft::cli
