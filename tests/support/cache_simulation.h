// Random operations on a KV cache, with pages scarce and two tenants on them, against a naive
// model: every sequence is a list of what each of its tokens should read as, and where it should
// be. After each operation the invariants hold, and every slot of every sequence reads as the model
// says. What a prompt's row reads as follows from its tenant and the ids before it alone, so a page
// of one tenant that another found would show, and so would a freed one, as it is poisoned. A test
// drives it by seeds, a fuzzer by bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/narrow.h"
#include "kv/cache.h"
#include "kv/invariants.h"

namespace weft::test {

inline constexpr int32_t kPageTokens = 16;
inline constexpr std::array<const char*, 2> kSalts = {"", "another tenant"};

struct Token {
  int32_t id = 0;
  uint32_t value = 0;    // that V has
  int32_t position = 0;  // that K has
  kv::SlotKind kind = kv::SlotKind::kPrompt;
};
struct NaiveSequence {
  int salt = 0;
  std::vector<Token> tokens;
  size_t n_exact() const {
    return std::ranges::find_if(tokens,
                                [](const Token& t) { return t.kind != kv::SlotKind::kPrompt; }) -
           tokens.begin();
  }
  std::vector<int32_t> ids(size_t n) const {
    std::vector<int32_t> all;
    for (size_t i = 0; i < n; ++i) all.push_back(tokens[i].id);
    return all;
  }
};

inline uint32_t next_value(uint32_t before, int32_t id) {
  return ((before ^ narrow<uint32_t>(id + 1)) * 0x9e3779b9u + 0x1234567u) & 0xffffff;
}
inline uint32_t first_value(int salt) { return narrow<uint32_t>(salt) * 77 + 1; }

class CacheSimulation {
 public:
  /// `random` gives any numbers, a seed's or a fuzzer's.
  CacheSimulation(std::function<uint32_t()> random, int32_t n_pages) : random_(std::move(random)) {
    auto cache = kv::Cache::create({.n_layers = 2,
                                    .layer_groups = {0, 1},
                                    .layout = {DType::kF32, DType::kF32, 8, 1, kPageTokens},
                                    .capacity_tokens = n_pages * kPageTokens});
    WEFT_CHECK(cache.is_ok());
    cache_ = std::move(*cache);
  }

  /// One random operation, and a look at everything after it. False: something was wrong before.
  bool step() {
    if (error_.empty()) do_one();
    if (error_.empty()) check();
    return error_.empty();
  }
  /// Frees everything.
  void finish() {
    while (error_.empty() && !naive_.empty()) free_one();
    cache_->evict_unused_prefixes();
    require(cache_->free_page_count() == cache_->page_count(), "pages are left at the end");
  }
  /// What was wrong first; empty: nothing.
  const std::string& error() const { return error_; }

  std::map<std::string, int> did;

 private:
  using Iterator = std::map<kv::SequenceId, NaiveSequence>::iterator;
  int32_t pick(int64_t n) { return narrow<int32_t>(random_() % n); }
  /// Whether it holds; the first that does not is kept.
  bool require(bool holds, std::string_view what) {
    if (!holds && error_.empty()) error_ = what;
    return holds;
  }
  Iterator any() { return std::next(naive_.begin(), pick(std::ssize(naive_))); }
  static int32_t length(Iterator it) { return narrow<int32_t>(it->second.tokens.size()); }

  // In each of the two layers, which are groups of their own.
  template <class Fn>
  void for_slot(kv::SequenceId id, int32_t slot, const Fn& fn) {
    for (int layer = 0; layer < 2; ++layer) {
      const kernels::PagedKv kv = cache_->layer(layer);
      const int32_t* table = cache_->layer_table(id, layer).data();
      fn(*reinterpret_cast<float*>(kernels::k_at(kv, table, slot, 0)),
         *reinterpret_cast<float*>(kernels::v_at(kv, table, slot, 0)));
    }
  }
  void write(kv::SequenceId id, int32_t slot, const Token& token) {
    for_slot(id, slot, [&](float& k, float& v) {
      k = token.position;
      v = token.value;
    });
  }

  void do_one() {
    if (naive_.empty()) return create();
    using Operation = void (CacheSimulation::*)();
    constexpr Operation kOperations[] = {
        &CacheSimulation::create,    &CacheSimulation::fork,
        &CacheSimulation::fork,      &CacheSimulation::free_one,
        &CacheSimulation::free_one,  &CacheSimulation::truncate,
        &CacheSimulation::publish,   &CacheSimulation::publish,
        &CacheSimulation::attach,    &CacheSimulation::attach,
        &CacheSimulation::grow,      &CacheSimulation::grow,
        &CacheSimulation::grow,      &CacheSimulation::grow,
        &CacheSimulation::grow,      &CacheSimulation::remove,
        &CacheSimulation::shift,     &CacheSimulation::divide,
        &CacheSimulation::overwrite, &CacheSimulation::evict,
        &CacheSimulation::save,      &CacheSimulation::make_expendable,
        &CacheSimulation::give_back, &CacheSimulation::give_back};
    if (naive_.size() > 8) return free_one();
    (this->*kOperations[pick(std::ssize(kOperations))])();
  }

  void create() { naive_[cache_->create_sequence()].salt = pick(2); }
  void fork() {
    const auto it = any();
    const NaiveSequence copy = it->second;
    naive_[*cache_->fork(it->first)] = copy;
  }
  void free_one() {
    const auto it = any();
    cache_->free_sequence(it->first);
    naive_.erase(it);
  }
  void make_expendable() {
    const auto it = any();
    if (pick(2) == 0 && expendable_.insert(it->first).second) cache_->make_expendable(it->first);
  }
  void evict() {
    if (pick(4) == 0) cache_->evict_unused_prefixes();
  }
  /// A step, at times without slack, of a page or of as many as there are. `open`: sequences whose
  /// reservation is open, which keep their pages.
  void give_back(std::span<const kv::Growth> open) {
    const int64_t bytes = pick(2) == 0 ? 1 : INT64_MAX;
    const kv::CompactionRule rule{.slack_pages = pick(2) * 4,
                                  .slack_divisor = INT32_MAX,
                                  .moved_bytes = bytes,
                                  .returned_bytes = bytes};
    std::vector<std::vector<int32_t>> before, after;
    const auto tables = [&](std::vector<std::vector<int32_t>>& all) {
      for (const kv::Growth& growth : open) {
        for (int32_t group = 0; group < 2; ++group) {
          const auto table = cache_->block_table(growth.id, group);
          all.emplace_back(table.begin(), table.end());
        }
      }
    };
    tables(before);
    const kv::CompactionStep step = cache_->give_back_memory(rule);
    tables(after);
    require(before == after, "a pinned page moved");
    if (bytes == 1) require(step.moved_pages <= 1 && step.returned_pages <= 1, "a step's bytes");
    did["moved"] += step.moved_pages;
    did["moved beside a reservation"] += open.empty() ? 0 : step.moved_pages;
    did["returned"] += step.returned_pages;
    if (!open.empty() || bytes == 1 || rule.slack_pages > 0) return;
    for (const kv::Snapshot& group : cache_->snapshots()) {
      const int64_t n_used = std::ssize(group.pages) - std::ssize(group.free_list);
      require(group.memory_end == n_used, "pages without use have memory");
    }
  }
  void give_back() { give_back({}); }
  void truncate() {
    const auto it = any();
    const int32_t n = pick(length(it) + 1);
    if (!require(cache_->truncate(it->first, n).is_ok(), "truncate")) return;
    it->second.tokens.resize(n);
  }
  void publish() {
    const auto it = any();
    cache_->publish(it->first, it->second.ids(it->second.tokens.size()), kSalts[it->second.salt]);
  }

  /// A new sequence of the prompt of another, or of one that differs somewhere.
  void attach() {
    const auto original = any();
    std::vector<int32_t> prompt = original->second.ids(original->second.tokens.size());
    if (!prompt.empty() && pick(2) == 0) prompt[pick(std::ssize(prompt))] ^= 1;
    NaiveSequence sequence{.salt = pick(2)};
    const char* salt = kSalts[sequence.salt];
    const kv::SequenceId id = cache_->create_sequence();
    const auto found = cache_->attach_prefix(id, prompt, salt);
    const bool is_right = found.is_ok() && *found == longest_known(prompt, sequence.salt);
    if (!require(is_right, "attach_prefix")) return;
    uint32_t value = first_value(sequence.salt);
    for (int32_t i = 0; i < *found; ++i) {
      value = next_value(value, prompt[i]);
      sequence.tokens.push_back({prompt[i], value, i});
    }
    did["attached"] += *found;
    naive_[id] = std::move(sequence);
  }

  /// By the entries of both groups' indexes; which tenant's a path is, its first page tells.
  int32_t longest_known(const std::vector<int32_t>& prompt, int salt) {
    int32_t least = INT32_MAX;
    const std::vector<kv::Snapshot> groups = cache_->snapshots();
    for (int group = 0; group < 2; ++group) {
      std::map<int32_t, std::vector<const kv::PrefixIndex::Entry*>> children;
      for (const auto& entry : groups[group].prefix_entries) {
        children[entry.parent].push_back(&entry);
      }
      int32_t parent = 0, n = 0;
      for (const auto& [root, entries] : children) {
        if (root >= 0) break;
        const int32_t table[] = {entries.front()->page.page};
        const float value =
            *reinterpret_cast<const float*>(kernels::v_at(cache_->layer(group), table, 0, 0));
        const uint32_t own = next_value(first_value(salt), entries.front()->tokens.front());
        if (value == own) parent = root;
      }
      for (bool goes_on = parent < 0; goes_on;) {
        goes_on = false;
        for (const kv::PrefixIndex::Entry* entry : children[parent]) {
          if (n + kPageTokens > std::ssize(prompt) ||
              !std::equal(entry->tokens.begin(), entry->tokens.end(), prompt.begin() + n)) {
            continue;
          }
          parent = entry->page.page;
          n += kPageTokens;
          goes_on = true;
          break;
        }
      }
      least = std::min(least, n);
    }
    return least;
  }

  /// One to three sequences in one step, which is committed or not.
  void grow() {
    std::vector<kv::Growth> growths;
    std::vector<NaiveSequence> grown;
    for (int i = pick(3); i >= 0; --i) {
      const auto it = any();
      if (std::ranges::count(growths, it->first, &kv::Growth::id) > 0) continue;
      const kv::SlotKind kind = pick(6) == 0 ? kv::SlotKind(pick(3)) : kv::SlotKind::kPrompt;
      growths.push_back({it->first, any_growth(), kind});
      grown.push_back(it->second);
      NaiveSequence& sequence = grown.back();
      for (int32_t n = 0; n < growths.back().n_tokens; ++n) {
        const bool none = sequence.tokens.empty();
        const uint32_t before = none ? first_value(sequence.salt) : sequence.tokens.back().value;
        const int32_t id = pick(2);
        const bool exact = kind == kv::SlotKind::kPrompt;
        sequence.tokens.push_back({id, exact ? next_value(before, id) : pick(1 << 20),
                                   none ? 0 : sequence.tokens.back().position + 1, kind});
      }
    }
    kv::Remedy remedy{};
    const std::vector<kv::Snapshot> before = cache_->snapshots();
    const kv::Remedy* expected = expected_remedy(growths);
    auto reservations = cache_->reserve_all(growths, &remedy);
    const bool is_right = reservations.is_ok() == (expected == nullptr);
    if (!require(is_right, "reserve_all: " + reservations.status().message())) return;
    if (expected != nullptr) {
      if (!require(remedy == *expected, "remedy: " + reservations.status().message())) return;
      ++did[remedy == kv::Remedy::kWait     ? "wait"
            : remedy == kv::Remedy::kShrink ? "shrink"
                                            : "give up"];
      return expect_same(before, cache_->snapshots());
    }
    if (pick(3) == 0) give_back(growths);
    const bool commits = pick(5) != 0;
    for (size_t i = 0; i < growths.size(); ++i) {
      const kv::SequenceId id = growths[i].id;
      for (int32_t slot = cache_->length(id); slot < std::ssize(grown[i].tokens); ++slot) {
        const bool same = cache_->position(id, slot) == grown[i].tokens[slot].position;
        if (!require(same, "position of a new slot")) return;
        write(id, slot, grown[i].tokens[slot]);
      }
      if (!commits) continue;
      (*reservations)[i].commit();
      naive_[id] = std::move(grown[i]);
    }
    ++did[growths.size() > 1 ? "grew together" : "grew"];
  }

  int32_t any_growth() {
    if (pick(40) == 0) return pick(2 * cache_->page_count() * kPageTokens);
    return pick(6) == 0 ? pick(200) : pick(30);
  }

  /// nullptr: it fits. Every page that no sequence holds can be had; a slot to be written needs one
  /// when it has no page yet, or when another sequence has the same one.
  const kv::Remedy* expected_remedy(const std::vector<kv::Growth>& growths) {
    static constexpr kv::Remedy kWait = kv::Remedy::kWait, kShrink = kv::Remedy::kShrink,
                                kGiveUp = kv::Remedy::kGiveUp;
    const kv::Snapshot s = cache_->snapshots().front();
    std::map<int32_t, int> holders;
    for (const auto& named : s.sequences) {
      const bool grows = std::ranges::count(growths, named.id, &kv::Growth::id) > 0;
      if (!grows && expendable_.contains(named.id)) continue;
      for (const int32_t page : named.sequence.pages) ++holders[page];
    }
    int64_t needed = 0;
    std::map<int32_t, int> own;
    for (const kv::Growth& growth : growths) {
      const int64_t n = cache_->length(growth.id);
      const auto table = cache_->block_table(growth.id, 0);
      const int64_t pages = (n + growth.n_tokens + kPageTokens - 1) / kPageTokens;
      if (pages > cache_->page_count()) return &kGiveUp;
      needed += pages - std::ssize(table);
      needed += growth.n_tokens > 0 && n % kPageTokens != 0 && holders[table.back()] > 1;
      for (const int32_t page : table) ++own[page];
    }
    if (needed <= cache_->page_count() - std::ssize(holders)) return nullptr;
    return std::ssize(own) + needed > cache_->page_count() ? &kShrink : &kWait;
  }

  void expect_same(const std::vector<kv::Snapshot>& before,
                   const std::vector<kv::Snapshot>& after) {
    for (size_t i = 0; i < before.size(); ++i) {
      const bool same = before[i].free_list == after[i].free_list &&
                        before[i].pages == after[i].pages &&
                        before[i].unused_pages == after[i].unused_pages &&
                        before[i].prefix_entries.size() == after[i].prefix_entries.size();
      require(same, "a refused reservation changed something");
    }
  }

  /// A range of a sequence, and the mutator's part on K and V of it.
  struct Range {
    Iterator it;
    int32_t begin, end;
  };
  Range any_range() {
    const auto it = any();
    const int32_t begin = pick(length(it) + 1);
    return {it, begin, begin + pick(length(it) - begin + 1)};
  }
  void turn(kv::SequenceId id, int32_t begin, std::span<const int32_t> by) {
    for (const int32_t delta : by) {
      for_slot(id, begin++, [&](float& k, float&) { k += delta; });
    }
  }
  /// From `begin` on tokens are no longer what their ids determine.
  static void mark_fused(NaiveSequence& sequence, int32_t begin) {
    for (size_t i = begin; i < sequence.tokens.size(); ++i) {
      sequence.tokens[i].kind = kv::SlotKind::kFused;
    }
  }
  static bool ascend(const NaiveSequence& sequence) {
    return std::ranges::is_sorted(sequence.tokens, {}, &Token::position) &&
           (sequence.tokens.empty() || sequence.tokens.front().position >= 0);
  }
  /// What shift and divide have in common: `op` may be refused for its positions or lack pages.
  void expect_repositioned(const Range& range, NaiveSequence moved, const Status& status,
                           const char* what) {
    if (!ascend(moved)) {
      require(status.code() == StatusCode::kInvalidArgument, "positions out of order");
      return;
    }
    if (status.code() == StatusCode::kResourceExhausted) return void(++did["no page to move to"]);
    if (!require(status.is_ok(), status.message())) return;
    ++did[what];
    const bool changed = !std::ranges::equal(moved.tokens, range.it->second.tokens, {},
                                             &Token::position, &Token::position);
    if (changed) mark_fused(moved, range.begin);
    range.it->second = std::move(moved);
  }

  void remove() {
    const Range range = any_range();
    const kv::SequenceId id = range.it->first;
    NaiveSequence& sequence = range.it->second;
    const int32_t n = length(range.it);
    const Status status =
        cache_->remove(id, range.begin, range.end, [&](std::span<const int32_t> by) {
          for (int32_t slot = range.end; slot < n; ++slot) {
            Token token = sequence.tokens[slot];
            token.position += by[slot - range.end];
            write(id, range.begin + slot - range.end, token);
          }
        });
    if (status.code() == StatusCode::kResourceExhausted) return;
    if (!require(status.is_ok(), status.message())) return;
    if (range.begin == range.end) return;
    ++did["removed"];
    auto& tokens = sequence.tokens;
    const int32_t by =
        range.end < n ? tokens[range.begin].position - tokens[range.end].position : 0;
    for (int32_t slot = range.end; slot < n; ++slot) tokens[slot].position += by;
    tokens.erase(tokens.begin() + range.begin, tokens.begin() + range.end);
    mark_fused(sequence, range.begin);
  }

  void shift() {
    const Range range = any_range();
    const int32_t delta = pick(2) == 0 ? pick(40) : pick(9) - 4;
    NaiveSequence moved = range.it->second;
    for (int32_t i = range.begin; i < range.end; ++i) moved.tokens[i].position += delta;
    const Status status = cache_->shift(range.it->first, range.begin, range.end, delta,
                                        [&](auto by) { turn(range.it->first, range.begin, by); });
    expect_repositioned(range, std::move(moved), status, "shifted");
  }
  void divide() {
    const Range range = any_range();
    const int32_t divisor = 1 + pick(4);
    NaiveSequence moved = range.it->second;
    for (int32_t i = range.begin; i < range.end; ++i) moved.tokens[i].position /= divisor;
    const Status status = cache_->divide(range.it->first, range.begin, range.end, divisor,
                                         [&](auto by) { turn(range.it->first, range.begin, by); });
    expect_repositioned(range, std::move(moved), status, "divided");
  }

  /// As fusion does: other values in committed slots, which were no prompt's since.
  void overwrite() {
    const Range range = any_range();
    if (range.it->second.n_exact() > size_t(range.begin)) return;
    if (!cache_->make_writable(range.it->first, range.begin, range.end).is_ok()) return;
    for (int32_t slot = range.begin; slot < range.end; ++slot) {
      range.it->second.tokens[slot].value = pick(1 << 20);
      write(range.it->first, slot, range.it->second.tokens[slot]);
    }
    ++did["overwritten"];
  }

  /// A copy by way of bytes.
  void save() {
    const auto it = any();
    const bool plain = std::ranges::all_of(it->second.tokens, [&](const Token& token) {
      return token.position == &token - it->second.tokens.data();
    });
    std::vector<std::vector<std::byte>> layers;
    const Status saved = cache_->save(it->first, length(it), [&](std::span<const std::byte> bytes) {
      layers.emplace_back(bytes.begin(), bytes.end());
      return Status::ok();
    });
    if (!require(saved.is_ok() == plain, "save: " + saved.message())) return;
    if (!plain) return;
    const NaiveSequence copy = it->second;  // the sequence may be expendable
    const std::vector<kv::SlotRun> kinds(cache_->slot_kinds(it->first).begin(),
                                         cache_->slot_kinds(it->first).end());
    const auto restored = cache_->restore(narrow<int32_t>(copy.tokens.size()), kinds,
                                          [&](int32_t layer, std::span<std::byte> bytes) {
                                            std::ranges::copy(layers[layer], bytes.begin());
                                            return Status::ok();
                                          });
    if (restored.status().code() == StatusCode::kResourceExhausted) return;
    if (!require(restored.is_ok(), restored.status().message())) return;
    naive_[*restored] = copy;
    ++did["restored"];
  }

  void check() {
    did["went for others"] +=
        std::erase_if(naive_, [&](const auto& one) { return !cache_->contains(one.first); });
    const std::vector<std::string> found = kv::violations(cache_->snapshots());
    if (!require(found.empty(), found.empty() ? "" : found.front())) return;
    for (const auto& [id, sequence] : naive_) {
      if (!require(cache_->length(id) == std::ssize(sequence.tokens), "length")) return;
      const std::span<const kv::SlotRun> runs = cache_->slot_kinds(id);
      for (int32_t slot = 0; slot < std::ssize(sequence.tokens); ++slot) {
        const Token& token = sequence.tokens[slot];
        const auto run = std::ranges::upper_bound(runs, slot, {}, &kv::SlotRun::end);
        bool same = run->kind == token.kind && cache_->position(id, slot) == token.position;
        for_slot(id, slot,
                 [&](float& k, float& v) { same &= k == token.position && v == token.value; });
        const std::string where = " at slot " + std::to_string(slot);
        if (!require(same, "K, V, kind or position" + where)) return;
      }
    }
  }

  std::function<uint32_t()> random_;
  std::string error_;
  std::unique_ptr<kv::Cache> cache_;
  std::map<kv::SequenceId, NaiveSequence> naive_;
  std::set<kv::SequenceId> expendable_;
};

}  // namespace weft::test
