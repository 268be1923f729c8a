// Vocabulary and text from the fuzzer's bytes: whatever a vocabulary that passes the checks says,
// encoding ends, its ids are in the vocabulary, plain text gives no control token, and chunks cover
// the text. Format: kind byte, then the vocabulary's strings separated by 0xFE, then 0xFD, text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "support/vocabularies.h"
#include "text/chunker.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace {

using weft::text::TokenType;
using weft::text::VocabData;

// Each string is a type byte and a text: a token, or of type 7 a merge.
void add_strings(std::string_view bytes, VocabData& vocab) {
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\xFE'), bytes.size());
    const std::string_view item = bytes.substr(0, end);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    if (item.empty()) continue;
    const int type = static_cast<unsigned char>(item[0]) % 8;
    if (type == 7) {
      vocab.merges.emplace_back(item.substr(1));
      continue;
    }
    vocab.tokens.emplace_back(item.substr(1));
    vocab.types.push_back(static_cast<TokenType>(type));
    vocab.scores.push_back(static_cast<float>(item.size() % 5));
  }
}

/// Runs of blanks and tags as user-defined tokens; control tokens whose names begin alike.
VocabData gemma_like_vocab() {
  VocabData vocab = weft::test::spm_test_vocab({"a", "aa", "\u2581", "\u2581a", "\u2581\u2581"});
  for (const char* text :
       {"\n", "\n\n", "\n\n\n", "   ", "\u2581\u2581\u2581\u2581", "<h1>", "\t"}) {
    vocab.tokens.emplace_back(text);
    vocab.types.push_back(TokenType::kUserDefined);
  }
  for (const char* text : {"<unused1>", "<unused10>", "<start_of_turn>", "<end_of_turn>"}) {
    vocab.tokens.emplace_back(text);
    vocab.types.push_back(TokenType::kControl);
  }
  vocab.scores.resize(vocab.tokens.size(), -1000.0f);
  return vocab;
}

std::ptrdiff_t count_control(const weft::text::Tokenizer& tokenizer,
                             const weft::Result<std::vector<int32_t>>& ids) {
  WEFT_CHECK(ids.is_ok());
  return std::ranges::count_if(*ids, [&](int32_t id) { return tokenizer.is_control(id); });
}

/// A prompt of parts, 0xFC between them, every other one a template's: these keep each of their
/// control tokens, and the others get none.
void check_parts(const weft::text::Tokenizer& tokenizer, std::string_view text) {
  std::vector<weft::text::TextPart> parts;
  std::ptrdiff_t n_control = 0;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\xFC', begin), text.size());
    parts.push_back({text.substr(begin, end - begin), parts.size() % 2 == 0});
    begin = end + 1;
    const weft::text::TextPart& part = parts.back();
    if (!part.parse_special) continue;
    const auto alone = tokenizer.encode(part.text, {.parse_special = true});
    n_control += count_control(tokenizer, alone);
    WEFT_CHECK(*tokenizer.encode_parts(std::span(&part, 1)) == *alone);
  }
  WEFT_CHECK(count_control(tokenizer, tokenizer.encode_parts(parts)) == n_control);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 1 << 16) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  constexpr const char* kPre[] = {"gpt-2",          "smollm",      "llama-bpe", "qwen2",
                                  "qwen35",         "tekken",      "gpt-4o",    "deepseek-llm",
                                  "deepseek-coder", "deepseek-v3", "default"};
  const int kind = data[0];
  VocabData vocab = kind % 2 == 0 ? weft::test::bpe_test_vocab({"a a", "aa a"}, kPre[kind / 2 % 11])
                    : kind & 2    ? gemma_like_vocab()
                                  : weft::test::spm_test_vocab({"a", "aa"});
  vocab.add_space_prefix = kind & 0x40;
  vocab.strip_after_special = kind & 0x80;
  const size_t split = std::min(input.find('\xFD'), input.size());
  add_strings(input.substr(1, std::max<size_t>(split, 1) - 1), vocab);
  const std::string_view text = input.substr(std::min(split + 1, input.size()));
  const auto tokenizer = weft::text::Tokenizer::create(std::move(vocab));
  if (!tokenizer.is_ok()) return 0;

  const auto ids = tokenizer->encode(text);
  WEFT_CHECK(ids.is_ok());
  weft::text::StreamingDetokenizer stream(*tokenizer);
  std::string streamed;
  std::string joined;
  for (const int32_t id : *ids) {
    WEFT_CHECK(id >= 0 && id < tokenizer->vocab_size() && !tokenizer->is_control(id));
    streamed += stream.push(id);
    joined += tokenizer->token_bytes(id);
  }
  WEFT_CHECK(streamed + stream.finish() == joined);
  check_parts(*tokenizer, text);

  const auto chunks = weft::text::split_into_chunks(*tokenizer, text, {.max_tokens = 8 + kind % 9});
  WEFT_CHECK(chunks.is_ok());
  size_t end = 0;
  for (const auto& chunk : *chunks) {
    WEFT_CHECK(chunk.begin == end && chunk.end > chunk.begin && chunk.tokens.size() <= 16);
    end = chunk.end;
  }
  WEFT_CHECK(end == text.size());
  return 0;
}
