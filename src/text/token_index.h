// Finds a token by its text. It holds views of the vocabulary's strings and knows nothing of types:
// whoever asks says which tokens count. Thread-safe after creation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft::text {

class TokenIndex {
 public:
  /// `tokens` must outlive this object unmoved. Empty ones are left out; kCorrupt when two have the
  /// same text.
  static Result<TokenIndex> create(std::span<const std::string> tokens);

  /// The id of the token with this text; -1 if there is none.
  int32_t find(std::string_view text) const;

 private:
  struct Slot {
    uint32_t tag = 0;  // the hash's upper half: texts are compared where it is equal
    int32_t id = -1;
  };
  explicit TokenIndex(std::span<const std::string> tokens);
  /// The slot of this text, or the free one where it belongs.
  size_t slot_of(std::string_view text, uint64_t hash) const;

  std::span<const std::string> tokens_;
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
};

}  // namespace weft::text
