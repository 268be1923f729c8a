#include "cli/html_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <vector>

#include "cli/wrapped_text.h"

namespace weft::cli {
namespace {

constexpr size_t kNpos = std::string_view::npos;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

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

void add_html_text(std::string_view bytes, WrappedText& lines) {
  constexpr size_t kMaxEntityBytes = 16;
  while (!bytes.empty()) {
    const size_t plain = std::min(bytes.find('&'), bytes.size());
    lines.add(bytes.substr(0, plain));
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
    if (!is_white_space(static_cast<unsigned char>(c))) before = c;
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

void add_tag(const Piece& tag, WrappedText& lines) {
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
  WrappedText lines(width);
  for (const Piece& piece : own_text(pieces)) {
    piece.kind == Piece::kText ? add_html_text(piece.text, lines) : add_tag(piece, lines);
  }
  return lines.finish();
}

}  // namespace weft::cli
