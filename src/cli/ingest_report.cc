// A progress line must fit its terminal: one that wraps cannot be drawn over, and every update
// would add a line. So columns are counted here, and what is left off is what matters least: the
// path's beginning, then all of the path, the time left, the rate, the tokens. The percentage
// always shows.
#include "cli/ingest_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/byte_sizes.h"
#include "base/counts_text.h"
#include "base/terminal_text.h"
#include "base/utf8.h"

namespace weft::cli {
namespace {

constexpr size_t kNamesShown = 3;
constexpr uint64_t kBigBytes = 1'000'000'000;

/// Columns of a character, roughly: those of East Asia and emoji take two.
/// By Unicode blocks: an exact table (East Asian Width) would need a page of ranges, and where this
/// one is wrong the line is a column too long or too short.
size_t columns_of(char32_t c) {
  const bool is_wide = (c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xA4CF) ||
                       (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xF900 && c <= 0xFAFF) ||
                       (c >= 0xFE30 && c <= 0xFE6F) || (c >= 0xFF00 && c <= 0xFF60) ||
                       (c >= 0x1F300 && c <= 0x1FAFF) || (c >= 0x20000 && c <= 0x3FFFD);
  return is_wide ? 2 : 1;
}

/// A byte that is no UTF-8 counts as one column, as the U+FFFD that is shown for it.
size_t columns_of(std::string_view text) {
  size_t columns = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t n = std::max<size_t>(utf8_char_bytes(text, at), 1);
    columns += columns_of(n == 1 ? U'x' : decode_utf8_char(text, at, n));
    at += n;
  }
  return columns;
}

/// The end of a text, in so many columns, with … in front where something is missing.
/// The end of a path tells more than its beginning.
std::string last_columns(std::string_view text, size_t columns) {
  if (columns_of(text) <= columns) return std::string(text);
  while (!text.empty() && columns_of(text) + 1 > columns) {
    text.remove_prefix(std::max<size_t>(utf8_char_bytes(text, 0), 1));
  }
  return columns == 0 ? "" : "…" + std::string(text);
}

/// On one line, and no tab, which is as wide as it likes.
std::string shown_name(std::string_view path) {
  std::string name = one_line(terminal_text(path));
  std::ranges::replace(name, '\t', ' ');
  return name;
}

}  // namespace

/// Clamped first: a rate near 0 makes it infinite, and llround of that is undefined.
std::string duration_text(double seconds) {
  const int64_t whole = std::llround(std::clamp(seconds, 0.0, 1e9));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", grouped_digits(whole / 3600), whole / 60 % 60);
}

/// Of a second ingest that finds one new file among thousands, the new is what counts: "1 document,
/// 2 new chunks".
std::string plan_line(const library::IngestPlan& plan) {
  // One line, one thing: what is to be computed, as that is what takes time and room.
  const int64_t stored = plan.chunks - plan.new_chunks;
  const std::string documents = counted(plan.documents, "document");
  if (plan.new_chunks == 0) {
    return fmt::format("ingesting {}, {}: no new KV ({} free)", documents,
                       counted(plan.chunks, "chunk"), size_text(plan.free_bytes));
  }
  std::string line = fmt::format("ingesting {}, {}, {}: {} of KV ({} free)", documents,
                                 counted(plan.new_chunks, stored == 0 ? "chunk" : "new chunk"),
                                 counted(plan.new_tokens, "token"), size_text(plan.new_bytes),
                                 size_text(plan.free_bytes));
  if (stored > 0) {
    // Most is from an earlier ingest; in a new store it is text that several documents have.
    line += fmt::format("; {} {} already", counted(stored, "more chunk"),
                        stored == 1 ? "repeats these or is stored" : "repeat these or are stored");
  }
  if (plan.new_bytes > kBigBytes && plan.largest_bytes > plan.new_bytes / 2) {
    line += fmt::format("; {} of it for {}", size_text(plan.largest_bytes),
                        one_line(plan.largest_path));
  }
  return line;
}

/// The parts that are rare (moved, skipped now) are left out at 0; the others always show.
std::string counts_line(const library::IngestCounts& counts) {
  return fmt::format(
      "{} new, {} changed, {} completed, {}{} deleted{}, {} unchanged document{}; {} skipped",
      counts.added, counts.changed, counts.completed,
      counts.moved > 0 ? fmt::format("{} moved, ", counts.moved) : "", counts.deleted,
      counts.skipped_now > 0 ? fmt::format(" ({} of them skipped now)", counts.skipped_now) : "",
      counts.unchanged, counts.unchanged == 1 ? "" : "s", counts.skipped);
}

/// The rate is of what this run computed, not of tokens whose KV was there already: those go by at
/// once, and the time left would be far too short.
std::string progress_line(const ShownProgress& progress, int columns) {
  const library::IngestProgress& at = progress.at;
  // Of what is computed where something is: that takes the time, and of a large store with a few
  // changes nearly all the rest is there already.
  const bool computes = progress.new_tokens > 0;
  const int64_t total = std::max<int64_t>(computes ? progress.new_tokens : at.total_tokens, 1);
  const int64_t done = computes ? at.computed_tokens : at.done_tokens;
  const auto width = static_cast<size_t>(std::max(columns, 20));
  std::vector<std::string> parts{
      fmt::format("ingest {:3} %", 100 * std::min(done, total) / total),
      fmt::format("{}/{} tokens", grouped_digits(done), grouped_digits(total))};
  if (at.computed_tokens > 0 && progress.elapsed_s > 0) {
    const double rate = at.computed_tokens / progress.elapsed_s;
    const int64_t left = std::max<int64_t>(progress.new_tokens - at.computed_tokens, 0);
    parts.push_back(fmt::format("{} tokens/s", grouped_digits(std::llround(rate))));
    parts.push_back(duration_text(left / rate) + " left");
  }
  std::string line;
  for (const std::string& part : parts) {
    if (line.size() + 2 + part.size() > width) return line;
    line += (line.empty() ? "" : "  ") + part;
  }
  constexpr size_t kLeastName = 8;
  const size_t room = width - line.size();
  if (room < 2 + kLeastName) return line;
  return line + "  " + last_columns(shown_name(at.path), room - 2);
}

void NameGroups::add(const std::string& group, const std::string& name) {
  Names& names = groups_[group];
  ++names.n;
  if (names.first.size() < kNamesShown) names.first.push_back(name);
}

std::vector<NameGroups::Group> NameGroups::groups() const {
  std::vector<Group> groups;
  for (const auto& [name, names] : groups_) {
    Group group{name, names.n, fmt::format("{}", fmt::join(names.first, ", "))};
    if (names.n > std::ssize(names.first)) group.names += ", …";
    groups.push_back(std::move(group));
  }
  return groups;
}

std::string NameGroups::line() const {
  std::vector<Group> all = groups();
  std::ranges::stable_partition(all,
                                [](const Group& group) { return is_told_by_number(group.name); });
  std::vector<std::string> parts;
  for (const Group& group : all) {
    parts.push_back(
        fmt::format("{} {}", grouped_digits(group.n), plural_kind(group.name, group.n)));
    if (!is_told_by_number(group.name)) parts.back() += fmt::format(" ({})", group.names);
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// "by .gitignore", "by --exclude": who hid a file knows its name.
bool is_told_by_number(std::string_view kind) {
  return kind == "hidden" || kind == "node_modules" || kind.starts_with("by ");
}

/// Only nouns of the list get an "s": "2 PDF", "3 hidden" and "4 too large" are right as they are.
std::string plural_kind(const std::string& kind, int64_t n) {
  constexpr auto kNouns = std::to_array<std::string_view>(
      {"RTF document", "archive", "broken link", "database", "e-book", "image", "model",
       "office document", "program", "store", "video"});
  if (n == 1) return kind;
  if (kind == "link out of the folder") return "links out of the folder";
  return std::ranges::find(kNouns, kind) == kNouns.end() ? kind : kind + "s";
}

}  // namespace weft::cli
