// As git reads these files (gitignore(5)), with its corner cases: a pattern with a slash is a path
// from the file's own folder, one without matches a name at any depth, and the last pattern that
// matches decides. So rules are asked from the last to the first, and the first match ends it.
#include "retrieval/ignore_rules.h"

#include <algorithm>
#include <utility>

namespace weft::retrieval {
namespace {

/// Without the spaces at the end that no backslash keeps, and a carriage return.
std::string_view trimmed(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  while (line.ends_with(' ')) {  // a tab stays, as in git
    const size_t before = line.size() - 1;
    const size_t last = line.substr(0, before).find_last_not_of('\\');
    const size_t n_backslashes = before - (last == std::string_view::npos ? 0 : last + 1);
    if (n_backslashes % 2 == 1) break;
    line.remove_suffix(1);
  }
  return line;
}

}  // namespace

bool IgnoreRules::add(std::string_view line) {
  if (line.starts_with('#')) return true;
  line = trimmed(line);
  const bool includes = line.starts_with('!');
  if (includes) line.remove_prefix(1);
  const bool folders_only = line.ends_with('/');
  if (folders_only) line.remove_suffix(1);
  if (line.empty()) return true;
  const bool any_depth = line.find('/') == std::string_view::npos;
  if (line.starts_with('/')) line.remove_prefix(1);
  if (line.empty()) return true;
  if (rules_.size() >= kMaxRules || line.size() > kMaxPatternBytes) return false;
  // As a whole pattern ** means the same as *.
  Glob glob(any_depth && line == "**" ? "*" : line);
  if (!glob.is_valid()) return false;
  rules_.push_back({std::move(glob), includes, folders_only, any_depth});
  return true;
}

bool IgnoreRules::add_all(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  bool all = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    all = add(text.substr(0, end)) && all;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return all;
}

size_t IgnoreRules::memory_bytes() const {
  size_t bytes = 0;
  for (const Rule& rule : rules_) bytes += sizeof(Rule) - sizeof(Glob) + rule.glob.memory_bytes();
  return bytes;
}

IgnoreRules::Verdict IgnoreRules::judge(const RelativePath& path, bool is_folder) const {
  uint64_t steps = UINT64_MAX;
  return judge(path, is_folder, steps);
}

IgnoreRules::Verdict IgnoreRules::judge(const RelativePath& path, bool is_folder,
                                        uint64_t& steps) const {
  const std::vector<std::string_view> last{path.names.back()};
  for (size_t i = rules_.size(); i-- > 0;) {
    const Rule& rule = rules_[i];
    if (rule.folders_only && !is_folder) continue;
    const bool matches = rule.glob.matches(rule.any_depth ? last : path.names, steps);
    if (steps == 0) return Verdict::kNothing;
    if (!matches) continue;
    return rule.includes ? Verdict::kIncluded : Verdict::kIgnored;
  }
  return Verdict::kNothing;
}

}  // namespace weft::retrieval
