// Text pasted into a line editor: one line with symbols for line breaks and tabs while it is
// edited, the text again afterwards. What a terminal is not to be shown (base/terminal_text.h:
// other control characters, what turns the direction of text, what nobody sees) is left out: a
// paste cannot press keys, nor read as other than it is. Not thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace weft::cli {

class PastedText {
 public:
  /// The line for the editor, UTF-8 where `text` is. Line breaks at the end are left out: who
  /// copies a whole line means what is in it.
  std::string as_line(std::string_view text);
  /// Whether a break was in any text since clear().
  bool has_breaks() const { return !break_symbol_.empty(); }
  /// Symbols in an edited line become the breaks and tabs that they were shown for.
  void put_back(std::string& line) const;
  void clear();

 private:
  std::string_view break_symbol_;  // "": none was needed yet
  std::string_view tab_symbol_;
};

}  // namespace weft::cli
