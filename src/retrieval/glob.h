// Patterns of paths as .gitignore has them: * and ? within a name, [sets], \ before a character to
// mean it, ** for any number of folders. Matching takes time in the product of both lengths,
// whatever the pattern, and no more than one allows. It touches no file system.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::retrieval {

/// A path from some folder down, cut into its names.
std::vector<std::string_view> split_path(std::string_view path);

/// Thread-safe.
class Glob {
 public:
  /// Names are separated by slashes. One that cannot match anything (a set or an escape that does
  /// not end) matches nothing.
  explicit Glob(std::string_view pattern);

  bool is_valid() const { return is_valid_; }
  /// Whether the pattern is the whole of a path. A ** at the end is one name or more, elsewhere
  /// none or more; a ** beside other characters in a name is a *.
  /// It takes a step off `steps` for each comparison; with none left it says nothing of the path.
  bool matches(const std::vector<std::string_view>& names, uint64_t& steps) const;
  /// Of memory, this object's own too.
  size_t memory_bytes() const;

 private:
  struct Interval {
    char32_t first;
    char32_t last;
  };
  struct Set {
    std::bitset<128> ascii;
    std::vector<Interval> others;  // of what is not ASCII; sorted, apart from each other

    bool has(char32_t c) const;
  };
  /// A character, or what may be in its place. A byte that is no UTF-8 is itself, past all code
  /// points.
  struct Element {
    enum Kind { kChar, kAnyChar, kAnyText, kSet } kind = kChar;
    char32_t c = 0;
    bool negated = false;            // of a set
    std::shared_ptr<const Set> set;  // of kSet

    bool holds(char32_t other) const;
  };
  struct Name {
    bool any_folders = false;  // **
    bool is_literal = false;   // of kChar alone: `text`
    std::string text;
    std::vector<Element> elements;  // none where is_literal

    bool matches(std::string_view name, uint64_t& steps) const;
  };

  static Set set_of(std::vector<Interval> intervals);
  static std::optional<std::vector<std::string>> split_pattern(std::string_view pattern);
  static bool parse_name(std::string_view text, Name& name);
  static bool parse_set(std::string_view text, size_t& at, Element& set);

  std::vector<Name> names_;
  bool is_valid_ = true;
};

}  // namespace weft::retrieval
