// Patterns come from files in the folders that are ingested, so they are hostile: matching must not
// take exponential time. A regular expression or the usual recursion over each * does for patterns
// as a*a*a*b. Here only the last * is ever tried again: when what follows it does not match, it
// takes one more character, and the earlier ones stay, since what lies between two of them matched
// already and a later match of it could only leave less of the name. That bounds the time by the
// product of both lengths; `steps` bounds it further over all patterns of a path. The same is done
// once for characters in a name and once for names in a path, where ** is the star.
#include "retrieval/glob.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/ascii.h"
#include "text/utf8.h"

namespace weft::retrieval {
namespace {

constexpr char32_t kFirstPastUnicode = 0x110000;  // plus a byte that is not UTF-8: itself
constexpr char32_t kFirstPastAscii = 0x80;

/// The character at `at`; moves `at` after it.
char32_t take_char(std::string_view text, size_t& at) {
  const size_t n = text::utf8_char_bytes(text, at);
  if (n == 0) return kFirstPastUnicode + byte_of(text[at++]);
  const char32_t c = text::decode_utf8_char(text, at, n);
  at += n;
  return c;
}

struct NamedSet {
  std::string_view name;
  std::vector<std::pair<char, char>> intervals;
};
/// [:alpha:] and so on, of ASCII.
const std::vector<NamedSet>& named_sets() {
  static const std::vector<NamedSet> sets{
      {"alpha", {{'a', 'z'}, {'A', 'Z'}}},
      {"digit", {{'0', '9'}}},
      {"alnum", {{'a', 'z'}, {'A', 'Z'}, {'0', '9'}}},
      {"lower", {{'a', 'z'}}},
      {"upper", {{'A', 'Z'}}},
      {"space", {{' ', ' '}, {'\t', '\r'}}},
      {"blank", {{' ', ' '}, {'\t', '\t'}}},
      {"punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}},
      {"xdigit", {{'0', '9'}, {'a', 'f'}, {'A', 'F'}}},
      {"cntrl", {{'\0', '\x1f'}, {'\x7f', '\x7f'}}},
      {"graph", {{'!', '~'}}},
      {"print", {{' ', '~'}}},
  };
  return sets;
}

}  // namespace

std::vector<std::string_view> split_path(std::string_view path) {
  std::vector<std::string_view> names;
  while (true) {
    const size_t end = std::min(path.find('/'), path.size());
    names.push_back(path.substr(0, end));
    if (end == path.size()) return names;
    path.remove_prefix(end + 1);
  }
}

bool Glob::Element::holds(char32_t other) const {
  if (kind == kChar) return c == other;
  if (kind != kSet) return true;
  return set->has(other) != negated;
}

bool Glob::Set::has(char32_t c) const {
  if (c < kFirstPastAscii) return ascii.test(c);
  const auto after = std::ranges::upper_bound(others, c, {}, &Interval::first);
  return after != others.begin() && c <= std::prev(after)->last;
}

/// Merges the intervals of a set, so that however many a pattern has, a character is looked up by
/// one bit (ASCII) or a binary search.
Glob::Set Glob::set_of(std::vector<Interval> intervals) {
  Set set;
  std::ranges::sort(intervals, {}, &Interval::first);
  for (const Interval& one : intervals) {
    for (char32_t c = one.first; c <= one.last && c < kFirstPastAscii; ++c) set.ascii.set(c);
    const char32_t first = std::max(one.first, kFirstPastAscii);
    if (first > one.last) continue;
    if (!set.others.empty() && first <= set.others.back().last + 1) {
      set.others.back().last = std::max(set.others.back().last, one.last);
    } else {
      set.others.push_back({first, one.last});
    }
  }
  set.others.shrink_to_fit();
  return set;
}

/// Parses a set: `at` is after its [ and is moved after its ]. False where it does not end.
bool Glob::parse_set(std::string_view text, size_t& at, Element& set) {
  set.kind = Element::kSet;
  if (at < text.size() && (text[at] == '!' || text[at] == '^')) {
    set.negated = true;
    ++at;
  }
  const auto take = [&]() -> std::optional<char32_t> {
    if (at < text.size() && text[at] == '\\') ++at;
    if (at >= text.size()) return std::nullopt;
    return take_char(text, at);
  };
  std::vector<Interval> intervals;
  // A ] right at the beginning is a character of the set (POSIX, glob(7)).
  for (const size_t begin = at; at < text.size();) {
    if (text[at] == ']' && at > begin) {
      ++at;
      set.set = std::make_shared<const Set>(set_of(std::move(intervals)));
      return true;
    }
    if (text.substr(at).starts_with("[:")) {
      const size_t end = text.find(":]", at + 2);
      if (end == std::string_view::npos) return false;
      const auto& sets = named_sets();
      const auto named =
          std::ranges::find(sets, text.substr(at + 2, end - at - 2), &NamedSet::name);
      if (named == sets.end()) return false;
      for (const auto& [first, last] : named->intervals) {
        intervals.push_back({byte_of(first), byte_of(last)});
      }
      at = end + 2;
      continue;
    }
    const auto first = take();
    if (!first) return false;
    auto last = first;
    if (at + 1 < text.size() && text[at] == '-' && text[at + 1] != ']') {
      ++at;
      last = take();
      if (!last) return false;
    }
    intervals.push_back({*first, *last});
  }
  return false;
}

bool Glob::parse_name(std::string_view text, Name& name) {
  for (size_t at = 0; at < text.size();) {
    Element element;
    if (text[at] == '*') {
      element.kind = Element::kAnyText;
      ++at;
      if (!name.elements.empty() && name.elements.back().kind == Element::kAnyText) continue;
    } else if (text[at] == '?') {
      element.kind = Element::kAnyChar;
      ++at;
    } else if (text[at] == '[') {
      if (!parse_set(text, ++at, element)) return false;
    } else {
      if (text[at] == '\\' && ++at == text.size()) return false;
      const size_t begin = at;
      element.c = take_char(text, at);
      name.text += text.substr(begin, at - begin);
    }
    name.elements.push_back(std::move(element));
  }
  name.is_literal = std::ranges::all_of(
      name.elements, [](const Element& element) { return element.kind == Element::kChar; });
  if (name.is_literal) name.elements = {};  // forty times the text's own memory
  return true;
}

/// Splits a pattern at its slashes, except at those within a set, which never match one. A slash
/// with a \ before it is a slash. Nothing where a set does not end.
std::optional<std::vector<std::string>> Glob::split_pattern(std::string_view pattern) {
  std::vector<std::string> names(1);
  for (size_t at = 0; at < pattern.size();) {
    size_t end = at + 1;
    const bool is_escape = pattern[at] == '\\' && end < pattern.size();
    if (pattern[at] == '/' || (is_escape && pattern[end] == '/')) {
      names.emplace_back();
      at += is_escape ? 2 : 1;
      continue;
    }
    Element set;
    if (is_escape) ++end;
    if (pattern[at] == '[' && !parse_set(pattern, end, set)) return std::nullopt;
    names.back() += pattern.substr(at, end - at);
    at = end;
  }
  return names;
}

Glob::Glob(std::string_view pattern) {
  const auto texts = split_pattern(pattern);
  is_valid_ = texts.has_value();
  if (!is_valid_) return;
  for (const std::string& text : *texts) {
    Name name;
    name.any_folders = text.size() >= 2 && text.find_first_not_of('*') == std::string::npos;
    if (name.any_folders && !names_.empty() && names_.back().any_folders) continue;
    if (!name.any_folders && !parse_name(text, name)) is_valid_ = false;
    names_.push_back(std::move(name));
  }
}

/// When a character does not match, the last * takes one more (see the top of this file).
bool Glob::Name::matches(std::string_view name, uint64_t& steps) const {
  if (is_literal) return name == text;
  size_t at = 0;
  size_t element = 0;
  size_t star = elements.size();  // the element after the last *, and from where on it was tried
  size_t star_at = 0;
  bool has_star = false;
  while (at < name.size()) {
    if (steps == 0) return false;
    --steps;
    if (element < elements.size() && elements[element].kind == Element::kAnyText) {
      has_star = true;
      star = ++element;
      star_at = at;
      continue;
    }
    size_t next = at;
    const char32_t c = take_char(name, next);
    if (element < elements.size() && elements[element].holds(c)) {
      ++element;
      at = next;
    } else if (has_star) {
      element = star;
      take_char(name, star_at);
      at = star_at;
    } else {
      return false;
    }
  }
  while (element < elements.size() && elements[element].kind == Element::kAnyText) ++element;
  return element == elements.size();
}

bool Glob::matches(const std::vector<std::string_view>& names, uint64_t& steps) const {
  if (!is_valid_) return false;
  size_t at = 0;
  size_t mine = 0;
  size_t after_any = 0;  // as in Name::matches, with names for characters and ** for *
  size_t any_at = 0;
  bool has_any = false;
  while (at < names.size()) {
    if (steps == 0) return false;
    --steps;
    if (mine < names_.size() && names_[mine].any_folders) {
      if (mine + 1 == names_.size()) return true;
      has_any = true;
      after_any = ++mine;
      any_at = at;
    } else if (mine < names_.size() && names_[mine].matches(names[at], steps)) {
      ++mine;
      ++at;
    } else if (has_any) {
      mine = after_any;
      at = ++any_at;
    } else {
      return false;
    }
  }
  return mine == names_.size();
}

size_t Glob::memory_bytes() const {
  size_t bytes = sizeof(Glob) + names_.capacity() * sizeof(Name);
  for (const Name& name : names_) {
    bytes += name.text.capacity() + name.elements.capacity() * sizeof(Element);
    for (const Element& element : name.elements) {
      if (element.set) bytes += sizeof(Set) + element.set->others.capacity() * sizeof(Interval);
    }
  }
  return bytes;
}

}  // namespace weft::retrieval
