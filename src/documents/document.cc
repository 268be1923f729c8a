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
constexpr std::string_view kFrontMatterReading = "front matter 1";

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

/// Takes front matter off. Its lines stay where `keep_lines`, empty.
FrontMatter take_front_matter(std::string& text, bool keep_lines) {
  FrontMatter front = front_matter_of(text);
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(front.end);
  const auto n_lines = static_cast<size_t>(std::count(text.begin(), end, '\n'));
  text.replace(0, front.end, keep_lines ? n_lines : 0, '\n');
  return front;
}

void read_as_html(std::string page, Document& document) {
  document.title = take_front_matter(page, /*keep_lines=*/true).title;  // some sites' pages have it
  HtmlText html = read_html(page);
  if (document.title.empty()) document.title = std::move(html.title);
  document.text = std::move(html.text);
  document.lines = std::move(html.lines);
  document.reading = kHtmlReading;
}

void read_as_markdown(std::string text, Document& document) {
  const auto n_lines = std::ranges::count(text, '\n');
  FrontMatter front = take_front_matter(text, /*keep_lines=*/false);
  const auto n_taken = n_lines - std::ranges::count(text, '\n');
  document.title = std::move(front.title);
  document.text = std::move(text);
  document.lines = LineMap::of_lines(document.text, static_cast<uint64_t>(n_taken) + 1);
  if (front.end > 0) document.reading = kFrontMatterReading;
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
