// Finds the vocabulary's control and user-defined tokens in text. It says where they are; whether
// text may hold control tokens at all is its caller's decision. Thread-safe after creation.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/vocab.h"

namespace weft::text {

/// A stretch of the text: one special token, or plain text (id == kNoToken).
struct Fragment {
  std::string_view text;
  int32_t id = kNoToken;
};

class SpecialTokens {
 public:
  /// Keeps views into `vocab.tokens`, which must outlive this object unmoved. `is_control[id]`
  /// tells control tokens (unknown ones included) from user-defined ones.
  SpecialTokens(const VocabData& vocab, const std::vector<bool>& is_control);

  /// Cuts `text` at special tokens; longer tokens win over shorter ones, wherever they stand, and
  /// of the same one the leftmost. Without `parse_control` only user-defined tokens are found.
  /// Each distinct token length costs one pass over the text.
  std::vector<Fragment> split(std::string_view text, bool parse_control) const;

 private:
  struct SameLength {
    size_t n_bytes = 0;
    std::bitset<256> first_bytes;
    std::unordered_map<std::string_view, int32_t> ids;
  };
  void split_fragment(std::string_view text, const SameLength& group,
                      std::vector<Fragment>& out) const;
  static std::vector<SameLength> group_by_length(const VocabData& vocab,
                                                 const std::vector<int32_t>& ids);

  std::vector<SameLength> user_defined_;  // longest first
  std::vector<SameLength> all_;           // longest first
  std::vector<bool> strips_space_;        // [n_vocab], empty when none does
};

}  // namespace weft::text
