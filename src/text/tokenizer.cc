// The tokenizer's parts put together: special tokens are found first, what is between them is cut
// into words (byte-level BPE) or marked (SentencePiece), and merged. The order is what keeps text
// and control tokens apart: what SpecialTokens does not find as a control token is given to the
// mergers, and these never produce one (byte_level_bpe.cc, sentence_piece.cc).
//
// Files say less than they should about which tokens are control tokens, so types are set right
// when the vocabulary is taken (classify_tokens): by name for those that end an answer, by form for
// those that converters wrote down as user-defined. Too few control tokens would let a message
// write a turn's end; too many would only make some text several tokens longer.
#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/ascii.h"
#include "base/narrow.h"
#include "base/out_of_memory.h"
#include "text/byte_level_bpe.h"
#include "text/pre_tokenizer.h"
#include "text/sentence_piece.h"
#include "text/special_tokens.h"
#include "text/token_index.h"
#include "text/utf8.h"

namespace weft::text {
namespace {

// Names that end an answer whatever the metadata say: many files name one of several only, and
// some give these another type than control.
constexpr std::string_view kEndNames[] = {
    "</s>",
    "<EOT>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|call|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|im_end|>",
    "<|return|>",
    "[EOS]",
    "[EOT]",
    "_<EOT>",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",  // DeepSeek
};

// A user-defined token of one of these forms is a control token all the same: older converters
// wrote down what the model's own files say of it, and text must not become a turn's mark.
bool looks_like_control(std::string_view token) {
  constexpr std::pair<std::string_view, std::string_view> kForms[] = {
      {"<|", "|>"},
      {"<\xEF\xBD\x9C", "\xEF\xBD\x9C>"},  // the fullwidth bar of DeepSeek
      {"<unused", ">"},
      {"<fim", ">"},
  };
  constexpr std::string_view kNames[] = {"<pad>", "<mask>", "<2mass>", "[@BOS@]"};
  for (const auto& [begin, end] : kForms) {
    if (token.size() >= begin.size() + end.size() && token.starts_with(begin) &&
        token.ends_with(end)) {
      return true;
    }
  }
  return std::find(std::begin(kNames), std::end(kNames), token) != std::end(kNames);
}

// Whether the vocabulary spells the token out of text, as byte-level vocabularies that were trained
// on web pages do "</s>": then it is text.
bool is_merged_from_text(const VocabData& vocab, size_t id) {
  if (vocab.types[id] != TokenType::kNormal) return false;
  const std::string_view token = vocab.tokens[id];
  return std::any_of(vocab.merges.begin(), vocab.merges.end(), [&](std::string_view merge) {
    const size_t space = merge.find(' ');
    return merge.size() == token.size() + 1 && space != std::string_view::npos &&
           token.starts_with(merge.substr(0, space)) && token.ends_with(merge.substr(space + 1));
  });
}

constexpr size_t kMaxTextBytes = Tokenizer::kMaxTextBytes;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
// Stands for an invalid byte while the text is cut into words: one byte long, and like U+FFFD
// neither letter, number nor white space.
constexpr char kInvalidByteStandIn = '\x01';

// Older files write the spaces of user-defined tokens (Gemma's runs of them) as space marks, but
// these tokens are looked for in the text as it is.
std::string without_space_marks(std::string_view token) {
  std::string text;
  while (!token.empty()) {
    const bool is_mark = token.starts_with(kSpaceMark);
    text.push_back(is_mark ? ' ' : token[0]);
    token.remove_prefix(is_mark ? kSpaceMark.size() : 1);
  }
  return text;
}

// SentencePiece's form of a text: U+2581 for each space, and one at the start where the model has
// it.
std::string mark_spaces(std::string_view text, bool space_prefix) {
  std::string marked;
  marked.reserve(text.size() + text.size() / 2 + kSpaceMark.size());
  if (space_prefix) marked += kSpaceMark;
  for (const char c : text) {
    if (c == ' ') {
      marked += kSpaceMark;
    } else {
      marked.push_back(c);
    }
  }
  return marked;
}

}  // namespace

struct Tokenizer::Impl {
  VocabData vocab;  // never moved once the views below are taken
  std::vector<bool> is_control;
  std::vector<bool> ends_generation;
  std::vector<std::string> bytes;  // [n_vocab] decoded
  size_t longest_bytes = 1;        // of those and the control tokens' names
  std::optional<TokenIndex> index;
  std::optional<SpecialTokens> specials;
  std::optional<SentencePiece> sentence_piece;  // one of the two
  std::optional<ByteLevelBpe> bpe;
  std::optional<PreTokenizer> pre_tokenizer;  // with bpe

  Status init();
  void classify_tokens();
  Result<std::vector<int32_t>> encode_text(std::string_view text, EncodeOptions options,
                                           const EncodeLimits& limits) const;
  Result<std::vector<int32_t>> encode_whole(std::string_view text, EncodeOptions options,
                                            const EncodeLimits& limits) const;
  Result<std::vector<int32_t>> encode_text_parts(std::span<const TextPart> parts,
                                                 const EncodeLimits& limits) const;
  /// The parts' first bytes.
  Result<std::vector<int32_t>> encode_first(std::span<const TextPart> parts, size_t most_bytes,
                                            const EncodeLimits& limits) const;
  size_t bytes_past(const EncodeLimits& limits) const;
  Status encode_fragments(std::span<const Fragment> fragments, bool continues_text,
                          const EncodeLimits& limits, std::vector<int32_t>& out) const;
  void encode_sentence_piece(std::span<const Fragment> fragments, bool continues_text,
                             FunctionRef<bool()> goes_on, std::vector<int32_t>& out) const;
  Status encode_bpe(std::span<const Fragment> fragments, FunctionRef<bool()> goes_on,
                    std::vector<int32_t>& out) const;
  bool is_id(int32_t id) const { return id >= 0 && id < std::ssize(vocab.tokens); }
};

// After the index is there and before the parts take the types. The names that end an answer are
// stored as their bytes, since a normal token's text would have been decoded.
void Tokenizer::Impl::classify_tokens() {
  const size_t n_vocab = vocab.tokens.size();
  is_control.resize(n_vocab);
  ends_generation.resize(n_vocab);
  bytes.reserve(n_vocab);
  for (size_t id = 0; id < n_vocab; ++id) {
    TokenType& type = vocab.types[id];
    if (type == TokenType::kUserDefined && looks_like_control(vocab.tokens[id])) {
      type = TokenType::kControl;
    }
    is_control[id] = type == TokenType::kControl || type == TokenType::kUnknown;
    bytes.push_back(decoded_token(vocab, id));
  }
  for (const std::string_view name : kEndNames) {
    const int32_t id = index->find(name);
    if (id < 0) continue;
    if (is_merged_from_text(vocab, id)) continue;
    ends_generation[id] = true;
    is_control[id] = true;
    if (vocab.types[id] != TokenType::kUnknown) vocab.types[id] = TokenType::kControl;
    bytes[id] = vocab.tokens[id];
  }
  for (size_t id = 0; id < n_vocab; ++id) {
    longest_bytes = std::max({longest_bytes, bytes[id].size(), vocab.tokens[id].size()});
  }
  for (const int32_t id : {vocab.eos_id, vocab.eot_id, vocab.eom_id}) {
    if (id != kNoToken) ends_generation[id] = true;
  }
}

// In this order, since each step takes views of what the ones before have made; vocab and index do
// not move afterwards.
Status Tokenizer::Impl::init() {
  WEFT_RETURN_IF_ERROR(check_vocab(vocab));
  for (size_t id = 0; vocab.model == "llama" && id < vocab.tokens.size(); ++id) {
    if (vocab.types[id] != TokenType::kUserDefined) continue;
    vocab.tokens[id] = without_space_marks(vocab.tokens[id]);
  }
  WEFT_ASSIGN_OR_RETURN(index, TokenIndex::create(vocab.tokens));
  classify_tokens();
  specials.emplace(vocab, is_control);
  if (vocab.model == "llama") {
    WEFT_ASSIGN_OR_RETURN(sentence_piece, SentencePiece::create(vocab, *index));
    return Status::ok();
  }
  if (vocab.model == "gpt2") {
    WEFT_ASSIGN_OR_RETURN(pre_tokenizer, PreTokenizer::create(vocab.pre));
    WEFT_ASSIGN_OR_RETURN(bpe,
                          ByteLevelBpe::create(vocab, *index, pre_tokenizer->ignores_merges()));
    return Status::ok();
  }
  return unsupported(
      fmt::format("tokenizer.ggml.model '{}' is not supported; known are: llama, "
                  "gpt2",
                  vocab.model.substr(0, 64)));
}

// A space goes before text at the start and after every special token, as llama's tokenizer was
// written: "a</s>a" has two. A text that continues another has none at its start.
void Tokenizer::Impl::encode_sentence_piece(std::span<const Fragment> fragments,
                                            bool continues_text, FunctionRef<bool()> goes_on,
                                            std::vector<int32_t>& out) const {
  bool after_special = !continues_text;  // a text's start counts as one
  for (const Fragment& fragment : fragments) {
    if (fragment.id != kNoToken) {
      out.push_back(fragment.id);
      if (!goes_on()) return;
      after_special = true;
      continue;
    }
    sentence_piece->encode(mark_spaces(fragment.text, vocab.add_space_prefix && after_special), out,
                           goes_on);
    if (!goes_on()) return;
    after_special = false;
  }
}

// Text that is not UTF-8 is cut into words by a stand-in of the same length, in which each invalid
// byte is a sign, because the pre-tokenizer needs valid UTF-8; the bytes themselves are encoded, so
// decoding gives them back. Bytes without a token become U+FFFD in both.
Status Tokenizer::Impl::encode_bpe(std::span<const Fragment> fragments, FunctionRef<bool()> goes_on,
                                   std::vector<int32_t>& out) const {
  ByteLevelBpe::Scratch scratch;
  std::vector<uint32_t> ends;
  std::string repaired;  // what is encoded, when the text is not valid UTF-8
  std::string stand_in;  // what is cut into words then
  for (const Fragment& fragment : fragments) {
    if (fragment.id != kNoToken) {
      out.push_back(fragment.id);
      if (!goes_on()) return Status::ok();
      continue;
    }
    std::string_view text = fragment.text;
    std::string_view words = fragment.text;
    if (!is_valid_utf8(text)) {
      repaired.clear();
      stand_in.clear();
      for (size_t at = 0; at < text.size();) {
        const size_t n_bytes = utf8_char_bytes(text, at);
        if (n_bytes > 0) {
          repaired += text.substr(at, n_bytes);
          stand_in += text.substr(at, n_bytes);
        } else if (bpe->has_byte(byte_of(text[at]))) {
          repaired.push_back(text[at]);
          stand_in.push_back(kInvalidByteStandIn);
        } else {
          repaired += kReplacement;
          stand_in += kReplacement;
        }
        at += std::max<size_t>(n_bytes, 1);
      }
      text = repaired;
      words = stand_in;
    }
    WEFT_RETURN_IF_ERROR(pre_tokenizer->split(words, ends));
    size_t begin = 0;
    for (const uint32_t end : ends) {
      bpe->encode_word(text.substr(begin, end - begin), scratch, out);
      if (!goes_on()) return Status::ok();
      begin = end;
    }
  }
  return Status::ok();
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::create(VocabData vocab) {
  auto impl = std::make_unique<Impl>();
  impl->vocab = std::move(vocab);
  WEFT_RETURN_IF_ERROR(impl->init());
  return Tokenizer(std::move(impl));
}

namespace {

Status check_text_bytes(size_t n_bytes) {
  if (n_bytes <= Tokenizer::kMaxTextBytes) return Status::ok();
  return resource_exhausted(fmt::format("text of {} bytes: at most {} can be tokenised at once",
                                        n_bytes, Tokenizer::kMaxTextBytes));
}

template <class F>
Result<std::vector<int32_t>> with_memory_for(size_t n_bytes, F&& encode) {
  return or_out_of_memory(fmt::format("tokenising a text of {} bytes", n_bytes),
                          "give less text at once, or raise the limit (ulimit -v)",
                          std::forward<F>(encode));
}

}  // namespace

// `goes_on` is asked after every word and special token: a limit of tokens ends the work within a
// word of it, and the caller is asked whether to stop every kWordsPerLook words.
Status Tokenizer::Impl::encode_fragments(std::span<const Fragment> fragments, bool continues_text,
                                         const EncodeLimits& limits,
                                         std::vector<int32_t>& out) const {
  constexpr uint32_t kWordsPerLook = 256;  // some 100 us of words
  bool is_cancelled = false;
  uint32_t n_words = 0;
  const auto goes_on = [&] {
    if (limits.cancelled != nullptr && ++n_words % kWordsPerLook == 0) {
      is_cancelled = is_cancelled || (*limits.cancelled)();
    }
    return !is_cancelled && std::ssize(out) <= limits.tokens;
  };
  if (sentence_piece) {
    encode_sentence_piece(fragments, continues_text, goes_on, out);
  } else {
    WEFT_RETURN_IF_ERROR(encode_bpe(fragments, goes_on, out));
  }
  return is_cancelled ? cancelled("stopped") : Status::ok();
}

/// So many bytes of text that tokens within the limit do not spell them, as a rule: what is after
/// them then needs no look (a template can make 64 MiB of a few letters). Bytes that no token has,
/// and white space that a control token swallows, spell nothing, so whoever cuts there looks
/// whether the tokens do pass the limit.
size_t Tokenizer::Impl::bytes_past(const EncodeLimits& limits) const {
  const int64_t most = kMaxTextBytes / longest_bytes;
  if (limits.tokens >= most) return kMaxTextBytes;
  return (std::max<int64_t>(limits.tokens, 0) + 1) * longest_bytes;
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, EncodeOptions options,
                                               const EncodeLimits& limits) const {
  WEFT_RETURN_IF_ERROR(check_text_bytes(text.size()));
  return with_memory_for(text.size(), [&] { return impl_->encode_text(text, options, limits); });
}

// The beginning first, where a limit lets expect that it is enough; if its tokens do not pass the
// limit after all, the whole text, so that the result is the same as without this shortcut.
Result<std::vector<int32_t>> Tokenizer::Impl::encode_text(std::string_view text,
                                                          EncodeOptions options,
                                                          const EncodeLimits& limits) const {
  const std::string_view kept = text.substr(0, bytes_past(limits));
  if (kept.size() < text.size()) {
    WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> out, encode_whole(kept, options, limits));
    if (std::ssize(out) > limits.tokens + (options.add_eos ? 1 : 0)) return out;
  }
  return encode_whole(text, options, limits);
}

Result<std::vector<int32_t>> Tokenizer::Impl::encode_whole(std::string_view text,
                                                           EncodeOptions options,
                                                           const EncodeLimits& limits) const {
  std::vector<int32_t> out;
  out.reserve(text.size() / 3 + 2);
  if (options.add_bos && vocab.bos_id != kNoToken) out.push_back(vocab.bos_id);
  const std::vector<Fragment> fragments = specials->split(text, options.parse_special);
  WEFT_RETURN_IF_ERROR(encode_fragments(fragments, options.continues_text, limits, out));
  if (options.add_eos && vocab.eos_id != kNoToken) out.push_back(vocab.eos_id);
  return out;
}

Result<std::vector<int32_t>> Tokenizer::encode_parts(std::span<const TextPart> parts,
                                                     const EncodeLimits& limits) const {
  size_t n_bytes = 0;
  for (const TextPart& part : parts) n_bytes += part.text.size();
  WEFT_RETURN_IF_ERROR(check_text_bytes(n_bytes));
  return with_memory_for(n_bytes, [&] { return impl_->encode_text_parts(parts, limits); });
}

// The same for parts.
Result<std::vector<int32_t>> Tokenizer::Impl::encode_text_parts(std::span<const TextPart> parts,
                                                                const EncodeLimits& limits) const {
  size_t n_bytes = 0;
  for (const TextPart& part : parts) n_bytes += part.text.size();
  const size_t most_bytes = bytes_past(limits);
  if (most_bytes < n_bytes) {
    WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> out, encode_first(parts, most_bytes, limits));
    if (std::ssize(out) > limits.tokens) return out;
  }
  return encode_first(parts, n_bytes, limits);
}

Result<std::vector<int32_t>> Tokenizer::Impl::encode_first(std::span<const TextPart> parts,
                                                           size_t most_bytes,
                                                           const EncodeLimits& limits) const {
  std::string text;
  std::vector<ByteRange> control;
  for (const TextPart& part : parts) {
    const std::string_view kept = part.text.substr(0, most_bytes - text.size());
    if (part.parse_special) control.push_back({text.size(), text.size() + kept.size()});
    text += kept;
  }
  std::vector<int32_t> out;
  out.reserve(text.size() / 3 + 2);
  WEFT_RETURN_IF_ERROR(encode_fragments(specials->split(text, control),
                                        /*continues_text=*/false, limits, out));
  return out;
}

std::string_view Tokenizer::token_bytes(int32_t id, bool show_control) const {
  if (!impl_->is_id(id) || (is_control(id) && !show_control)) return {};
  return impl_->bytes[id];
}

// The space that encode put before text at the start and after special tokens is taken away again
// at the same places, so that decode(encode(text)) is the text.
std::string Tokenizer::decode(std::span<const int32_t> ids, bool show_control) const {
  std::string text;
  bool after_special = true;
  for (const int32_t id : ids) {
    std::string_view piece = token_bytes(id, show_control);
    const bool special = is_control(id);
    if (impl_->vocab.add_space_prefix && after_special && !special && piece.starts_with(' ')) {
      piece.remove_prefix(1);
    }
    text += piece;
    after_special = special;
  }
  return text;
}

int32_t Tokenizer::vocab_size() const { return narrow<int32_t>(impl_->vocab.tokens.size()); }
bool Tokenizer::is_control(int32_t id) const { return impl_->is_id(id) && impl_->is_control[id]; }
bool Tokenizer::is_end_of_generation(int32_t id) const {
  return impl_->is_id(id) && impl_->ends_generation[id];
}
int32_t Tokenizer::bos() const { return impl_->vocab.bos_id; }
int32_t Tokenizer::eos() const { return impl_->vocab.eos_id; }
bool Tokenizer::wants_bos() const {
  return impl_->vocab.add_bos && impl_->vocab.bos_id != kNoToken;
}
int32_t Tokenizer::find_token(std::string_view stored_text) const {
  return impl_->index->find(stored_text);
}

}  // namespace weft::text
