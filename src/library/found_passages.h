// The passages of a store that a question is answered from: found, checked, each with the sentence
// that is shown of it; and in words what was not found. It prints nothing.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "library/library.h"
#include "retrieval/passages.h"

namespace weft::library {

/// What has become of a document's file since it was ingested.
enum class FileState { kSame, kChanged, kGone };
/// Compares size and time; where the time was not known (kUnknownTime), reads the file and compares
/// its content. A file that cannot be looked at counts as unchanged.
FileState file_state(Env& env, const retrieval::Hit& hit);

/// A passage in the prompt, with the sentence of it that is shown.
struct Passage {
  retrieval::Hit hit;
  std::string sentence;
  FileState file = FileState::kSame;
};

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

/// The questions of a conversation before this one.
struct EarlierQuestions {
  std::span<const std::string> answered;  // oldest first
  bool one_was_not = false;  // a later one was not answered; a note then says which one is meant
};

/// With PassageOptions::anyway the best passages, or none, where the documents have nothing on the
/// question. kNotFound where there are no documents at all; errors as retrieval::find_passages.
Result<FoundPassages> find_passages(Env& env, Library& library, const EarlierQuestions& before,
                                    const std::string& question,
                                    const retrieval::PassageOptions& options);

// In words. Words of questions and documents are as they are: who prints makes them harmless
// (base/terminal_text.h).

/// Why nothing was found, with the words that no passage has, where there are any.
std::string why_not(const FoundPassages& found);
/// `took "shcool" for "school" and "trpi" for "trip"`
std::string taken_line(std::span<const retrieval::TakenWord> words);
/// `no document has the word "alarm"`, of what was answered all the same: of its absent_subjects,
/// "" of none.
std::string absent_line(const FoundPassages& found);

}  // namespace weft::library
