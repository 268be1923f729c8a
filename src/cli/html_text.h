// A web page's article as lines for a terminal: for licence terms that a package carries as HTML.
// documents/html.h reads the page, cli/wrapped_text.h wraps its words: any bytes give some text, in
// time linear in them and with no control characters in it.
#pragma once

#include <string>
#include <string_view>

namespace weft::cli {

/// Paragraphs, headings and lists of a page's article as lines of at most `width` columns (>= 20),
/// but for longer words; empty when the page has no text. Bytes that are not UTF-8 become U+FFFD.
std::string html_to_text(std::string_view html, int width);

}  // namespace weft::cli
