// Cuts text into the words that byte-level BPE merges within, by the regular expressions that the
// GGUF key `tokenizer.ggml.pre` names. It never changes a byte and never looks at a vocabulary.
// PCRE2 appears in the .cc only. Thread-safe after creation.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft::text {

class PreTokenizer {
 public:
  /// `name` as in the GGUF; an unknown one is kUnsupported with the list of known ones.
  static Result<PreTokenizer> create(std::string_view name);

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  /// Sets `ends` to the byte offset after each word, ascending; the last one is text.size().
  /// `text` must be valid UTF-8. Time is linear in its length for every pattern of the table.
  Status split(std::string_view text, std::vector<uint32_t>& ends) const;

  /// A word that is a token as it is takes no merges (llama-3).
  bool ignores_merges() const;
  /// Models with this pre-tokenizer begin with BOS unless `tokenizer.ggml.add_bos_token` says no.
  bool adds_bos() const;

 private:
  struct Impl;
  explicit PreTokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::text
