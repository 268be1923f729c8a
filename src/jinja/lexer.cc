// The lexer: one pass over the source with a cursor, by hand. jinja2 builds a table of regular
// expressions from its options and matches them in turn (lexer.py); weft has one set of options,
// transformers', and its searches must be linear whatever the source says: a `{% raw %}` without
// end and one full of tags that nearly end it are files of fuzz/corpus/template_time
// (parse-raw-open, parse-raw-tags).
//
// What white space belongs to the output, with both options on:
//   text before {% or {#    blanks from the line's beginning to the tag go (lstrip_blocks)
//   text after %} or #}     one newline right after it goes (trim_blocks)
//   {%- -%} {{- -}} {#- -#} all white space on that side goes
//   {%+ +%}                 none goes on that side
// So `  {% if x %}\n  a\n` leaves "  a\n", and text round {{ }} stays as it is but for signs.
#include <algorithm>

#include "jinja/budget_internal.h"
#include "jinja/lexer_internal.h"
#include "jinja/unicode_internal.h"

namespace weft::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
// Names are ASCII here. jinja2 takes Python's identifiers; none of the templates that
// tools/compare_templates.py renders has others, and `é` as a name is an error with its place.
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

class Lexer {
 public:
  Lexer(std::string_view source, Budget& budget) : source_(source), budget_(budget) {}

  // Text and tags in turn, up to the end. Each turn of the loop moves the cursor on.
  std::vector<Token> run() {
    budget_.touch(source_.size());  // no character is looked at more than a few times
    while (at_ < source_.size()) text();
    emit(TokenKind::kEnd, at_, 0);
    return std::move(tokens_);
  }

 private:
  // The zero byte means the end as well as itself: no tag contains one, so both are
  // refused.
  char peek(size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  bool looking_at(std::string_view what) const { return source_.substr(at_).starts_with(what); }

  /// The line and column of a byte. Tokens come in order, so that lines and columns are counted
  /// once over the source; counting from the beginning for each token would be quadratic. Columns
  /// are characters, so bytes that continue one do not count.
  Position position(size_t at) {
    for (; counted_ < at; ++counted_) {
      if (source_[counted_] == '\n') {
        ++place_.line;
        place_.column = 1;
      } else if ((source_[counted_] & 0xc0) != 0x80) {
        ++place_.column;
      }
    }
    return place_;
  }
  // A token costs a step, whatever it is.
  void emit(TokenKind kind, size_t begin, size_t n) {
    budget_.step();
    tokens_.push_back({kind, source_.substr(begin, n), position(begin)});
  }
  [[noreturn]] void fail_here(const std::string& message) { fail_at(position(at_), message); }

  void skip_space() { at_ += space_prefix(source_.substr(at_)); }

  // Plain text up to the next tag, and the tag. A brace that opens none is text: "{ a }" has no
  // tag, and in "{{{" the first two open one.
  void text() {
    const size_t begin = at_;
    size_t open = begin;
    for (;; ++open) {
      open = source_.find('{', open);
      if (open == std::string_view::npos || open + 1 >= source_.size()) {
        emit(TokenKind::kData, begin, source_.size() - begin);
        at_ = source_.size();
        return;
      }
      const char next = source_[open + 1];
      if (next == '{' || next == '%' || next == '#') break;
    }
    at_ = open + 2;
    const char kind = source_[open + 1];
    const char sign = peek() == '-' || peek() == '+' ? peek() : '\0';
    if (sign != '\0') ++at_;
    emit_text(begin, open, sign, kind);
    if (kind == '#') {
      skip_comment();
    } else if (kind == '{') {
      emit(TokenKind::kPrintBegin, open, 2);
      tag(/*block=*/false);
    } else if (!raw()) {
      emit(TokenKind::kBlockBegin, open, 2);
      tag(/*block=*/true);
    }
  }

  // Emits the text before a tag, without what its sign (or lstrip_blocks) takes: "-" strips all
  // white space, and from the line's beginning to a block or comment blanks go. A line begins at a
  // newline, at the source's beginning, or right after a tag that ended with one: the byte before
  // `begin` is what tells.
  void emit_text(size_t begin, size_t end, char sign, char kind) {
    std::string_view text = source_.substr(begin, end - begin);
    if (sign == '-') {
      text.remove_suffix(space_suffix(text));
    } else if (sign != '+' && kind != '{') {
      const size_t newline = text.rfind('\n');
      const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      const bool at_line_start = line > 0 || begin == 0 || source_[begin - 1] == '\n';
      if (at_line_start && space_prefix(text.substr(line)) == text.size() - line) {
        text = text.substr(0, line);
      }
    }
    if (!text.empty()) emit(TokenKind::kData, begin, text.size());
  }

  // Moves after the end of a block or comment whose closing bracket begins at `close`; `first` is
  // where its inside began, so that the sign of `{#-#}` is not taken for both sides'.
  void close_tag(size_t close, size_t first) {
    const char sign = close > first ? source_[close - 1] : '\0';
    at_ = close + 2;
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && peek() == '\n') {
      ++at_;
    }
  }

  // Comments do not nest: the first #} ends one, as in jinja2.
  void skip_comment() {
    const size_t close = source_.find("#}", at_);
    if (close == std::string_view::npos) fail_here("a comment has no end");
    close_tag(close, at_);
  }

  // {% raw %} … {% endraw %}, whose inside is text whatever it looks like; false, with the cursor
  // where it was, if the tag is another one. The newline after {% raw %} stays, unlike that after
  // other tags, as jinja2's own expression for it has it. What only looks like an end (`{% endraw x
  // %}`) is text.
  bool raw() {
    const size_t inside = at_;
    skip_space();
    if (!looking_at("raw")) return at_ = inside, false;
    at_ += 3;
    skip_space();
    if (looking_at("-%}")) {
      at_ += 3;
      skip_space();
    } else if (looking_at("%}")) {
      at_ += 2;
    } else {
      return at_ = inside, false;
    }
    const size_t begin = at_;
    for (size_t open = begin;; ++open) {
      open = source_.find("{%", open);
      if (open == std::string_view::npos) fail_here("{% raw %} has no {% endraw %}");
      at_ = open + 2;
      const char sign = peek() == '-' || peek() == '+' ? peek() : '\0';
      if (sign != '\0') ++at_;
      skip_space();
      if (!looking_at("endraw")) continue;
      at_ += 6;
      const size_t after = at_;
      skip_space();
      const size_t close = at_ + (peek() == '-' || peek() == '+' ? 1 : 0);
      if (!source_.substr(close).starts_with("%}")) continue;
      close_tag(close, std::max(after, close - std::min<size_t>(close, 1)));
      emit_text(begin, open, sign, '%');
      return true;
    }
  }

  // The tokens inside {{ }} or {% %}. Brackets are counted because `}}` ends a tag only outside of
  // them: {{ {'a': {}} }} has a dict that ends in two braces. At the source's end it just stops,
  // and the parser says what it misses.
  void tag(bool block) {
    std::string open_brackets;
    for (;;) {
      skip_space();
      if (at_ >= source_.size()) return;
      if (open_brackets.empty() && end_of_tag(block)) return;
      const size_t begin = at_;
      const char c = peek();
      if (is_digit(c)) {
        number();
      } else if (is_word(c)) {
        while (is_word(peek())) ++at_;
        emit(TokenKind::kName, begin, at_ - begin);
      } else if (c == '"' || c == '\'') {
        string();
      } else {
        operators(open_brackets);
      }
    }
  }

  // The end of the tag, if it is here, with what its sign does to the text after it. `{{ }}` has no
  // "+", and the newline after it stays.
  bool end_of_tag(bool block) {
    const std::string_view bracket = block ? "%}" : "}}";
    const bool minus = peek() == '-' && source_.substr(at_ + 1).starts_with(bracket);
    const bool plus = block && peek() == '+' && source_.substr(at_ + 1).starts_with(bracket);
    if (!minus && !plus && !looking_at(bracket)) return false;
    emit(block ? TokenKind::kBlockEnd : TokenKind::kPrintEnd, at_, 2);
    at_ += minus || plus ? 3 : 2;
    if (minus) {
      skip_space();
    } else if (block && !plus && peek() == '\n') {
      ++at_;
    }
    return true;
  }

  // The end of a run of digits with single underscores between them: 1_000, but not 1__0 or 1_.
  size_t digits(size_t from, bool (*is_one)(char)) const {
    size_t at = from;
    while (at < source_.size() &&
           (is_one(source_[at]) || (source_[at] == '_' && at > from && at + 1 < source_.size() &&
                                    is_one(source_[at + 1])))) {
      ++at;
    }
    return at;
  }

  // Integers in four bases and floats. After a dot there are only integers, since `a.0.1` is an
  // item of an item and not 0.1 of `a`. A sign is an operator, never a part of the number.
  void number() {
    const size_t begin = at_;
    const auto hex = [](char c) {
      return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    };
    const char base = peek(1) | 0x20;
    if (peek() == '0' && (base == 'x' || base == 'o' || base == 'b')) {
      const size_t end = digits(at_ + 2, +hex);
      if (end > at_ + 2) {
        at_ = end;
        return emit(TokenKind::kInteger, begin, end - begin);
      }
    }
    size_t end = digits(at_, is_digit);
    bool is_float = false;
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';
    if (!after_dot) {
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
        end = digits(end + 1, is_digit);
        is_float = true;
      }
      if (end < source_.size() && (source_[end] | 0x20) == 'e') {
        size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
          ++exponent;
        }
        if (exponent < source_.size() && is_digit(source_[exponent])) {
          end = digits(exponent, is_digit);
          is_float = true;
        }
      }
    }
    at_ = end;
    emit(is_float ? TokenKind::kFloat : TokenKind::kInteger, begin, end - begin);
  }

  // A string with its quotes, escapes as they are: a backslash keeps the next quote from ending it.
  void string() {
    const size_t begin = at_;
    const char quote = peek();
    for (++at_; at_ < source_.size() && peek() != quote; ++at_) {
      if (peek() == '\\') ++at_;
    }
    if (at_ >= source_.size()) {
      at_ = begin;
      fail_here("a string has no end");
    }
    ++at_;
    emit(TokenKind::kString, begin, at_ - begin);
  }

  // An operator of two characters or of one. `open_brackets` has the closing bracket that each open
  // one waits for, so that `(1]` is an error here, at the bracket, and not somewhere later.
  void operators(std::string& open_brackets) {
    for (const std::string_view two : {"//", "**", "==", "!=", ">=", "<="}) {
      if (!looking_at(two)) continue;
      emit(TokenKind::kOperator, at_, 2);
      at_ += 2;
      return;
    }
    const char c = peek();
    if (std::string_view("+-*/%~<>=.:|,;()[]{}").find(c) == std::string_view::npos || c == '\0') {
      fail_here("unexpected character in a tag");
    }
    if (c == '(' || c == '[' || c == '{') {
      open_brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_brackets.empty() || open_brackets.back() != c) {
        fail_here(std::string("unexpected '") + c + "'");
      }
      open_brackets.pop_back();
    }
    emit(TokenKind::kOperator, at_, 1);
    ++at_;
  }

  std::string_view source_;
  Budget& budget_;
  size_t at_ = 0;
  size_t counted_ = 0;
  Position place_{1, 1};
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalise_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

std::vector<Token> tokenise(std::string_view source, Budget& budget) {
  return Lexer(source, budget).run();
}

}  // namespace weft::jinja
