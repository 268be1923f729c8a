// SentencePiece-style BPE as llama models use it: characters merge while the joined text is a
// token, best score first; what is left falls back to byte tokens. It neither splits off control
// tokens nor puts the space before the text: the tokenizer does. Thread-safe after creation.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "text/token_index.h"
#include "text/vocab.h"

namespace weft::text {

class SentencePiece {
 public:
  /// `index` is of the vocabulary's tokens and must outlive this object unmoved. kCorrupt when a
  /// byte of text could become no token at all (no byte tokens and no unknown one).
  static Result<SentencePiece> create(const VocabData& vocab, const TokenIndex& index);

  /// Appends the tokens of `text`, in which every space is U+2581 already; any bytes will
  /// do. O(n log n) in its length. Asks `goes_on` after each word; false ends it.
  void encode(std::string_view text, std::vector<int32_t>& out, FunctionRef<bool()> goes_on) const;

 private:
  struct Symbol;
  struct Candidate;
  class Merger;

  SentencePiece() = default;
  int32_t find(std::string_view piece) const;

  const TokenIndex* index_ = nullptr;
  std::vector<float> scores_;  // [n_vocab]
  std::vector<bool> is_text_;  // [n_vocab] text may become this token
  std::array<int32_t, 256> byte_ids_{};
  size_t longest_token_bytes_ = 0;
  // No token has a space mark after another character, so no merge crosses from one word into the
  // next: each is merged by itself, in memory that stays in the cache.
  bool words_are_apart_ = true;
};

}  // namespace weft::text
