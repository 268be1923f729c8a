#include "text/vocab.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/utf8.h"

namespace weft::text {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

Status check_array(const char* key, size_t got, size_t want) {
  if (got == want) return Status::ok();
  return corrupt(fmt::format("tokenizer.ggml.{}: {} entries for {} tokens", key, got, want));
}

Status check_id(const char* key, int32_t id, size_t n_vocab) {
  if (id == kNoToken || (id >= 0 && static_cast<size_t>(id) < n_vocab)) return Status::ok();
  return corrupt(fmt::format("tokenizer.ggml.{}: {} is outside the vocabulary of {} tokens", key,
                             static_cast<uint32_t>(id), n_vocab));
}

Status check_tokens(const VocabData& vocab) {
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    const std::string& token = vocab.tokens[id];
    if (token.size() > kMaxTokenBytes) {
      return corrupt(fmt::format("tokenizer.ggml.tokens[{}]: {} bytes, the limit is {}", id,
                                 token.size(), kMaxTokenBytes));
    }
    if (vocab.types[id] == TokenType::kByte && byte_of_token_text(token) < 0) {
      return corrupt(fmt::format(
          "tokenizer.ggml.tokens[{}]: a byte token must read <0xNN> with upper-case digits", id));
    }
  }
  return Status::ok();
}

constexpr char32_t kByteLevelEnd = 0x144;  // one past byte_level_alphabet()'s last character

std::string decode_byte_level(std::string_view token) {
  static const std::array<int, kByteLevelEnd> byte_of = [] {
    std::array<int, kByteLevelEnd> t{};
    t.fill(-1);
    for (size_t byte = 0; byte < 256; ++byte)
      t[byte_level_alphabet()[byte]] = static_cast<int>(byte);
    return t;
  }();
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    if (token[at] > ' ' && token[at] < '\x7F') {  // means itself
      bytes.push_back(token[at++]);
      continue;
    }
    const size_t n = utf8_char_bytes(token, at);
    const char32_t code_point = n == 0 ? kByteLevelEnd : decode_utf8_char(token, at, n);
    if (code_point < kByteLevelEnd && byte_of[code_point] >= 0) {
      bytes.push_back(static_cast<char>(byte_of[code_point]));
    } else {
      bytes.append(token.substr(at, std::max<size_t>(n, 1)));  // not of the alphabet: as it is
    }
    at += std::max<size_t>(n, 1);
  }
  return bytes;
}

std::string decode_sentence_piece(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    if (token.substr(at, kSpaceMark.size()) == kSpaceMark) {
      bytes.push_back(' ');
      at += kSpaceMark.size();
    } else {
      bytes.push_back(token[at++]);
    }
  }
  return bytes;
}

}  // namespace

std::string decoded_token(const VocabData& vocab, size_t id) {
  const std::string& token = vocab.tokens[id];
  switch (vocab.types[id]) {
    case TokenType::kUnknown:
    case TokenType::kControl:
    case TokenType::kUserDefined:
      return token;
    case TokenType::kByte:
      return std::string(1, static_cast<char>(byte_of_token_text(token)));
    case TokenType::kUndefined:
    case TokenType::kNormal:
    case TokenType::kUnused:
      break;
  }
  return vocab.model == "llama" ? decode_sentence_piece(token) : decode_byte_level(token);
}

Status check_vocab(const VocabData& vocab) {
  const size_t n_vocab = vocab.tokens.size();
  if (n_vocab == 0 || n_vocab > kMaxVocab) {
    return corrupt(
        fmt::format("tokenizer.ggml.tokens: {} tokens, expected 1 to {}", n_vocab, kMaxVocab));
  }
  WEFT_RETURN_IF_ERROR(check_array("token_type", vocab.types.size(), n_vocab));
  if (vocab.model == "llama") {
    WEFT_RETURN_IF_ERROR(check_array("scores", vocab.scores.size(), n_vocab));
    for (size_t id = 0; id < n_vocab; ++id) {
      if (!std::isfinite(vocab.scores[id])) {
        return corrupt(fmt::format("tokenizer.ggml.scores[{}] is not a finite number", id));
      }
    }
  }
  WEFT_RETURN_IF_ERROR(check_id("bos_token_id", vocab.bos_id, n_vocab));
  WEFT_RETURN_IF_ERROR(check_id("eos_token_id", vocab.eos_id, n_vocab));
  WEFT_RETURN_IF_ERROR(check_id("eot_token_id", vocab.eot_id, n_vocab));
  WEFT_RETURN_IF_ERROR(check_id("eom_token_id", vocab.eom_id, n_vocab));
  WEFT_RETURN_IF_ERROR(check_id("unknown_token_id", vocab.unk_id, n_vocab));
  return check_tokens(vocab);
}

int byte_of_token_text(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
  const int high = hex_digit(token[3]);
  const int low = hex_digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

const std::array<char32_t, 256>& byte_level_alphabet() {
  static const std::array<char32_t, 256> table = [] {
    std::array<char32_t, 256> t{};
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      t[byte] = printable ? byte : next++;
    }
    return t;
  }();
  return table;
}

}  // namespace weft::text
