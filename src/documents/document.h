// A file's bytes as a document: its text in UTF-8, its title, and where in the file each of the
// text's lines was. Markdown, HTML and plain text in a few encodings; all else is refused by name.
// It opens no file and cuts no chunks. Input is hostile: time is linear in it, and its text is
// bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "documents/encoding.h"
#include "documents/line_map.h"
#include "documents/refusal.h"

namespace weft::documents {

enum class Format { kPlain, kMarkdown, kHtml };

struct ReadOptions {
  std::string_view name;                         // the file's; its ending says the format
  Encoding encoding = Encoding::kAny;            // of what is not UTF-8 and has no byte order mark
  uint64_t max_text_bytes = uint64_t{64} << 20;  // a longer text is refused
};

struct Document {
  Format format = Format::kPlain;
  std::string text;   // valid UTF-8
  std::string title;  // the document's own, of one line and at most kMaxTitleBytes; "" without one
  LineMap lines;
  std::string guess;  // as Decoded::guess: what to tell the user
  /// How it was read where the text is not the file's bytes as they are: the same bytes read in
  /// another way are another document. "" for all else.
  std::string reading;
};
constexpr size_t kMaxTitleBytes = 256;

/// Whether a file's first and last bytes say already that it is refused, so that the rest of an
/// image or a film need not be read. `begin` holds 8 KB and more, or the whole file.
std::optional<Refusal> refused_by_ends(std::string_view begin, std::string_view end,
                                       Encoding encoding);

/// HTML by its ending (.html, .htm, .xhtml) or by its first bytes; Markdown by its ending.
Read<Document> read_document(std::string bytes, const ReadOptions& options);

/// Of a title: no more than kMaxTitleBytes, cut after a character; line breaks become spaces, and
/// bytes that are not UTF-8 U+FFFD.
std::string short_title(std::string_view title);

}  // namespace weft::documents
