#include "documents/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/utf8.h"
#include "documents/file_kind.h"
#include "documents/front_matter.h"
#include "documents/html.h"

namespace weft::documents {
namespace {

/// To be raised when a reader gives another text than before, so that what it reads is read again.
constexpr std::string_view kHtmlReading = "html 3";
constexpr std::string_view kFrontMatterReading = "front matter 2";

Format format_by_name(std::string_view name) {
  std::string ending(name.substr(std::min(name.rfind('.'), name.size())));
  for (char& c : ending) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  constexpr auto kHtml = std::to_array<std::string_view>({".html", ".htm", ".xhtml"});
  constexpr auto kMarkdown = std::to_array<std::string_view>(
      {".md", ".markdown", ".mdown", ".mkd", ".mdx", ".qmd", ".rmd"});
  if (std::ranges::find(kHtml, ending) != kHtml.end()) return Format::kHtml;
  if (std::ranges::find(kMarkdown, ending) != kMarkdown.end()) return Format::kMarkdown;
  return Format::kPlain;
}

/// What a page says of itself, where nobody said otherwise and its bytes do not. Pages that say
/// ISO-8859-1 are in Windows-1252, as browsers have it.
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

/// Takes front matter off; its lines stay, empty. Returns its title.
std::string take_front_matter(std::string& text) {
  const FrontMatter front = front_matter_of(text);
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(front.end);
  const auto n_lines = static_cast<size_t>(std::count(text.begin(), end, '\n'));
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

/// A Markdown heading in a text's first line, with the line's end; empty of none.
std::string_view first_heading(std::string_view text) {
  const size_t level = std::min(text.find_first_not_of('#'), text.size());
  if (level == 0 || level > 6 || level == text.size() || text[level] != ' ') return {};
  return text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
}

/// The front matter's properties as the text's first lines, but for a heading that may be its
/// title: people search for their tags, and a passage's text is what is in the file.
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
  uint64_t number = 1;
  for (const Property& property : front.properties) {
    number = heading.empty() ? property.line : body_line;
    add(property.text, number);
  }
  body.remove_prefix(heading.size());
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
  const auto body_line = static_cast<uint64_t>(std::ranges::count(taken, '\n')) + 1;
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
    const bool is_control = n == 1 && static_cast<unsigned char>(c[0]) < ' ';
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
  if (looks_like_html(decoded.text)) format = Format::kHtml;  // of UTF-16 it is seen only now
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
