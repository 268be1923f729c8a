#include "support/vocabularies.h"

#include "text/utf8.h"

namespace weft::test {

text::VocabData bpe_test_vocab(const std::vector<std::string>& merges, const std::string& pre) {
  text::VocabData vocab;
  vocab.model = "gpt2";
  vocab.pre = pre;
  for (const char32_t letter : text::byte_level_alphabet()) {
    text::append_utf8(letter, vocab.tokens.emplace_back());
  }
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ');
    vocab.tokens.push_back(merge.substr(0, space) + merge.substr(space + 1));
  }
  vocab.types.assign(vocab.tokens.size(), text::TokenType::kNormal);
  vocab.tokens.push_back("<|im_end|>");
  vocab.types.push_back(text::TokenType::kControl);
  vocab.tokens.push_back("<note>");
  vocab.types.push_back(text::TokenType::kUserDefined);
  vocab.merges = merges;
  return vocab;
}

text::VocabData spm_test_vocab(const std::vector<std::string>& pieces) {
  text::VocabData vocab;
  vocab.model = "llama";
  vocab.tokens = {"<unk>", "<s>", "</s>"};
  vocab.types = {text::TokenType::kUnknown, text::TokenType::kControl, text::TokenType::kControl};
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    vocab.tokens.push_back(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">");
    vocab.types.push_back(text::TokenType::kByte);
  }
  vocab.scores.assign(vocab.tokens.size(), 0.0f);
  for (const std::string& piece : pieces) {
    vocab.scores.push_back(-static_cast<float>(vocab.tokens.size()));
    vocab.tokens.push_back(piece);
    vocab.types.push_back(text::TokenType::kNormal);
  }
  vocab.bos_id = 1;
  vocab.eos_id = 2;
  vocab.unk_id = 0;
  vocab.add_bos = true;
  vocab.add_space_prefix = true;
  return vocab;
}

}  // namespace weft::test
