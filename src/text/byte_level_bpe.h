// Byte-level BPE (GPT-2): merges the bytes of one word, most important pair first. It knows neither
// control tokens nor words: the tokenizer cuts the text first. Thread-safe after creation.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/token_index.h"
#include "text/vocab.h"

namespace weft::text {

class ByteLevelBpe {
 public:
  /// Working memory of encode_word, to be kept from word to word; any state will do.
  struct Scratch {
    struct Symbol {
      int32_t id;  // kNoToken when merged into its left neighbour
      int32_t previous;
      int32_t next;
    };
    struct Candidate {
      uint32_t rank;
      int32_t left;     // index of the pair's left symbol
      int32_t left_id;  // both ids as they were: a pair that has changed since is skipped
      int32_t right_id;
      int32_t merged_id;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> queue;  // a heap
    std::string letters;           // a word as the vocabulary writes it
  };

  /// Resolves the merges; kCorrupt when one does not parse or names no token, with its number.
  /// `vocab` must have passed check_vocab; it is not kept. `index` is of its tokens and must
  /// outlive this object unmoved. `ignore_merges` as PreTokenizer::ignores_merges says.
  static Result<ByteLevelBpe> create(const VocabData& vocab, const TokenIndex& index,
                                     bool ignore_merges);

  /// Appends the word's tokens. Bytes that the vocabulary has no token for are left out (as the
  /// models' own tokenizers do). O(n log n) in the word's length.
  void encode_word(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const;

  /// Whether text may hold this byte without losing it.
  bool has_byte(unsigned char byte) const { return byte_ids_[byte] != kNoToken; }

 private:
  static constexpr uint64_t kEmptyPair = ~uint64_t{0};
  struct Merge {
    uint64_t pair = kEmptyPair;  // left id << 32 | right id
    uint32_t rank = 0;
    int32_t merged_id = 0;
  };
  ByteLevelBpe() = default;
  Status add_merges(const VocabData& vocab);
  void insert(const Merge& merge);
  int32_t find_whole_word(std::string_view word, std::string& letters) const;
  const Merge* find(int32_t left_id, int32_t right_id) const;
  void push_pair(int32_t left, Scratch& scratch) const;

  std::array<int32_t, 256> byte_ids_{};
  std::vector<Merge> table_;  // open addressing, a power of two, at most half full
  const TokenIndex* index_ = nullptr;
  std::vector<bool> is_whole_word_;  // [n_vocab], empty unless merges are ignored for whole words
};

}  // namespace weft::text
