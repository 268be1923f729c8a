// The integer half of the cache (PagedAttention, Kwon et al. 2023, section 4): which page holds
// which slots of which sequence, and who else holds it. It copies a page before the first write to
// one that is shared, and never writes itself. Each operation takes what memory it needs first and
// changes the sequences after that, so that std::bad_alloc leaves them as they were: only the
// prefix index may have lost pages by then, or have got the first ones of what was to be entered.
#include "kv/block_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "base/narrow.h"

namespace weft::kv {

BlockTables::BlockTables(int32_t page_tokens, int32_t n_pages, PageContents& contents,
                         int32_t window_tokens)
    : page_tokens_(page_tokens),
      window_tokens_(window_tokens),
      pool_(n_pages, contents),
      index_(page_tokens, pool_) {}

const Sequence& BlockTables::get(SequenceId id) const {
  const auto it = sequences_.find(id);
  WEFT_CHECK(it != sequences_.end());
  return it->second;
}

Sequence& BlockTables::get(SequenceId id) {
  return const_cast<Sequence&>(std::as_const(*this).get(id));
}

Status BlockTables::check_settled(SequenceId id) const {
  if (!get(id).has_reservation) return Status::ok();
  return invalid_argument(
      fmt::format("KV cache: sequence {} has an open reservation", to_underlying(id)));
}

int32_t BlockTables::pages_for(int64_t n_tokens) const {
  return narrow<int32_t>((n_tokens + page_tokens_ - 1) / page_tokens_);
}

int32_t BlockTables::first_seen_page(int32_t slot) const {
  if (window_tokens_ == 0) return 0;
  return std::max(0, slot - window_tokens_ + 1) / page_tokens_;
}

namespace {

/// Memory for `n` elements more. By doubling: one at a time, a decode of n tokens would copy its
/// tables n / 16 times.
template <class T>
void reserve_more(std::vector<T>& elements, size_t n) {
  const size_t wanted = elements.size() + n;
  if (wanted > elements.capacity()) elements.reserve(std::max(wanted, 2 * elements.size()));
}

/// The slots up to `end` that no run has yet.
void add_run(std::vector<SlotRun>& runs, int32_t end, SlotKind kind) {
  if (end == (runs.empty() ? 0 : runs.back().end)) return;
  if (!runs.empty() && runs.back().kind == kind) {
    runs.back().end = end;
  } else {
    runs.push_back({end, kind});
  }
}

/// Forgets the slots from `end` on.
void cut_runs(std::vector<SlotRun>& runs, int32_t end) {
  while (!runs.empty() && runs.back().end > end) {
    const int32_t begin = runs.size() == 1 ? 0 : runs[runs.size() - 2].end;
    if (begin >= end) {
      runs.pop_back();
    } else {
      runs.back().end = end;
    }
  }
}

}  // namespace

SequenceId BlockTables::create_sequence(SequenceId id) {
  WEFT_CHECK(sequences_.emplace(id, Sequence{}).second);
  return id;
}

void BlockTables::free_sequence(SequenceId id) {
  if (get(id).has_reservation) roll_back(id);
  drop_pages_from(get(id), 0);
  sequences_.erase(id);
}

Result<SequenceId> BlockTables::fork(SequenceId id, SequenceId copy) {
  WEFT_RETURN_IF_ERROR(check_settled(id));
  const Sequence& original = get(id);
  WEFT_CHECK(!contains(copy));
  sequences_.emplace(copy, original);  // may run out of memory: before pages have another holder
  for (const int32_t page : get(copy).pages) {
    if (page != kNoPage) pool_.retain(page);
  }
  return copy;
}

Status BlockTables::check_growth(const Growth& growth) const {
  WEFT_RETURN_IF_ERROR(check_settled(growth.id));
  if (growth.n_tokens < 0) {
    return invalid_argument(fmt::format("KV cache: {} tokens to reserve", growth.n_tokens));
  }
  const int64_t end = int64_t{length(growth.id)} + growth.n_tokens;
  // A window's pages need not hold a whole sequence; other groups' do, and say when they are full.
  const int64_t most = window_tokens_ > 0 ? INT32_MAX : int64_t{pool_.page_count()} * page_tokens_;
  if (end <= most) return Status::ok();
  return resource_exhausted(
      fmt::format("KV cache: {} tokens asked for, it holds {} at most; a larger "
                  "--kv-limit or context (-c) is needed",
                  end, most));
}

Status BlockTables::too_few_pages(int64_t needed, int64_t evictable,
                                  std::string_view besides) const {
  return resource_exhausted(fmt::format(
      "KV cache: {} more pages of {} tokens needed, {} free and {} evictable of {}; "
      "{}a larger --kv-limit or context (-c), or fewer or shorter requests at once",
      needed, page_tokens_, pool_.free_count(), evictable, pool_.page_count(), besides));
}

// A reservation is a transaction: new pages at the end, a copy of the page that is part full and
// shared, and the kinds of the new slots; roll_back() undoes all three, commit() makes them the
// sequence's.
Result<TableReservation> BlockTables::reserve(SequenceId id, int32_t n_tokens, SlotKind kind) {
  WEFT_RETURN_IF_ERROR(check_growth({id, n_tokens, kind}));
  Sequence& sequence = get(id);
  const int64_t end = int64_t{sequence.length} + n_tokens;
  const int32_t n_new = pages_for(end) - narrow<int32_t>(sequence.pages.size());
  std::vector<int32_t> written;  // slots with committed tokens that will also hold new ones
  if (n_tokens > 0 && sequence.length % page_tokens_ != 0) {
    written.push_back(sequence.length / page_tokens_);
  }
  WEFT_RETURN_IF_ERROR(make_room(sequence, written, n_new));
  // From here on nothing may run out of memory: pages change hands.
  sequence.replaced.reserve(written.size());
  reserve_more(sequence.kinds, 1);
  grow_for(sequence, n_new);

  for (const int32_t slot : written) {
    if (pool_.ref_count(sequence.pages[slot]) == 1) continue;
    sequence.replaced.push_back({slot, replace_by_copy(sequence, slot)});
  }
  for (int32_t i = 0; i < n_new; ++i) append_page(sequence, pool_.allocate());
  add_run(sequence.kinds, narrow<int32_t>(end), kind);
  sequence.reserved = n_tokens;
  sequence.has_reservation = true;
  return TableReservation(this, id, sequence.length, narrow<int32_t>(end));
}

bool BlockTables::surely_fit(std::span<const Growth> growths) const {
  int64_t needed = 0;
  for (const Growth& growth : growths) {
    const Sequence& sequence = get(growth.id);
    const int64_t end = int64_t{sequence.length} + growth.n_tokens;
    needed += pages_for(end) - std::ssize(sequence.pages) + 1;  // one may have to be copied
  }
  return needed <= pool_.free_count() + index_.evictable_count();
}

// A page that is part full and that several hold is copied by each that writes it: the one that
// writes it last, too, since an open reservation keeps the original for a rollback. What the prefix
// index holds beside one sequence needs no copy, as the index forgets it then.
BlockTables::Room BlockTables::room_for(std::span<const Growth> growths,
                                        std::span<const SequenceId> expendable) const {
  std::unordered_set<SequenceId> growing, may_go(expendable.begin(), expendable.end());
  for (const Growth& growth : growths) growing.insert(growth.id);
  std::vector<int32_t> holders(pool_.page_count());  // sequences that stay
  std::vector<bool> is_own(pool_.page_count());
  Room room;
  for (const auto& [id, sequence] : sequences_) {
    const bool grows = growing.contains(id);
    if (!grows && may_go.contains(id)) continue;
    const int32_t first = std::max(sequence.first_page, first_seen_page(sequence.length));
    for (size_t i = std::min<size_t>(first, sequence.pages.size()); i < sequence.pages.size();
         ++i) {
      const int32_t page = sequence.pages[i];
      ++holders[page];
      if (grows && !is_own[page]) ++room.held;
      if (grows) is_own[page] = true;
    }
    for (const ReplacedPage& replaced : sequence.replaced) ++holders[replaced.old_page.page];
  }
  for (const Growth& growth : growths) {
    const Sequence& sequence = get(growth.id);
    room.needed +=
        pages_for(int64_t{sequence.length} + growth.n_tokens) - std::ssize(sequence.pages);
    const bool is_part_full = growth.n_tokens > 0 && sequence.length % page_tokens_ != 0;
    room.needed += is_part_full && holders[sequence.pages.back()] > 1;
  }
  room.available = std::ranges::count(holders, 0);
  return room;
}

void BlockTables::forget_written(std::span<const Growth> growths) {
  for (const Growth& growth : growths) {
    const Sequence& sequence = get(growth.id);
    if (growth.n_tokens == 0 || sequence.length % page_tokens_ == 0) continue;
    const int32_t page = sequence.pages.back();
    if (pool_.ref_count(page) == 2 && index_.contains(page)) index_.remove(page);
  }
}

Status BlockTables::make_room(const Sequence& sequence, std::span<const int32_t> slots,
                              int32_t n_new) {
  const auto page_at = [&](int32_t slot) { return sequence.pages[slot]; };
  const auto needed = [&] {
    return n_new + narrow<int32_t>(std::count_if(slots.begin(), slots.end(), [&](int32_t s) {
             return pool_.ref_count(page_at(s)) > 1;
           }));
  };
  const int32_t wanted = needed();
  if (wanted <= pool_.free_count()) return Status::ok();
  roll_windows(wanted);
  if (wanted <= pool_.free_count()) return Status::ok();

  // A page shared with the index alone needs no copy if the index forgets it: the last resort.
  std::vector<int32_t> forgettable;
  for (const int32_t slot : slots) {
    const int32_t page = page_at(slot);
    if (pool_.ref_count(page) == 2 && index_.contains(page)) forgettable.push_back(page);
  }
  const int32_t evictable = index_.evictable_count();
  const int32_t missing = wanted - pool_.free_count() - evictable;
  if (missing > std::ssize(forgettable)) return too_few_pages(wanted, evictable);
  for (int32_t i = 0; i < missing; ++i) {
    const int32_t page = forgettable[i];
    if (index_.contains(page)) index_.remove(page);  // else it went with a page before it
  }
  const int32_t short_by = needed() - pool_.free_count();
  if (short_by > 0) index_.evict(short_by);
  return Status::ok();
}

// Before the prefix index loses anything: what nobody will read goes first. They are kept until
// then, as a sequence that is cut back may see them again.
void BlockTables::roll_windows(int32_t n_pages) {
  for (auto& [id, sequence] : sequences_) {
    const int32_t end = first_seen_page(sequence.length);
    for (; sequence.first_page < end && pool_.free_count() < n_pages; ++sequence.first_page) {
      int32_t& page = sequence.pages[sequence.first_page];
      pool_.release(std::exchange(page, kNoPage));
      sequence.generations[sequence.first_page] = 0;
    }
  }
}

void BlockTables::grow_for(Sequence& sequence, size_t n_pages) {
  reserve_more(sequence.pages, n_pages);
  reserve_more(sequence.generations, n_pages);
}

void BlockTables::append_page(Sequence& sequence, PageHandle page) {
  sequence.pages.push_back(page.page);
  sequence.generations.push_back(page.generation);
}

void BlockTables::drop_pages_from(Sequence& sequence, int32_t n_pages) {
  while (std::ssize(sequence.pages) > n_pages) {
    if (sequence.pages.back() != kNoPage) pool_.release(sequence.pages.back());
    sequence.pages.pop_back();
    sequence.generations.pop_back();
  }
  sequence.first_page = std::min(sequence.first_page, n_pages);
}

PageHandle BlockTables::replace_by_copy(Sequence& sequence, int32_t slot) {
  const PageHandle old_page{sequence.pages[slot], sequence.generations[slot]};
  const PageHandle copy = pool_.allocate();
  pool_.contents().copy_page(old_page.page, copy.page);
  sequence.pages[slot] = copy.page;
  sequence.generations[slot] = copy.generation;
  return old_page;
}

void BlockTables::grow_kinds(SequenceId id) { reserve_more(get(id).kinds, 1); }

void BlockTables::mark_from(SequenceId id, int32_t slot, SlotKind kind) noexcept {
  Sequence& sequence = get(id);
  const int32_t end = sequence.length + sequence.reserved;
  WEFT_CHECK(sequence.has_reservation && slot >= sequence.length && slot <= end);
  WEFT_CHECK(sequence.kinds.size() < sequence.kinds.capacity());  // grow_kinds()
  cut_runs(sequence.kinds, slot);
  add_run(sequence.kinds, end, kind);
}

// The originals of copied pages were kept for a roll-back until now.
void BlockTables::commit(SequenceId id, int32_t n_tokens) {
  Sequence& sequence = get(id);
  WEFT_CHECK(n_tokens >= 0 && n_tokens <= sequence.reserved);
  for (const ReplacedPage& replaced : sequence.replaced) pool_.release(replaced.old_page.page);
  sequence.replaced.clear();
  sequence.length += n_tokens;
  drop_pages_from(sequence, pages_for(sequence.length));
  cut_runs(sequence.kinds, sequence.length);
  sequence.reserved = 0;
  sequence.has_reservation = false;
}

void BlockTables::roll_back(SequenceId id) {
  Sequence& sequence = get(id);
  drop_pages_from(sequence, pages_for(sequence.length));
  cut_runs(sequence.kinds, sequence.length);
  for (const ReplacedPage& replaced : sequence.replaced) {
    pool_.release(sequence.pages[replaced.slot]);
    sequence.pages[replaced.slot] = replaced.old_page.page;
    sequence.generations[replaced.slot] = replaced.old_page.generation;
  }
  sequence.replaced.clear();
  sequence.reserved = 0;
  sequence.has_reservation = false;
}

Result<BlockTables::Change> BlockTables::truncated(SequenceId id, int32_t n_tokens) const {
  WEFT_RETURN_IF_ERROR(check_settled(id));
  const Sequence& sequence = get(id);
  if (n_tokens < 0 || n_tokens > sequence.length) {
    return invalid_argument(fmt::format("KV cache: cannot truncate a sequence of {} tokens to {}",
                                        sequence.length, n_tokens));
  }
  if (!can_go_on_from(id, n_tokens)) {
    return invalid_argument(
        fmt::format("KV cache: after {} of {} tokens a sequence would see what has left its window",
                    n_tokens, sequence.length));
  }
  Change change{n_tokens, sequence.kinds, sequence.positions};
  cut_runs(change.kinds, n_tokens);
  change.positions.cut(n_tokens);
  return change;
}

Result<BlockTables::Change> BlockTables::without(SequenceId id, int32_t begin, int32_t end) const {
  WEFT_RETURN_IF_ERROR(check_range(id, begin, end));
  const Sequence& sequence = get(id);
  Change change{sequence.length - (end - begin), sequence.kinds, sequence.positions};
  cut_runs(change.kinds, begin);
  add_run(change.kinds, change.length, SlotKind::kFused);
  change.positions.remove(begin, end, sequence.length);
  return change;
}

Result<BlockTables::Change> BlockTables::repositioned(SequenceId id, int32_t begin,
                                                      PositionMap positions) const {
  const Sequence& sequence = get(id);
  WEFT_RETURN_IF_ERROR(check_range(id, begin, sequence.length));
  Change change{sequence.length, sequence.kinds, std::move(positions)};
  cut_runs(change.kinds, begin);
  add_run(change.kinds, sequence.length, SlotKind::kFused);
  return change;
}

void BlockTables::apply(SequenceId id, Change change) noexcept {
  Sequence& sequence = get(id);
  WEFT_CHECK(!sequence.has_reservation && change.length <= sequence.length);
  drop_pages_from(sequence, pages_for(change.length));
  ++sequence.changes;
  sequence.kinds = std::move(change.kinds);
  sequence.positions = std::move(change.positions);
  sequence.length = change.length;
}

Status BlockTables::check_range(SequenceId id, int32_t begin, int32_t end) const {
  WEFT_RETURN_IF_ERROR(check_settled(id));
  if (!is_whole(id)) {
    return invalid_argument(
        "KV cache: tokens cannot be moved in a sequence whose first ones have left a window");
  }
  if (begin >= 0 && begin <= end && end <= length(id)) return Status::ok();
  return invalid_argument(
      fmt::format("KV cache: slots [{}, {}) of a sequence of {} tokens", begin, end, length(id)));
}

Status BlockTables::make_writable(SequenceId id, int32_t begin, int32_t end) {
  WEFT_RETURN_IF_ERROR(check_range(id, begin, end));
  Sequence& sequence = get(id);
  if (begin == end) return Status::ok();
  std::vector<int32_t> slots;
  for (int32_t slot = begin / page_tokens_; slot < pages_for(end); ++slot) slots.push_back(slot);
  WEFT_RETURN_IF_ERROR(make_room(sequence, slots, 0));
  for (const int32_t slot : slots) {
    if (pool_.ref_count(sequence.pages[slot]) == 1) continue;
    pool_.release(replace_by_copy(sequence, slot).page);
  }
  ++sequence.changes;
  return Status::ok();
}

int32_t BlockTables::match_prefix(std::span<const int32_t> tokens, std::string_view salt) const {
  return narrow<int32_t>(index_.match(salt, tokens).size()) * page_tokens_;
}

Result<std::vector<int32_t>> BlockTables::find_prefix(SequenceId id,
                                                      std::span<const int32_t> tokens,
                                                      std::string_view salt) {
  WEFT_RETURN_IF_ERROR(check_settled(id));
  Sequence& sequence = get(id);
  if (sequence.length != 0) {
    return invalid_argument(fmt::format(
        "KV cache: a prefix needs an empty sequence, this one has {} tokens", sequence.length));
  }
  std::vector<int32_t> pages = index_.match(salt, tokens);
  grow_for(sequence, pages.size());
  reserve_more(sequence.kinds, 1);
  return pages;
}

void BlockTables::attach(SequenceId id, std::span<const int32_t> prefix_pages) noexcept {
  Sequence& sequence = get(id);
  WEFT_CHECK(sequence.length == 0 && !sequence.has_reservation);
  for (const int32_t page : prefix_pages) {
    pool_.retain(page);
    append_page(sequence, pool_.handle(page));
    sequence.length += page_tokens_;
  }
  add_run(sequence.kinds, sequence.length, SlotKind::kPrompt);
}

void BlockTables::publish(SequenceId id, std::span<const int32_t> tokens, std::string_view salt) {
  const Sequence& sequence = get(id);
  if (!is_whole(id)) return;
  // Only what was computed as prompt rows after prompt rows is what full prefill would give:
  // decoded and fused K and V differ in their last bits, or by more, and must not be found by
  // others.
  const bool starts_exact =
      !sequence.kinds.empty() && sequence.kinds.front().kind == SlotKind::kPrompt;
  const int32_t n_exact = starts_exact ? std::min(sequence.kinds.front().end, sequence.length) : 0;
  const int64_t n_tokens = std::min<int64_t>(std::ssize(tokens), n_exact);
  index_.insert(salt, tokens, std::span(sequence.pages).first(n_tokens / page_tokens_));
}

int32_t BlockTables::evict_unused() {
  const int32_t n_pages = index_.evictable_count();
  index_.evict(n_pages);
  return n_pages;
}

// A pass that rests between two layers has views of its block tables: its sequences have a
// reservation, so their pages stay where they are, whoever else holds them.
std::vector<bool> BlockTables::pinned_pages() const {
  std::vector<bool> pinned(pool_.page_count());
  for (const auto& [id, sequence] : sequences_) {
    if (!sequence.has_reservation) continue;
    for (size_t i = sequence.first_page; i < sequence.pages.size(); ++i) {
      pinned[sequence.pages[i]] = true;
    }
    for (const ReplacedPage& replaced : sequence.replaced) pinned[replaced.old_page.page] = true;
  }
  return pinned;
}

// Who holds a page is not listed anywhere, so all tables are looked through, once for all moves.
void BlockTables::move_pages(std::span<const PageMove> moves) noexcept {
  for (const PageMove& move : moves) {
    WEFT_CHECK(pool_.move_down(move.from).page == move.to);
    index_.rename(move.from, move.to);
  }
  for (auto& [id, sequence] : sequences_) {
    for (size_t i = sequence.first_page; i < sequence.pages.size(); ++i) {
      const int32_t page = moved_to(moves, sequence.pages[i]);
      if (page == sequence.pages[i]) continue;
      sequence.pages[i] = page;
      sequence.generations[i] = pool_.generation(page);
    }
  }
}

// Once begun it goes on to the end, so that it does not begin again at the next page that is freed.
CompactionStep BlockTables::compact(const CompactionRule& rule, int32_t most_moved,
                                    int32_t most_returned) {
  CompactionStep step;
  if (!wants_compaction(rule)) return step;
  const FreePages& pages = pool_.pages();
  if (most_moved > 0 && pages.used_end() > pages.used_count()) {
    const std::vector<PageMove> moves = plan_moves(pages, pinned_pages(), most_moved);
    move_pages(moves);
    step.moved_pages = narrow<int32_t>(std::ssize(moves));
  }
  step.returned_pages = pool_.give_back(most_returned);
  is_compacting_ = pool_.memory_end() > pages.used_count();
  step.goes_on = is_compacting_;
  return step;
}

Snapshot BlockTables::snapshot() const {
  Snapshot snapshot;
  snapshot.page_tokens = page_tokens_;
  snapshot.window_tokens = window_tokens_;
  for (int32_t page = 0; page < pool_.page_count(); ++page) {
    snapshot.pages.push_back({pool_.ref_count(page), pool_.generation(page)});
  }
  snapshot.free_list = pool_.pages().list();
  snapshot.used_end = pool_.pages().used_end();
  snapshot.memory_end = pool_.memory_end();
  for (const auto& [id, sequence] : sequences_) snapshot.sequences.push_back({id, sequence});
  snapshot.prefix_entries = index_.entries();
  snapshot.unused_pages = index_.unused();
  return snapshot;
}

TableReservation::TableReservation(TableReservation&& other) noexcept
    : tables_(std::exchange(other.tables_, nullptr)),
      sequence_(other.sequence_),
      begin_(other.begin_),
      end_(other.end_) {}

TableReservation& TableReservation::operator=(TableReservation&& other) noexcept {
  if (this == &other) return *this;
  rollback();
  tables_ = std::exchange(other.tables_, nullptr);
  sequence_ = other.sequence_;
  begin_ = other.begin_;
  end_ = other.end_;
  return *this;
}

void TableReservation::grow_kinds() {
  WEFT_CHECK(tables_ != nullptr);
  tables_->grow_kinds(sequence_);
}

void TableReservation::mark_from(int32_t slot, SlotKind kind) noexcept {
  WEFT_CHECK(tables_ != nullptr && slot >= begin_ && slot <= end_);
  tables_->mark_from(sequence_, slot, kind);
}

void TableReservation::commit(int32_t n_tokens) {
  WEFT_CHECK(tables_ != nullptr);
  std::exchange(tables_, nullptr)->commit(sequence_, n_tokens);
}

void TableReservation::rollback() {
  BlockTables* tables = std::exchange(tables_, nullptr);
  if (tables != nullptr && tables->sequences_.contains(sequence_)) tables->roll_back(sequence_);
}

}  // namespace weft::kv
