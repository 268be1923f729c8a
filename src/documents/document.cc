// From bytes to text in three steps: refuse what is known to be no text, decode, read by format.
//
// The order has a reason. Kinds of files are told by their bytes before anything is decoded,
// because many binary formats begin with letters and a guess of the encoding could take them for
// Western text. The format comes from the name, but the content may overrule it: saved pages often
// have another ending. It is asked twice, before decoding, since a page may name its own encoding,
// and after, since of UTF-16 the tags can only be seen then.
//
// Whatever is taken out of a text (tags, front matter), the LineMap keeps the line of the file, so
// that a source is cited as grep or an editor counts lines.
#include "documents/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/ascii.h"
#include "base/utf8.h"
#include "documents/file_kind.h"
#include "documents/front_matter.h"
#include "documents/html.h"

namespace weft::documents {
namespace {

/// Versions of the readers (Document::reading). Raise one when its reader gives another text than
/// before: documents that were ingested with the old one are then read again.
constexpr std::string_view kHtmlReading = "html 3";
constexpr std::string_view kFrontMatterReading = "front matter 2";

Format format_by_name(std::string_view name) {
  const std::string ending = ascii_lower(name.substr(std::min(name.rfind('.'), name.size())));
  constexpr auto kHtml = std::to_array<std::string_view>({".html", ".htm", ".xhtml"});
  constexpr auto kMarkdown = std::to_array<std::string_view>(
      {".md", ".markdown", ".mdown", ".mkd", ".mdx", ".qmd", ".rmd"});
  if (std::ranges::find(kHtml, ending) != kHtml.end()) return Format::kHtml;
  if (std::ranges::find(kMarkdown, ending) != kMarkdown.end()) return Format::kMarkdown;
  return Format::kPlain;
}

/// The encoding that a page names for itself. Asked only where the user named none and the bytes
/// are not UTF-8. A page that names Latin-1 or ASCII is read as Windows-1252, as browsers do
/// (WHATWG Encoding Standard, 4.2). kAny where it names none, or names UTF-16, which only its bytes
/// can tell.
Read<Encoding> encoding_of_page(std::string_view bytes) {
  const std::string charset = html_charset(bytes);
  if (charset.empty() || charset.starts_with("utf-16")) return Encoding::kAny;
  if (charset == "utf-8" || charset == "utf8") return Encoding::kUtf8;
  constexpr auto kWestern =
      std::to_array<std::string_view>({"iso-8859-1", "iso8859-1", "iso-8859-15", "latin1",
                                       "latin-1", "windows-1252", "cp1252", "us-ascii", "ascii"});
  if (std::ranges::find(kWestern, charset) != kWestern.end()) return Encoding::kWindows1252;
  return Refusal{"in another encoding",
                 fmt::format("its encoding is {}: iconv makes UTF-8 of it", charset)};
}

/// Replaces front matter with as many empty lines, so that the lines after it keep their numbers,
/// and returns its title.
std::string take_front_matter(std::string& text) {
  const FrontMatter front = front_matter_of(text);
  const auto end = text.begin() + front.end;
  const size_t n_lines = std::count(text.begin(), end, '\n');
  text.replace(0, front.end, n_lines, '\n');
  return front.title;
}

void read_as_html(std::string page, Document& document) {
  document.title = take_front_matter(page);  // some sites' pages have it
  HtmlText html = read_html(page);
  if (document.title.empty()) document.title = std::move(html.title);
  document.text = std::move(html.text);
  document.lines = std::move(html.lines);
  document.reading = kHtmlReading;
}

/// The text's first line, with its line end, if that is a Markdown heading; else "".
std::string_view first_heading(std::string_view text) {
  const size_t level = std::min(text.find_first_not_of('#'), text.size());
  if (level == 0 || level > 6 || level == text.size() || text[level] != ' ') return {};
  return text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
}

/// Sets the document's text to the properties of its front matter, then its body. The properties
/// become text because people search for their tags, and words that are in no passage are not
/// found. A heading in the body's first line goes before them: it may be the title, which is looked
/// for in the first line.
void put_properties(const FrontMatter& front, std::string_view body, uint64_t body_line,
                    Document& document) {
  std::string& text = document.text;
  const auto add = [&](std::string_view line, uint64_t number) {
    document.lines.add(text.size(), number);
    text += line;
    if (!line.ends_with('\n')) text += '\n';
  };
  const std::string_view heading = first_heading(body);
  if (!heading.empty()) add(heading, body_line);
  // After a heading the properties are cited by its line: line numbers of a LineMap never decrease,
  // and in the file the properties come before the heading.
  uint64_t number = 1;
  for (const Property& property : front.properties) {
    number = heading.empty() ? property.line : body_line;
    add(property.text, number);
  }
  body.remove_prefix(heading.size());
  // An empty line, so that the properties and the body are not one paragraph.
  if (!body.starts_with('\n') && !body.starts_with("\r\n")) add("\n", number);
  number = body_line + (heading.empty() ? 0 : 1);
  for (; !body.empty(); ++number) {
    const size_t end = std::min(body.find('\n'), body.size() - 1) + 1;
    document.lines.add(text.size(), number);
    text += body.substr(0, end);
    body.remove_prefix(end);
  }
}

void read_as_markdown(std::string text, Document& document) {
  FrontMatter front = front_matter_of(text);
  const auto taken = std::string_view(text).substr(0, front.end);
  const uint64_t body_line = std::ranges::count(taken, '\n') + 1;
  document.title = std::move(front.title);
  if (front.end > 0) document.reading = kFrontMatterReading;
  if (!front.properties.empty()) {
    put_properties(front, std::string_view(text).substr(front.end), body_line, document);
    return;
  }
  text.erase(0, front.end);
  document.text = std::move(text);
  document.lines = LineMap::of_lines(document.text, body_line);
}

}  // namespace

std::string short_title(std::string_view title) {
  std::string out;
  for (size_t at = 0; at < title.size();) {
    const size_t n = utf8_char_bytes(title, at);
    const std::string_view c = n == 0 ? "\uFFFD" : title.substr(at, n);
    if (out.size() + c.size() > kMaxTitleBytes) break;
    const bool is_control = n == 1 && byte_of(c[0]) < ' ';
    out += is_control ? " " : c;
    at += std::max<size_t>(n, 1);
  }
  return out;
}

std::optional<Refusal> refused_by_ends(std::string_view begin, std::string_view end,
                                       Encoding encoding) {
  if (auto refusal = known_binary_kind(begin, end)) return refusal;
  return encoding == Encoding::kAny ? refused_as_binary(begin) : std::nullopt;
}

Read<Document> read_document(std::string bytes, const ReadOptions& options) {
  if (auto refusal = known_binary_kind(bytes, bytes)) return *std::move(refusal);
  Format format = format_by_name(options.name);
  if (looks_like_html(bytes)) format = Format::kHtml;
  Encoding encoding = options.encoding;
  if (format == Format::kHtml && encoding == Encoding::kAny && !is_valid_utf8(bytes)) {
    auto said = encoding_of_page(bytes);
    if (auto* refusal = std::get_if<Refusal>(&said)) return std::move(*refusal);
    encoding = std::get<Encoding>(said);
  }
  auto decoding = decode(std::move(bytes), encoding);
  if (auto* refusal = std::get_if<Refusal>(&decoding)) return std::move(*refusal);
  auto& decoded = std::get<Decoded>(decoding);

  Document document;
  document.guess = std::move(decoded.guess);
  if (looks_like_html(decoded.text)) format = Format::kHtml;  // UTF-16 shows its tags only now
  document.format = format;
  switch (format) {
    case Format::kHtml:
      read_as_html(std::move(decoded.text), document);
      break;
    case Format::kMarkdown:
      read_as_markdown(std::move(decoded.text), document);
      break;
    case Format::kPlain:
      document.lines = LineMap::of_lines(decoded.text);
      document.text = std::move(decoded.text);
      break;
  }
  if (!decoded.encoding.empty()) document.reading += " " + decoded.encoding;
  document.title = short_title(document.title);
  if (document.text.size() > options.max_text_bytes) {
    return Refusal{"too large",
                   fmt::format("its text is larger than {} bytes", options.max_text_bytes)};
  }
  return document;
}

}  // namespace weft::documents
