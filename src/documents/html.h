// The text of an HTML page: what a person reads on it, without tags, scripts, styles, comments and
// what is only for other programs, with entities decoded. A page is untrusted: any bytes give some
// text, in time linear in them. It never fetches, runs or lays out anything.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "documents/line_map.h"

namespace weft::documents {

enum class HtmlPart {
  kPage,     // all of it
  kArticle,  // the page's article, else its main part, else all; from its first heading on and
             // without navigation, footer, buttons and choices
};

/// What a page's text and structure are told to, in the order in which they come. Ends may come
/// without beginnings, and beginnings without ends.
class HtmlSink {
 public:
  virtual ~HtmlSink() = default;
  /// Bytes of the page without tags and entities, white space as it is; `line` is that of the
  /// first.
  virtual void add(std::string_view bytes, uint64_t line) = 0;
  /// An entity's character.
  virtual void add(char32_t c, uint64_t line) = 0;
  virtual void end_cell() = 0;
  virtual void end_line() = 0;
  virtual void end_paragraph() = 0;
  virtual void begin_list(bool numbered) = 0;
  virtual void end_list() = 0;
  virtual void begin_item() = 0;
  virtual void end_item() = 0;
  /// White space is kept between these.
  virtual void begin_preformatted() = 0;
  virtual void end_preformatted() = 0;
};

void walk_html(std::string_view html, HtmlPart part, HtmlSink& sink);

struct HtmlText {
  std::string text;   // lines, the last one ended too; "" when the page has no text
  std::string title;  // of <title>, white space joined; "" when there is none
  LineMap lines;
};

/// A line for each heading, paragraph, list item and table row, an empty one around paragraphs;
/// cells are separated by tabs, items begin with "- " or their number, <pre> keeps its white space.
/// Bytes that are not UTF-8 become U+FFFD. The text is at most kMaxHtmlGrowth times as long as the
/// page.
HtmlText read_html(std::string_view html);
constexpr size_t kMaxHtmlGrowth = 6;

/// Whether a file's first bytes say that it is a page: <!doctype html>, <html>, with comments and
/// an XML declaration before them or not.
bool looks_like_html(std::string_view bytes);

/// The encoding that a page says it is in, in lower case; "" when it says none.
std::string html_charset(std::string_view bytes);

}  // namespace weft::documents
