// A few rules over lines instead of a parser for YAML. What is wanted is the title and the short
// lines that people search for (tags, aliases, dates); a parser would bring YAML's references and
// merges into untrusted input, and would refuse a whole block for one line that is not valid. Each
// line is looked at once, so time is linear.
//
// The danger is the other way round: a note that begins with a rule (---) is no front matter, and
// would lose its text. So a block counts only if its first line that says anything has a key, all
// at its margin is a key, a list's item or a closing bracket, and a second fence comes within 64
// KB.
#include "documents/front_matter.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/ascii.h"

namespace weft::documents {
namespace {

constexpr size_t kMaxBlockBytes = 64 * 1024;  // far above any real block; bounds the search
constexpr std::string_view kBlanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

/// Removes the first line from `text` and returns it without its line end.
std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

/// The key of a line `key: …` or `key = …`; "" for other lines. A colon within a word (`og:title`)
/// is part of the key.
std::string_view key_of(std::string_view line, char separator) {
  size_t at = line.find(separator);
  while (separator == ':' && at != std::string_view::npos && at + 1 < line.size() &&
         kBlanks.find(line[at + 1]) == std::string_view::npos) {
    at = line.find(separator, at + 1);
  }
  if (at == std::string_view::npos) return {};
  std::string_view key = trimmed(line.substr(0, at));
  if (key.size() >= 2 && key.front() == key.back() && (key[0] == '"' || key[0] == '\'')) {
    key = key.substr(1, key.size() - 2);
  }
  return key;
}

/// A scalar on one line without its quotes; "" where it is anything else.
std::string scalar(std::string_view value, bool is_toml) {
  value = trimmed(value);
  if (value.empty()) return "";
  const char quote = value[0];
  std::string out;
  if (quote == '"' || quote == '\'') {
    for (size_t i = 1; i < value.size(); ++i) {
      const char c = value[i];
      const char after = i + 1 < value.size() ? value[i + 1] : '\0';
      if (quote == '"' && c == '\\' && (after == '"' || after == '\\')) {
        out += after;
        ++i;
      } else if (quote == '\'' && c == quote && after == quote && !is_toml) {
        out += quote;
        ++i;
      } else if (c == quote) {
        return out;
      } else {
        out += c;
      }
    }
    return "";  // it does not end on this line
  }
  // Lists, maps, block texts, anchors, tags and references are no simple scalars.
  if (is_toml || std::string_view("[{>|&*!%@`").find(quote) != std::string_view::npos) return "";
  for (const std::string_view comment : {" #", "\t#"}) value = value.substr(0, value.find(comment));
  return std::string(trimmed(value));
}

/// Whether a line without a key may begin at the margin in YAML, as a list's item and the end of a
/// list or map in brackets may. Prose between two rules may not.
bool may_be_at_margin(std::string_view said) {
  return said == "-" || said.starts_with("- ") || said.starts_with("-\t") || said[0] == ']' ||
         said[0] == '}';
}

bool is_title(std::string_view key) { return equals_ignoring_case(key, "title"); }

/// A value that says yes, no or nothing: nobody searches for it.
bool is_flag(std::string_view value) {
  constexpr std::string_view kFlags[] = {"true", "false", "yes", "no", "on", "off", "null", "~"};
  return std::ranges::find(kFlags, value) != std::end(kFlags);
}

/// Collects those lines of a block that FrontMatter::properties describes.
class Properties {
 public:
  explicit Properties(std::vector<Property>& out) : out_(out) {}

  void add_key(const Property& property, std::string_view value) {
    list_.reset();
    in_list_ = false;
    value = trimmed(value);
    if (value.empty()) {
      list_ = property;  // kept back: it goes in once an item follows
    } else if (is_simple(value)) {
      add(property);
    }
  }
  /// An item of the list whose key was added last. The key's own line goes in before its first
  /// item.
  void add_item(const Property& property, std::string_view value) {
    if (!in_list_ && !list_) return;
    value = trimmed(value);
    if (value.empty() || !is_simple(value) || !key_of(value, ':').empty()) return;
    if (list_) add(*std::exchange(list_, std::nullopt));
    in_list_ = true;
    add(property);
  }

 private:
  /// A scalar, or a list in brackets that is not empty; no map, block text, reference or flag.
  static bool is_simple(std::string_view value) {
    if (value[0] == '[') return value.size() > 2 && value.back() == ']';
    return std::string_view("]{}>|&*!%@`#").find(value[0]) == std::string_view::npos &&
           !is_flag(value);
  }
  void add(const Property& property) {
    constexpr size_t kMaxLineBytes = 200;
    constexpr size_t kMaxBytes = 2048;
    if (property.text.size() > kMaxLineBytes || n_bytes_ + property.text.size() > kMaxBytes) return;
    n_bytes_ += property.text.size();
    out_.push_back(property);
  }

  std::vector<Property>& out_;
  std::optional<Property> list_;  // a key without a value on its line, before its first item
  bool in_list_ = false;          // an item of the last key was added
  size_t n_bytes_ = 0;
};

}  // namespace

FrontMatter front_matter_of(std::string_view text) {
  std::string_view rest = text;
  const std::string_view fence = trimmed(take_line(rest));
  const bool is_toml = fence == "+++";
  if (text.starts_with(' ') || (fence != "---" && !is_toml)) return {};
  const char separator = is_toml ? '=' : ':';
  FrontMatter found;
  bool has_key = false;
  bool in_table = false;
  Properties properties(found.properties);
  uint64_t line_number = 1;
  while (!rest.empty() && text.size() - rest.size() <= kMaxBlockBytes) {
    const std::string_view line = take_line(rest);
    const std::string_view said = trimmed(line);
    const Property property{line.substr(0, line.find_last_not_of(kBlanks) + 1), ++line_number};
    if (said == fence || (!is_toml && said == "...")) {
      if (line.starts_with(' ') || line.starts_with('\t')) continue;  // part of a block text
      while (!rest.empty()) {
        std::string_view after = rest;
        if (!trimmed(take_line(after)).empty()) break;
        rest = after;
      }
      found.end = text.size() - rest.size();
      return found;
    }
    if (said.empty() || said[0] == '#') continue;
    const bool begins_table = is_toml && said[0] == '[';
    in_table = in_table || begins_table;
    const std::string_view key = key_of(line, separator);
    if (!has_key && key.empty() && !begins_table) return {};
    has_key = true;
    const bool is_at_margin = !line.starts_with(' ') && !line.starts_with('\t');
    if (!is_toml && is_at_margin && key.empty() && !may_be_at_margin(said)) return {};
    const bool is_own = !in_table && is_at_margin;
    if (is_own && found.title.empty() && is_title(key)) {
      found.title = scalar(line.substr(line.find(separator) + 1), is_toml);
    }
    if (!is_toml && (said.starts_with("- ") || said.starts_with("-\t"))) {
      properties.add_item(property, said.substr(1));
    } else if (is_own && !key.empty() && !(is_title(key) && !found.title.empty())) {
      // From the key's end on: a key may have colons in it, and so may a value.
      const size_t at = line.find(separator, line.find(key) + key.size());
      properties.add_key(property, line.substr(std::min(at, line.size() - 1) + 1));
    }
  }
  return {};
}

}  // namespace weft::documents
