// What of a question is searched for: its content words, how each may be written besides, and what
// a misspelt one was to be. Internal to this room; ranks nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "retrieval/function_words.h"
#include "retrieval/index.h"
#include "retrieval/passages.h"

namespace weft::retrieval {

/// Of a question that are looked at for how a word is written, in bytes.
inline constexpr size_t kMaxTextWritten = 4096;

struct Question {
  std::vector<Term> terms;
  size_t n_words = 0;        // the first of the terms: the others are of unspaced text
  bool is_unspaced = false;  // mostly
  Language language = Language::kEnglish;
  bool is_language_known = false;  // it has a function word of it
  TermCounts counts;
  std::vector<int64_t> whole;    // chunks with a term's `only`
  std::vector<TakenWord> taken;  // what was misspelt beyond much doubt
};

/// No terms where nothing can be searched for.
Result<Question> read_question(Index& index, std::string_view text);

}  // namespace weft::retrieval
