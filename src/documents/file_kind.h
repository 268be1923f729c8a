// Files that are no text, by the bytes that they begin with. It reads none of them.
#pragma once

#include <optional>
#include <string_view>

#include "documents/refusal.h"

namespace weft::documents {

/// What a file is that weft knows and does not read: a PDF, an archive, an office document, an
/// image, sound, a database, a program, RTF, PostScript. Nothing for all else. `begin` and `end`
/// are the file's first and last bytes, 64 KB and more of each or the whole file.
std::optional<Refusal> known_binary_kind(std::string_view begin, std::string_view end);

}  // namespace weft::documents
