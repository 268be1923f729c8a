// The text of a page in one pass over its tags, without building a tree. A tree as browsers build
// it (HTML, 13.2) would need thousands of lines, and its repairs of misnested tags move text
// around, so that lines could no longer be told. What a tree is needed for here is little: where an
// element that is left out ends. KeptPieces answers that with two counters, and knows the elements
// whose closing tag may be missing (HTML, 13.1.2.4).
//
// Three layers: Pieces cuts the page into tags and runs of text; KeptPieces drops elements that no
// person reads; walk_html() tells an HtmlSink what is left, and TextSink makes lines of that. All
// are linear in the page; the first two keep no stack of elements, so deep nesting costs them
// nothing.
//
// When in doubt text is kept: a passage too many in the index does little harm, a missing one
// cannot be found. So a dropped element that was not closed ends where it could not go on in a
// browser.
#include "documents/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "base/utf8.h"
#include "documents/encoding.h"

namespace weft::documents {
namespace {

constexpr size_t kNpos = std::string_view::npos;

bool is_space(char32_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
/// In running text: the no-break space and the line breaks of Unicode, too.
bool joins_words(char32_t c) { return is_space(c) || c == 0xA0 || c == 0x2028 || c == 0x2029; }

// -------------------------------------------------------------------------------------- entities

struct Entity {
  std::string_view name;  // without & and ;
  char32_t value;
};
/// Sorted by name, for a binary search.
constexpr auto kEntities = std::to_array<Entity>({
#include "documents/html_entities.inc"
});
constexpr size_t kMaxEntityBytes = 16;  // with & and ;

/// The character for what is between & and ; or 0 when that is no entity. Numbers that are no
/// character are U+FFFD, and 128 to 159 mean Windows-1252, as in browsers (HTML, 13.2.5.80).
char32_t entity_value(std::string_view name) {
  if (!name.starts_with('#')) {
    const auto* found = std::ranges::lower_bound(kEntities, name, {}, &Entity::name);
    return found == kEntities.end() || found->name != name ? 0 : found->value;
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
  if (!is_scalar) return U'\uFFFD';
  return value < 0x100 ? from_windows_1252(value) : value;
}

/// Calls text(bytes) and entity(c) for the parts of a run of the page. An & that begins no entity
/// is told as a character.
template <class Text, class Char>
void split_entities(std::string_view bytes, const Text& text, const Char& entity) {
  while (!bytes.empty()) {
    const size_t plain = std::min(bytes.find('&'), bytes.size());
    if (plain > 0) text(bytes.substr(0, plain));
    bytes.remove_prefix(plain);
    if (bytes.empty()) return;
    const size_t end = bytes.substr(0, kMaxEntityBytes).find(';');
    const char32_t value = end == kNpos ? 0 : entity_value(bytes.substr(1, end - 1));
    entity(value == 0 ? U'&' : value);
    bytes.remove_prefix(value == 0 ? 1 : end + 1);
  }
}

// ------------------------------------------------------------------------------------------ tags

/// A run of text, or a tag by its lower-case name.
struct Piece {
  enum Kind { kText, kOpen, kClose } kind = kText;
  std::string_view text;   // a text's bytes; of the opening tag of a raw element, all its content
  std::string name;        // no name that means anything here is longer than kMaxName
  bool is_empty = false;   // <name/>
  bool is_hidden = false;  // an opening tag with the attribute hidden
  size_t begin = 0;        // of the page
  size_t end = 0;
};
constexpr size_t kMaxName = 15;

template <size_t n>
bool is_one_of(std::string_view name, const std::array<std::string_view, n>& names) {
  return std::ranges::find(names, name) != names.end();
}
/// Raw elements: their content is no markup, up to their own closing tag.
constexpr auto kRaw = std::to_array<std::string_view>(
    {"script", "style", "textarea", "title", "iframe", "xmp", "noembed", "noframes"});
/// Raw ones that a person reads.
constexpr auto kRawText = std::to_array<std::string_view>({"textarea", "xmp"});
/// Left out with all that is in them.
constexpr auto kDropped = std::to_array<std::string_view>({"template", "noscript", "svg"});
/// HTML's elements that end an svg that was not closed (HTML, 13.2.6.5), except inside kHtmlInSvg.
constexpr auto kNotInSvg = std::to_array<std::string_view>(
    {"b",      "big",  "blockquote", "body",  "br",   "center", "code",    "dd",   "div",
     "dl",     "dt",   "em",         "embed", "h1",   "h2",     "h3",      "h4",   "h5",
     "h6",     "head", "hr",         "i",     "img",  "li",     "listing", "menu", "meta",
     "nobr",   "ol",   "p",          "pre",   "ruby", "s",      "small",   "span", "strong",
     "strike", "sub",  "sup",        "table", "tt",   "u",      "ul",      "var"});
/// Elements of SVG that may hold HTML.
constexpr auto kHtmlInSvg = std::to_array<std::string_view>({"foreignobject", "desc"});
/// Elements whose attribute `hidden` is ignored: they have no content that it could hide, or are
/// the page itself, which many sites hide until a script has run.
constexpr auto kNeverHidden = std::to_array<std::string_view>(
    {"area", "base", "body", "br", "col", "embed", "head", "hr", "html", "img", "input", "link",
     "meta", "source", "track", "wbr"});
/// Elements that need no closing tag (HTML, 13.1.2.4), each with a letter for its kind: the next
/// element of the same kind ends them, and so does the end of the element that holds them.
constexpr auto kSiblings = std::to_array<std::pair<std::string_view, char>>({{"li", 'l'},
                                                                             {"dt", 'd'},
                                                                             {"dd", 'd'},
                                                                             {"tr", 't'},
                                                                             {"td", 't'},
                                                                             {"th", 't'},
                                                                             {"option", 'o'}});
/// The elements that hold kSiblings.
constexpr auto kHolders =
    std::to_array<std::string_view>({"ul", "ol", "menu", "dl", "table", "select", "datalist"});
/// Left out of HtmlPart::kArticle only.
constexpr auto kNoArticle =
    std::to_array<std::string_view>({"nav", "footer", "math", "button", "select", "object"});
/// An empty line comes before and after these.
constexpr auto kParagraphs = std::to_array<std::string_view>(
    {"p", "h1", "h2", "h3", "h4", "h5", "h6", "table", "blockquote", "aside", "section", "article",
     "dl", "figure", "hr", "fieldset", "details"});
/// A new line begins before and after these.
constexpr auto kLines = std::to_array<std::string_view>(
    {"div", "br", "tr", "dt", "dd", "header", "main", "body", "figcaption", "caption", "nav",
     "footer", "address", "form", "option", "summary", "legend", "title", "center"});

/// The place after the comment that begins at `at`, or the page's end if nothing ends it. --> and
/// --!> end a comment; <!--> and <!---> are whole comments (HTML, 13.2.5.43 to 13.2.5.52).
size_t comment_end(std::string_view html, size_t at) {
  const size_t text = at + 4;
  for (at += 2; (at = html.find("--", at)) != kNpos; ++at) {
    const std::string_view after = html.substr(at + 2, 2);
    if (after.starts_with('>')) return at + 3;
    if (at >= text && after == "!>") return at + 4;
  }
  return html.size();
}

/// Whether a tag's attributes hide its element. hidden=until-found does not count: browsers show
/// such an element to a search in the page. Attributes are parsed so that the word in a value hides
/// nothing.
bool has_hidden(std::string_view attributes) {
  constexpr std::string_view kBetween = " \t\n\r\f/>";
  for (size_t at = 0; (at = attributes.find_first_not_of(kBetween, at)) != kNpos;) {
    const size_t name_end =
        std::min(attributes.find_first_of(" \t\n\r\f/>=", at), attributes.size());
    const bool is_hidden =
        ascii_lower(attributes.substr(at, std::min<size_t>(name_end - at, 7))) == "hidden";
    at = std::min(attributes.find_first_not_of(" \t\n\r\f", name_end), attributes.size());
    std::string_view value;
    if (at < attributes.size() && attributes[at] == '=') {
      at = std::min(attributes.find_first_not_of(" \t\n\r\f", at + 1), attributes.size());
      const char quote = at < attributes.size() ? attributes[at] : ' ';
      const bool is_quoted = quote == '"' || quote == '\'';
      at += is_quoted ? 1 : 0;
      const size_t end = std::min(
          is_quoted ? attributes.find(quote, at) : attributes.find_first_of(" \t\n\r\f>", at),
          attributes.size());
      value = attributes.substr(at, end - at);
      at = std::min(end + (is_quoted ? 1 : 0), attributes.size());
    }
    if (is_hidden) return ascii_lower(value.substr(0, 12)) != "until-found";
  }
  return false;
}

/// Cuts the page into pieces, in order, without comments and declarations. In XML <name/> is an
/// empty element, and CDATA is text; in HTML the slash means nothing, but for svg.
class Pieces {
 public:
  explicit Pieces(std::string_view html, size_t begin = 0, size_t end = kNpos)
      : html_(html.substr(0, end)),
        at_(begin),
        is_xml_(html.substr(0, 64).find("<?xml") != kNpos) {}

  bool next(Piece& piece) {
    while (at_ < html_.size()) {
      const size_t begin = at_;
      const bool found = html_[at_] == '<' ? take_tag(piece) : take_text(piece);
      piece.begin = begin;
      piece.end = at_;
      if (found) return true;
    }
    return false;
  }

 private:
  // Each takes the piece at at_ and moves at_ after it; false if it was none, as a comment is.
  bool take_text(Piece& piece) {
    const size_t end = std::min(html_.find('<', at_), html_.size());
    set_text(piece, html_.substr(at_, end - at_));
    at_ = end;
    return true;
  }

  static void set_text(Piece& piece, std::string_view text) {
    piece.kind = Piece::kText;
    piece.text = text;
    piece.name.clear();
    piece.is_empty = false;
    piece.is_hidden = false;
  }

  bool take_tag(Piece& piece) {
    const std::string_view rest = html_.substr(at_);
    if (rest.starts_with("<!--")) {
      at_ = comment_end(html_, at_);
      return false;
    }
    if (is_xml_ && rest.starts_with("<![CDATA[")) {
      const size_t end = std::min(html_.find("]]>", at_), html_.size());
      set_text(piece, html_.substr(at_ + 9, end - std::min(end, at_ + 9)));
      at_ = std::min(end + 3, html_.size());
      return true;
    }
    if (rest.starts_with("<!") || rest.starts_with("<?")) {
      at_ = std::min(html_.find('>', at_), html_.size() - 1) + 1;
      return false;
    }
    const bool is_close = rest.starts_with("</");
    const size_t name_at = at_ + (is_close ? 2 : 1);
    // A < that begins no tag is text, as in "a < b".
    if (name_at >= html_.size() || !is_ascii_alpha(html_[name_at])) {
      set_text(piece, rest.substr(0, 1));
      ++at_;
      return true;
    }
    const size_t name_end = std::min(html_.find_first_of(" \t\n\r\f/>", name_at), html_.size());
    piece.kind = is_close ? Piece::kClose : Piece::kOpen;
    piece.name = ascii_lower(html_.substr(name_at, std::min(name_end - name_at, kMaxName + 1)));
    piece.text = {};
    at_ = tag_end(name_end);
    piece.is_hidden = !is_close && has_hidden(html_.substr(name_end, at_ - name_end));
    const bool ends_itself = at_ >= 2 && html_[at_ - 1] == '>' && html_[at_ - 2] == '/';
    piece.is_empty = ends_itself && (is_xml_ || piece.name == "svg");
    if (!is_close && !piece.is_empty && is_one_of(piece.name, kRaw)) {
      const size_t end = raw_end(at_, piece.name);
      piece.text = html_.substr(at_, end - at_);
      at_ = end;
    }
    return true;
  }

  /// The place after the tag's '>', or the page's end when there is none. A '>' within quotes does
  /// not count, but quotes do only after '=': a stray one would swallow the rest of the page.
  size_t tag_end(size_t at) const {
    char quote = 0;
    char before = 0;  // the last character that is no space
    for (; at < html_.size(); ++at) {
      const char c = html_[at];
      if (quote != 0) {
        if (c == quote) quote = 0;
      } else if (c == '>') {
        return at + 1;
      } else if ((c == '"' || c == '\'') && before == '=') {
        quote = c;
      }
      if (!is_ascii_space(c)) before = c;
    }
    return at;
  }

  /// Where the closing tag of a raw element begins, or the end of the page.
  size_t raw_end(size_t at, std::string_view name) const {
    for (; (at = html_.find("</", at)) != kNpos; at += 2) {
      const size_t name_end = at + 2 + name.size();
      if (ascii_lower(html_.substr(at + 2, name.size())) == name &&
          (name_end >= html_.size() || !is_ascii_alpha(html_[name_end]))) {
        return at;
      }
    }
    return html_.size();
  }

  std::string_view html_;
  size_t at_;
  bool is_xml_;
};

/// The pieces of a page without the elements that are left out. Instead of a stack of open elements
/// it holds the one that is being dropped and how many of the same name are open in it.
class KeptPieces {
 public:
  KeptPieces(std::string_view html, HtmlPart part, size_t begin = 0, size_t end = kNpos)
      : pieces_(html, begin, end),
        part_(part),
        last_noscript_end_(last_noscript_end(html.substr(0, end))) {}

  bool next(Piece& piece) {
    while (pieces_.next(piece)) {
      if (is_kept(piece)) return true;
    }
    return false;
  }

 private:
  bool is_kept(const Piece& piece) {
    if (depth_ > 0 && !ends_unclosed(piece)) {
      if (piece.kind != Piece::kText && piece.name == dropped_ && !piece.is_empty) {
        const bool nests = dropped_ != "noscript";
        depth_ += piece.kind == Piece::kClose ? -1 : nests ? 1 : 0;
      }
      return false;
    }
    const bool is_hidden = piece.is_hidden && !is_one_of(piece.name, kNeverHidden);
    const bool is_dropped = is_hidden || is_one_of(piece.name, kDropped) ||
                            (part_ == HtmlPart::kArticle && is_one_of(piece.name, kNoArticle));
    if (piece.kind != Piece::kOpen || !is_dropped) return true;
    // A noscript that is closed nowhere would drop the whole page, so only its tag is dropped.
    if (piece.name == "noscript" && piece.begin >= last_noscript_end_) return false;
    if (!piece.is_empty) {
      dropped_ = piece.name;
      depth_ = 1;
      html_depth_ = 0;
    }
    return false;
  }

  /// Whether the dropped element was not closed and cannot contain this piece, so that it ended
  /// before it. Sets depth_ to 0 then.
  bool ends_unclosed(const Piece& piece) {
    if (piece.kind == Piece::kText) return false;
    const bool is_open = piece.kind == Piece::kOpen;
    bool ends = false;
    if (dropped_ == "noscript") {
      ends = (piece.name == "head" && !is_open) || piece.name == "body";
    } else if (dropped_ == "svg") {
      if (is_one_of(piece.name, kHtmlInSvg) && !piece.is_empty) {
        html_depth_ += is_open ? 1 : html_depth_ > 0 ? -1 : 0;
      }
      ends = html_depth_ == 0 && is_one_of(piece.name, kNotInSvg);
    } else if (dropped_ == "p") {
      const bool is_block = is_one_of(piece.name, kParagraphs) || is_one_of(piece.name, kHolders) ||
                            is_one_of(piece.name, kLines) || piece.name == "pre";
      const bool is_own_end = piece.name == "p" && !is_open;
      ends = is_block && piece.name != "br" && !is_own_end;
    } else if (const char kind = kind_of(dropped_); kind != 0) {
      if (is_one_of(piece.name, kHolders)) {
        ends = !is_open && html_depth_ == 0;
        if (!ends) html_depth_ += is_open ? 1 : -1;
      } else if (html_depth_ == 0 && is_open) {
        // A row's cells are in it; a cell ends with the row.
        ends = kind_of(piece.name) == kind && !(dropped_ == "tr" && piece.name != "tr");
      }
    }
    if (ends) depth_ = 0;
    return ends;
  }

  /// The letter in kSiblings; 0 for other elements.
  static char kind_of(std::string_view name) {
    const auto* found =
        std::ranges::find(kSiblings, name, &std::pair<std::string_view, char>::first);
    return found == kSiblings.end() ? '\0' : found->second;
  }

  /// Where the last closing tag of a noscript begins; 0 with none.
  static size_t last_noscript_end(std::string_view html) {
    constexpr std::string_view kEnd = "</noscript";
    for (size_t at = html.size(); at > 0 && (at = html.rfind("</", at - 1)) != kNpos;) {
      if (ascii_lower(html.substr(at, kEnd.size())) == kEnd) return at;
    }
    return 0;
  }

  Pieces pieces_;
  HtmlPart part_;
  std::string dropped_;    // the element that is being left out
  size_t depth_ = 0;       // how many of its name are open
  size_t html_depth_ = 0;  // how many of kHtmlInSvg are, in an svg; of kHolders, in a sibling
  size_t last_noscript_end_;
};

struct Range {
  size_t begin = 0;
  size_t end = 0;
};

/// What lies inside the first element of that name; an empty range when there is none.
Range inside(std::string_view html, std::string_view name) {
  KeptPieces pieces(html, HtmlPart::kArticle);
  Range range;
  size_t depth = 0;
  for (Piece piece; pieces.next(piece);) {
    if (piece.kind == Piece::kText || piece.name != name || piece.is_empty) continue;
    if (piece.kind == Piece::kOpen) {
      if (depth++ == 0) range = {piece.end, html.size()};
    } else if (depth > 0 && --depth == 0) {
      range.end = piece.begin;
      return range;
    }
  }
  return range;
}

/// The page's own text: its article or main part, from the first heading on.
Range own_text(std::string_view html) {
  Range range{0, html.size()};
  // The most exact one that is there and has content.
  for (const std::string_view name : {"article", "main", "body"}) {
    if (const Range part = inside(html, name); part.begin < part.end) {
      range = part;
      break;
    }
  }
  KeptPieces pieces(html, HtmlPart::kArticle, range.begin, range.end);
  for (Piece piece; pieces.next(piece);) {
    if (piece.kind == Piece::kOpen && piece.name == "h1") return {piece.begin, range.end};
  }
  return range;
}

/// Tells the sink what a tag means for the text's structure.
void tell_tag(const Piece& tag, HtmlSink& sink) {
  const bool is_open = tag.kind == Piece::kOpen;
  if (tag.name == "ul" || tag.name == "ol") {
    is_open ? sink.begin_list(tag.name == "ol") : sink.end_list();
  } else if (tag.name == "li") {
    is_open ? sink.begin_item() : sink.end_item();
  } else if (tag.name == "pre") {
    is_open ? sink.begin_preformatted() : sink.end_preformatted();
  } else if (is_one_of(tag.name, kParagraphs)) {
    sink.end_paragraph();
  } else if (is_one_of(tag.name, kLines)) {
    sink.end_line();
  } else if (tag.name == "td" || tag.name == "th") {
    sink.end_cell();
  }
}

// ------------------------------------------------------------------------------------------ text

/// Gathers words into lines, with the page's line for each. Breaks and blanks are held back until
/// the next word comes, so that a row of empty elements gives one gap and the text ends without
/// blanks.
class TextSink : public HtmlSink {
 public:
  void add(std::string_view bytes, uint64_t line) override {
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = utf8_char_bytes(bytes, at);
      const char32_t c = n == 0 ? U'\uFFFD' : decode_utf8_char(bytes, at, n);
      add(c, line);
      if (c == '\n') ++line;
      at += std::max<size_t>(n, 1);
    }
  }

  void add(char32_t c, uint64_t line) override {
    if (pre_depth_ > 0 && is_space(c)) return add_kept_space(c);
    if (joins_words(c)) {
      if (!at_line_start_) blank_ = blank_ == "\t" ? "\t" : " ";
      return;
    }
    if (c == 0 || c == 0xAD) return;  // a soft hyphen would split the word for a search
    after_pre_ = false;
    begin_word(line);
    append_utf8(c, text_.text);
  }

  void end_cell() override {
    if (!at_line_start_) blank_ = "\t";
  }
  void end_line() override {
    if (!at_line_start_) gap_ = std::max<size_t>(gap_, 1);
    at_line_start_ = true;
    blank_.clear();
  }
  void end_paragraph() override {
    end_line();
    if (!has_marker_) gap_ = std::max<size_t>(gap_, 2);  // an item's own paragraph is its line
  }
  void begin_list(bool numbered) override {
    lists_.empty() ? end_paragraph() : end_line();
    lists_.push_back(numbered ? 1 : 0);
  }
  void end_list() override {
    end_item();
    if (!lists_.empty()) lists_.pop_back();
    if (lists_.empty()) end_paragraph();
  }
  void begin_item() override {
    end_line();
    has_marker_ = true;
  }
  void end_item() override {
    end_line();
    has_marker_ = false;
  }
  void begin_preformatted() override {
    end_paragraph();
    ++pre_depth_;
    after_pre_ = true;
  }
  void end_preformatted() override {
    if (pre_depth_ > 0) --pre_depth_;
    gap_ = std::min<size_t>(gap_, 2);
    end_paragraph();
  }

  HtmlText finish() {
    if (!text_.text.empty()) text_.text += '\n';
    return std::move(text_);
  }

 private:
  /// The first line break in <pre> is not shown.
  void add_kept_space(char32_t c) {
    if (c == '\n') {
      if (!after_pre_) ++gap_;
      at_line_start_ = true;
      blank_.clear();
    } else if (c != '\r') {
      blank_ += static_cast<char>(c);
    }
    after_pre_ = false;
  }

  void begin_word(uint64_t line) {
    std::string& out = text_.text;
    if (at_line_start_) {
      if (!out.empty()) out.append(gap_, '\n');
      gap_ = 0;
      text_.lines.add(out.size(), line);
      if (has_marker_) write_marker();
      at_line_start_ = false;
    } else if (blank_.empty()) {
      return;  // the middle of a word
    } else {
      text_.lines.add(out.size(), line);
    }
    out += blank_;
    blank_.clear();
  }

  void write_marker() {
    constexpr size_t kMaxIndented = 2;  // deeper lists are no farther in: an item stays small
    if (lists_.size() > 1) text_.text.append(2 * std::min(lists_.size() - 1, kMaxIndented), ' ');
    if (!lists_.empty() && lists_.back() > 0) {
      text_.text += fmt::format("{}. ", lists_.back()++);
    } else {
      text_.text += "- ";
    }
    has_marker_ = false;
  }

  HtmlText text_;
  std::string blank_;  // to write before the next word
  bool at_line_start_ = true;
  bool has_marker_ = false;  // an item has begun, and its "- " or number is not written yet
  bool after_pre_ = false;   // nothing has come since <pre>
  size_t gap_ = 0;           // line ends to write before the next line
  size_t pre_depth_ = 0;
  std::vector<uint64_t> lists_;  // of each open list the next number, 0 when it has none
};

/// One line of a title: its characters with white space joined.
std::string plain_title(std::string_view raw) {
  TextSink sink;
  uint64_t line = 1;
  split_entities(
      raw,
      [&](std::string_view bytes) {
        sink.add(bytes, line);
        line += std::ranges::count(bytes, '\n');
      },
      [&](char32_t c) { sink.add(c, line); });
  std::string title = sink.finish().text;
  if (!title.empty()) title.pop_back();
  return title;
}

}  // namespace

void walk_html(std::string_view html, HtmlPart part, HtmlSink& sink) {
  const Range range = part == HtmlPart::kArticle ? own_text(html) : Range{0, html.size()};
  uint64_t line = 1;
  size_t counted = 0;  // bytes of the page whose line ends `line` has counted: each only once
  const auto line_at = [&](size_t at) {
    line += std::count(html.begin() + counted, html.begin() + at, '\n');
    counted = at;
    return line;
  };
  const auto offset_of = [&](std::string_view part_of_html) {
    return part_of_html.data() - html.data();
  };
  KeptPieces pieces(html, part, range.begin, range.end);
  for (Piece piece; pieces.next(piece);) {
    const bool is_text = piece.kind == Piece::kText;
    if (!is_text) tell_tag(piece, sink);
    if (!is_text && !is_one_of(piece.name, kRawText)) continue;
    if (piece.text.empty()) continue;
    size_t at = offset_of(piece.text);
    split_entities(
        piece.text,
        [&](std::string_view bytes) {
          at = offset_of(bytes);
          sink.add(bytes, line_at(at));
          at += bytes.size();
        },
        [&](char32_t c) { sink.add(c, line_at(at)); });
  }
}

HtmlText read_html(std::string_view html) {
  TextSink sink;
  walk_html(html, HtmlPart::kPage, sink);
  HtmlText text = sink.finish();
  KeptPieces pieces(html, HtmlPart::kPage);
  for (Piece piece; pieces.next(piece);) {
    if (piece.kind != Piece::kOpen || piece.name != "title" || piece.text.empty()) continue;
    text.title = plain_title(piece.text);
    break;
  }
  return text;
}

bool looks_like_html(std::string_view bytes) {
  bytes = bytes.substr(0, 4096);  // comments may come before the doctype
  while (true) {
    const size_t begin = bytes.find_first_not_of(" \t\r\n\f\xEF\xBB\xBF");
    bytes.remove_prefix(std::min(begin, bytes.size()));
    if (bytes.starts_with("<!--")) {
      bytes.remove_prefix(comment_end(bytes, 0));
      continue;
    }
    if (!bytes.starts_with("<?xml")) break;
    const size_t at = bytes.find("?>");
    if (at == kNpos) return false;
    bytes.remove_prefix(at + 2);
  }
  const auto begins = [&](std::string_view tag) {
    if (ascii_lower(bytes.substr(0, tag.size())) != tag) return false;
    const char after = bytes.size() > tag.size() ? bytes[tag.size()] : '>';
    return after == '>' || is_ascii_space(after);
  };
  return begins("<!doctype html") || begins("<html");
}

std::string html_charset(std::string_view bytes) {
  // HTML asks for the declaration within the first 1024 bytes; some pages have it later.
  const std::string head = ascii_lower(bytes.substr(0, 2048));
  const std::string_view view = head;
  std::string_view key = "charset=";
  size_t at = view.find(key);
  if (at == kNpos && view.starts_with("<?xml")) {
    key = "encoding=";
    at = view.substr(0, view.find("?>")).find(key);
  }
  if (at == kNpos) return "";
  at = view.find_first_not_of(" \"'", at + key.size());
  if (at == kNpos) return "";
  const size_t end = view.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_", at);
  return std::string(view.substr(at, std::min(end, view.size()) - at)).substr(0, 40);
}

}  // namespace weft::documents
