// What a person reads on a web page, as lines for a terminal: for licence terms that a package
// carries as HTML. Takes the page's article (else its main part, else all of it) from its first
// heading on; scripts, styles, navigation and buttons are left out, links keep their text only.
// The page is untrusted: any bytes give some text, in time linear in them and with no control
// characters in it. It never fetches, runs or lays out anything.
#pragma once

#include <string>
#include <string_view>

namespace weft::cli {

/// Paragraphs, headings and lists of a page as lines of at most `width` columns (>= 20), but for
/// longer words; empty when the page has no text. Bytes that are not UTF-8 become U+FFFD.
std::string html_to_text(std::string_view html, int width);

}  // namespace weft::cli
