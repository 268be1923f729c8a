// The block of properties that note-taking and site programs write at the top of a Markdown file:
// YAML between lines of ---, or TOML between lines of +++. It takes the block off and its title
// out; it parses no YAML beyond that line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft::documents {

struct FrontMatter {
  size_t end = 0;     // where the text begins, after empty lines; 0 when there is no block
  std::string title;  // a simple scalar's, without its quotes; "" when there is none
};

/// `text` is UTF-8. A block of more than 64 KB, or one whose first line that says anything is no
/// `key: value` (`key = value`), is none: a rule across the page may look like its beginning.
FrontMatter front_matter_of(std::string_view text);

}  // namespace weft::documents
