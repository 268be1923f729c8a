// The paged KV cache: sequences of tokens over shared pages, with their memory. The one
// thing that model, fusion and engine use of this room. It computes no K or V and decides no
// policy: callers say what is reserved, shared and published.
//
// A step: reserve() its positions, run the layers (write_kv and attention over layer(i) with
// block_table()), commit(). A failed step drops the reservation and the cache is as it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/narrow.h"
#include "base/status.h"
#include "kernels/context.h"
#include "kernels/paged_kv.h"
#include "kv/block_tables.h"
#include "kv/page_digests.h"
#include "kv/page_memory.h"
#include "kv/reservation.h"
#include "kv/sequence.h"
#include "kv/snapshot.h"

namespace weft::kv {

/// What helps a reservation for which there are too few pages.
enum class Remedy {
  kWait,    // others hold enough: it fits once they end
  kShrink,  // fewer of the sequences, or fewer tokens of them, would fit
  kGiveUp,  // one sequence alone is longer than the cache
};

/// How a group of layers rolls, in tokens. Its pages must hold, of every sequence that is computed,
/// a window and what a step adds; it rolls only where that is less than the cache's capacity.
struct RollingWindow {
  int32_t window_tokens = 0;    // that a token sees, its own included; 0: the group keeps all
  int32_t capacity_tokens = 0;  // rounded up to whole pages
};

/// Layers belong to groups: those of a group need the same slots for the same time, so they share
/// block tables and pages. All operations are of every group, and std::bad_alloc leaves sequences
/// as they were in all of them.
///
/// A group of layers with a sliding window may roll: it has fewer pages than the others, and gives
/// back a sequence's first ones once no later token sees them and pages run short. Such a sequence
/// is no prefix for others, and can be neither saved nor have tokens removed.
///
/// One thread. A sequence with an open reservation may only be read, published or freed: anything
/// else is kInvalidArgument, as are positions outside the sequence. Ids of sequences that do not
/// exist are the caller's bugs and abort.
///
/// A token lies in a slot and has a position, which RoPE counts by: the slot's number, unless shift
/// or divide changed it. Windows and the causal mask count slots.
class Cache {
 public:
  /// Is told by how many positions each token is to move, in the order of their slots. What it
  /// throws it throws before it changes anything.
  using Turn = void(std::span<const int32_t> by);

  struct Options {
    int n_layers = 0;
    std::vector<int32_t> layer_groups;  // [n_layers], numbers from 0 on without gaps; empty: all 0
    kernels::KvLayout layout;           // of one layer
    int32_t capacity_tokens = 0;        // of all sequences together; rounded up to whole pages
    /// Of each group, or empty: none rolls.
    std::vector<RollingWindow> windows;
    std::optional<DigestFormat> digests;  // as use_digests
  };
  /// kInvalidArgument, kUnsupported: numbers that no cache can have, or that the kernels do not
  /// take. kResourceExhausted: not enough address space. Memory is taken as pages are written.
  static Result<std::unique_ptr<Cache>> create(const Options& options);

  SequenceId create_sequence();
  bool contains(SequenceId id) const { return tables().contains(id); }
  /// Ends its reservation, too, if one is open.
  void free_sequence(SequenceId id);
  /// It is freed when others need its pages, and contains() is false from then on. It has no open
  /// reservation whenever others reserve.
  void make_expendable(SequenceId id) { expendable_.push_back(id); }
  /// A new sequence with the same tokens; pages are shared until one of the two writes them.
  Result<SequenceId> fork(SequenceId id);
  /// Committed tokens.
  int32_t length(SequenceId id) const { return tables().length(id); }
  /// Page ids for committed and reserved positions, of the layers of a group; valid until the
  /// sequence changes.
  std::span<const int32_t> block_table(SequenceId id, int32_t group) const {
    return groups_[group]->tables.block_table(id);
  }
  /// Of the group that the layer belongs to.
  std::span<const int32_t> layer_table(SequenceId id, int layer) const {
    return block_table(id, group_of(layer));
  }
  int32_t n_groups() const { return narrow<int32_t>(groups_.size()); }
  /// 0 <= layer < n_layers.
  int32_t group_of(int layer) const { return layers_[layer].group; }

  /// The positions [length, length + n_tokens), writable and the sequence's alone; n_tokens >= 0.
  /// kResourceExhausted with the pages needed, free and evictable; then nothing has changed.
  /// Unused pages of the prefix index and expendable sequences are dropped for it, which a rollback
  /// does not bring back.
  /// `kind` is what will make the slots' K and V; Reservation::mark_from tells of several.
  Result<Reservation> reserve(SequenceId id, int32_t n_tokens, SlotKind kind = SlotKind::kPrompt);
  /// The same for several sequences, each once: all of them or none, in their order. After
  /// kResourceExhausted nothing has changed, the prefix index and expendable sequences neither, and
  /// *remedy (may be null) says what would help.
  Result<std::vector<Reservation>> reserve_all(std::span<const Growth> growths,
                                               Remedy* remedy = nullptr);
  /// What made the sequence's slots, in runs.
  std::span<const SlotRun> slot_kinds(SequenceId id) const { return tables().slot_kinds(id); }
  /// n_tokens where a sequence can be cut to so many, or 0 where the tokens after them would see
  /// what has left a window; 0 <= n_tokens <= length.
  int32_t longest_cut(SequenceId id, int32_t n_tokens) const;
  /// Drops the tokens from position n_tokens on; n_tokens is longest_cut(n_tokens).
  Status truncate(SequenceId id, int32_t n_tokens);
  /// Whether no group has given back pages of it.
  bool is_whole(SequenceId id) const;
  /// Takes the tokens [begin, end) out, 0 <= begin <= end <= length: those after them come to lie
  /// from slot `begin` on, on pages of the sequence's own, and no index finds them by their ids
  /// from then on. `move` is called once, if there are any, before tables change; it moves the K
  /// and V of all layers from slots [end, length) to [begin, …) (kernels::move_in_pages). The first
  /// of them gets the position of slot `begin`. Errors as in make_writable, and then `move` was not
  /// called.
  Status remove(SequenceId id, int32_t begin, int32_t end, FunctionRef<Turn> move);
  /// What RoPE and the model's scales count by; 0 <= slot. Past the length the slot's that comes.
  int32_t position(SequenceId id, int32_t slot) const { return tables().positions(id).at(slot); }
  /// The tokens in slots [begin, end) get other positions, by `delta` or divided by `divisor` > 0
  /// and rounded down; 0 <= begin <= end <= length. `turn` is called once, unless nothing changes:
  /// it turns the K of all layers in these slots (V stays, and every other slot). Later tokens go
  /// on after the last one's position. From `begin` on no index finds the tokens by their ids.
  /// kInvalidArgument where positions would descend from one slot to the next, or be negative;
  /// otherwise as make_writable, and then `turn` was not called.
  Status shift(SequenceId id, int32_t begin, int32_t end, int32_t delta, FunctionRef<Turn> turn);
  Status divide(SequenceId id, int32_t begin, int32_t end, int32_t divisor, FunctionRef<Turn> turn);
  /// The same with other positions of all slots, also those past the length: `turn` is told from
  /// which slot on how many positions each token is to move; those before and after stay where they
  /// are. It is not called where all do.
  using TurnSlots = void(int32_t begin, std::span<const int32_t> by);
  Status set_positions(SequenceId id, const PositionMap& positions, FunctionRef<TurnSlots> turn);
  /// Call before overwriting committed positions [begin, end): shared pages among them are copied
  /// first, so that neither forks nor the prefix index see the change. kInvalidArgument where
  /// layers keep a rolling window; otherwise errors as in reserve.
  Status make_writable(SequenceId id, int32_t begin, int32_t end);

  /// How many tokens of the start of `tokens` the prefix index has: a multiple of page_tokens. What
  /// one tenant's salt has published, another's does not find. Pass all but the last token of a
  /// prompt: its logits have to be computed.
  int32_t match_prefix(std::span<const int32_t> tokens, std::string_view salt = {}) const;
  /// Gives an empty sequence what match_prefix finds; returns its length afterwards.
  Result<int32_t> attach_prefix(SequenceId id, std::span<const int32_t> tokens,
                                std::string_view salt = {});
  /// Enters the full committed pages of the sequence's start into the prefix index, as far as their
  /// slots are prompt ones: what was decoded or fused is never found by token ids. `tokens` must be
  /// the sequence's first ids. After std::bad_alloc the first of the pages may be there, in some
  /// groups more than in others: found is what all have.
  void publish(SequenceId id, std::span<const int32_t> tokens, std::string_view salt = {});
  /// Empties the prefix index but for pages in use; returns the pages freed.
  int32_t evict_unused_prefixes();

  /// A bounded step of giving back memory that pages no longer need, once more than the rule allows
  /// has none in it: pages move to the low end, in every group, and what is above them goes back to
  /// the system. Call it between steps; it takes O(1) when there is nothing to do. Contents,
  /// lengths and what the prefix index finds stay; page ids change, but for those of sequences with
  /// an open reservation. Without memory for its plan it does nothing.
  CompactionStep give_back_memory(const CompactionRule& rule = {}) noexcept;

  /// 0 <= index < n_layers; valid as long as the cache.
  kernels::PagedKv layer(int index);
  /// What digests() makes from now on; none: it is not called. kResourceExhausted when there is no
  /// address space: then there are none.
  Status use_digests(const std::optional<DigestFormat>& format);
  /// The layer's digests, and labels where use_digests asked for them, of which those of `pages`
  /// are there: made now, where a page had none since it was last written. Each is full, be it of
  /// slots that a reservation holds. Valid as layer() is, until the pages are written.
  LayerDigests digests(const kernels::Context& context, int32_t layer,
                       std::span<const int32_t> pages);
  int32_t n_layers() const { return narrow<int32_t>(layers_.size()); }
  const kernels::KvLayout& layout() const { return layout_; }

  /// Grows whenever committed slots of the sequence go, or get other K: for those who remember what
  /// they saw in them.
  int64_t changes(SequenceId id) const { return tables().changes(id); }
  /// Grows whenever pages move (give_back_memory()): for those who remember page ids of committed
  /// slots.
  int64_t moves() const { return moves_; }

  /// Hands on K and V of the sequence's first n_slots committed slots, layer after layer, each as
  /// bytes: K [n_slots][n_kv_heads] vectors of the layer's type, then V. They are valid during the
  /// call. The first error ends it; kInvalidArgument for one that is not whole.
  Status save(SequenceId id, int32_t n_slots,
              FunctionRef<Status(std::span<const std::byte>)> on_layer);
  /// A new sequence of n_slots slots that `kinds` made (ends ascending, the last is n_slots):
  /// read_layer(layer, bytes) fills what save() hands on. After an error of it, or
  /// kResourceExhausted as in reserve (before anything is allocated), there is no sequence more.
  Result<SequenceId> restore(int32_t n_slots, std::span<const SlotRun> kinds,
                             FunctionRef<Status(int32_t layer, std::span<std::byte>)> read_layer);
  /// K and V of a page of each group: all layers.
  int64_t page_bytes() const;
  /// Of all pages of all groups.
  int64_t memory_bytes() const;
  /// Of them, what the system has taken memory for. It asks the system: for reports.
  int64_t resident_bytes();
  /// For tests: the same of the pages' digests.
  int64_t digest_resident_bytes();

  // Pages are counted in slots: one of each group is one. A group that rolls has fewer, and is not
  // counted: it has enough as long as the others do.
  /// A group that does not roll.
  int32_t counted_group() const { return counted_group_; }
  int32_t page_tokens() const { return tables().page_tokens(); }
  int32_t page_count() const { return tables().pool().page_count(); }
  int32_t free_page_count() const;
  /// Held by sequences or by the prefix index.
  int32_t used_page_count() const { return page_count() - free_page_count(); }
  /// Of the used ones, those that only the prefix index or expendable sequences hold.
  int32_t evictable_page_count() const;
  /// Of each group.
  std::vector<Snapshot> snapshots() const;

 private:
  /// K and V of a group's pages, and their digests, whose memory goes back together.
  struct Contents : PageContents {
    explicit Contents(PageMemory pages) : memory(std::move(pages)) {}
    void copy_page(int32_t from, int32_t to) override { memory.copy_page(from, to); }
    void page_freed(int32_t page) override { memory.page_freed(page); }
    void give_back(int32_t begin, int32_t end) override {
      memory.give_back(begin, end);
      if (digests) digests->give_back(begin, end);
    }
    PageMemory memory;
    std::optional<PageDigests> digests;
  };
  struct Group {
    Group(PageMemory pages, int32_t page_tokens, int32_t n_pages, int32_t window_tokens)
        : contents(std::move(pages)),
          rolls(window_tokens > 0),
          tables(page_tokens, n_pages, contents, window_tokens) {}
    Contents contents;  // before tables, which refers to it
    bool rolls;
    BlockTables tables;
  };
  struct Layer {
    int32_t group = 0;
    int32_t index = 0;         // of the group's layers
    int32_t digest_index = 0;  // of those of them that have digests
  };

  Cache() = default;
  Status check_growths(std::span<const Growth> growths) const;
  /// kResourceExhausted where pages are too few, those of `expendable` sequences counted as free.
  Status check_room(std::span<const Growth> growths, std::span<const SequenceId> expendable,
                    Remedy& remedy) const;
  void make_room(std::span<const Growth> growths);
  /// Slots [begin, end) of pages that are the sequence's alone are to be written.
  void forget_digests(SequenceId id, int32_t begin, int32_t end) noexcept;
  /// Of DigestFormat::channels, which has labels.
  int64_t layer_channels(const DigestFormat& format) const;
  Result<Reservation> reserve_in_groups(SequenceId id, int32_t n_tokens, SlotKind kind);
  Status reposition(SequenceId id, int32_t begin, int32_t end, const PositionMap& positions,
                    FunctionRef<Turn> turn);
  using Changes = std::vector<BlockTables::Change>;  // of each group
  Result<Changes> make_changes(
      FunctionRef<Result<BlockTables::Change>(const BlockTables&)> make) const;
  void apply(SequenceId id, Changes changes) noexcept;
  Status fill(SequenceId id, int32_t n_slots, std::span<const SlotRun> kinds,
              FunctionRef<Status(int32_t layer, std::span<std::byte>)> read_layer);
  Status add_groups(const Options& options, std::span<const int32_t> sizes);
  const BlockTables& tables() const { return groups_[counted_group_]->tables; }

  std::vector<std::unique_ptr<Group>> groups_;
  int32_t counted_group_ = 0;
  std::vector<Layer> layers_;
  kernels::KvLayout layout_;             // of every layer
  int64_t moves_ = 0;                    // of pages
  std::vector<uint8_t> label_channels_;  // DigestFormat's
  int64_t layer_channels_ = 0;           // of these
  std::vector<SequenceId> expendable_;
  int64_t next_id_ = 0;
};

/// How many pages there are, and how many of them are taken.
struct Usage {
  int32_t page_tokens = 0;
  int32_t pages = 0;
  int32_t free = 0;
  int32_t evictable = 0;  // that are dropped when others need them
  int32_t held() const { return pages - free - evictable; }  // by sequences
};

/// A sequence that is freed at its end, unless it was given away. Movable. The cache must outlive
/// it.
class OwnedSequence {
 public:
  explicit OwnedSequence(Cache& cache) : OwnedSequence(cache, cache.create_sequence()) {}
  OwnedSequence(Cache& cache, SequenceId id) : cache_(&cache), id_(id) {}
  ~OwnedSequence() {
    if (cache_ != nullptr) cache_->free_sequence(id_);
  }
  OwnedSequence(OwnedSequence&& other) noexcept
      : cache_(std::exchange(other.cache_, nullptr)), id_(other.id_) {}
  OwnedSequence& operator=(OwnedSequence&& other) noexcept {
    std::swap(cache_, other.cache_);
    std::swap(id_, other.id_);
    return *this;
  }
  SequenceId id() const { return id_; }
  bool is_of(const Cache& cache) const { return cache_ == &cache; }
  /// Cache::fork.
  Result<OwnedSequence> fork() const {
    WEFT_ASSIGN_OR_RETURN(const SequenceId copy, cache_->fork(id_));
    return OwnedSequence(*cache_, copy);
  }
  /// Committed tokens.
  int32_t length() const { return cache_->length(id_); }
  /// Its first tokens whose K and V depend on nothing but their ids: up to the first kFused slot.
  int32_t exact_length() const;
  int32_t longest_cut(int32_t n_tokens) const { return cache_->longest_cut(id_, n_tokens); }
  bool is_whole() const { return cache_->is_whole(id_); }
  /// Cache::truncate.
  Status truncate(int32_t n_tokens) { return cache_->truncate(id_, n_tokens); }
  SequenceId release() {
    cache_ = nullptr;
    return id_;
  }

 private:
  Cache* cache_;  // null: given away
  SequenceId id_;
};

}  // namespace weft::kv
