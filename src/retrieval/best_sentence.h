// The one line of a passage that is shown of it: the sentence, row or line that has most of what
// the question asks for. It ranks no passages and changes nothing.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "retrieval/passages.h"

namespace weft::retrieval {

/// The sentence of the text with most of the terms' weight, in one line: white space is squeezed.
/// Of equal ones the one whose terms fewest of the others have, then the one nearest to others with
/// terms, then the first. Lines that prose was wrapped into are joined, a list's are not, as far as
/// their widths and beginnings tell. Of a table or a log a row is one, and a heading, also one
/// without marks
/// ("Boiler service."), is one only where there is nothing else: its terms count half for each
/// sentence under it, down to the next heading of its level, as the title's do for all, and what
/// the title has tells less of a sentence. Before a table's row its header is shown, and before a
/// list's item the short line that introduces the list, if that has a term and both fit.
/// At most `max_bytes` of it are shown, those with most of the terms, and "…" where something is
/// left out. Only the text's first 64 KiB are looked at.
Result<std::string> best_sentence(Index& index, std::span<const WeightedTerm> terms,
                                  std::string_view title, std::string_view text, size_t max_bytes);

}  // namespace weft::retrieval
