// Text to token ids and back, for the two kinds of vocabulary that weft runs: SentencePiece-style
// (`llama`) and byte-level BPE (`gpt2`). Plain text never becomes a control token: those are
// recognised only where the caller says that the text is a template's own. It knows nothing of
// chat templates (chat_template.h) or streams (detokenizer.h). Thread-safe after creation.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "text/vocab.h"

namespace weft::text {

struct EncodeOptions {
  bool add_bos = false;         // BOS first, where the vocabulary has one
  bool add_eos = false;         // EOS last, where the vocabulary has one
  bool parse_special = false;   // control tokens written out in the text become those tokens
  bool continues_text = false;  // other text comes before: no space is put at the start
};

/// For a prompt that must fit a context, whose text may be anyone's.
struct EncodeLimits {
  /// It ends once there are more tokens than this. What comes back is then more than this, which
  /// says that the text does not fit, and not all of it.
  int64_t tokens = std::numeric_limits<int64_t>::max();
  /// May be null; asked from time to time: true ends it with kCancelled.
  const FunctionRef<bool()>* cancelled = nullptr;
};

/// A stretch of a longer text.
struct TextPart {
  std::string_view text;
  bool parse_special = false;  // as in EncodeOptions, for control tokens that lie within this part
};

class Tokenizer {
 public:
  /// Longest text that encode takes.
  static constexpr size_t kMaxTextBytes = size_t{1} << 30;

  /// Checks the vocabulary (check_vocab, merges). kUnsupported for an unknown model or `pre`.
  static Result<Tokenizer> create(VocabData vocab);
  /// read_vocab, then create; errors name the file.
  static Result<Tokenizer> open(const gguf::File& file);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Any bytes will do: decode gives them back wherever the vocabulary has a token for each. Where
  /// it has none, a byte that is not UTF-8 becomes U+FFFD, and a control character is dropped as by
  /// the models' own tokenizers. kResourceExhausted past kMaxTextBytes and when memory runs out.
  /// O(n log n).
  Result<std::vector<int32_t>> encode(std::string_view text, EncodeOptions options = {},
                                      const EncodeLimits& limits = {}) const;

  /// The parts as one text, as if they were joined: words and merges span their borders, control
  /// tokens do not.
  Result<std::vector<int32_t>> encode_parts(std::span<const TextPart> parts,
                                            const EncodeLimits& limits = {}) const;

  /// The bytes that one token adds to the text; control and unknown tokens add none, or with
  /// `show_control` their name. Empty for an id outside the vocabulary. Not always whole UTF-8
  /// characters: see StreamingDetokenizer. Lives as long as the tokenizer.
  std::string_view token_bytes(int32_t id, bool show_control = false) const;

  /// The tokens' bytes joined, without the space that encode put before the text.
  std::string decode(std::span<const int32_t> ids, bool show_control = false) const;

  int32_t vocab_size() const;
  /// Control and unknown tokens: no text of their own. So is a user-defined token whose name looks
  /// like a control token's (<|user|>), whatever type the file gives it.
  bool is_control(int32_t id) const;
  /// Tokens that end an answer: EOS, end of turn, end of message, and what is known by its name.
  bool is_end_of_generation(int32_t id) const;
  /// kNoToken where the vocabulary has none.
  int32_t bos() const;
  int32_t eos() const;
  bool wants_bos() const;  // the model expects BOS before every prompt
  /// For tests: the token whose stored text is exactly this, control tokens included; kNoToken if
  /// none.
  int32_t find_token(std::string_view stored_text) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::text
