// What a .gitignore says (gitignore(5)), and files in its form: .weftignore, --exclude. It reads
// text that is handed to it; which files hold for a path is the scan's to know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "retrieval/glob.h"

namespace weft::retrieval {

/// A path from the folder of the ignore file down.
struct RelativePath {
  explicit RelativePath(std::string_view path) : names(split_path(path)) {}
  std::vector<std::string_view> names;
};

/// Thread-safe to ask.
class IgnoreRules {
 public:
  enum class Verdict { kNothing, kIgnored, kIncluded };

  /// One line of an ignore file: a pattern, or nothing where it is empty or a comment. False, and
  /// nothing is changed, past kMaxRules patterns or kMaxPatternBytes in one, or where it matches
  /// nothing (Glob::is_valid).
  bool add(std::string_view line);
  /// A whole file. False where some line was left out.
  bool add_all(std::string_view text);

  /// What the last rule that matches says of a path. Who asks has asked for the folders above.
  /// `steps` are what it may take (Glob::matches), less those that it took; with none left the
  /// first rules were not asked.
  Verdict judge(const RelativePath& path, bool is_folder, uint64_t& steps) const;
  Verdict judge(const RelativePath& path, bool is_folder) const;
  bool is_empty() const { return rules_.empty(); }
  /// Of memory, about.
  size_t memory_bytes() const;

  static constexpr size_t kMaxRules = 4000;
  static constexpr size_t kMaxPatternBytes = 1024;
  static constexpr size_t kMaxFileBytes = 1 << 20;

 private:
  struct Rule {
    Glob glob;
    bool includes = false;      // !
    bool folders_only = false;  // a slash at the end
    bool any_depth = false;     // no other slash: of the last name alone
  };
  std::vector<Rule> rules_;
};

}  // namespace weft::retrieval
