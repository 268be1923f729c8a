// How good the passages are that a question is answered from: all passages of some data sets in one
// index, and their questions asked over them. No KV is computed; a model is needed for its
// vocabulary alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/function_ref.h"
#include "base/status.h"
#include "eval/dataset.h"
#include "text/tokenizer.h"

namespace weft::eval {

struct RetrievalSet {
  std::string name;
  std::vector<Example> examples;  // with passages marked as gold
};

/// A share, or a difference of shares, with its 95 % interval.
struct Interval {
  double value = 0;
  double low = 0;
  double high = 0;
};

/// What is shown of the passages, over some questions.
struct RetrievalFigures {
  int64_t questions = 0;
  Interval gold;              // of the questions' gold passages among those shown (bootstrapped)
  double passages = 0;        // shown, mean
  double tokens = 0;          // of the passages shown, mean
  Interval not_in_documents;  // of the questions (Wilson)
};

/// Questions are halved by their place in the set: even ones are for tuning, odd ones for looking.
enum class Half { kAll, kEven, kOdd };

struct RetrievalResult {
  std::string name;
  Half half = Half::kAll;
  RetrievalFigures plain;    // Index::search over all words of the question
  RetrievalFigures chosen;   // find_passages, as ask does
  Interval gold_difference;  // chosen less plain, question by question (bootstrapped)
  /// find_passages over the other sets' passages alone; no gold there. None with a single set.
  std::optional<RetrievalFigures> foreign;
};

struct RetrievalOptions {
  int n_passages = 4;
  std::string folder;  // where the index is made; removed afterwards
};

/// For each set, and last for all together, both halves, where they have questions, and all
/// questions. A passage is a chunk, passages with one title a document; equal ones are one.
/// kInvalidArgument for a set without gold passages; kCancelled when `progress`, which is called
/// for each passage and each question, says false.
Result<std::vector<RetrievalResult>> evaluate_retrieval(
    Env& env, const text::Tokenizer& tokenizer, const std::vector<RetrievalSet>& sets,
    const RetrievalOptions& options, FunctionRef<bool(int64_t done, int64_t total)> progress);

}  // namespace weft::eval
