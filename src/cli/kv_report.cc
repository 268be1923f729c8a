#include "cli/kv_report.h"

#include <fmt/format.h>

#include <utility>

#include "base/byte_sizes.h"
#include "base/narrow.h"

namespace weft::cli {
namespace {

std::string layers_of(const engine::GroupUse& group) {
  const char* const plural = group.n_layers == 1 ? "" : "s";
  return group.window_tokens == 0 ? fmt::format("{} layer{} that see all", group.n_layers, plural)
                                  : fmt::format("{} layer{} with a window of {}", group.n_layers,
                                                plural, group.window_tokens);
}

std::string bytes_text(const engine::GroupUse& group, int32_t n_pages) {
  return size_text(narrow<uint64_t>(n_pages * group.page_bytes));
}

/// Of all groups; tokens decide between two moments with the same pages.
std::pair<int64_t, int64_t> fullness(const std::vector<engine::GroupUse>& groups) {
  int64_t n_bytes = 0, n_tokens = 0;
  for (const engine::GroupUse& group : groups) {
    n_bytes += group.pages.used() * group.page_bytes;
    n_tokens += group.pages.tokens;
  }
  return {n_bytes, n_tokens};
}

}  // namespace

std::vector<std::string> kv_lines(const std::vector<engine::GroupUse>& groups) {
  std::vector<std::string> lines;
  for (const engine::GroupUse& group : groups) {
    const kv::PageUse& pages = group.pages;
    std::string line = "KV cache  ";
    if (groups.size() > 1) line += layers_of(group) + ": ";
    line += fmt::format("{} of {} pages used ({}", pages.used(), pages.pages,
                        bytes_text(group, pages.used()));
    if (pages.cached > 0) line += fmt::format("; {} kept for later prompts", pages.cached);
    line += fmt::format(
        "), {} shared by several, {} free; {} of {} slots without a token ({:.1f} %)", pages.shared,
        pages.free, pages.wasted_slots(), pages.held_slots(), 100 * pages.wasted_share());
    lines.push_back(std::move(line));
  }
  return lines;
}

void FullestKv::see(const std::vector<engine::GroupUse>& groups) {
  if (groups_.empty() || fullness(groups) > fullness(groups_)) groups_ = groups;
}

}  // namespace weft::cli
