// Shaped after what a server's cache sees: most operations lengthen a sequence, by a few tokens or
// by a prompt, prompts begin as others do, and what is taken out lies near the end. Writing K and V
// is what takes the time of it, so that sequences stay far below the cache's size.
#include "bench/kv_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/narrow.h"
#include "engine/kv_size.h"

namespace weft::bench {
namespace {

constexpr double kMostBytes = 8e9;
constexpr int64_t kMostTokens = 2048;
constexpr int64_t kMostSequences = 96;
constexpr int64_t kMostRemoved = 96;     // tokens from the end, among which some are taken out
constexpr int64_t kMostTruncated = 256;  // and that are cut off
constexpr int32_t kIds = 3;              // few, so that texts begin alike

uint32_t next_value(uint32_t before, int32_t id) {
  return (before ^ narrow<uint32_t>(id + 1)) * 0x9e3779b9u + 0x1234567u;
}

/// The numbers of one vector.
uint32_t word_at(uint32_t seed, int64_t i) { return seed + narrow<uint32_t>(i) * 0x85ebca6bu; }

}  // namespace

Result<KvWork> KvWork::create(const KvShape& shape, uint64_t seed) {
  const kernels::KvLayout layout = {DType::kF16, DType::kF16, shape.head_dim, shape.n_kv_heads,
                                    engine::kKvPageTokens};
  // Work fills the cache, whatever its shape.
  const double n_bytes =
      4.0 * shape.n_layers * shape.n_kv_heads * shape.head_dim * shape.capacity_tokens;
  if (n_bytes > kMostBytes) {
    return invalid_argument(fmt::format(
        "a cache of {:.0f} GB: at most {:.0f} are filled with random work (--layers, --kv-heads, "
        "--head-dim, -c)",
        n_bytes * 1e-9, kMostBytes * 1e-9));
  }
  WEFT_ASSIGN_OR_RETURN(auto cache, kv::Cache::create({.n_layers = shape.n_layers,
                                                       .layer_groups = {},
                                                       .layout = layout,
                                                       .capacity_tokens = shape.capacity_tokens,
                                                       .windows = {}}));
  return KvWork(std::move(cache), seed);
}

/// fn(words of one vector of K or V, the number that they follow from).
template <class Fn>
void KvWork::for_vectors(kv::SequenceId id, int32_t slot, uint32_t value, const Fn& fn) {
  for (int32_t layer = 0; layer < cache_->n_layers(); ++layer) {
    const kernels::PagedKv kv = cache_->layer(layer);
    const int32_t* const table = cache_->layer_table(id, layer).data();
    for (int32_t head = 0; head < kv.layout.n_kv_heads; ++head) {
      const uint32_t seed = value ^ narrow<uint32_t>((layer * 4096 + head) * 2) * 0xc2b2ae35u;
      fn(std::span(kernels::k_at(kv, table, slot, head), kv.k_bytes), seed);
      fn(std::span(kernels::v_at(kv, table, slot, head), kv.v_bytes), seed + 1);
    }
  }
}

void KvWork::write(kv::SequenceId id, int32_t slot, const Token& token) {
  for_vectors(id, slot, token.value, [](std::span<uint8_t> vector, uint32_t seed) {
    for (int64_t i = 0; i < std::ssize(vector) / 4; ++i) {
      const uint32_t word = word_at(seed, i);
      std::memcpy(&vector[i * 4], &word, 4);
    }
  });
}

bool KvWork::holds(kv::SequenceId id, int32_t slot, const Token& token) {
  bool same = true;
  for_vectors(id, slot, token.value, [&](std::span<const uint8_t> vector, uint32_t seed) {
    for (int64_t i = 0; i < std::ssize(vector) / 4; ++i) {
      const uint32_t word = word_at(seed, i);
      same &= std::memcmp(&vector[i * 4], &word, 4) == 0;
    }
  });
  return same;
}

Status KvWork::step() {
  if (sequences_.empty()) {
    create_one();
    return Status::ok();
  }
  int total = 0;
  for (const auto& [name, share] : kOperations) total += share;
  int64_t drawn = pick(total);
  size_t operation = 0;
  while (drawn >= kOperations[operation].second) drawn -= kOperations[operation++].second;
  ++done_[operation];
  WEFT_RETURN_IF_ERROR(run(operation));
  if (n_sequences() > kMostSequences) free_one();
  return Status::ok();
}

Status KvWork::run(size_t operation) {
  const std::string_view name = kOperations[operation].first;
  if (name == "append") return append();
  if (name == "fork") return fork();
  if (name == "remove") return remove();
  if (name == "truncate") return truncate();
  if (name == "create") create_one();
  if (name == "free") free_one();
  if (name == "publish") publish();
  return Status::ok();
}

/// It begins as another one, as far as the prefix index knows that.
void KvWork::create_one() {
  std::vector<int32_t> prompt;
  if (!sequences_.empty()) {
    const Tokens& other = any()->second;
    for (int64_t i = 0, n = pick(std::ssize(other) + 1); i < n; ++i) {
      prompt.push_back(other[i].id);
    }
  }
  const kv::SequenceId id = cache_->create_sequence();
  const auto found = cache_->attach_prefix(id, prompt);
  WEFT_CHECK(found.is_ok());
  Tokens tokens;
  for (int32_t i = 0; i < *found; ++i) {
    tokens.push_back({prompt[i], next_value(i == 0 ? 0 : tokens.back().value, prompt[i])});
  }
  if (*found > 0) ++n_found_;
  sequences_.emplace(id, std::move(tokens));
}

Status KvWork::append() {
  const auto it = any();
  Tokens& tokens = it->second;
  const int64_t wanted = pick(16) == 0 ? 1 + pick(512) : 1 + pick(16);
  const int64_t n_tokens = std::min(wanted, kMostTokens - std::ssize(tokens));
  auto reservation = cache_->reserve(it->first, narrow<int32_t>(n_tokens));
  if (!reservation.is_ok()) return or_free_one(reservation.status());
  for (int32_t slot = reservation->begin(); slot < reservation->end(); ++slot) {
    const auto id = narrow<int32_t>(pick(kIds));
    tokens.push_back({id, next_value(tokens.empty() ? 0 : tokens.back().value, id)});
    write(it->first, slot, tokens.back());
  }
  reservation->commit();
  return Status::ok();
}

Status KvWork::fork() {
  const auto it = any();
  WEFT_ASSIGN_OR_RETURN(const kv::SequenceId copy, cache_->fork(it->first));
  const Tokens tokens = it->second;
  sequences_.emplace(copy, tokens);
  return Status::ok();
}

Status KvWork::remove() {
  const auto it = any();
  Tokens& tokens = it->second;
  const int64_t length = std::ssize(tokens);
  const auto begin = narrow<int32_t>(length - pick(std::min(length, kMostRemoved) + 1));
  const auto end = narrow<int32_t>(begin + pick(length - begin + 1));
  const Status removed = cache_->remove(it->first, begin, end, [&](std::span<const int32_t>) {
    for (int32_t slot = end; slot < length; ++slot) {
      write(it->first, begin + slot - end, tokens[slot]);
    }
  });
  if (!removed.is_ok()) return or_free_one(removed);
  tokens.erase(tokens.begin() + begin, tokens.begin() + end);
  return Status::ok();
}

Status KvWork::truncate() {
  const auto it = any();
  const int64_t length = std::ssize(it->second);
  const auto n_tokens = narrow<int32_t>(length - pick(std::min(length, kMostTruncated) + 1));
  WEFT_RETURN_IF_ERROR(cache_->truncate(it->first, n_tokens));
  it->second.resize(n_tokens);
  return Status::ok();
}

void KvWork::free_one() {
  const auto it = any();
  cache_->free_sequence(it->first);
  sequences_.erase(it);
}

/// Of a sequence out of which something was taken, only what came before is entered: the cache
/// knows.
void KvWork::publish() {
  const auto it = any();
  std::vector<int32_t> ids;
  for (const Token& token : it->second) ids.push_back(token.id);
  cache_->publish(it->first, ids);
}

Status KvWork::or_free_one(const Status& status) {
  if (status.code() != StatusCode::kResourceExhausted) return status;
  ++n_without_pages_;
  free_one();
  return Status::ok();
}

bool KvWork::looks_right() {
  if (sequences_.empty()) return true;
  const auto it = any();
  if (cache_->length(it->first) != std::ssize(it->second)) return false;
  if (it->second.empty()) return true;
  const auto slot = narrow<int32_t>(pick(std::ssize(it->second)));
  return holds(it->first, slot, it->second[slot]);
}

bool KvWork::is_right() {
  for (const auto& [id, tokens] : sequences_) {
    if (cache_->length(id) != std::ssize(tokens)) return false;
    for (int32_t slot = 0; slot < std::ssize(tokens); ++slot) {
      if (!holds(id, slot, tokens[slot])) return false;
    }
  }
  return true;
}

// The index, too: what it alone holds would be used still, and stay.
void KvWork::free_half() {
  bool goes = true;
  for (auto it = sequences_.begin(); it != sequences_.end(); goes = !goes) {
    if (goes) cache_->free_sequence(it->first);
    it = goes ? sequences_.erase(it) : std::next(it);
  }
  cache_->evict_unused_prefixes();
}

}  // namespace weft::bench
