// Small vocabularies for tests and fuzzers. Nothing else includes this file.
#pragma once

#include <string>
#include <vector>

#include "text/utf8.h"
#include "text/vocab.h"

namespace weft::text {

/// A byte-level vocabulary: the 256 bytes (ids 0-255), the merges' results, then the control token
/// <|im_end|> and the user-defined token <note>.
inline VocabData bpe_test_vocab(const std::vector<std::string>& merges,
                                const std::string& pre = "gpt-2") {
  VocabData vocab;
  vocab.model = "gpt2";
  vocab.pre = pre;
  for (const char32_t letter : byte_level_alphabet()) {
    append_utf8(letter, vocab.tokens.emplace_back());
  }
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ');
    vocab.tokens.push_back(merge.substr(0, space) + merge.substr(space + 1));
  }
  vocab.types.assign(vocab.tokens.size(), TokenType::kNormal);
  vocab.tokens.push_back("<|im_end|>");
  vocab.types.push_back(TokenType::kControl);
  vocab.tokens.push_back("<note>");
  vocab.types.push_back(TokenType::kUserDefined);
  vocab.merges = merges;
  return vocab;
}

/// A SentencePiece vocabulary: <unk> <s> </s>, the 256 byte tokens (ids 3-258), then `pieces`, best
/// score first.
inline VocabData spm_test_vocab(const std::vector<std::string>& pieces) {
  VocabData vocab;
  vocab.model = "llama";
  vocab.tokens = {"<unk>", "<s>", "</s>"};
  vocab.types = {TokenType::kUnknown, TokenType::kControl, TokenType::kControl};
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    vocab.tokens.push_back(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">");
    vocab.types.push_back(TokenType::kByte);
  }
  vocab.scores.assign(vocab.tokens.size(), 0.0f);
  for (const std::string& piece : pieces) {
    vocab.scores.push_back(-static_cast<float>(vocab.tokens.size()));
    vocab.tokens.push_back(piece);
    vocab.types.push_back(TokenType::kNormal);
  }
  vocab.bos_id = 1;
  vocab.eos_id = 2;
  vocab.unk_id = 0;
  vocab.add_bos = true;
  vocab.add_space_prefix = true;
  return vocab;
}

}  // namespace weft::text
