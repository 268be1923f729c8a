#include "text/chunker.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/utf8.h"

namespace weft::text {
namespace {

constexpr int32_t kMinChunkTokens = 8;     // more than one character can take, prefix included
constexpr size_t kFirstBytesPerToken = 5;  // a little more than English prose has

// What ends where a chunk may end, from the worst place to the best.
enum class Cut { kCharacter, kWord, kLine, kSentence, kParagraph };
constexpr size_t kCutKinds = 5;

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Offset after the ASCII white space that begins at `at`, within `text`.
size_t skip_blanks(std::string_view text, size_t at) {
  while (at < text.size() && is_blank(text[at])) ++at;
  return at;
}

// Bytes of the mark at `at` that ends a sentence; 0 when there is none. Full stops of other scripts
// count wherever they stand, the ASCII ones only before white space.
size_t sentence_mark_bytes(std::string_view text, size_t at) {
  constexpr std::string_view kWideMarks[] = {
      "\xE3\x80\x82",  // 。
      "\xEF\xBC\x81",  // ！
      "\xEF\xBC\x9F",  // ？
      "\xE0\xA5\xA4",  // ।
      "\xDB\x94",      // ۔
  };
  const char c = text[at];
  if (c == '.' || c == '!' || c == '?') {
    size_t end = at + 1;
    while (end < text.size() && std::string_view("\"')]").find(text[end]) != std::string_view::npos)
      ++end;
    return end < text.size() && is_blank(text[end]) ? end - at : 0;
  }
  if (static_cast<unsigned char>(c) < 0x80) return 0;
  for (const std::string_view mark : kWideMarks) {
    if (text.substr(at).starts_with(mark)) return mark.size();
  }
  return 0;
}

/// Where a chunk of text[begin, limit) may end: the last place of each kind.
class CutFinder {
 public:
  CutFinder(std::string_view text, size_t begin, size_t limit)
      : half_(begin + (limit - begin) / 2), begin_(begin), limit_(limit) {
    // One character beyond the limit tells whether a sentence ends there; what follows further on
    // must not be scanned for every chunk.
    const std::string_view seen = text.substr(0, limit + 1);
    for (size_t at = begin; at < limit;) {
      const size_t n_mark = sentence_mark_bytes(seen, at);
      if (n_mark == 0 && !is_blank(seen[at])) {
        at += std::max<size_t>(utf8_char_bytes(text, at), 1);
        offer(Cut::kCharacter, at);
        continue;
      }
      const size_t end = skip_blanks(seen, at + n_mark);
      const std::string_view blanks = seen.substr(at + n_mark, end - at - n_mark);
      const auto n_lines = std::count(blanks.begin(), blanks.end(), '\n');
      offer(n_lines >= 2   ? Cut::kParagraph
            : n_mark > 0   ? Cut::kSentence
            : n_lines == 1 ? Cut::kLine
                           : Cut::kWord,
            end);
      at = end;
    }
  }

  // The offset to cut at, in (begin, limit]. A paragraph or sentence end in the upper half comes
  // first, so that a heading is not left alone when its paragraph is too long.
  size_t best() const {
    for (const Cut kind : {Cut::kParagraph, Cut::kSentence}) {
      if (last(kind) >= half_ && last(kind) > begin_) return last(kind);
    }
    for (const Cut kind :
         {Cut::kParagraph, Cut::kSentence, Cut::kLine, Cut::kWord, Cut::kCharacter}) {
      if (last(kind) > begin_) return last(kind);
    }
    return limit_;
  }

 private:
  size_t last(Cut kind) const { return last_[static_cast<size_t>(kind)]; }
  void offer(Cut kind, size_t at) {
    if (at <= limit_) last_[static_cast<size_t>(kind)] = at;
  }

  size_t half_;
  size_t begin_;
  size_t limit_;
  size_t last_[kCutKinds] = {};
};

// The last place at or before `at` that is not inside a character; after `begin` in any case, if
// need be at the end of the first character.
size_t character_border(std::string_view text, size_t begin, size_t at) {
  if (at >= text.size()) return text.size();
  const size_t first = std::max<size_t>(utf8_char_bytes(text, begin), 1);
  if (at < begin + first) return begin + first;
  for (size_t back = 1; back <= 3 && at - back > begin; ++back) {
    if (utf8_char_bytes(text, at - back) > back) return at - back;
  }
  return at;
}

class Chunker {
 public:
  Chunker(const Tokenizer& tokenizer, std::string_view text, size_t max_tokens)
      : tokenizer_(tokenizer),
        text_(text),
        max_tokens_(max_tokens),
        window_bytes_(kFirstBytesPerToken * max_tokens) {}

  // Takes the next chunk from `begin`.
  Result<Chunk> next(size_t begin) {
    WEFT_ASSIGN_OR_RETURN(size_t limit, find_limit(begin));
    for (;;) {
      Chunk chunk{begin, limit, {}};
      if (limit < text_.size()) chunk.end = CutFinder(text_, begin, limit).best();
      WEFT_ASSIGN_OR_RETURN(chunk.tokens,
                            tokenizer_.encode(text_.substr(begin, chunk.end - begin)));
      const size_t n_bytes = chunk.end - begin;
      if (chunk.tokens.size() <= max_tokens_) {
        // The next chunk will be about as long: look a little further than that.
        window_bytes_ = std::max(n_bytes + n_bytes / 4, max_tokens_);
        return chunk;
      }
      // Cutting made other tokens than the window had; rarely by more than a few.
      limit = character_border(text_, begin, begin + n_bytes - std::max<size_t>(n_bytes / 16, 1));
    }
  }

 private:
  // How far the first max_tokens tokens from `begin` reach, looking no further than needed.
  Result<size_t> find_limit(size_t begin) {
    for (size_t window = window_bytes_;; window *= 2) {
      const bool whole = window >= text_.size() - begin;
      const size_t end = whole ? text_.size() : character_border(text_, begin, begin + window);
      WEFT_ASSIGN_OR_RETURN(const auto ids, tokenizer_.encode(text_.substr(begin, end - begin)));
      if (ids.size() <= max_tokens_) {
        if (whole) return end;
        continue;
      }
      size_t n_bytes = 0;
      for (size_t i = 0; i < max_tokens_; ++i) n_bytes += tokenizer_.token_bytes(ids[i]).size();
      return character_border(text_, begin, std::min(begin + std::max<size_t>(n_bytes, 1), end));
    }
  }

  const Tokenizer& tokenizer_;
  std::string_view text_;
  size_t max_tokens_;
  size_t window_bytes_;  // how far the next look for a limit reaches
};

}  // namespace

Result<std::vector<Chunk>> split_into_chunks(const Tokenizer& tokenizer, std::string_view text,
                                             ChunkOptions options) {
  if (options.max_tokens < kMinChunkTokens) {
    return invalid_argument(fmt::format("chunks of {} tokens: at least {} are needed",
                                        options.max_tokens, kMinChunkTokens));
  }
  Chunker chunker(tokenizer, text, static_cast<size_t>(options.max_tokens));
  std::vector<Chunk> chunks;
  for (size_t begin = 0; begin < text.size(); begin = chunks.back().end) {
    WEFT_ASSIGN_OR_RETURN(Chunk chunk, chunker.next(begin));
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

}  // namespace weft::text
