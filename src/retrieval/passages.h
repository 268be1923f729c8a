// The passages that a question is answered from: what of the question is searched for, which of the
// chunks found are worth a place in the prompt, in which order, and whether any of them is. It
// changes nothing and computes no KV.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "retrieval/index.h"

namespace weft::retrieval {

/// A term of a question and how much it says: BM25's inverse document frequency. A term that no
/// chunk has says no more than one that a single chunk has, so that one strange word does not make
/// the rest look small.
struct WeightedTerm {
  Term term;
  double weight = 0;
};

struct PassageOptions {
  int n_passages = 4;
  /// A passage with less than this share of the best one's score is left out.
  double least_share_of_best = 0.5;
  /// A best passage whose score is less than this share of the terms' weight (an average passage
  /// with every term once has about 1), and that has less than half of the terms by weight, is
  /// none: it shares too little with the question. So is one that has less than a quarter of them
  /// where much of the rest is in no passage at all, or only words as "name" and "date" where what
  /// has the name is in none.
  double least_relevance = 0.33;
  /// The same for a question of unspaced script, whose terms are pairs of characters: those across
  /// two words are in no passage.
  double least_relevance_unspaced = 0.16;
  /// The best passages whatever their relevance.
  bool anyway = false;
};

enum class PassagesFound {
  kYes,
  kNoTerms,  // the question has no words to search for
  kNone,     // no passage has any of them
  kWeak,     // the best one shares too little with the question
};

/// A word of a question that no document has, searched for as one that they have.
struct TakenWord {
  std::string word;  // as the question writes it
  std::string as;
};

struct Passages {
  PassagesFound found = PassagesFound::kNone;
  /// Best first; chunks of one document that follow each other are together, in order, at the place
  /// of the best of them. Empty unless found is kYes, or `anyway` was asked for.
  std::vector<Hit> hits;
  std::vector<WeightedTerm> terms;
  /// The first of the question's words, as it writes them, that no document has; those of unspaced
  /// script are not among them.
  std::vector<std::string> absent;
  static constexpr size_t kMaxAbsent = 5;
  /// Those of `absent` that it helps a reader to know of, as the answer may be about something
  /// else: names, numbers, and where no passage shown has most of the question the other words that
  /// are no common ones (is_common_word).
  std::vector<std::string> absent_subjects;
  /// What was clearly misspelt; not absent, and where only that word is known the question is about
  /// what has it.
  std::vector<TakenWord> taken;
  double relevance = 0;  // of the best passage found: its score as a share of the terms' weight
};

/// A passage whose text another one has nearly all of (kNearDuplicate of the runs of four words
/// that both have together; of texts far longer than a chunk that is estimated; of two under 160
/// words all but a word or two, more where their titles share a word) is left out, unless
/// it has a term of the question that the other one has not (then it is Hit::older_version_of,
/// where it is older). Of those that score about the same the newest is taken where they differ, by
/// the days that both say in their files' names or front matter, else by the files' times; else one
/// in a folder as `old` or `backup` is left out for the others, and of these the one with the
/// shortest path is taken. Of passages with other words whose documents have the same letters in
/// their names or titles, and whose scores are within a tenth, the newer document's comes first.
/// Hit::score is BM25 with inverse document frequencies above 0, titles counted twice; a word that
/// only the file's name has counts as the title's, though it finds nothing by itself. Of a question
/// with more than Index::kMaxQueryTerms words the first and the last are searched for; one of more
/// than kMaxQuestionBytes is kInvalidArgument.
Result<Passages> find_passages(Index& index, std::string_view question,
                               const PassageOptions& options);
inline constexpr double kNearDuplicate = 0.9;
inline constexpr size_t kMaxQuestionBytes = size_t{1} << 20;

}  // namespace weft::retrieval
