// Text without spaces between words (Chinese, Japanese, Thai, …; Korean, whose words carry their
// particles): the terms it is found by. FTS5's tokenizer makes one term of a whole run, so for the
// index each run becomes its pairs of characters. Internal to this room; knows no SQLite.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::retrieval {

/// The terms of all such runs in a chunk's title and text, separated by spaces: of a run ABC the
/// pairs AB and BC, and C alone, so that each character begins a term. Letters and digits (ASCII)
/// that touch a run are terms of their own, too: FTS5 takes both for one word. Empty for text that
/// has no such run.
std::string pieces_of(std::string_view title, std::string_view text);

struct UnspacedQuestion {
  std::string spaced;               // the question without its runs
  std::vector<std::string> pairs;   // terms as pieces_of makes them, each once
  std::vector<std::string> begins;  // of a run of one character: what its terms begin with
};

/// A question's runs. What only asks or joins (什么, の, 무엇, อะไร, …) is left out.
UnspacedQuestion split_unspaced(std::string_view question);

}  // namespace weft::retrieval
