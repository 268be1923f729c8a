// One hash table from texts to ids, for the vocabulary's own texts, pieces of SentencePiece,
// letters, and names: it replaced five maps, which made opening Gemma's vocabulary of 262,144
// tokens take 350 ms of CPU time in place of 52 (docs/measurements.md). Slots are 8 bytes and hold
// no text: half of the hash is compared first, and the text in the vocabulary only where that is
// equal.
#include "text/token_index.h"

#include <fmt/format.h>

#include <bit>

#include "base/hash.h"
#include "base/narrow.h"

namespace weft::text {
namespace {

uint64_t hash_of(std::string_view text) { return hash64(std::as_bytes(std::span(text))); }

}  // namespace

TokenIndex::TokenIndex(std::span<const std::string> tokens)
    : tokens_(tokens), slots_(std::bit_ceil(2 * tokens.size() + 2)) {}

Result<TokenIndex> TokenIndex::create(std::span<const std::string> tokens) {
  TokenIndex index(tokens);
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty()) continue;
    const uint64_t hash = hash_of(tokens[id]);
    Slot& slot = index.slots_[index.slot_of(tokens[id], hash)];
    if (slot.id >= 0) {
      return corrupt(
          fmt::format("tokenizer.ggml.tokens[{}] has the same text as token {}", id, slot.id));
    }
    slot = {static_cast<uint32_t>(hash >> 32), narrow<int32_t>(id)};
  }
  return index;
}

// Half full at most, so the search ends at a free slot.
size_t TokenIndex::slot_of(std::string_view text, uint64_t hash) const {
  const auto tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  while (slots_[slot].id >= 0 && (slots_[slot].tag != tag || tokens_[slots_[slot].id] != text)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

int32_t TokenIndex::find(std::string_view text) const {
  return slots_[slot_of(text, hash_of(text))].id;
}

}  // namespace weft::text
