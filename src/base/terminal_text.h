// Text from elsewhere (a model's, a document's, a file's name, a GGUF's string) made harmless for a
// terminal. What could drive the terminal or make text read as other than it is becomes U+FFFD, one
// for each character:
//   - control characters (C0 but newline and tab, DEL, C1), so every escape sequence is plain text;
//     a carriage return before a newline is left out;
//   - bytes that are not UTF-8, as a terminal may take 0x80 to 0x9f for C1 controls;
//   - what turns the direction of text: U+061C, U+200E-F, U+202A-E, U+2066-9;
//   - line breaks that only some programs see (U+2028-9), and characters that nobody sees:
//     zero-width and filling ones, soft hyphens, invisible operators, interlinear marks, tags.
// Two kinds of invisible characters are part of how people write and stay where they are: a
// zero-width joiner or non-joiner after a letter of a script that needs it (Arabic, Persian, Indic
// and others) or inside an emoji, and a variation selector after a character that can have one. A
// second one in a row, which no text needs and which can carry hidden data, does not.
// The price: an emoji flag of England, Scotland or Wales, which tags spell, shows as a black flag.
// It takes the terminal for one that reads UTF-8. It never prints and never looks where to.
#pragma once

#include <string>
#include <string_view>

namespace weft {

/// Characters one after another: which of them may be shown. Not thread-safe.
class TerminalChars {
 public:
  bool may_show(char32_t c);

 private:
  char32_t base_ = 0;      // the last one that is seen
  bool selected_ = false;  // a variation selector came after it
  bool joined_ = false;    // a joiner did
};

/// Text that comes in pieces, cut anywhere. Not thread-safe.
class TerminalText {
 public:
  /// What can be shown after this piece: an unfinished character at its end waits for the next.
  std::string add(std::string_view piece);
  /// What waited, as it never was finished. The object then begins anew.
  std::string finish();

 private:
  std::string waiting_;  // at most 3 bytes of a character, or a carriage return
  TerminalChars chars_;
};

/// Of a whole text.
std::string terminal_text(std::string_view text);

/// For a message of one line: line breaks become U+FFFD, all else stays.
std::string one_line(std::string_view text);

}  // namespace weft
