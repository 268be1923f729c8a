// BPE by scores, as SentencePiece and llama.cpp do it for llama and Gemma: the symbols are
// characters, any two neighbours merge if their joined text is a token, and the pair whose token
// has the best score comes first. Unlike byte-level BPE there is no list of merges, so each
// candidate is a look-up of the joined text.
//
// The same heap and linked list as in byte_level_bpe.cc, with stale entries told by the length of
// the pair. The text as a whole is one word to SentencePiece, and its heap would be as long as the
// text. But where no token of the vocabulary has a space mark after another character, no merge
// crosses into the next word, so words are merged one by one in memory that stays in the cache. A
// vocabulary with such tokens is merged whole.
#include "text/sentence_piece.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ascii.h"
#include "base/narrow.h"
#include "text/utf8.h"

namespace weft::text {

struct SentencePiece::Symbol {
  uint32_t begin;    // byte offset in the text
  uint32_t n_bytes;  // 0 when merged into its left neighbour
  int32_t previous;
  int32_t next;
};

struct SentencePiece::Candidate {
  float score;
  int32_t left;
  uint32_t n_bytes;  // of both symbols: a pair that has changed since is skipped

  // Best score first, leftmost first among equals; std::push_heap keeps the largest on top.
  bool operator<(const Candidate& other) const {
    return score != other.score ? score < other.score : left > other.left;
  }
};

namespace {
// Whether a space mark follows anything but another one.
bool has_inner_mark(std::string_view token) {
  size_t at = 0;
  while (token.substr(at).starts_with(kSpaceMark)) at += kSpaceMark.size();
  return token.find(kSpaceMark, at) != std::string_view::npos;
}
}  // namespace

// A byte without a token of its own becomes the unknown token; without that either it would vanish,
// which is refused when the file is opened. Text never becomes a control token, and the unknown one
// only for such a byte.
Result<SentencePiece> SentencePiece::create(const VocabData& vocab, const TokenIndex& index) {
  SentencePiece spm;
  spm.index_ = &index;
  spm.is_text_.resize(vocab.tokens.size());
  spm.scores_ = vocab.scores;
  spm.byte_ids_.fill(vocab.unk_id);
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    const std::string& token = vocab.tokens[id];
    switch (vocab.types[id]) {
      case TokenType::kUnknown:
      case TokenType::kControl:
        break;
      case TokenType::kByte:
        spm.byte_ids_[byte_of_token_text(token)] = narrow<int32_t>(id);
        break;
      case TokenType::kUndefined:
      case TokenType::kNormal:
      case TokenType::kUserDefined:
      case TokenType::kUnused:
        if (token.empty()) break;
        spm.is_text_[id] = true;
        spm.words_are_apart_ = spm.words_are_apart_ && !has_inner_mark(token);
        spm.longest_token_bytes_ = std::max(spm.longest_token_bytes_, token.size());
        break;
    }
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (spm.byte_ids_[byte] == kNoToken) {
      return corrupt(fmt::format(
          "tokenizer.ggml.tokens has neither a byte token <0x{:02X}> nor an unknown token", byte));
    }
  }
  return spm;
}

// Pieces longer than any token are not looked up: hashing them would make a long run of one letter
// quadratic.
int32_t SentencePiece::find(std::string_view piece) const {
  if (piece.size() > longest_token_bytes_) return kNoToken;
  const int32_t id = index_->find(piece);
  return id >= 0 && is_text_[id] ? id : kNoToken;
}

/// One text being encoded: its symbols as a linked list, the pairs that may merge as a heap.
class SentencePiece::Merger {
 public:
  explicit Merger(const SentencePiece& spm) : spm_(spm) {}

  void encode(std::string_view text, std::vector<int32_t>& out) {
    begin(text);
    merge();
    append_tokens(out);
  }

 private:
  void begin(std::string_view text) {
    text_ = text;
    symbols_.clear();
    queue_.clear();
    const auto end = narrow<uint32_t>(text.size());
    int32_t index = 0;
    for (uint32_t at = 0; at < end; ++index) {
      // A byte that is no character is alone, and comes out as its byte token.
      const uint32_t n_bytes = std::max<size_t>(utf8_char_bytes(text, at), 1);
      symbols_.push_back({at, n_bytes, index - 1, index + 1});
      at += n_bytes;
    }
    symbols_.back().next = -1;
    for (int32_t i = 0; i + 1 < std::ssize(symbols_); ++i) push_pair(i);
    std::make_heap(queue_.begin(), queue_.end());
  }

  // A pair that has changed since it was queued has another length, or its left symbol is gone:
  // symbols only grow, so equal lengths mean the same text.
  void merge() {
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end());
      const Candidate best = queue_.back();
      queue_.pop_back();
      Symbol& left = at(best.left);
      if (left.n_bytes == 0 || left.next < 0) continue;
      Symbol& right = at(left.next);
      if (left.n_bytes + right.n_bytes != best.n_bytes) continue;
      left.n_bytes = best.n_bytes;
      left.next = right.next;
      right.n_bytes = 0;
      if (left.next >= 0) at(left.next).previous = best.left;
      if (left.previous >= 0 && push_pair(left.previous)) sift();
      if (push_pair(best.left)) sift();
    }
  }

  // What is no token after all merges is a single character, which falls back to its bytes.
  void append_tokens(std::vector<int32_t>& out) const {
    for (int32_t i = 0; i >= 0; i = symbols_[i].next) {
      const Symbol& symbol = symbols_[i];
      const std::string_view piece = text_.substr(symbol.begin, symbol.n_bytes);
      const int32_t id = spm_.find(piece);
      if (id != kNoToken) {
        out.push_back(id);
        continue;
      }
      for (const char c : piece) out.push_back(spm_.byte_ids_[byte_of(c)]);
    }
  }

  Symbol& at(int32_t index) { return symbols_[index]; }
  void sift() { std::push_heap(queue_.begin(), queue_.end()); }

  // Queues the symbol and its right neighbour when their joined text is a token.
  bool push_pair(int32_t left) {
    const Symbol& symbol = at(left);
    if (symbol.next < 0) return false;
    const uint32_t n_bytes = symbol.n_bytes + at(symbol.next).n_bytes;
    const int32_t id = spm_.find(text_.substr(symbol.begin, n_bytes));
    if (id == kNoToken) return false;
    queue_.push_back({spm_.scores_[id], left, n_bytes});
    return true;
  }

  const SentencePiece& spm_;
  std::string_view text_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> queue_;
};

void SentencePiece::encode(std::string_view text, std::vector<int32_t>& out,
                           FunctionRef<bool()> goes_on) const {
  Merger merger(*this);
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = text.size();
    if (words_are_apart_) {
      // After the marks that the word begins with, up to the next mark.
      end = begin;
      while (text.substr(end).starts_with(kSpaceMark)) end += kSpaceMark.size();
      end = std::min(text.find(kSpaceMark, end), text.size());
    }
    merger.encode(text.substr(begin, end - begin), out);
    if (!goes_on()) return;
    begin = end;
  }
}

}  // namespace weft::text
