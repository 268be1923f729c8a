// One set of block tables and one memory for each layer group; every operation goes to all of them,
// and what takes memory or can fail comes before the first of them changes, or is undone in the
// others, so that they always know the same sequences with the same lengths. Groups differ in their
// windows only. One that rolls (llama.cpp's iSWA cache) has pages for a window and a step of each
// sequence; where all layers have a window, a group without layers keeps the tables of whole
// sequences, whose pages are what is counted.
#include "kv/cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/check.h"
#include "base/narrow.h"

namespace weft::kv {

Result<std::unique_ptr<Cache>> Cache::create(const Options& options) {
  if (options.n_layers <= 0 || options.capacity_tokens <= 0 || options.layout.page_tokens <= 0) {
    return invalid_argument(fmt::format(
        "KV cache: {} layers, capacity of {} tokens in pages of {}: each must be at least 1",
        options.n_layers, options.capacity_tokens, options.layout.page_tokens));
  }
  const std::vector<int32_t>& groups = options.layer_groups;
  // Groups are numbered as they come, so that a gap or a number out of turn is a caller's mistake.
  std::vector<int32_t> sizes;  // layers of each group
  if (groups.empty()) sizes.push_back(options.n_layers);
  for (const int32_t group : groups) {
    if (group < 0 || group > std::ssize(sizes)) {
      return invalid_argument(
          fmt::format("KV cache: layer group {} after {} others", group, sizes.size()));
    }
    if (group == std::ssize(sizes)) sizes.push_back(0);
    ++sizes[group];
  }
  if (!groups.empty() && std::ssize(groups) != options.n_layers) {
    return invalid_argument(fmt::format("KV cache: {} layers have a group, there are {}",
                                        groups.size(), options.n_layers));
  }
  if (!options.windows.empty() && options.windows.size() != sizes.size()) {
    return invalid_argument(fmt::format("KV cache: windows of {} layer groups, there are {}",
                                        options.windows.size(), sizes.size()));
  }
  std::unique_ptr<Cache> cache(new Cache());
  cache->layout_ = options.layout;
  WEFT_RETURN_IF_ERROR(cache->add_groups(options, sizes));
  std::vector<int32_t> n_before(sizes.size());
  for (int32_t layer = 0; layer < options.n_layers; ++layer) {
    const int32_t group = groups.empty() ? 0 : groups[layer];
    cache->layers_.push_back({.group = group, .index = n_before[group]++});
  }
  WEFT_RETURN_IF_ERROR(cache->use_digests(options.digests));
  return cache;
}

Status Cache::add_groups(const Options& options, std::span<const int32_t> sizes) {
  const auto add = [&](int32_t n_layers, int32_t n_pages, int32_t window) -> Status {
    WEFT_ASSIGN_OR_RETURN(
        auto memory,
        PageMemory::create({.n_layers = n_layers, .n_pages = n_pages, .layout = options.layout}));
    groups_.push_back(
        std::make_unique<Group>(std::move(memory), options.layout.page_tokens, n_pages, window));
    return Status::ok();
  };
  const auto pages_of = [&](int64_t n_tokens) {
    const int32_t page_tokens = options.layout.page_tokens;
    return narrow<int32_t>((n_tokens + page_tokens - 1) / page_tokens);
  };
  const int32_t all = pages_of(options.capacity_tokens);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const RollingWindow w = options.windows.empty() ? RollingWindow() : options.windows[i];
    const int32_t n_pages = pages_of(w.capacity_tokens);
    const bool rolls = w.window_tokens > 0 && n_pages < all;
    WEFT_RETURN_IF_ERROR(add(sizes[i], rolls ? n_pages : all, rolls ? w.window_tokens : 0));
  }
  const auto whole = std::ranges::find_if(groups_, [](const auto& group) { return !group->rolls; });
  counted_group_ = narrow<int32_t>(whole - groups_.begin());
  return whole == groups_.end() ? add(0, all, 0) : Status::ok();
}

// Ids are never used again: one that is freed twice, or used after it, is found out.
SequenceId Cache::create_sequence() {
  const SequenceId id{next_id_++};
  try {
    for (const auto& group : groups_) group->tables.create_sequence(id);
  } catch (...) {  // out of memory: in all of the groups or in none
    for (const auto& group : groups_) {
      if (group->tables.contains(id)) group->tables.free_sequence(id);
    }
    throw;
  }
  return id;
}

void Cache::free_sequence(SequenceId id) {
  std::erase(expendable_, id);
  for (const auto& group : groups_) group->tables.free_sequence(id);
}

Result<SequenceId> Cache::fork(SequenceId id) {
  const SequenceId copy{next_id_++};
  try {
    for (const auto& group : groups_) {
      // One that refuses is the first of them: all know the same sequences.
      WEFT_RETURN_IF_ERROR(group->tables.fork(id, copy).status());
    }
  } catch (...) {
    for (const auto& group : groups_) {
      if (group->tables.contains(copy)) group->tables.free_sequence(copy);
    }
    throw;
  }
  return copy;
}

Result<Reservation> Cache::reserve(SequenceId id, int32_t n_tokens, SlotKind kind) {
  const Growth growth[] = {{id, n_tokens, kind}};
  WEFT_ASSIGN_OR_RETURN(std::vector<Reservation> one, reserve_all(growth));
  return std::move(one.front());
}

// Whether all of it fits is known before anything is touched, so a request that cannot fit takes
// nothing from anyone. As a rule a few additions tell; who holds which page is counted only where
// the cache is nearly full of sequences. Expendable ones (a chunk's anchor that nobody computes
// with at the moment) then go one at a time.
Result<std::vector<Reservation>> Cache::reserve_all(std::span<const Growth> growths,
                                                    Remedy* remedy) {
  Remedy unused;
  if (remedy == nullptr) remedy = &unused;
  *remedy = Remedy::kGiveUp;
  WEFT_RETURN_IF_ERROR(check_growths(growths));
  const auto fits = [&](const auto& group) { return group->tables.surely_fit(growths); };
  if (!std::ranges::all_of(groups_, fits)) {
    WEFT_RETURN_IF_ERROR(check_room(growths, expendable_, *remedy));
    make_room(growths);
  }
  std::vector<Reservation> reservations;
  for (const Growth& growth : growths) {
    WEFT_ASSIGN_OR_RETURN(Reservation one,
                          reserve_in_groups(growth.id, growth.n_tokens, growth.kind));
    reservations.push_back(std::move(one));
  }
  return reservations;
}

// Before the first sequence takes a page: it would copy one that it shares with an expendable
// sequence or with the index, and another that needs the copy's page would find none.
void Cache::make_room(std::span<const Growth> growths) {
  Remedy unused;
  while (!check_room(growths, {}, unused).is_ok()) {
    const auto other = std::ranges::find_if(expendable_, [&](SequenceId id) {
      return std::ranges::count(growths, id, &Growth::id) == 0;
    });
    WEFT_CHECK(other != expendable_.end());
    free_sequence(*other);
  }
  for (const auto& group : groups_) group->tables.forget_written(growths);
}

Status Cache::check_growths(std::span<const Growth> growths) const {
  for (const Growth& growth : growths) {
    WEFT_CHECK(std::ranges::count(growths, growth.id, &Growth::id) == 1);
    WEFT_RETURN_IF_ERROR(tables().check_growth(growth));
  }
  return Status::ok();
}

Status Cache::check_room(std::span<const Growth> growths, std::span<const SequenceId> expendable,
                         Remedy& remedy) const {
  for (const auto& group : groups_) {
    const BlockTables::Room room = group->tables.room_for(growths, expendable);
    if (room.needed <= room.available) continue;
    const PagePool& pool = group->tables.pool();
    const bool others_hold_enough = room.held + room.needed <= pool.page_count();
    remedy = others_hold_enough ? Remedy::kWait : Remedy::kShrink;
    return group->tables.too_few_pages(room.needed, room.available - pool.free_count(),
                                       others_hold_enough ? "wait until others end, or take " : "");
  }
  return Status::ok();
}

Result<Reservation> Cache::reserve_in_groups(SequenceId id, int32_t n_tokens, SlotKind kind) {
  std::vector<TableReservation> reserved;  // those of the groups so far, undone on an error
  reserved.reserve(groups_.size());
  for (const auto& group : groups_) {
    WEFT_ASSIGN_OR_RETURN(TableReservation one, group->tables.reserve(id, n_tokens, kind));
    reserved.push_back(std::move(one));
  }
  // The page in which the sequence ends may have had tokens after it, and with them a digest: of
  // the sequence before it was cut, or of a fork that is gone.
  forget_digests(id, length(id), length(id) + std::min(n_tokens, 1));
  return Reservation(std::move(reserved));
}

int32_t Cache::longest_cut(SequenceId id, int32_t n_tokens) const {
  const bool all_can = std::ranges::all_of(
      groups_, [&](const auto& group) { return group->tables.can_go_on_from(id, n_tokens); });
  return all_can ? n_tokens : 0;
}

bool Cache::is_whole(SequenceId id) const {
  return std::ranges::all_of(groups_,
                             [&](const auto& group) { return group->tables.is_whole(id); });
}

Result<Cache::Changes> Cache::make_changes(
    FunctionRef<Result<BlockTables::Change>(const BlockTables&)> make) const {
  Changes changes;
  changes.reserve(groups_.size());
  for (const auto& group : groups_) {
    WEFT_ASSIGN_OR_RETURN(BlockTables::Change change, make(group->tables));
    changes.push_back(std::move(change));
  }
  return changes;
}

void Cache::apply(SequenceId id, Changes changes) noexcept {
  for (size_t i = 0; i < groups_.size(); ++i) {
    groups_[i]->tables.apply(id, std::move(changes[i]));
  }
}

Status Cache::truncate(SequenceId id, int32_t n_tokens) {
  WEFT_ASSIGN_OR_RETURN(Changes changes, make_changes([&](const BlockTables& tables) {
                          return tables.truncated(id, n_tokens);
                        }));
  apply(id, std::move(changes));
  return Status::ok();
}

// Tokens move, rather than leave a hole. A hole would have to be known to every kernel that reads
// pages, and what comes after it is rewritten anyway, as K is stored rotated; V is copied beside
// it. Only pages that are written become the sequence's own; those past the new end are read, and
// dropped.
Status Cache::remove(SequenceId id, int32_t begin, int32_t end, FunctionRef<Turn> move) {
  WEFT_ASSIGN_OR_RETURN(Changes changes, make_changes([&](const BlockTables& tables) {
                          return tables.without(id, begin, end);
                        }));
  if (begin == end) return Status::ok();
  const int32_t length = this->length(id);
  if (end < length) {
    const std::vector<int32_t> by(length - end, position(id, begin) - position(id, end));
    WEFT_RETURN_IF_ERROR(make_writable(id, begin, length - (end - begin)));
    move(by);
  }
  apply(id, std::move(changes));
  return Status::ok();
}

Status Cache::shift(SequenceId id, int32_t begin, int32_t end, int32_t delta,
                    FunctionRef<Turn> turn) {
  WEFT_RETURN_IF_ERROR(tables().check_range(id, begin, end));
  PositionMap positions = tables().positions(id);
  if (!positions.can_shift(begin, end, delta, length(id))) {
    return invalid_argument(fmt::format(
        "KV cache: slots [{}, {}) of {} cannot be shifted by {}: positions would be negative, too "
        "large, or before those of earlier tokens",
        begin, end, length(id), delta));
  }
  positions.shift(begin, end, delta, length(id));
  return reposition(id, begin, end, positions, turn);
}

Status Cache::divide(SequenceId id, int32_t begin, int32_t end, int32_t divisor,
                     FunctionRef<Turn> turn) {
  WEFT_RETURN_IF_ERROR(tables().check_range(id, begin, end));
  PositionMap positions = tables().positions(id);
  if (!positions.can_divide(begin, end, divisor, length(id))) {
    return invalid_argument(fmt::format(
        "KV cache: positions of slots [{}, {}) of {} cannot be divided by {}: it must be at least "
        "1, and tokens stay in order",
        begin, end, length(id), divisor));
  }
  positions.divide(begin, end, divisor, length(id));
  return reposition(id, begin, end, positions, turn);
}

Status Cache::set_positions(SequenceId id, const PositionMap& positions,
                            FunctionRef<TurnSlots> turn) {
  const PositionMap& now = tables().positions(id);
  if (positions == now) return Status::ok();
  WEFT_RETURN_IF_ERROR(tables().check_range(id, 0, length(id)));
  const auto stays = [&](int32_t slot) { return positions.at(slot) == now.at(slot); };
  int32_t begin = 0, end = length(id);
  while (begin < end && stays(begin)) ++begin;
  while (begin < end && stays(end - 1)) --end;
  if (begin < end) {
    return reposition(id, begin, end, positions,
                      [&](std::span<const int32_t> by) { turn(begin, by); });
  }
  WEFT_ASSIGN_OR_RETURN(Changes changes, make_changes([&](const BlockTables& tables) {
                          return tables.repositioned(id, tables.length(id), positions);
                        }));
  apply(id, std::move(changes));
  return Status::ok();
}

// K is turned at once and not when it is read next: decode reads all of it in the next step.
Status Cache::reposition(SequenceId id, int32_t begin, int32_t end, const PositionMap& positions,
                         FunctionRef<Turn> turn) {
  std::vector<int32_t> by;
  for (int32_t slot = begin; slot < end; ++slot) {
    by.push_back(positions.at(slot) - position(id, slot));
  }
  if (std::ranges::count(by, 0) == std::ssize(by)) return Status::ok();
  WEFT_ASSIGN_OR_RETURN(Changes changes, make_changes([&](const BlockTables& tables) {
                          return tables.repositioned(id, begin, positions);
                        }));
  WEFT_RETURN_IF_ERROR(make_writable(id, begin, end));
  turn(by);
  apply(id, std::move(changes));
  return Status::ok();
}

Status Cache::make_writable(SequenceId id, int32_t begin, int32_t end) {
  // A group that rolls may have let go what the slots hold, or do so to make room for a copy.
  if (std::ranges::any_of(groups_, [](const auto& group) { return group->rolls; })) {
    return invalid_argument(
        "KV cache: layers keep a rolling window, so no token in the middle can be changed");
  }
  for (const auto& group : groups_) {
    WEFT_RETURN_IF_ERROR(group->tables.make_writable(id, begin, end));
  }
  forget_digests(id, begin, end);
  return Status::ok();
}

void Cache::forget_digests(SequenceId id, int32_t begin, int32_t end) noexcept {
  if (begin == end) return;
  for (const auto& group : groups_) {
    if (!group->contents.digests) continue;
    const std::span<const int32_t> table = group->tables.block_table(id);
    for (int32_t i = begin / page_tokens(); i <= (end - 1) / page_tokens(); ++i) {
      if (table[i] != kNoPage) group->contents.digests->forget(table[i]);
    }
  }
}

int64_t Cache::layer_channels(const DigestFormat& format) const {
  return layout_.n_kv_heads * kernels::n_label_channels(label_layout(format, layout_));
}

Status Cache::use_digests(const std::optional<DigestFormat>& format) {
  for (const auto& group : groups_) group->contents.digests.reset();
  if (!format) return Status::ok();
  const int64_t n_channels = format->labels ? n_layers() * layer_channels(*format) : 0;
  WEFT_CHECK(std::ssize(format->channels) == n_channels ||
             (format->channels.empty() && format->labels != kernels::LabelKind::kChannels));
  // Here, and not where each layer of each step takes its own: they are thousands.
  for (const uint8_t channel : format->channels) WEFT_CHECK(channel < layout_.head_dim);
  WEFT_CHECK(format->layers.empty() || std::ssize(format->layers) == n_layers());
  std::vector<int32_t> n_layers_of(groups_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (!format->layers.empty() && !format->layers[i]) continue;
    layers_[i].digest_index = n_layers_of[layers_[i].group]++;
  }
  std::vector<std::optional<PageDigests>> made(groups_.size());
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (n_layers_of[i] == 0) continue;
    WEFT_ASSIGN_OR_RETURN(made[i], PageDigests::create(*format, layout_, n_layers_of[i],
                                                       groups_[i]->tables.pool().page_count()));
  }
  for (size_t i = 0; i < groups_.size(); ++i) groups_[i]->contents.digests = std::move(made[i]);
  label_channels_ = format->channels;
  layer_channels_ = format->labels ? layer_channels(*format) : 0;
  return Status::ok();
}

// Asked for by the first step that selects, and not made as pages fill: most prompts are answered
// in fewer tokens than any budget, and those pages' digests nobody reads.
LayerDigests Cache::digests(const kernels::Context& context, int32_t index,
                            std::span<const int32_t> pages) {
  const Layer& layer = layers_[index];
  Group& group = *groups_[layer.group];
  const PagePool& pool = group.tables.pool();
  const int64_t first_channel = index * layer_channels_;
  PageDigests& kept = group.contents.digests.value();
  const LayerDigests all =
      kept.layer(layer.digest_index,
                 label_channels_.empty() ? nullptr : label_channels_.data() + first_channel);
  const std::span<const int32_t> missing = kept.missing(layer.digest_index, pages, pool);
  if (missing.empty()) return all;
  const kernels::PagedKv kv = group.contents.memory.layer(layer.index);
  kernels::make_digests(context, kv, missing, all.digests);
  if (all.labels) kernels::make_labels(context, kv, missing, all.digests, *all.labels);
  kept.set_made(layer.digest_index, missing, pool);
  return all;
}

// The least of what the groups have: a layer without K and V of a token cannot attend to it.
int32_t Cache::match_prefix(std::span<const int32_t> tokens, std::string_view salt) const {
  int32_t n_tokens = INT32_MAX;
  for (const auto& group : groups_) {
    n_tokens = std::min(n_tokens, group->tables.match_prefix(tokens, salt));
  }
  return n_tokens;
}

Result<int32_t> Cache::attach_prefix(SequenceId id, std::span<const int32_t> tokens,
                                     std::string_view salt) {
  const auto found = tokens.first(match_prefix(tokens, salt));
  std::vector<std::vector<int32_t>> pages;  // of each group
  for (const auto& group : groups_) {
    WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> of_group,
                          group->tables.find_prefix(id, found, salt));
    pages.push_back(std::move(of_group));
  }
  for (size_t i = 0; i < groups_.size(); ++i) groups_[i]->tables.attach(id, pages[i]);
  return length(id);
}

void Cache::publish(SequenceId id, std::span<const int32_t> tokens, std::string_view salt) {
  for (const auto& group : groups_) group->tables.publish(id, tokens, salt);
}

int32_t OwnedSequence::exact_length() const {
  int32_t begin = 0;
  for (const SlotRun& run : cache_->slot_kinds(id_)) {
    if (run.kind == SlotKind::kFused) break;
    begin = run.end;
  }
  return std::min(begin, length());
}

int32_t Cache::evict_unused_prefixes() {
  int32_t n_pages = 0;
  for (const auto& group : groups_) n_pages = std::max(n_pages, group->tables.evict_unused());
  return n_pages;
}

// Groups share a step's bytes. A page may be larger than what a step may move: then it is the only
// one of the step.
CompactionStep Cache::give_back_memory(const CompactionRule& rule) noexcept {
  CompactionStep all;
  int64_t to_move = rule.moved_bytes, to_return = rule.returned_bytes;
  for (const auto& group : groups_) {
    if (!group->tables.wants_compaction(rule)) continue;
    const int64_t page_bytes = group->contents.memory.page_bytes();
    const int32_t moved = to_move > 0 ? pages_of_step(to_move, page_bytes) : 0;
    const int32_t returned = to_return > 0 ? pages_of_step(to_return, page_bytes) : 0;
    CompactionStep step{.goes_on = true};
    try {
      step = group->tables.compact(rule, moved, returned);
    } catch (const std::bad_alloc&) {  // before it changed anything: another time
    }
    to_move -= step.moved_pages * page_bytes;
    to_return -= step.returned_pages * page_bytes;
    all.moved_pages += step.moved_pages;
    moves_ += step.moved_pages;
    all.returned_pages += step.returned_pages;
    all.goes_on |= step.goes_on;
  }
  return all;
}

kernels::PagedKv Cache::layer(int index) {
  const Layer& layer = layers_[index];
  return groups_[layer.group]->contents.memory.layer(layer.index);
}

namespace {

/// Calls copy(a vector's bytes in the pages, its place among K [n_slots][n_kv_heads] and then V as
/// many, how many bytes) for each of them.
template <class Fn>
void for_each_vector(const kernels::PagedKv& kv, std::span<const int32_t> table, int32_t n_slots,
                     const Fn& copy) {
  const int64_t n_vectors = int64_t{n_slots} * kv.layout.n_kv_heads;
  for (int32_t slot = 0; slot < n_slots; ++slot) {
    for (int32_t head = 0; head < kv.layout.n_kv_heads; ++head) {
      const int64_t i = int64_t{slot} * kv.layout.n_kv_heads + head;
      copy(kernels::k_at(kv, table.data(), slot, head), i * kv.k_bytes, kv.k_bytes);
      copy(kernels::v_at(kv, table.data(), slot, head), n_vectors * kv.k_bytes + i * kv.v_bytes,
           kv.v_bytes);
    }
  }
}

}  // namespace

// By slots and not by pages: what was saved can be restored in pages of another size, and the first
// slots of it alone.
Status Cache::save(SequenceId id, int32_t n_slots,
                   FunctionRef<Status(std::span<const std::byte>)> on_layer) {
  WEFT_CHECK(n_slots >= 0 && n_slots <= length(id));
  if (!is_whole(id)) {
    return invalid_argument("KV cache: a sequence whose first tokens left a window is not saved");
  }
  if (!tables().positions(id).is_plain()) {
    return invalid_argument("KV cache: a sequence with shifted positions is not saved");
  }
  std::vector<std::byte> bytes(n_slots * kernels::kv_token_bytes(layout_));
  for (int32_t i = 0; i < n_layers(); ++i) {
    for_each_vector(layer(i), layer_table(id, i), n_slots,
                    [&](const uint8_t* vector, int64_t at, int64_t n_bytes) {
                      std::memcpy(&bytes[at], vector, n_bytes);
                    });
    WEFT_RETURN_IF_ERROR(on_layer(bytes));
  }
  return Status::ok();
}

Result<SequenceId> Cache::restore(
    int32_t n_slots, std::span<const SlotRun> kinds,
    FunctionRef<Status(int32_t layer, std::span<std::byte>)> read_layer) {
  OwnedSequence sequence(*this);  // it goes where anything fails
  WEFT_RETURN_IF_ERROR(fill(sequence.id(), n_slots, kinds, read_layer));
  return sequence.release();
}

Status Cache::fill(SequenceId id, int32_t n_slots, std::span<const SlotRun> kinds,
                   FunctionRef<Status(int32_t layer, std::span<std::byte>)> read_layer) {
  WEFT_ASSIGN_OR_RETURN(Reservation reservation, reserve(id, n_slots));
  // Only now, as n_slots is a file's to say: what has pages is a part of the cache's own size.
  std::vector<std::byte> bytes(n_slots * kernels::kv_token_bytes(layout_));
  int32_t begin = 0;
  for (const SlotRun& run : kinds) {
    WEFT_CHECK(run.end >= begin && run.end <= n_slots);
    reservation.mark_from(begin, run.kind);
    begin = run.end;
  }
  WEFT_CHECK(begin == n_slots);
  for (int32_t i = 0; i < n_layers(); ++i) {
    WEFT_RETURN_IF_ERROR(read_layer(i, bytes));
    for_each_vector(layer(i), layer_table(id, i), n_slots,
                    [&](uint8_t* vector, int64_t at, int64_t n_bytes) {
                      std::memcpy(vector, &bytes[at], n_bytes);
                    });
  }
  reservation.commit();
  return Status::ok();
}

int64_t Cache::page_bytes() const {
  int64_t n_bytes = 0;
  for (const auto& group : groups_) n_bytes += group->contents.memory.page_bytes();
  return n_bytes;
}

int64_t Cache::memory_bytes() const {
  int64_t n_bytes = 0;
  for (const auto& group : groups_) {
    n_bytes += group->contents.memory.page_bytes() * group->tables.pool().page_count();
  }
  return n_bytes;
}

int64_t Cache::resident_bytes() {
  int64_t n_bytes = 0;
  for (const auto& group : groups_) n_bytes += group->contents.memory.resident_bytes();
  return n_bytes;
}

int64_t Cache::digest_resident_bytes() {
  int64_t n_bytes = 0;
  for (const auto& group : groups_) {
    if (group->contents.digests) n_bytes += group->contents.digests->resident_bytes();
  }
  return n_bytes;
}

// The group with the fewest is what a reservation meets first.
int32_t Cache::free_page_count() const {
  int32_t n_pages = INT32_MAX;
  for (const auto& group : groups_) {
    if (!group->rolls) n_pages = std::min(n_pages, group->tables.pool().free_count());
  }
  return n_pages;
}

int32_t Cache::evictable_page_count() const {
  int32_t n_pages = INT32_MAX;
  for (const auto& group : groups_) {
    if (group->rolls) continue;
    int32_t of_group = group->tables.evictable_page_count();
    const PagePool& pool = group->tables.pool();
    for (const SequenceId id : expendable_) {
      of_group += narrow<int32_t>(std::ranges::count_if(
          group->tables.block_table(id), [&](int32_t page) { return pool.ref_count(page) == 1; }));
    }
    n_pages = std::min(n_pages, of_group);
  }
  return n_pages;
}

std::vector<Snapshot> Cache::snapshots() const {
  std::vector<Snapshot> all;
  for (const auto& group : groups_) all.push_back(group->tables.snapshot());
  return all;
}

}  // namespace weft::kv
