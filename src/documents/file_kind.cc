// Kinds of files that people keep beside their notes, so that a refusal can say what the file is
// and which tool makes text of it. A table of first bytes does for most. Some formats begin with
// plain letters (GIF89a, BZh, ID3, ustar): a note may begin so, too, and counts as a file of that
// kind only if it also has control characters.
#include "documents/file_kind.h"

#include <algorithm>
#include <array>
#include <string>

namespace weft::documents {
namespace {

using std::string_view_literals::operator""sv;

struct Magic {
  std::string_view begins;  // the file's first bytes
  std::string_view kind;
  std::string_view reason;
};

constexpr std::string_view kOffice = "pandoc or LibreOffice makes text of it";

constexpr auto kMagics = std::to_array<Magic>({
    {"{\\rtf", "RTF document", "an RTF document: pandoc or LibreOffice makes text of it"},
    {"%!PS", "PostScript", "PostScript: ps2ascii makes text of it"},
    {"SQLite format 3\0"sv, "database", "an SQLite database"},
    {"\x1f\x8b", "compressed", "compressed by gzip: gunzip unpacks it"},
    {"BZh", "compressed", "compressed by bzip2: bunzip2 unpacks it"},
    {"\xfd\x37zXZ\0"sv, "compressed", "compressed by xz: unxz unpacks it"},
    {"\x28\xb5\x2f\xfd", "compressed", "compressed by zstd: unzstd unpacks it"},
    {"7z\xbc\xaf\x27\x1c", "archive", "a 7z archive: unpack it"},
    {"Rar!\x1a\x07", "archive", "a RAR archive: unpack it"},
    {"\x89PNG\r\n\x1a\n", "image", "an image (PNG)"},
    {"\xff\xd8\xff", "image", "an image (JPEG)"},
    {"GIF87a", "image", "an image (GIF)"},
    {"GIF89a", "image", "an image (GIF)"},
    {"II*\0"sv, "image", "an image (TIFF)"},
    {"MM\0*"sv, "image", "an image (TIFF)"},
    {"\0\0\1\0"sv, "image", "an image (icon)"},
    {"ID3", "sound", "sound (MP3)"},
    {"OggS", "sound", "sound (Ogg)"},
    {"fLaC", "sound", "sound (FLAC)"},
    {"\x1a\x45\xdf\xa3", "video", "a video (Matroska)"},
    {"\x7f"
     "ELF",
     "program", "a program (ELF)"},
    {"\xca\xfe\xba\xbe", "program", "a program (Java or Mach-O)"},
    {"\0asm"sv, "program", "a program (WebAssembly)"},
    {"GGUF", "model", "a model (GGUF)"},
    {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "office document",
     "an old office document: LibreOffice makes text of it"},
});

/// A byte that no ASCII text has. A magic with one in it needs no other evidence.
bool is_no_ascii_text(unsigned char c) { return (c < ' ' && (c < '\t' || c > '\r')) || c >= 0x7f; }

/// Whether a control character that no text has is among the first 1 KB: 0x1A and 0x1B are allowed
/// as in encoding.cc. Confirms the formats that begin with plain letters.
bool has_control(std::string_view bytes) {
  return std::ranges::any_of(bytes.substr(0, 1024), [](unsigned char c) {
    return c < '\t' || (c > '\r' && c < ' ' && c != 0x1A && c != 0x1B);
  });
}

/// Office documents and e-books are ZIP archives: which of them, the names of the entries say. They
/// are searched for as bytes and not read as a directory, which is enough for a message.
Refusal zip(std::string_view bytes, std::string_view last) {
  const std::string_view begin = bytes.substr(0, 4096);
  const auto office = [](std::string_view kind, std::string_view what) {
    return Refusal{std::string(kind), std::string(what) + ": " + std::string(kOffice)};
  };
  const auto has = [&](std::string_view part) {
    return begin.find(part) != std::string_view::npos;
  };
  if (has("mimetypeapplication/epub+zip")) return office("e-book", "an e-book (EPUB)");
  if (has("mimetypeapplication/vnd.oasis.opendocument")) {
    return office("office document", "an OpenDocument file");
  }
  // Word and its kin write these names into the first entries, or at the end into the list of all.
  const std::string_view end = last.substr(last.size() - std::min<size_t>(last.size(), 65536));
  const auto names = [&](std::string_view part) {
    return has(part) || end.find(part) != std::string_view::npos;
  };
  if (names("[Content_Types].xml")) {
    if (names("word/")) return office("office document", "a Word document");
    if (names("xl/")) return office("office document", "an Excel workbook");
    if (names("ppt/")) return office("office document", "a PowerPoint presentation");
    return office("office document", "an office document");
  }
  return {"archive", "a ZIP archive: unpack it"};
}

/// A PDF begins with %PDF-, but readers accept it anywhere in the first 1 KB (PDF Reference 1.7,
/// appendix H), for example after the header of a mail. There it must also end as a PDF does, or
/// have control characters: a text may mention %PDF-.
bool is_pdf(std::string_view bytes, std::string_view last) {
  const size_t at = bytes.substr(0, 1024 + 5).find("%PDF-");
  if (at == std::string_view::npos) return false;
  if (bytes.find_first_not_of(" \t\r\n\xEF\xBB\xBF") == at) return true;
  const std::string_view end = last.substr(last.size() - std::min<size_t>(last.size(), 2048));
  return end.find("%%EOF") != std::string_view::npos ||
         end.find("startxref") != std::string_view::npos || has_control(bytes.substr(at));
}

}  // namespace

std::optional<Refusal> known_binary_kind(std::string_view bytes, std::string_view end) {
  if (is_pdf(bytes, end))
    return Refusal{"PDF", "a PDF: weft reads text; pdftotext makes text of it"};
  if (bytes.starts_with("PK\x03\x04") || bytes.starts_with("PK\x05\x06")) return zip(bytes, end);
  if (bytes.starts_with("RIFF") && bytes.size() >= 12 && has_control(bytes)) {
    const std::string_view form = bytes.substr(8, 4);
    if (form == "WEBP") return Refusal{"image", "an image (WebP)"};
    return Refusal{"sound", "sound or a video (RIFF)"};
  }
  if (bytes.size() >= 12 && bytes.substr(4, 4) == "ftyp" && has_control(bytes)) {
    return Refusal{"video", "sound, a video or an image (MP4)"};
  }
  if (bytes.size() > 262 && bytes.substr(257, 5) == "ustar" && has_control(bytes)) {
    return Refusal{"archive", "a tar archive: unpack it"};
  }
  const auto* found = std::ranges::find_if(
      kMagics, [&](const Magic& magic) { return bytes.starts_with(magic.begins); });
  if (found == kMagics.end()) return std::nullopt;
  const bool is_binary_format = std::ranges::any_of(found->begins, is_no_ascii_text);
  const bool is_text_format = found->begins[0] == '{' || found->begins[0] == '%';
  if (!is_binary_format && !is_text_format && !has_control(bytes)) return std::nullopt;
  return Refusal{std::string(found->kind), std::string(found->reason)};
}

}  // namespace weft::documents
