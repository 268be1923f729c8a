// The block of properties that note-taking and site programs write at the top of a Markdown file:
// YAML between lines of ---, or TOML between lines of +++. It takes the block off, and out of it
// the title and the lines that people search for; it parses no YAML beyond these lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::documents {

struct Property {
  std::string_view text;  // a line of the block as it is, without its end
  uint64_t line = 0;      // of the file, from 1
};

struct FrontMatter {
  size_t end = 0;     // where the text begins, after empty lines; 0 when there is no block
  std::string title;  // a simple scalar's, without its quotes; "" when there is none
  /// What the block says of the text in short: lines of keys at its margin with a scalar or a list
  /// in brackets (tags: [a, b], date: 2024-05-01) and the items of lists (- a). Not the title,
  /// flags (draft: true), maps, block texts and lines of more than 200 bytes; 2 KB in all.
  std::vector<Property> properties;
};

/// `text` is UTF-8, and must outlive the properties. A block of more than 64 KB, or one whose first
/// line that says anything is no `key: value` (`key = value`), is none: a rule across the page may
/// look like its beginning.
FrontMatter front_matter_of(std::string_view text);

}  // namespace weft::documents
