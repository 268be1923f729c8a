// A vocabulary as a GGUF carries it: plain data, and the checks that make it safe to tokenise with.
// It never encodes or decodes text (tokenizer.h does).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft::gguf {
class File;
}

namespace weft::text {

/// `tokenizer.ggml.token_type`, as the GGUF specification numbers them.
enum class TokenType : int32_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

constexpr int32_t kNoToken = -1;
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space

struct VocabData {
  std::string model;                // "llama" (SentencePiece) or "gpt2" (byte-level BPE)
  std::string pre;                  // pre-tokenizer of a gpt2 model
  std::vector<std::string> tokens;  // [n_vocab] text as stored: U+2581 for a space, or byte-level
  std::vector<float> scores;        // [n_vocab]; llama only
  std::vector<TokenType> types;     // [n_vocab]
  std::vector<std::string> merges;  // "left right", most important first; gpt2 only
  int32_t bos_id = kNoToken;
  int32_t eos_id = kNoToken;
  int32_t eot_id = kNoToken;  // end of turn
  int32_t eom_id = kNoToken;  // end of message
  int32_t unk_id = kNoToken;
  bool add_bos = false;              // the model expects BOS first
  bool add_eos = false;              // the model expects EOS last
  bool add_space_prefix = false;     // llama: a space before the text and after control tokens
  bool strip_after_special = false;  // Phi-3: white space after special tokens is dropped
};

/// Most tokens and bytes per token that weft accepts (the largest known vocabulary has 262,144).
constexpr size_t kMaxVocab = size_t{1} << 22;
constexpr size_t kMaxTokenBytes = 65535;

/// Reads `tokenizer.ggml.*`. Errors name the key: kUnsupported for a model kind weft does not do,
/// kCorrupt for what violates the format (check_vocab included).
Result<VocabData> read_vocab(const gguf::File& file);

/// Arrays of equal length, ids inside the vocabulary, finite scores, byte tokens exactly <0xNN>.
/// That no two tokens have the same text (token_index.h) and that merges name tokens
/// (byte_level_bpe.h) is checked where they are resolved.
Status check_vocab(const VocabData& vocab);

/// The byte that a token of the strict form <0xNN> (upper-case digits) means; -1 for others.
int byte_of_token_text(std::string_view token);

/// Byte-level BPE writes each byte as one printable character; this is that character, for each
/// byte (GPT-2's table: printable Latin-1 means itself, the rest follows from U+0100 on).
const std::array<char32_t, 256>& byte_level_alphabet();

/// The bytes that token `id` is in text. Control, unknown and user-defined tokens stand for
/// their text as stored.
std::string decoded_token(const VocabData& vocab, size_t id);

}  // namespace weft::text
