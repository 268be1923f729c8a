// Finds the vocabulary's control and user-defined tokens in text. It says where they are; whether
// text may hold control tokens at all is its caller's decision. Thread-safe after creation.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/vocab.h"

namespace weft::text {

/// A stretch of the text: one special token, or plain text (id == kNoToken).
struct Fragment {
  std::string_view text;
  int32_t id = kNoToken;
};

/// Bytes of a text, counted from its beginning.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
};

class SpecialTokens {
 public:
  /// Keeps views into `vocab.tokens`, which must outlive this object unmoved. `is_control[id]`
  /// tells control tokens (unknown ones included) from user-defined ones.
  SpecialTokens(const VocabData& vocab, const std::vector<bool>& is_control);

  /// Cuts `text` at special tokens from left to right, the longest where several begin, as the
  /// models' own tokenizers do. Without `parse_control` only user-defined tokens are found.
  std::vector<Fragment> split(std::string_view text, bool parse_control) const;

  /// The same where control tokens may stand in some ranges only (in order, apart): each wholly
  /// within one, and none is lost to what comes before its range. Between them `text` is one.
  std::vector<Fragment> split(std::string_view text, std::span<const ByteRange> control) const;

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Token {
    std::string_view text;
    int32_t id;
    bool is_control;
    bool strips_space;         // white space after it belongs to it
    uint32_t shorter = kNone;  // the longest other token that this one begins with
  };

  const Token* longest_at(std::string_view text, bool parse_control) const;
  bool strips_space_behind(std::string_view token) const;

  std::vector<Token> tokens_;     // sorted by text
  std::vector<bool> is_control_;  // by id
  bool strip_after_special_;
  std::array<uint32_t, 257>
      first_byte_{};  // tokens_[first_byte_[b], first_byte_[b + 1]) begin with b
  std::array<bool, 256> begins_user_defined_{};
};

}  // namespace weft::text
