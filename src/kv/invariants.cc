#include "kv/invariants.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/narrow.h"

namespace weft::kv {
namespace {

class Checker {
 public:
  explicit Checker(const Snapshot& snapshot)
      : snapshot_(snapshot), holders_(snapshot.pages.size(), 0) {}

  std::vector<std::string> run() {
    if (snapshot_.page_tokens <= 0) add("page_tokens is {}", snapshot_.page_tokens);
    for (const auto& named : snapshot_.sequences) check_sequence(named);
    check_prefix_entries();
    check_pages();  // last: it needs the holders
    return std::move(found_);
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    found_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  bool in_range(int32_t page) const { return page >= 0 && page < std::ssize(snapshot_.pages); }

  /// Counts a holder of the page; `slot` is where in a sequence its tokens lie.
  void hold(const std::string& who, PageHandle handle, int32_t slot) {
    if (!in_range(handle.page))
      return add("{} holds page {}, which does not exist", who, handle.page);
    ++holders_[handle.page];
    const uint32_t now = snapshot_.pages[handle.page].generation;
    if (handle.generation != now) {
      add("{} holds page {} of generation {}, which is at {}", who, handle.page, handle.generation,
          now);
    }
    const auto [place, first] = slots_.emplace(handle.page, slot);
    if (!first && place->second != slot) {
      add("{} has page {} in slot {}, another holder in slot {}", who, handle.page, slot,
          place->second);
    }
  }

  void check_sequence(const Snapshot::NamedSequence& named) {
    const Sequence& sequence = named.sequence;
    const std::string who = fmt::format("sequence {}", to_underlying(named.id));
    if (!ids_.insert(named.id).second) add("{} is listed twice", who);
    if (sequence.length < 0) add("{} has length {}", who, sequence.length);
    if (sequence.reserved < 0) add("{} has {} tokens reserved", who, sequence.reserved);
    if (!sequence.has_reservation && sequence.reserved != 0) {
      add("{} has {} tokens reserved without a reservation", who, sequence.reserved);
    }
    if (!sequence.has_reservation && !sequence.replaced.empty()) {
      add("{} keeps {} replaced pages without a reservation", who, sequence.replaced.size());
    }
    check_table_length(who, sequence);
    check_kinds(who, sequence);
    check_positions(who, sequence);
    std::set<int32_t> seen;
    check_window(who, sequence);
    for (int32_t slot = sequence.first_page; slot < std::ssize(sequence.pages); ++slot) {
      const int32_t page = sequence.pages[slot];
      if (!seen.insert(page).second) add("{} has page {} twice", who, page);
      if (slot >= std::ssize(sequence.generations)) continue;  // reported with the table's length
      hold(who, {page, sequence.generations[slot]}, slot);
    }
    for (const ReplacedPage& replaced : sequence.replaced) {
      if (replaced.slot < 0 || replaced.slot >= std::ssize(sequence.pages)) {
        add("{} replaced slot {}, which its table lacks", who, replaced.slot);
      }
      hold(who + " (replaced)", replaced.old_page, replaced.slot);
    }
    check_exclusive(who, sequence);
  }

  /// Pages were given back only where no later token sees them.
  void check_window(const std::string& who, const Sequence& sequence) {
    if (sequence.first_page < 0 || sequence.first_page > std::ssize(sequence.pages)) {
      return add("{} has {} pages and begins at {}", who, sequence.pages.size(),
                 sequence.first_page);
    }
    for (int32_t slot = 0; slot < sequence.first_page; ++slot) {
      if (sequence.pages[slot] != kNoPage) add("{} gave page {} back and has it", who, slot);
    }
    const int64_t first_seen = int64_t{sequence.length} - snapshot_.window_tokens + 1;
    const int64_t first_kept = int64_t{sequence.first_page} * snapshot_.page_tokens;
    if (sequence.first_page > 0 && (snapshot_.window_tokens == 0 || first_kept > first_seen)) {
      add("{} of {} tokens gave back slots up to {} of a window of {}", who, sequence.length,
          first_kept, snapshot_.window_tokens);
    }
  }

  /// Runs that ascend and cover the sequence's slots.
  void check_kinds(const std::string& who, const Sequence& sequence) {
    int64_t end = 0;
    for (size_t i = 0; i < sequence.kinds.size(); ++i) {
      const SlotRun& run = sequence.kinds[i];
      if (run.end <= end) add("{} has a run of slots to {} after one to {}", who, run.end, end);
      if (i > 0 && run.kind == sequence.kinds[i - 1].kind) {
        add("{} has two runs of the same kind at slot {}", who, end);
      }
      end = run.end;
    }
    const int64_t n_tokens = int64_t{sequence.length} + sequence.reserved;
    if (end != n_tokens) add("{} knows the kinds of {} slots, not of {}", who, end, n_tokens);
  }

  /// Positions that do not descend.
  void check_positions(const std::string& who, const Sequence& sequence) {
    int32_t before = 0;
    for (const PositionRun& run : sequence.positions.runs()) {
      if (run.begin < 0 || run.begin > sequence.length) {
        add("{} of {} tokens has a run of positions from slot {}", who, sequence.length, run.begin);
        continue;
      }
      const int32_t last = run.begin == 0 ? 0 : sequence.positions.at(run.begin - 1);
      const int32_t first = sequence.positions.at(run.begin);
      if (last < before || first < last) {
        add("{} has position {} at slot {} after {}", who, first, run.begin, last);
      }
      before = first;
    }
  }

  void check_table_length(const std::string& who, const Sequence& sequence) {
    if (sequence.generations.size() != sequence.pages.size()) {
      add("{} has {} generations for {} pages", who, sequence.generations.size(),
          sequence.pages.size());
    }
    if (snapshot_.page_tokens <= 0) return;
    const int64_t n_tokens = int64_t{sequence.length} + sequence.reserved;
    const int64_t expected = (n_tokens + snapshot_.page_tokens - 1) / snapshot_.page_tokens;
    if (n_tokens >= 0 && expected != std::ssize(sequence.pages)) {
      add("{} has {} pages for {} tokens, not {}", who, sequence.pages.size(), n_tokens, expected);
    }
  }

  /// Reserved positions may be written, so nobody else may hold their pages.
  void check_exclusive(const std::string& who, const Sequence& sequence) {
    if (snapshot_.page_tokens <= 0 || sequence.length < 0 || sequence.reserved <= 0) return;
    const int64_t first = sequence.length / snapshot_.page_tokens;
    for (int64_t slot = first; slot < std::ssize(sequence.pages); ++slot) {
      const int32_t page = sequence.pages[slot];
      if (!in_range(page)) continue;
      const int32_t count = snapshot_.pages[page].ref_count;
      if (count != 1) add("{} may write page {}, which has {} holders", who, page, count);
    }
  }

  void check_prefix_entries() {
    std::unordered_map<int32_t, const PrefixIndex::Entry*> by_page;
    for (const auto& entry : snapshot_.prefix_entries) {
      if (!by_page.emplace(entry.page.page, &entry).second) {
        add("the prefix index has page {} twice", entry.page.page);
      }
    }
    std::map<std::pair<int32_t, std::vector<int32_t>>, int32_t> paths;
    for (const auto& entry : snapshot_.prefix_entries) {
      const int32_t page = entry.page.page;
      hold("the prefix index", entry.page, entry.depth);
      if (std::ssize(entry.tokens) != snapshot_.page_tokens) {
        add("the prefix index has {} tokens for page {}", entry.tokens.size(), page);
      }
      const auto [twin, first] = paths.emplace(std::pair{entry.parent, entry.tokens}, page);
      if (!first) {
        add("the prefix index has pages {} and {} for the same tokens", twin->second, page);
      }
      check_parent(entry, by_page);
    }
    std::set<int32_t> unused;
    for (const auto& entry : snapshot_.prefix_entries) {
      const int32_t page = entry.page.page;
      if (in_range(page) && snapshot_.pages[page].ref_count == 1) unused.insert(page);
    }
    const std::set<int32_t> listed(snapshot_.unused_pages.begin(), snapshot_.unused_pages.end());
    if (listed != unused || std::ssize(snapshot_.unused_pages) != std::ssize(unused)) {
      add("{} pages are listed as held by the prefix index alone, {} are",
          snapshot_.unused_pages.size(), unused.size());
    }
  }

  void check_parent(const PrefixIndex::Entry& entry,
                    const std::unordered_map<int32_t, const PrefixIndex::Entry*>& by_page) {
    const int32_t page = entry.page.page;
    if (entry.parent < 0) {
      if (entry.depth != 0) add("prefix page {} starts at depth {}", page, entry.depth);
      return;
    }
    const auto parent = by_page.find(entry.parent);
    if (parent == by_page.end()) {
      return add("prefix page {} comes after page {}, which the index lacks", page, entry.parent);
    }
    if (int64_t{entry.depth} != int64_t{parent->second->depth} + 1) {
      add("prefix page {} has depth {} after depth {}", page, entry.depth, parent->second->depth);
    }
  }

  void check_pages() {
    std::vector<int32_t> times_free(snapshot_.pages.size(), 0);
    for (const int32_t page : snapshot_.free_list) {
      if (in_range(page)) {
        ++times_free[page];
      } else {
        add("the free list has page {}, which does not exist", page);
      }
    }
    check_ends();
    for (size_t page = 0; page < snapshot_.pages.size(); ++page) {
      const int32_t count = snapshot_.pages[page].ref_count;
      if (count != holders_[page]) {
        add("page {} has reference count {} and {} holders", page, count, holders_[page]);
      }
      if (times_free[page] > 1) add("page {} is {} times in the free list", page, times_free[page]);
      if (times_free[page] > 0 && (count != 0 || holders_[page] > 0)) {
        add("page {} is free and held", page);
      }
      if (times_free[page] == 0 && count == 0) {
        add("page {} is neither free nor held", page);
      }
    }
  }

  /// The lowest free page goes first, and pages in use have memory.
  void check_ends() {
    if (!std::ranges::is_sorted(snapshot_.free_list)) add("the free list does not ascend");
    const auto is_used = [](const Snapshot::Page& page) { return page.ref_count > 0; };
    const auto last =
        std::ranges::find_if(snapshot_.pages.rbegin(), snapshot_.pages.rend(), is_used);
    const int64_t used_end = snapshot_.pages.rend() - last;
    if (snapshot_.used_end != used_end) {
      add("pages in use end at {}, not at {}", used_end, snapshot_.used_end);
    }
    if (snapshot_.memory_end < used_end || snapshot_.memory_end > std::ssize(snapshot_.pages)) {
      add("pages from {} on gave their memory back, those in use end at {} of {}",
          snapshot_.memory_end, used_end, snapshot_.pages.size());
    }
  }

  const Snapshot& snapshot_;
  std::vector<std::string> found_;
  std::vector<int32_t> holders_;  // [pages]
  std::unordered_map<int32_t, int32_t> slots_;
  std::set<SequenceId> ids_;
};

}  // namespace

std::vector<std::string> violations(const Snapshot& snapshot) { return Checker(snapshot).run(); }

std::vector<std::string> violations(const std::vector<Snapshot>& groups) {
  std::vector<std::string> all;
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const std::string& line : violations(groups[i])) {
      all.push_back(fmt::format("layer group {}: {}", i, line));
    }
    const bool agree = std::ranges::equal(
        groups[i].sequences, groups.front().sequences, [](const auto& a, const auto& b) {
          return a.id == b.id && a.sequence.length == b.sequence.length &&
                 a.sequence.reserved == b.sequence.reserved && a.sequence.kinds == b.sequence.kinds;
        });
    if (!agree) all.push_back(fmt::format("layer groups 0 and {} have other sequences", i));
  }
  return all;
}

}  // namespace weft::kv
