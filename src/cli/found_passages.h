// The passages of a store that a question is answered from, as `ask` and a conversation over
// documents take them: found, checked, and shown with the answer.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/ask_report.h"
#include "cli/document_flags.h"
#include "cli/library.h"
#include "fusion/prompt.h"
#include "retrieval/passages.h"

namespace weft::cli {

/// One of retrieval::Passages::absent, and what it may be a misspelling of; "" where nothing is
/// near.
struct AbsentWord {
  std::string word;
  std::string near;
};

struct FoundPassages {
  retrieval::PassagesFound found = retrieval::PassagesFound::kYes;
  std::vector<Passage> passages;           // their token ids are those of their texts
  std::vector<std::string> notes;          // fit for the user
  bool looked_back = false;                // the questions before were searched for, too
  std::vector<std::string> searched_with;  // retrieval::FollowUp::searched_with
  std::vector<AbsentWord> absent;
  std::vector<AbsentWord> absent_subjects;  // retrieval::Passages::absent_subjects
  std::vector<retrieval::TakenWord> taken;  // retrieval::Passages::taken; a note says it

  std::vector<std::vector<int32_t>> chunks() const;
};

/// `before`: the questions of the conversation that were answered, oldest first. With
/// --answer-anyway the best passages, or none, where the documents have nothing on the question.
/// kNotFound where there are no documents at all.
/// `after_unanswered`: a question came in between that was not; which one is meant is then said.
Result<FoundPassages> find_for(Env& env, Library& library, std::span<const std::string> before,
                               const std::string& question, const DocumentFlags& flags,
                               bool after_unanswered = false);

/// Why nothing was found, for people: with the words that no passage has, where there are any.
std::string why_not(const FoundPassages& found);
/// `is_whole`: the store has all that was to be ingested.
void print_not_found(const FoundPassages& found, bool is_whole = true);
Json absent_json(const FoundPassages& found);
/// {"alram": "alarm"}
Json meant_json(const FoundPassages& found);
/// The same of what was searched for as another word.
Json taken_json(const FoundPassages& found);
Json not_found_json(const std::string& question, const FoundPassages& found);

/// Numbered, one or two lines each.
void print_sources(std::span<const Passage> passages);
/// `no document has the word "alarm"`, of what was answered all the same: of its absent_subjects,
/// "" of none.
std::string absent_line(const FoundPassages& found);
/// The sources, and then that line.
void print_sources_and_absent(const FoundPassages& found);

/// Where plain prefill was the quicker way, the chunks are stored now, so that the next question
/// finds them. What cannot be stored is said.
void store_missing(Library& library, const std::vector<std::vector<int32_t>>& chunks,
                   fusion::ReuseMode asked);

}  // namespace weft::cli
