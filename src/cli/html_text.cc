#include "cli/html_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <vector>

#include "text/utf8.h"

namespace weft::cli {
namespace {

constexpr size_t kNpos = std::string_view::npos;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_space(char32_t c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || c == 0xA0 || c == 0x2028 || c == 0x2029;
}
/// Control and formatting characters could move a terminal's cursor or reorder what it shows.
bool is_shown(char32_t c) {
  return !(c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == 0xAD || (c >= 0x200B && c <= 0x200F) ||
           (c >= 0x202A && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF ||
           (c >= 0xFFF9 && c <= 0xFFFB) || (c >= 0xE0000 && c <= 0xE0FFF));
}

// ---------------------------------------------------------------------------------------- output

/// Gathers words into wrapped lines.
class Lines {
 public:
  explicit Lines(int width) : width_(static_cast<size_t>(std::max(width, 20))) {}

  /// A character of the text; white space ends a word.
  void add(char32_t c) {
    if (is_space(c)) return end_word();
    if (!is_shown(c)) return;
    text::append_utf8(c, word_);
    ++word_columns_;
  }
  /// The next word begins a line, with an empty one before it where `empty_line`.
  void end_line(bool empty_line = false) {
    end_word();
    if (columns_ != 0) gap_ = std::max(gap_, 1);
    columns_ = 0;
    if (empty_line && !out_.empty()) gap_ = 2;
  }
  void begin_list(bool numbered) {
    end_line(lists_.empty());
    lists_.push_back(numbered ? 1 : 0);
  }
  void end_list() {
    if (!lists_.empty()) lists_.pop_back();
    marker_.clear();
    end_line(lists_.empty());
  }
  void begin_item() {
    end_line();
    marker_ = "  - ";
    if (!lists_.empty() && lists_.back() > 0) marker_ = fmt::format("{:>2}. ", lists_.back()++);
  }
  void end_item() {
    end_line();
    marker_.clear();
  }
  void end_word() {
    if (word_columns_ == 0) return;
    if (columns_ == 0) {
      out_.append(static_cast<size_t>(gap_), '\n');
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
  std::string finish() {
    end_word();
    if (!out_.empty()) out_ += '\n';
    return std::move(out_);
  }

 private:
  void begin_line() {
    const size_t indent = std::min(kIndent * lists_.size(), width_ / 2);
    out_.append(indent - std::min(indent, marker_.size()), ' ');
    out_ += marker_;
    columns_ = std::max(indent, marker_.size());
    marker_.clear();
  }

  static constexpr size_t kIndent = 4;  // as wide as a marker
  size_t width_;
  std::string out_;
  std::string word_;
  size_t word_columns_ = 0;
  size_t columns_ = 0;      // of the line so far; 0 before its first word
  int gap_ = 0;             // line ends to write before the next line
  std::string marker_;      // of the item whose first word has not come
  std::vector<int> lists_;  // of each open list the next number, 0 when it has none
};

/// Decodes UTF-8 one character at a time.
void add_plain(std::string_view bytes, Lines& lines) {
  for (size_t at = 0; at < bytes.size();) {
    const size_t n = text::utf8_char_bytes(bytes, at);
    lines.add(n == 0 ? U'\uFFFD' : text::decode_utf8_char(bytes, at, n));
    at += std::max<size_t>(n, 1);
  }
}

// -------------------------------------------------------------------------------------- entities

struct Entity {
  std::string_view name;
  char32_t value;
};
/// Those that running text uses; any other is left as it is written.
constexpr auto kEntities = std::to_array<Entity>({
    {"amp", '&'},      {"lt", '<'},       {"gt", '>'},       {"quot", '"'},     {"apos", '\''},
    {"nbsp", 0xA0},    {"copy", 0xA9},    {"reg", 0xAE},     {"trade", 0x2122}, {"sect", 0xA7},
    {"para", 0xB6},    {"deg", 0xB0},     {"middot", 0xB7},  {"bull", 0x2022},  {"hellip", 0x2026},
    {"ndash", 0x2013}, {"mdash", 0x2014}, {"lsquo", 0x2018}, {"rsquo", 0x2019}, {"ldquo", 0x201C},
    {"rdquo", 0x201D}, {"laquo", 0xAB},   {"raquo", 0xBB},   {"shy", 0xAD},     {"times", 0xD7},
    {"eacute", 0xE9},  {"euro", 0x20AC},  {"pound", 0xA3},
});

/// What stands between & and ; or 0 when it is no entity.
char32_t entity_value(std::string_view name) {
  if (!name.starts_with('#')) {
    const auto* found = std::ranges::find(kEntities, name, &Entity::name);
    return found == kEntities.end() ? 0 : found->value;
  }
  name.remove_prefix(1);
  const bool is_hex = name.starts_with('x') || name.starts_with('X');
  if (is_hex) name.remove_prefix(1);
  uint32_t value = 0;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), value, is_hex ? 16 : 10);
  if (name.empty() || end != name.data() + name.size()) return 0;
  const bool is_scalar =
      error == std::errc() && value != 0 && value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF);
  return is_scalar ? value : U'\uFFFD';
}

void add_html_text(std::string_view bytes, Lines& lines) {
  constexpr size_t kMaxEntityBytes = 16;
  while (!bytes.empty()) {
    const size_t plain = std::min(bytes.find('&'), bytes.size());
    add_plain(bytes.substr(0, plain), lines);
    bytes.remove_prefix(plain);
    if (bytes.empty()) return;
    const size_t end = bytes.substr(0, kMaxEntityBytes).find(';');
    const char32_t value = end == kNpos ? 0 : entity_value(bytes.substr(1, end - 1));
    lines.add(value == 0 ? U'&' : value);
    bytes.remove_prefix(value == 0 ? 1 : end + 1);
  }
}

// ------------------------------------------------------------------------------------------ tags

/// A run of text, or a tag by its lower-case name.
struct Piece {
  enum Kind { kText, kOpen, kClose } kind;
  std::string_view text;
  std::string name;  // no name that means anything here is longer than kMaxName
};
constexpr size_t kMaxName = 15;

template <size_t n>
bool is_one_of(std::string_view name, const std::array<std::string_view, n>& names) {
  return std::ranges::find(names, name) != names.end();
}
/// Their content is no markup, up to their own closing tag.
constexpr auto kRaw = std::to_array<std::string_view>(
    {"script", "style", "textarea", "title", "iframe", "xmp", "noembed", "noframes"});
/// Left out with all that is in them.
constexpr auto kDropped = std::to_array<std::string_view>(
    {"head", "nav", "footer", "template", "noscript", "svg", "math", "button", "select", "object"});
constexpr auto kParagraphs =
    std::to_array<std::string_view>({"p", "h1", "h2", "h3", "h4", "h5", "h6", "table", "blockquote",
                                     "aside", "pre", "section", "article", "dl", "figure", "hr"});
constexpr auto kLines = std::to_array<std::string_view>(
    {"div", "br", "tr", "dt", "dd", "header", "main", "body", "figcaption", "caption"});

std::string lower_name(std::string_view text) {
  std::string name(text.substr(0, kMaxName));
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return name;
}

/// Behind the tag's '>', quotes respected; the end of the page when there is none.
size_t tag_end(std::string_view html, size_t at) {
  char quote = 0;
  char before = 0;  // the last character that is no space
  for (; at < html.size(); ++at) {
    const char c = html[at];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '>') {
      return at + 1;
    } else if ((c == '"' || c == '\'') && before == '=') {
      quote = c;
    }
    if (!is_space(static_cast<unsigned char>(c))) before = c;
  }
  return at;
}

/// Where the closing tag of a raw element begins, or the end of the page.
size_t raw_end(std::string_view html, size_t at, std::string_view name) {
  for (; (at = html.find("</", at)) != kNpos; at += 2) {
    if (lower_name(html.substr(at + 2, name.size())) == name) return at;
  }
  return html.size();
}

/// The page in pieces, without comments, declarations and raw elements. The pieces point into it.
std::vector<Piece> split_pieces(std::string_view html) {
  std::vector<Piece> pieces;
  for (size_t at = 0; at < html.size();) {
    const size_t tag = std::min(html.find('<', at), html.size());
    if (tag > at) pieces.push_back({Piece::kText, html.substr(at, tag - at), ""});
    if (tag == html.size()) break;
    const std::string_view rest = html.substr(tag);
    const bool is_close = rest.starts_with("</");
    const size_t name_at = tag + (is_close ? 2 : 1);
    if (rest.starts_with("<!--")) {
      const size_t end = html.find("-->", tag + 4);
      at = end == kNpos ? html.size() : end + 3;
    } else if (rest.starts_with("<!") || rest.starts_with("<?")) {
      at = std::min(html.find('>', tag), html.size() - 1) + 1;
    } else if (name_at >= html.size() || !is_letter(html[name_at])) {
      pieces.push_back({Piece::kText, html.substr(tag, 1), ""});
      at = tag + 1;
    } else {
      const size_t name_end = std::min(html.find_first_of(" \t\n\r\f/>", name_at), html.size());
      std::string name = lower_name(html.substr(name_at, name_end - name_at));
      at = tag_end(html, name_end);
      if (!is_close && is_one_of(name, kRaw)) at = raw_end(html, at, name);
      pieces.push_back({is_close ? Piece::kClose : Piece::kOpen, {}, std::move(name)});
    }
  }
  return pieces;
}

std::vector<Piece> drop_elements(std::vector<Piece> pieces) {
  std::string dropped;  // the element that is being left out
  int depth = 0;        // how many of its name are open
  std::erase_if(pieces, [&](const Piece& piece) {
    if (depth > 0) {
      if (piece.kind != Piece::kText && piece.name == dropped) {
        depth += piece.kind == Piece::kOpen ? 1 : -1;
      }
      return true;
    }
    if (piece.kind != Piece::kOpen || !is_one_of(piece.name, kDropped)) return false;
    dropped = piece.name;
    depth = 1;
    return true;
  });
  return pieces;
}

/// The inside of the first element of that name; nothing when there is none.
std::span<const Piece> inside(std::span<const Piece> pieces, std::string_view name) {
  size_t begin = pieces.size();
  int depth = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].kind == Piece::kText || pieces[i].name != name) continue;
    if (pieces[i].kind == Piece::kOpen) {
      if (depth++ == 0) begin = i + 1;
    } else if (depth > 0 && --depth == 0) {
      return pieces.subspan(begin, i - begin);
    }
  }
  return depth > 0 ? pieces.subspan(begin) : std::span<const Piece>();
}

/// The page's own text: its article or main part, from the first heading on.
std::span<const Piece> own_text(std::span<const Piece> pieces) {
  for (const std::string_view name : {"article", "main", "body"}) {
    if (const auto part = inside(pieces, name); !part.empty()) {
      pieces = part;
      break;
    }
  }
  const auto heading = std::ranges::find_if(
      pieces, [](const Piece& piece) { return piece.kind == Piece::kOpen && piece.name == "h1"; });
  return heading == pieces.end() ? pieces
                                 : pieces.subspan(static_cast<size_t>(heading - pieces.begin()));
}

void add_tag(const Piece& tag, Lines& lines) {
  const bool is_open = tag.kind == Piece::kOpen;
  if (tag.name == "ul" || tag.name == "ol") {
    is_open ? lines.begin_list(tag.name == "ol") : lines.end_list();
  } else if (tag.name == "li") {
    is_open ? lines.begin_item() : lines.end_item();
  } else if (is_one_of(tag.name, kParagraphs)) {
    lines.end_line(/*empty_line=*/true);
  } else if (is_one_of(tag.name, kLines)) {
    lines.end_line();
  } else if (tag.name == "td" || tag.name == "th") {
    lines.end_word();
  }
}

}  // namespace

std::string html_to_text(std::string_view html, int width) {
  const std::vector<Piece> pieces = drop_elements(split_pieces(html));
  Lines lines(width);
  for (const Piece& piece : own_text(pieces)) {
    piece.kind == Piece::kText ? add_html_text(piece.text, lines) : add_tag(piece, lines);
  }
  return lines.finish();
}

std::string wrap_text(std::string_view text, int width) {
  Lines lines(width);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    add_plain(line, lines);
    lines.end_line(/*empty_line=*/line.find_first_not_of(" \t\r") == kNpos);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines.finish();
}

}  // namespace weft::cli
