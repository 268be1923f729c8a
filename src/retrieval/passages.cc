#include "retrieval/passages.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <unordered_set>
#include <utility>

#include "base/hash.h"
#include "base/utf8.h"
#include "retrieval/function_words.h"
#include "retrieval/unspaced_internal.h"

namespace weft::retrieval {
namespace {

// BM25's usual constants, as FTS5 has them.
constexpr double kSaturation = 1.2;
constexpr double kLengthShare = 0.75;
// Measured (docs/measurements.md, "Retrieval"): a passage's title says what all of it is about.
constexpr int64_t kTitleCounts = 2;
constexpr int kCandidatesPerPassage = 8;
constexpr int kCandidatesAtLeast = 32;
constexpr int kCandidatesAtMost = 256;
constexpr size_t kShingleWords = 4;
constexpr size_t kMaxSentencesBytes = 64 << 10;
constexpr double kCoveredEnough = 0.5;

struct Question {
  std::vector<Term> terms;
  bool is_unspaced = false;  // mostly
};

Result<Question> read_question(Index& index, std::string_view text) {
  Question question;
  const UnspacedQuestion unspaced = split_unspaced(text);
  WEFT_ASSIGN_OR_RETURN(const auto words, index.words(unspaced.spaced, Index::kMaxQueryTerms));
  for (std::string& word : content_words(words)) question.terms.push_back({std::move(word)});
  const size_t n_words = question.terms.size();
  for (const std::string& pair : unspaced.pairs) question.terms.push_back({pair});
  for (const std::string& begin : unspaced.begins) question.terms.push_back({begin, true});
  question.is_unspaced = question.terms.size() > 2 * n_words;
  question.terms.resize(std::min(question.terms.size(), Index::kMaxQueryTerms));
  return question;
}

/// FTS5's inverse document frequency is about 0 for a term of half of the chunks or more, so that
/// in a store of two or three documents nothing has a score; this one is above 0.
double weight_of(int64_t chunks_with, int64_t chunks) {
  const auto all = static_cast<double>(std::max<int64_t>(chunks, 1));
  const double with = std::clamp(static_cast<double>(chunks_with), 1.0, all);
  return std::log(1 + (all - with + 0.5) / (with + 0.5));
}

class Ranker {
 public:
  Ranker(Index& index, std::span<const Term> terms, const TermCounts& counts)
      : index_(index), terms_(terms), mean_tokens_(std::max(counts.mean_tokens, 1.0)) {
    for (size_t i = 0; i < terms.size(); ++i) {
      weights_.push_back(weight_of(counts.chunks_with[i], counts.chunks));
      total_ += weights_.back();
    }
  }

  const std::vector<double>& weights() const { return weights_; }
  double relevance(const Hit& hit) const { return total_ > 0 ? hit.score / total_ : 0; }
  /// The share of the terms' weight that the chunk has at all, however long it is.
  Result<double> covered(const Hit& hit) const {
    WEFT_ASSIGN_OR_RETURN(const auto n, occurrences(hit));
    double has = 0;
    for (size_t i = 0; i < n.size(); ++i) has += n[i] > 0 ? weights_[i] : 0;
    return total_ > 0 ? has / total_ : 0;
  }

  Status rate(Hit& hit) const {
    WEFT_ASSIGN_OR_RETURN(const auto n, occurrences(hit));
    const double length = static_cast<double>(hit.chunk.tokens.size()) / mean_tokens_;
    const double damping = kSaturation * (1 - kLengthShare + kLengthShare * length);
    hit.score = 0;
    for (size_t i = 0; i < n.size(); ++i) {
      const auto often = static_cast<double>(n[i]);
      if (often > 0) hit.score += weights_[i] * often * (kSaturation + 1) / (often + damping);
    }
    return Status::ok();
  }

 private:
  /// Of each term, in text and title.
  Result<std::vector<int64_t>> occurrences(const Hit& hit) const {
    WEFT_ASSIGN_OR_RETURN(auto n, index_.occurrences(terms_, hit.chunk.text));
    WEFT_ASSIGN_OR_RETURN(const auto in_title, index_.occurrences(terms_, hit.title));
    const std::string pieces = pieces_of(hit.title, hit.chunk.text);
    if (!pieces.empty()) {
      WEFT_ASSIGN_OR_RETURN(const auto in_pieces, index_.occurrences(terms_, pieces));
      std::ranges::transform(n, in_pieces, n.begin(), std::plus<>());
    }
    for (size_t i = 0; i < n.size(); ++i) n[i] += kTitleCounts * in_title[i];
    return n;
  }

  Index& index_;
  std::span<const Term> terms_;
  double mean_tokens_;
  std::vector<double> weights_;
  double total_ = 0;
};

/// Chunks with the same text count once: the copies of a note say nothing about how rare its words
/// are. Only those among the candidates are known.
Status forget_copies(Index& index, std::span<const Term> terms, std::span<const Hit> hits,
                     TermCounts& counts) {
  std::unordered_set<std::string_view> seen;
  for (const Hit& hit : hits) {
    if (seen.insert(hit.chunk.text).second) continue;
    const std::string all =
        hit.title + "\n" + hit.chunk.text + "\n" + pieces_of(hit.title, hit.chunk.text);
    WEFT_ASSIGN_OR_RETURN(const auto n, index.occurrences(terms, all));
    for (size_t i = 0; i < n.size(); ++i) counts.chunks_with[i] -= n[i] > 0 ? 1 : 0;
    --counts.chunks;
  }
  return Status::ok();
}

/// The hashes of each run of kShingleWords words; of a shorter text of all of it. Unspaced runs
/// count by their pairs.
Result<std::unordered_set<uint64_t>> shingles_of(Index& index, const Hit& hit) {
  std::unordered_set<uint64_t> shingles;
  std::vector<uint64_t> last;
  const std::string pieces = pieces_of("", hit.chunk.text);
  WEFT_RETURN_IF_ERROR(index.each_word(pieces.empty() ? std::string_view(hit.chunk.text) : pieces,
                                       [&](std::string_view word) {
                                         last.push_back(hash64(std::as_bytes(std::span(word))));
                                         if (last.size() > kShingleWords) last.erase(last.begin());
                                         if (last.size() == kShingleWords)
                                           shingles.insert(hash64(std::as_bytes(std::span(last))));
                                         return true;
                                       }));
  if (shingles.empty()) shingles.insert(hash64(std::as_bytes(std::span(last))));
  return shingles;
}

bool are_near_duplicates(const std::unordered_set<uint64_t>& a,
                         const std::unordered_set<uint64_t>& b) {
  const size_t smaller = std::min(a.size(), b.size());
  const size_t larger = std::max(a.size(), b.size());
  if (static_cast<double>(smaller) < kNearDuplicate * static_cast<double>(larger)) return false;
  const auto shared =
      static_cast<size_t>(std::ranges::count_if(a, [&](uint64_t s) { return b.contains(s); }));
  return static_cast<double>(shared) >=
         kNearDuplicate * static_cast<double>(a.size() + b.size() - shared);
}

/// The best that are no near-duplicates of better ones.
Result<std::vector<Hit>> take_best(Index& index, std::vector<Hit> ranked,
                                   const PassageOptions& options) {
  std::vector<Hit> taken;
  std::vector<std::unordered_set<uint64_t>> seen;
  for (Hit& hit : ranked) {
    if (std::ssize(taken) >= options.n_passages) break;
    if (!taken.empty() && hit.score < options.least_share_of_best * taken.front().score) break;
    WEFT_ASSIGN_OR_RETURN(auto shingles, shingles_of(index, hit));
    if (std::ranges::any_of(seen, [&](const auto& s) { return are_near_duplicates(s, shingles); }))
      continue;
    seen.push_back(std::move(shingles));
    taken.push_back(std::move(hit));
  }
  return taken;
}

/// Chunks that follow each other in a document stand together, where the best of them was.
std::vector<Hit> with_neighbours_together(std::vector<Hit> hits) {
  std::vector<Hit> ordered;
  std::vector<bool> is_taken(hits.size(), false);
  const auto at = [&](int64_t document, int64_t ordinal) {
    const auto found = std::ranges::find_if(hits, [&](const Hit& hit) {
      return hit.chunk.document_id == document && hit.chunk.ordinal == ordinal;
    });
    return static_cast<size_t>(found - hits.begin());
  };
  for (size_t i = 0; i < hits.size(); ++i) {
    if (is_taken[i]) continue;
    const int64_t document = hits[i].chunk.document_id;
    int64_t first = hits[i].chunk.ordinal;
    while (at(document, first - 1) < hits.size()) --first;
    std::vector<size_t> run;
    for (int64_t ordinal = first; at(document, ordinal) < hits.size(); ++ordinal) {
      run.push_back(at(document, ordinal));
    }
    for (const size_t one : run) is_taken[one] = true;
    for (const size_t one : run) ordered.push_back(hits[one]);
  }
  return ordered;
}

// ------------------------------------------------------------------------------------- sentences

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// Whether the line break at text[at] is only where a writer's lines are full: the next line goes
/// on in lower case, or after a long line in letters.
bool is_wrapped(std::string_view text, size_t at) {
  size_t next = at + 1;
  while (next < text.size() && (text[next] == ' ' || text[next] == '\t')) ++next;
  if (next == text.size()) return false;
  const auto c = static_cast<unsigned char>(text[next]);
  constexpr size_t kLongLine = 60;
  const size_t line = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;  // npos + 1 is 0
  return std::islower(c) != 0 || (at - line >= kLongLine && std::isalpha(c) != 0);
}

/// Whether the full stop at text[at] is an abbreviation's or an initial's, or the next word goes on
/// in lower case.
bool is_within_sentence(std::string_view text, size_t at) {
  size_t next = at + 1;
  while (next < text.size() && (text[next] == ' ' || text[next] == '\t')) ++next;
  if (next > at + 1 && next < text.size() && std::islower(static_cast<unsigned char>(text[next])))
    return true;
  constexpr size_t kLongest = 5;
  size_t begin = at;
  while (begin > 0 && at - begin <= kLongest && !is_space(text[begin - 1]) &&
         text[begin - 1] != '(') {
    --begin;
  }
  const std::string_view word = text.substr(begin, at - begin);
  if (word.size() == 1 && std::isupper(static_cast<unsigned char>(word[0])) != 0) return true;
  constexpr std::string_view kAbbreviations[] = {"Mr", "Mrs", "Ms",  "Dr",  "Prof", "St", "No",
                                                 "Nr", "e.g", "i.e", "z.B", "d.h",  "vs"};
  // "No." is a sentence, too; before a number it is none.
  if (word == "No" || word == "Nr") {
    return next < text.size() && std::isdigit(static_cast<unsigned char>(text[next])) != 0;
  }
  return std::ranges::find(kAbbreviations, word) != std::end(kAbbreviations);
}

/// Bytes of the mark that ends a sentence at text[at]; 0: none.
size_t sentence_end(std::string_view text, size_t at) {
  if (text[at] == '\n') return is_wrapped(text, at) ? 0 : 1;
  if (text[at] == '.' || text[at] == '!' || text[at] == '?') {
    if (text[at] == '.' && is_within_sentence(text, at)) return 0;
    return at + 1 == text.size() || is_space(text[at + 1]) ? 1 : 0;
  }
  for (const std::string_view mark : {"。", "！", "？"}) {
    if (text.substr(at).starts_with(mark)) return mark.size();
  }
  return 0;
}

std::vector<std::string_view> sentences_of(std::string_view text) {
  std::vector<std::string_view> sentences;
  size_t begin = 0;
  const auto add = [&](size_t end) {
    std::string_view one = text.substr(begin, end - begin);
    while (!one.empty() && is_space(one.front())) one.remove_prefix(1);
    while (!one.empty() && is_space(one.back())) one.remove_suffix(1);
    if (!one.empty()) sentences.push_back(one);
    begin = end;
  };
  for (size_t at = 0; at < text.size();) {
    const size_t n_bytes = sentence_end(text, at);
    at += std::max<size_t>(n_bytes, 1);
    if (n_bytes > 0) add(at);
  }
  add(text.size());
  return sentences;
}

/// With one space for each white space, and for a line break.
std::string squeezed(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (!is_space(c)) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  return out;
}

/// Cut at a word, or at least at a character.
std::string shortened(std::string line, size_t max_bytes) {
  if (line.size() <= max_bytes) return line;
  size_t end = max_bytes;
  const size_t space = line.rfind(' ', end);
  if (space != std::string::npos && space > max_bytes / 2) end = space;
  while (end > 0 && is_utf8_continuation(line[end])) --end;
  return line.substr(0, end) + " …";
}

}  // namespace

Result<Passages> find_passages(Index& index, std::string_view text, const PassageOptions& options) {
  Passages out;
  WEFT_ASSIGN_OR_RETURN(const Question question, read_question(index, text));
  if (question.terms.empty()) {
    out.found = PassagesFound::kNoTerms;
    return out;
  }
  WEFT_ASSIGN_OR_RETURN(TermCounts counts, index.count(question.terms));
  const int wanted = std::clamp(options.n_passages, 1, kCandidatesAtMost) * kCandidatesPerPassage;
  const int n_candidates =
      std::max(std::clamp(wanted, kCandidatesAtLeast, kCandidatesAtMost), options.n_passages);
  WEFT_ASSIGN_OR_RETURN(std::vector<Hit> ranked, index.search(question.terms, n_candidates));
  WEFT_RETURN_IF_ERROR(forget_copies(index, question.terms, ranked, counts));
  const Ranker ranker(index, question.terms, counts);
  for (size_t i = 0; i < question.terms.size(); ++i) {
    out.terms.push_back({question.terms[i], ranker.weights()[i]});
  }
  if (ranked.empty()) {
    out.found = PassagesFound::kNone;
    return out;
  }
  for (Hit& hit : ranked) WEFT_RETURN_IF_ERROR(ranker.rate(hit));
  std::ranges::stable_sort(ranked, std::greater<>(), &Hit::score);  // ties as FTS5 had them
  out.relevance = ranker.relevance(ranked.front());
  WEFT_ASSIGN_OR_RETURN(const double covered, ranker.covered(ranked.front()));
  const double least =
      question.is_unspaced ? options.least_relevance_unspaced : options.least_relevance;
  const bool is_weak = out.relevance < least && covered < kCoveredEnough;
  out.found = is_weak ? PassagesFound::kWeak : PassagesFound::kYes;
  if (is_weak && !options.anyway) return out;
  WEFT_ASSIGN_OR_RETURN(std::vector<Hit> taken, take_best(index, std::move(ranked), options));
  out.hits = with_neighbours_together(std::move(taken));
  return out;
}

Result<std::string> best_sentence(Index& index, std::span<const WeightedTerm> terms,
                                  std::string_view text, size_t max_bytes) {
  std::vector<Term> plain;
  for (const WeightedTerm& term : terms) plain.push_back(term.term);
  text = text.substr(0, kMaxSentencesBytes);
  WEFT_ASSIGN_OR_RETURN(const Index::Forms forms, index.forms_of(plain));
  std::string_view best;
  double most = -1;
  for (const std::string_view sentence : sentences_of(text)) {
    WEFT_ASSIGN_OR_RETURN(auto n, index.occurrences(forms, sentence));
    if (const std::string pieces = pieces_of("", sentence); !pieces.empty()) {
      WEFT_ASSIGN_OR_RETURN(const auto more, index.occurrences(forms, pieces));
      std::ranges::transform(n, more, n.begin(), std::plus<>());
    }
    double weight = 0;
    for (size_t i = 0; i < n.size(); ++i) weight += n[i] > 0 ? terms[i].weight : 0;
    if (weight <= most) continue;
    most = weight;
    best = sentence;
  }
  return shortened(squeezed(best), max_bytes);
}

}  // namespace weft::retrieval
