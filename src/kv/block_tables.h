// The integer half of the KV cache, for one group of layers: which pages each sequence has, which
// of them are shared, and what a step may write. It moves no K or V itself, it tells a PageContents
// what to copy.
//
// Rules: a page is written by its only holder, so a shared page is copied first (copy-on-write); an
// operation that fails leaves everything as it was; pages that only the prefix index holds are
// dropped when others need them, and where the layers have a window, pages that no later token of
// their sequence sees. A sequence with an open reservation may only be read, published
// or freed: anything else is kInvalidArgument, as are positions outside it. Ids of sequences that
// do not exist are the caller's bugs and abort. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kv/compaction.h"
#include "kv/page_pool.h"
#include "kv/prefix_index.h"
#include "kv/reservation.h"
#include "kv/sequence.h"
#include "kv/snapshot.h"

namespace weft::kv {

class BlockTables {
 public:
  /// page_tokens and n_pages > 0; `contents` must outlive the tables. With a window (0: none) the
  /// layers see so many tokens, their own included, and a sequence may be longer than the pages
  /// hold: its first ones are given back as pages run short.
  BlockTables(int32_t page_tokens, int32_t n_pages, PageContents& contents,
              int32_t window_tokens = 0);
  BlockTables(const BlockTables&) = delete;
  BlockTables& operator=(const BlockTables&) = delete;

  /// `id` was never given before; returned.
  SequenceId create_sequence(SequenceId id);
  bool contains(SequenceId id) const { return sequences_.contains(id); }
  void free_sequence(SequenceId id);
  /// A new sequence, `copy`, with the same tokens, on the same pages.
  Result<SequenceId> fork(SequenceId id, SequenceId copy);

  /// Whether the sequence may grow so, were all pages free: kInvalidArgument when it has an open
  /// reservation or for less than 0 tokens, kResourceExhausted for more than the pages hold.
  Status check_growth(const Growth& growth) const;
  /// kResourceExhausted, with the numbers and what to do; `besides` goes before the flags.
  Status too_few_pages(int64_t needed, int64_t evictable, std::string_view besides = "") const;

  int32_t length(SequenceId id) const { return get(id).length; }
  /// Covers committed and reserved positions; valid until the sequence changes.
  std::span<const int32_t> block_table(SequenceId id) const { return get(id).pages; }

  /// Slots [length, length + n_tokens), n_tokens >= 0, of this kind, on pages of the sequence's
  /// own. Too few pages: kResourceExhausted, saying how many are needed and how many there are.
  Result<TableReservation> reserve(SequenceId id, int32_t n_tokens,
                                   SlotKind kind = SlotKind::kPrompt);
  /// Whether reserve() of all these, one after the other, finds its pages without a look at who
  /// holds what: enough are free, or held by the prefix index alone. In O(growths).
  bool surely_fit(std::span<const Growth> growths) const;
  /// The same, exactly: as if nobody held the pages of `expendable` sequences, which may be freed
  /// first, and with pages given back that have left a window. In O(pages).
  struct Room {
    int64_t needed = 0;     // pages
    int64_t available = 0;  // that no other sequence holds
    int64_t held = 0;       // by the growing sequences themselves, each page once
  };
  Room room_for(std::span<const Growth> growths, std::span<const SequenceId> expendable) const;
  /// The prefix index forgets part full pages that it alone shares with a growing sequence, so that
  /// none of them is copied while another of the sequences needs the page.
  void forget_written(std::span<const Growth> growths);
  /// Of the committed and reserved slots, in runs.
  std::span<const SlotRun> slot_kinds(SequenceId id) const { return get(id).kinds; }
  /// Whether all is there that a token at position n_tokens would see; 0 <= n_tokens <= length.
  bool can_go_on_from(SequenceId id, int32_t n_tokens) const {
    return first_seen_page(n_tokens) >= get(id).first_page || n_tokens == 0;
  }
  /// Whether pages were given back: then the sequence is no prefix and cannot be saved or moved.
  bool is_whole(SequenceId id) const { return get(id).first_page == 0; }
  const PositionMap& positions(SequenceId id) const { return get(id).positions; }
  int64_t changes(SequenceId id) const { return get(id).changes; }

  /// What a sequence is to become. Making one takes memory and changes nothing, apply() takes none:
  /// so it is made for every group of layers before the first of them changes.
  struct Change {
    int32_t length = 0;
    std::vector<SlotRun> kinds;
    PositionMap positions;
  };
  /// Without the tokens from position n_tokens on. kInvalidArgument unless 0 <= n_tokens <= length
  /// and can_go_on_from(n_tokens).
  Result<Change> truncated(SequenceId id, int32_t n_tokens) const;
  /// Without the slots [begin, end); those after them become the slots from `begin` on, which
  /// PageContents must have got by apply(), and are kFused. Errors as in check_range.
  Result<Change> without(SequenceId id, int32_t begin, int32_t end) const;
  /// With other positions of the slots from `begin` on, which are kFused then; `positions` are of
  /// the whole sequence, and PageContents must have K at them by apply(). Errors as in check_range.
  Result<Change> repositioned(SequenceId id, int32_t begin, PositionMap positions) const;
  /// `change` was made of the sequence as it is.
  void apply(SequenceId id, Change change) noexcept;
  /// kInvalidArgument unless the sequence is settled and whole and 0 <= begin <= end <= length.
  Status check_range(SequenceId id, int32_t begin, int32_t end) const;
  /// Copies the shared ones of the pages that hold [begin, end), 0 <= begin <= end <= length, so
  /// that the range may be overwritten. kResourceExhausted as in reserve; kInvalidArgument where
  /// the sequence is not whole.
  Status make_writable(SequenceId id, int32_t begin, int32_t end);

  /// How many tokens from the start of `tokens` are cached: a multiple of page_tokens.
  int32_t match_prefix(std::span<const int32_t> tokens, std::string_view salt) const;
  /// The pages of what match_prefix finds, with memory set aside for attach(); kInvalidArgument
  /// unless the sequence is settled and empty.
  Result<std::vector<int32_t>> find_prefix(SequenceId id, std::span<const int32_t> tokens,
                                           std::string_view salt);
  /// Gives the sequence the pages that find_prefix has just found. Takes no memory.
  void attach(SequenceId id, std::span<const int32_t> prefix_pages) noexcept;
  /// Enters the full committed pages of the sequence's start into the prefix index, as far as their
  /// slots are prompt ones. `tokens` are the sequence's first ids.
  void publish(SequenceId id, std::span<const int32_t> tokens, std::string_view salt);
  /// Gives up every page that only the prefix index holds; returns how many.
  int32_t evict_unused();

  /// Whether compact() has something to do: pages with memory are more than the rule allows, or a
  /// compaction has begun. In O(1).
  bool wants_compaction(const CompactionRule& rule) const {
    return is_compacting_ || is_sparse(pool_.pages().used_count(), pool_.memory_end(), rule);
  }
  /// A step of it: moves at most so many pages (>= 0) from the high end to free ones at the low
  /// end, and gives back the memory of at most so many above those in use. Block tables and the
  /// prefix index name the new pages afterwards; those of sequences with an open reservation are
  /// pinned and stay. In O(entries of all block tables) where pages move. std::bad_alloc comes
  /// before anything has changed.
  CompactionStep compact(const CompactionRule& rule, int32_t most_moved, int32_t most_returned);

  int32_t page_tokens() const { return page_tokens_; }
  const PagePool& pool() const { return pool_; }
  /// Pages that only the prefix index holds: dropped when others need them.
  int32_t evictable_page_count() const { return index_.evictable_count(); }
  Snapshot snapshot() const;

 private:
  friend class TableReservation;

  /// kInvalidArgument when the sequence has an open reservation.
  Status check_settled(SequenceId id) const;
  const Sequence& get(SequenceId id) const;
  Sequence& get(SequenceId id);
  int32_t pages_for(int64_t n_tokens) const;
  /// The first page of which the token in this slot, or a later one, sees a slot.
  int32_t first_seen_page(int32_t slot) const;
  /// Gives back pages that no later token of their sequence sees, until n_pages are free.
  void roll_windows(int32_t n_pages);
  /// Makes n_new pages free, and one for each page of `slots` that is still shared then.
  Status make_room(const Sequence& sequence, std::span<const int32_t> slots, int32_t n_new);
  void mark_from(SequenceId id, int32_t slot, SlotKind kind) noexcept;
  /// Memory for one run of kinds more, so that mark_from() takes none.
  void grow_kinds(SequenceId id);
  /// Room for n_pages more, so that append_page cannot run out of memory.
  static void grow_for(Sequence& sequence, size_t n_pages);
  void append_page(Sequence& sequence, PageHandle page);
  void drop_pages_from(Sequence& sequence, int32_t n_pages);
  /// Puts a copy into the slot; the old page stays retained, for the caller.
  PageHandle replace_by_copy(Sequence& sequence, int32_t slot);
  std::vector<bool> pinned_pages() const;
  /// Moves the pages and renames them wherever they are named.
  void move_pages(std::span<const PageMove> moves) noexcept;
  void commit(SequenceId id, int32_t n_tokens);
  void roll_back(SequenceId id);

  int32_t page_tokens_;
  int32_t window_tokens_;  // 0: none
  PagePool pool_;
  PrefixIndex index_;
  std::map<SequenceId, Sequence> sequences_;
  bool is_compacting_ = false;  // until no page without use has memory
};

}  // namespace weft::kv
