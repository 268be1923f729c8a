// How passages are shown, by `ask` and by a conversation over documents, to people and to programs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/app.h"
#include "fusion/prompt.h"
#include "library/found_passages.h"

namespace weft::cli {

/// A question as it is shown: only the beginning of one that is refused for its length.
std::string beginning_of(const std::string& question);
/// A program gets an object for each question, also where it fails.
void print_error_object(const std::string& question, const Status& status);

/// `is_whole`: the store has all that was to be ingested.
void print_not_found(const library::FoundPassages& found, bool is_whole = true);
Json absent_json(const library::FoundPassages& found);
/// {"alram": "alarm"}
Json meant_json(const library::FoundPassages& found);
/// The same of what was searched for as another word.
Json taken_json(const library::FoundPassages& found);
Json not_found_json(const std::string& question, const library::FoundPassages& found);

/// Numbered, one or two lines each.
void print_sources(std::span<const library::Passage> passages);
/// The sources, and then library::absent_line.
void print_sources_and_absent(const library::FoundPassages& found);

/// Library::store_missing after an answer that was to reuse KV. What cannot be stored is said.
void store_missing(library::Library& library, const std::vector<std::vector<int32_t>>& chunks,
                   fusion::ReuseMode asked);

}  // namespace weft::cli
