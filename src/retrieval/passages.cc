// From a question to the few passages that go into the prompt. FTS5 finds candidates by any of the
// terms; they are ranked again here, because three things of its ranking do not fit small stores of
// notes: its inverse document frequency is 0 for a term that half of the chunks have; it knows no
// file names; and copies of one note make that note's own words look common.
//
// The score is BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and
// Beyond", 2009; k1 = 1.2, b = 0.75):
//   sum over terms of  idf * f * (k1 + 1) / (f + k1 * (1 - b + b * length / mean length))
// with idf = log(1 + (N - n + 0.5) / (n + 0.5)), which is above 0 for every term. A term's count in
// the title is doubled.
//
// Then the question is refused if even the best passage has too little of it; what says nearly the
// same is folded into one; of versions the newest goes first; and chunks that follow each other are
// put together in order, so that the model reads them as the document has them.
//
// Thresholds were chosen on 1,300 questions (docs/experiments.md, "Retrieval"): cut-off at 0.5 of
// the best score (0.4 and 0.6 were tried), least relevance 0.33 (0.30 to 0.45 were tried). A
// stricter one turns answerable questions away before it stops many foreign ones.
#include "retrieval/passages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "base/ascii.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "retrieval/function_words.h"
#include "retrieval/note_date_internal.h"
#include "retrieval/question_internal.h"
#include "retrieval/spelling_internal.h"
#include "retrieval/unspaced_internal.h"

namespace weft::retrieval {
namespace {

// BM25's usual constants, as FTS5 has them.
constexpr double kSaturation = 1.2;
constexpr double kLengthShare = 0.75;
// Measured (docs/experiments.md, "Retrieval"): a passage's title says what all of it is about.
constexpr int64_t kTitleCounts = 2;
// So many are read and ranked again for each passage that is wanted: copies, versions and FTS5's
// other order leave fewer.
constexpr int kCandidatesPerPassage = 8;
constexpr int kCandidatesAtLeast = 32;
constexpr int kCandidatesAtMost = 256;
constexpr size_t kShingleWords = 4;    // of a run that is compared
constexpr size_t kMaxTitleWords = 64;  // of a title and a file's name
// Of the terms' weight: a passage with so much is shown, however low its score.
constexpr double kCoveredEnough = 0.5;
// Of the terms' weight: so much is of terms that no document has, and so little the best passage
// has.
constexpr double kMuchIsAbsent = 0.3;
constexpr double kCoveredWithAbsent = 0.25;
// Where a passage has more of the question than this, by weight, it answers it or something near,
// and what else was said in passing tells nothing: of four words three, of three not two.
constexpr double kMostOfIt = 0.7;
constexpr double kAboutAsGood = 0.8;  // a copy's score, of the better one's
// In a text of fewer words a single changed word breaks more than a tenth of the runs of four. Two
// words changed in 160 are where both rules meet.
constexpr size_t kShortWords = 160;
constexpr size_t kChangedPairs = 8;       // of two words changed, or of seven put in
constexpr double kSharedPairs = 0.6;      // where the titles have a word in common
constexpr size_t kChangedPairsElse = 4;   // of one word changed
constexpr double kSharedPairsElse = 0.8;  // nobody calls 0171 555 a version of 0171 556

/// FTS5's inverse document frequency is about 0 for a term of half of the chunks or more, so that
/// in a store of two or three documents nothing has a score; this one is above 0.
double weight_of(int64_t chunks_with, int64_t chunks) {
  const double all = std::max<int64_t>(chunks, 1);
  const double with = std::clamp<double>(chunks_with, 1, all);
  return std::log(1 + (all - with + 0.5) / (with + 0.5));
}

/// The runs of words of a text by their hashes, each once and sorted; of one with more than
/// kMaxShingles the smallest hashes (a bottom-k sketch: Broder, "On the resemblance and containment
/// of documents", 1997). A chunk that weft cuts has at most 512 tokens, so about as many words: it
/// is whole. Only one from a foreign index is sketched, where the share of equal runs is then known
/// with a standard error of sqrt(0.9 * 0.1 / 512) = 1.3 % at kNearDuplicate, and two are compared
/// in at most 1024 steps: half a million pairs (--chunks 1024) take a second.
constexpr size_t kMaxShingles = 512;
class Shingles {
 public:
  void add(uint64_t hash) {
    if (is_sketch_ && hash > hashes_[kMaxShingles - 1]) return;
    hashes_.push_back(hash);
    if (hashes_.size() >= 4 * kMaxShingles) finish();
  }
  bool is_empty() const { return hashes_.empty(); }
  /// To be called once all were added.
  void finish() {
    std::ranges::sort(hashes_);
    const auto again = std::ranges::unique(hashes_);
    hashes_.erase(again.begin(), again.end());
    is_sketch_ = is_sketch_ || hashes_.size() > kMaxShingles;
    hashes_.resize(std::min(hashes_.size(), kMaxShingles));
  }

  bool is_near_duplicate_of(const Shingles& other) const {
    const std::vector<uint64_t>& a = hashes_;
    const std::vector<uint64_t>& b = other.hashes_;
    const double smaller = std::min(a.size(), b.size());
    const double larger = std::max(a.size(), b.size());
    if (smaller < kNearDuplicate * larger) return false;
    const size_t limit = is_sketch_ || other.is_sketch_ ? kMaxShingles : a.size() + b.size();
    // So many runs may be in only one of the two; one more, and the answer is known.
    const double most_alone = (1 - kNearDuplicate) * limit;
    size_t shared = 0;
    size_t alone = 0;
    size_t i = 0;
    size_t j = 0;
    while (shared + alone < limit && (i < a.size() || j < b.size())) {
      const bool has_a = i < a.size() && (j == b.size() || a[i] <= b[j]);
      const bool has_b = j < b.size() && (i == a.size() || b[j] <= a[i]);
      i += has_a ? 1 : 0;
      j += has_b ? 1 : 0;
      (has_a && has_b ? shared : alone) += 1;
      if (alone > most_alone) return false;
    }
    return shared >= kNearDuplicate * (shared + alone);
  }

 private:
  std::vector<uint64_t> hashes_;
  bool is_sketch_ = false;  // hashes_ has kMaxShingles, and more were there
};

/// A passage's words, for finding others that say nearly the same.
struct Wording {
  Shingles runs;                 // of kShingleWords words
  std::vector<uint64_t> pairs;   // of words that follow each other, sorted; of a short text
  std::vector<uint64_t> titles;  // words of title and file name, sorted
  size_t n_words = 0;
};

bool have_common(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i] == b[j]) return true;
    a[i] < b[j] ? ++i : ++j;
  }
  return false;
}

/// Whether two short texts differ in a word or two at most. In a text of twenty words the one that
/// differs may be all that matters (a telephone number), so texts whose titles have no word in
/// common must be closer.
bool differ_in_few_words(const Wording& a, const Wording& b) {
  const bool same_subject = have_common(a.titles, b.titles);
  const size_t most_alone = same_subject ? kChangedPairs : kChangedPairsElse;
  const size_t small = std::min(a.pairs.size(), b.pairs.size());
  const size_t large = std::max(a.pairs.size(), b.pairs.size());
  if (large - small > most_alone || large == 0) return false;
  size_t shared = 0;
  size_t i = 0;
  size_t j = 0;
  while (i < a.pairs.size() && j < b.pairs.size()) {
    const bool has_a = a.pairs[i] <= b.pairs[j];
    const bool has_b = b.pairs[j] <= a.pairs[i];
    shared += has_a && has_b ? 1 : 0;
    i += has_a ? 1 : 0;
    j += has_b ? 1 : 0;
  }
  const size_t alone = small + large - 2 * shared;
  const double least_shared = same_subject ? kSharedPairs : kSharedPairsElse;
  return alone <= most_alone && shared >= least_shared * (shared + alone);
}

bool are_near_duplicates(const Wording& a, const Wording& b) {
  if (a.runs.is_near_duplicate_of(b.runs)) return true;
  return a.n_words < kShortWords && b.n_words < kShortWords && differ_in_few_words(a, b);
}

/// A chunk that FTS5 found, with what ranking and comparing need of it.
struct Candidate {
  Hit hit;
  std::vector<int64_t> occurrences;  // of each term, in text and title
  Wording wording;
  Hash128 text;       // of hit's text, without white space
  NoteDate date = 0;  // of the document
};

class Ranker {
 public:
  Ranker(const TermCounts& counts) : mean_tokens_(std::max(counts.mean_tokens, 1.0)) {
    for (const int64_t with : counts.chunks_with) {
      weights_.push_back(weight_of(with, counts.chunks));
      total_ += weights_.back();
    }
  }

  const std::vector<double>& weights() const { return weights_; }
  double total() const { return total_; }
  double relevance(const Candidate& one) const { return total_ > 0 ? one.hit.score / total_ : 0; }
  /// The share of the terms' weight that the chunk has at all, however long it is.
  double covered(const Candidate& one) const {
    double has = 0;
    for (size_t i = 0; i < weights_.size(); ++i) has += one.occurrences[i] > 0 ? weights_[i] : 0;
    return total_ > 0 ? has / total_ : 0;
  }
  double score(const Candidate& one) const {
    const double length = one.hit.chunk.tokens.size() / mean_tokens_;
    const double damping = kSaturation * (1 - kLengthShare + kLengthShare * length);
    double score = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      const double often = one.occurrences[i];
      if (often > 0) score += weights_[i] * often * (kSaturation + 1) / (often + damping);
    }
    return score;
  }

 private:
  double mean_tokens_;
  std::vector<double> weights_;
  double total_ = 0;
};

/// A path's last name. Folders are not searched: some say what a document is about, most do not.
std::string_view file_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

/// Without its ending, which many others have, too.
std::string_view stem_of_name(std::string_view path) {
  const std::string_view name = file_name(path);
  return name.substr(0, name.rfind('.'));
}

/// Unspaced runs count by their pairs of characters, as words do.
Result<Wording> wording_of(Index& index, const Hit& hit) {
  const auto hash_of = [](std::span<const uint64_t> hashes) {
    return hash64(std::as_bytes(hashes));
  };
  Wording out;
  std::vector<uint64_t> last;
  const std::string pieces = pieces_of("", hit.chunk.text);
  WEFT_RETURN_IF_ERROR(index.each_word(pieces.empty() ? std::string_view(hit.chunk.text) : pieces,
                                       [&](std::string_view word) {
                                         last.push_back(hash64(std::as_bytes(std::span(word))));
                                         if (last.size() > kShingleWords) last.erase(last.begin());
                                         if (last.size() == kShingleWords)
                                           out.runs.add(hash_of(last));
                                         if (last.size() >= 2 && out.n_words < kShortWords) {
                                           out.pairs.push_back(hash_of(std::span(last).last(2)));
                                         }
                                         ++out.n_words;
                                         return true;
                                       }));
  if (out.runs.is_empty()) out.runs.add(hash_of(last));  // of a shorter text all of it
  out.runs.finish();
  std::ranges::sort(out.pairs);
  const auto add_title = [&](std::string_view word) {
    out.titles.push_back(hash64(std::as_bytes(std::span(word))));
    return out.titles.size() < kMaxTitleWords;
  };
  WEFT_RETURN_IF_ERROR(index.each_word(hit.title, add_title));
  WEFT_RETURN_IF_ERROR(index.each_word(stem_of_name(hit.path), add_title));
  std::ranges::sort(out.titles);
  return out;
}

Hash128 hash_of_text(const Hit& hit) {
  std::string text;
  for (const char c : hit.chunk.text) {
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r') text += c;
  }
  return hash128(std::as_bytes(std::span(text)));
}

/// The dates that documents carry in their names or front matter, each looked up once.
class Dates {
 public:
  explicit Dates(Index& index) : index_(index) {}

  Result<NoteDate> of(const Hit& hit) {
    const auto [known, is_new] = dates_.try_emplace(hit.chunk.document_id, 0);
    if (!is_new) return known->second;
    NoteDate& date = known->second;
    date = date_in_name(file_name(hit.path));
    if (date != 0) return date;
    if (hit.chunk.ordinal == 0) return date = date_in_front_matter(hit.chunk.text);
    WEFT_ASSIGN_OR_RETURN(const auto first, index_.first_chunk(hit.chunk.document_id));
    if (first) date = date_in_front_matter(first->text);
    return date;
  }

 private:
  Index& index_;
  std::map<int64_t, NoteDate> dates_;  // by document
};

Result<std::vector<Candidate>> read_candidates(Index& index, std::span<const Term> terms,
                                               std::vector<Hit> hits) {
  WEFT_ASSIGN_OR_RETURN(const Index::Forms forms, index.forms_of(terms));
  std::vector<Candidate> candidates;
  Dates dates(index);
  for (Hit& hit : hits) {
    WEFT_ASSIGN_OR_RETURN(auto n, index.occurrences(forms, hit.chunk.text));
    WEFT_ASSIGN_OR_RETURN(auto in_title, index.occurrences(forms, hit.title));
    WEFT_ASSIGN_OR_RETURN(const auto in_name, index.occurrences(forms, file_name(hit.path)));
    std::ranges::transform(in_title, in_name, in_title.begin(), std::ranges::max);
    const std::string pieces = pieces_of(hit.title, hit.chunk.text);
    if (!pieces.empty()) {
      WEFT_ASSIGN_OR_RETURN(const auto in_pieces, index.occurrences(forms, pieces));
      std::ranges::transform(n, in_pieces, n.begin(), std::plus<>());
    }
    for (size_t i = 0; i < n.size(); ++i) n[i] += kTitleCounts * in_title[i];
    WEFT_ASSIGN_OR_RETURN(Wording wording, wording_of(index, hit));
    const Hash128 text = hash_of_text(hit);
    WEFT_ASSIGN_OR_RETURN(const NoteDate date, dates.of(hit));
    candidates.push_back({std::move(hit), std::move(n), std::move(wording), text, date});
  }
  return candidates;
}

/// Chunks with nearly the same text count once: the copies of a note say nothing about how rare
/// their words are. Only those among the candidates are known.
void forget_copies(std::span<const Candidate> candidates, TermCounts& counts) {
  std::vector<const Candidate*> originals;
  for (const Candidate& one : candidates) {
    const auto original = std::ranges::find_if(originals, [&](const Candidate* other) {
      return are_near_duplicates(other->wording, one.wording);
    });
    if (original == originals.end()) {
      originals.push_back(&one);
      continue;
    }
    --counts.chunks;
    for (size_t i = 0; i < one.occurrences.size(); ++i) {
      const bool have_both = one.occurrences[i] > 0 && (*original)->occurrences[i] > 0;
      counts.chunks_with[i] -= have_both ? 1 : 0;
    }
  }
}

bool has_terms_of(const Candidate& one, const Candidate& other) {
  for (size_t i = 0; i < one.occurrences.size(); ++i) {
    if (one.occurrences[i] == 0 && other.occurrences[i] > 0) return false;
  }
  return true;
}

/// Files that were unpacked, cloned or copied together have about the same time, in any order.
constexpr int64_t kTogetherNs = int64_t{60} * 1'000'000'000;

bool has_later_file(const Hit& a, const Hit& b) {
  if (b.modified_ns == kUnknownTime) return false;  // written just before it was ingested
  if (a.modified_ns == kUnknownTime) return true;
  return a.modified_ns > b.modified_ns &&
         static_cast<uint64_t>(a.modified_ns) - static_cast<uint64_t>(b.modified_ns) >
             static_cast<uint64_t>(kTogetherNs);
}

/// Whether `a` is newer, by the dates that both notes carry, since copying, syncing or a new line
/// changes a file's time; without two dates, by the files' times. A date and a file's time are not
/// compared: they do not mean the same.
bool is_newer(const Candidate& a, const Candidate& b) {
  if (a.date != 0 && b.date != 0 && a.date != b.date) return a.date > b.date;
  return has_later_file(a.hit, b.hit);
}

/// Whether a folder of the path, below what was named at ingest, has a name for outdated things.
bool is_put_away(const Hit& hit) {
  constexpr std::string_view kFolders[] = {"archive", "archived", "archives",  "archiv",
                                           "backup",  "backups",  "bak",       "old",
                                           "alt",     "trash",    "deprecated"};
  const bool is_below = !hit.root.empty() && hit.path.starts_with(hit.root);
  std::string_view rest = std::string_view(hit.path).substr(is_below ? hit.root.size() : 0);
  for (size_t slash = 0; (slash = rest.find('/')) != std::string_view::npos;) {
    const std::string folder = ascii_lower(rest.substr(0, slash));
    if (std::ranges::find(kFolders, folder) != std::end(kFolders)) return true;
    rest.remove_prefix(slash + 1);
  }
  return false;
}

/// Whether of two passages with nearly the same text `one` is to be shown: the newer if they differ
/// at all, else the one that is not put away, else the one with the shorter path (a backup's is
/// longer).
bool is_preferred(const Candidate& one, const Candidate& to) {
  if (one.text != to.text && is_newer(one, to)) return true;
  if (one.text != to.text && is_newer(to, one)) return false;
  const bool is_away = is_put_away(one.hit);
  if (is_away != is_put_away(to.hit)) return !is_away;
  return one.hit.path.size() < to.hit.path.size();
}

/// Whether `one` is the current version and `other` an outdated one, as far as dates and folders
/// tell.
bool is_current(const Candidate& one, const Candidate& other) {
  return is_newer(one, other) ||
         (!is_newer(other, one) && !is_put_away(one.hit) && is_put_away(other.hit));
}

/// Adds `one`, which says nearly the same as `taken` and scores no better, to its copies; the two
/// change places if `one` scores about as well and is the one to show.
void add_copy(Candidate& taken, Candidate one) {
  if (one.hit.score >= kAboutAsGood * taken.hit.score && is_preferred(one, taken) &&
      has_terms_of(one, taken)) {
    std::swap(one.hit.nearly_same, taken.hit.nearly_same);
    std::swap(one, taken);
  }
  taken.hit.nearly_same.push_back(std::move(one.hit));
}

/// What two files are called that are about the same: the letters of the name, so that "rules v1",
/// "Rules (2)" and "rules-2023" are "rules v", "rules", "rules". Folders do not count: a copy of a
/// folder has the same names in it.
std::string letters_of_name(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (is_ascii_alpha(c) || is_high_byte(c)) out += ascii_lower(c);
  }
  return out;
}

/// BM25 prefers the shorter of two notes on the same thing by a few percent, whichever is valid. So
/// of passages whose documents have about the same name or title and whose scores are so near, the
/// newer document's comes first, or where nobody knows which that is the one that is not put away;
/// unless the other one has a further word of the question.
void put_newer_first(std::vector<Candidate>& ranked) {
  constexpr double kNearScore = 0.9;
  constexpr size_t kLeastLetters = 3;
  struct Names {
    std::string file;
    std::string title;
  };
  std::vector<Names> names;
  for (const Candidate& one : ranked) {
    names.push_back({letters_of_name(stem_of_name(one.hit.path)), letters_of_name(one.hit.title)});
  }
  const auto are_alike = [&](const std::string& a, const std::string& b) {
    return a.size() >= kLeastLetters && a == b;
  };
  const auto comes_first = [&](size_t one, size_t other) {
    const Hit& a = ranked[one].hit;
    const Hit& b = ranked[other].hit;
    if (a.chunk.document_id == b.chunk.document_id || a.score < kNearScore * b.score) return false;
    if (!are_alike(names[one].file, names[other].file) &&
        !are_alike(names[one].title, names[other].title)) {
      return false;
    }
    return is_current(ranked[one], ranked[other]) && has_terms_of(ranked[one], ranked[other]);
  };
  for (size_t i = 1; i < ranked.size(); ++i) {
    size_t to = i;
    for (size_t k = i; k-- > 0 && ranked[i].hit.score >= kNearScore * ranked[k].hit.score;) {
      if (comes_first(i, k)) to = k;
    }
    const auto at = [](auto& all, size_t n) { return all.begin() + n; };
    std::rotate(at(ranked, to), at(ranked, i), at(ranked, i + 1));
    std::rotate(at(names, to), at(names, i), at(names, i + 1));
  }
}

/// The best passages, each with the others that say nearly the same.
std::vector<Candidate> take_best(std::vector<Candidate> ranked, const PassageOptions& options) {
  std::vector<Candidate> taken;
  double best_score = 0;
  for (const Candidate& one : ranked) best_score = std::max(best_score, one.hit.score);
  for (Candidate& one : ranked) {
    if (one.hit.score < options.least_share_of_best * best_score) continue;
    const auto original = std::ranges::find_if(taken, [&](const Candidate& other) {
      return are_near_duplicates(other.wording, one.wording) && has_terms_of(other, one);
    });
    if (original != taken.end()) {
      add_copy(*original, std::move(one));
    } else if (std::ssize(taken) < options.n_passages) {
      taken.push_back(std::move(one));
    }
  }
  return taken;
}

/// Marks the older of two versions of one note that are both shown (it has a further word of the
/// question, or other wording). Two notes are versions if their names have the same letters and
/// their texts are nearly the same, or if only a folder for outdated things differs.
void mark_older_versions(std::vector<Candidate>& shown) {
  const auto are_versions = [](const Hit& newer, const Hit& older, bool is_nearly_same) {
    if (newer.chunk.document_id == older.chunk.document_id) return false;
    const std::string_view name = file_name(older.path);
    if (is_nearly_same) return letters_of_name(file_name(newer.path)) == letters_of_name(name);
    return file_name(newer.path) == name && is_put_away(older) && !is_put_away(newer);
  };
  for (Candidate& older : shown) {
    const auto newer = std::ranges::find_if(shown, [&](const Candidate& one) {
      return is_current(one, older) &&
             are_versions(one.hit, older.hit, are_near_duplicates(one.wording, older.wording));
    });
    if (newer != shown.end()) older.hit.older_version_of = newer->hit.path;
  }
}

/// Whether even the best passage is not about the question.
bool says_too_little(const Question& question, const TermCounts& counts, const Ranker& ranker,
                     const Candidate& best, const PassageOptions& options) {
  const double covered = ranker.covered(best);
  const double least =
      question.is_unspaced ? options.least_relevance_unspaced : options.least_relevance;
  if (ranker.relevance(best) < least && covered < kCoveredEnough) return true;
  // However often it has its few words: with "dog" in no document, "What is my dog's name?" is not
  // answered by whatever has a name.
  double absent = 0;
  bool has_subject = false;
  bool has_aspect = false;
  for (size_t i = 0; i < question.terms.size(); ++i) {
    const bool is_absent = counts.chunks_with[i] <= 0;
    const bool is_aspect = is_aspect_word(question.terms[i].text);
    if (is_absent) absent += ranker.weights()[i];
    has_aspect |= is_aspect && !is_absent;
    has_subject |= !is_aspect && !is_absent;
  }
  const bool asks_for_other = has_aspect && !has_subject && absent > 0;
  return asks_for_other ||
         (absent >= kMuchIsAbsent * ranker.total() && covered < kCoveredWithAbsent);
}

/// How the question writes these folded words, in their places.
Status write_as_asked(Index& index, std::string_view text, std::span<std::string> words) {
  if (words.empty()) return Status::ok();
  std::vector<bool> is_written(words.size(), false);
  constexpr std::string_view kBetween = " \t\r\n.,;:!?\"'()[]{}<>/";
  text = text.substr(0, kMaxTextWritten);
  for (size_t at = 0; (at = text.find_first_not_of(kBetween, at)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    at = end;
    WEFT_ASSIGN_OR_RETURN(const auto folded, index.words(word, 2));
    for (size_t i = 0; i < words.size() && folded.size() == 1; ++i) {
      if (is_written[i] || words[i] != folded.front()) continue;
      words[i] = word;
      is_written[i] = true;
    }
  }
  return Status::ok();
}

/// Of words that are parts of one, as E and 119 of E-119, the one, where all of them are there.
Status join_parts(Index& index, std::string_view text, std::vector<std::string>& words) {
  for (const Compound& compound : compounds_of(text.substr(0, kMaxTextWritten))) {
    std::vector<std::string> folded;
    for (const std::string& part : compound.parts) {
      WEFT_ASSIGN_OR_RETURN(auto one, index.words(part, 2));
      std::ranges::move(one, std::back_inserter(folded));
    }
    const auto is_there = [&](const std::string& one) {
      return std::ranges::find(words, one) != words.end();
    };
    if (folded.empty() || !std::ranges::all_of(folded, is_there)) continue;
    *std::ranges::find(words, folded.front()) = compound.written;
    std::erase_if(words, [&](const std::string& one) {
      return std::ranges::find(folded, one) != folded.end();
    });
  }
  return Status::ok();
}

/// Words that no document has, folded and as the question writes them.
struct Absent {
  std::vector<std::string> folded;
  std::vector<std::string> written;
};

Result<Absent> absent_words(Index& index, std::string_view text, const Question& question,
                            std::span<const Candidate> candidates) {
  std::vector<std::string> absent;
  const auto is_absent = [&](size_t i) {
    return question.counts.chunks_with[i] <= 0 &&
           std::ranges::all_of(candidates, [&](const Candidate& one) {
             return one.occurrences[i] == 0;  // nor a file's name
           });
  };
  for (size_t i = 0; i < question.n_words; ++i) {
    if (is_absent(i)) absent.push_back(question.terms[i].text);
  }
  WEFT_RETURN_IF_ERROR(join_parts(index, text, absent));
  Absent out{absent, std::move(absent)};
  WEFT_RETURN_IF_ERROR(write_as_asked(index, text, out.written));
  return out;
}

bool is_capital(char32_t c) {
  return (c >= U'A' && c <= U'Z') || (c >= 0xC0 && c <= 0xDE && c != 0xD7) ||  // Latin
         (c >= 0x391 && c <= 0x3A9) || (c >= 0x400 && c <= 0x42F);             // Greek, Cyrillic
}

/// Whether the text writes the word as a name: with a capital letter, though it begins no sentence,
/// or with two. In a text of capitals alone none is.
bool is_written_as_name(std::string_view text, const std::string& word) {
  text = text.substr(0, kMaxTextWritten);
  const std::u32string letters = letters_of(word.substr(0, kMaxTextWritten));
  if (letters.empty() || !is_capital(letters[0])) return false;
  const bool has_small = std::ranges::any_of(text, is_ascii_lower);
  if (!has_small) return false;
  if (letters.size() > 1 && is_capital(letters[1])) return true;
  const size_t before = text.substr(0, text.find(word)).find_last_not_of(" \t\r\"'([{");
  return before != std::string_view::npos &&
         std::string_view(".!?:").find(text[before]) == std::string_view::npos;
}

/// How much of what the question asks for the passage with most of it has, by weight and without
/// the words that questions are asked with about anything.
double covered_at_most(const Question& question, const Ranker& ranker,
                       std::span<const Candidate> shown) {
  double total = 0;
  std::vector<double> has(shown.size(), 0);
  for (size_t i = 0; i < question.terms.size(); ++i) {
    const std::string& word = question.terms[i].text;
    if (is_aspect_word(word) || is_common_word(word)) continue;
    total += ranker.weights()[i];
    for (size_t k = 0; k < shown.size(); ++k) {
      if (shown[k].occurrences[i] > 0) has[k] += ranker.weights()[i];
    }
  }
  return total > 0 && !has.empty() ? std::ranges::max(has) / total : 0;
}

/// Those of the words that it helps a reader to know of.
std::vector<std::string> subjects_of(const Absent& absent, std::string_view text,
                                     const Question& question, double covered) {
  constexpr size_t kShort = 2;  // Mr
  std::vector<std::string> out;
  for (size_t i = 0; i < absent.folded.size(); ++i) {
    const std::string& folded = absent.folded[i];
    const std::string& written = absent.written[i];
    const bool has_digit = written.find_first_of("0123456789") != std::string::npos;
    const bool is_idle = is_aspect_word(folded) || is_common_word(folded) ||
                         is_filler_word(folded) || folded.size() <= kShort ||
                         (!question.is_language_known && is_function_word(folded));
    if (has_digit || (!is_idle && (covered <= kMostOfIt || is_written_as_name(text, written)))) {
      out.push_back(written);
    }
  }
  return out;
}

/// What was searched for as another word, as the question writes it.
Result<std::vector<TakenWord>> taken_words(Index& index, std::string_view text,
                                           std::vector<TakenWord> taken) {
  std::vector<std::string> words;
  for (const TakenWord& one : taken) words.push_back(one.word);
  WEFT_RETURN_IF_ERROR(write_as_asked(index, text, words));
  for (size_t i = 0; i < taken.size(); ++i) taken[i].word = std::move(words[i]);
  return taken;
}

/// Puts chunks that follow each other in a document together, at the place of the best of them.
std::vector<Hit> with_neighbours_together(std::vector<Hit> hits) {
  std::vector<Hit> ordered;
  std::vector<bool> is_taken(hits.size(), false);
  const auto at = [&](int64_t document, int64_t ordinal) -> size_t {
    const auto found = std::ranges::find_if(hits, [&](const Hit& hit) {
      return hit.chunk.document_id == document && hit.chunk.ordinal == ordinal;
    });
    return found - hits.begin();
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

}  // namespace

Result<Passages> find_passages(Index& index, std::string_view text, const PassageOptions& options) {
  if (text.size() > kMaxQuestionBytes) {
    return invalid_argument(
        fmt::format("the question is longer than {} bytes; put long text into a document and "
                    "ingest it",
                    kMaxQuestionBytes));
  }
  Passages out;
  WEFT_ASSIGN_OR_RETURN(Question question, read_question(index, text));
  if (question.terms.empty()) {
    out.found = PassagesFound::kNoTerms;
    return out;
  }
  TermCounts counts = question.counts;
  std::vector<int64_t> whole = std::move(question.whole);
  const int wanted = std::clamp(options.n_passages, 1, kCandidatesAtMost) * kCandidatesPerPassage;
  const int n_candidates =
      std::max(std::clamp(wanted, kCandidatesAtLeast, kCandidatesAtMost), options.n_passages);
  whole.resize(std::min<size_t>(whole.size(), n_candidates));
  WEFT_ASSIGN_OR_RETURN(std::vector<Hit> hits, index.search(question.terms, n_candidates, whole));
  WEFT_ASSIGN_OR_RETURN(std::vector<Candidate> ranked,
                        read_candidates(index, question.terms, std::move(hits)));
  forget_copies(ranked, counts);
  const Ranker ranker(counts);
  for (size_t i = 0; i < question.terms.size(); ++i) {
    out.terms.push_back({question.terms[i], ranker.weights()[i]});
  }
  WEFT_ASSIGN_OR_RETURN(const Absent absent, absent_words(index, text, question, ranked));
  out.absent = absent.written;
  out.absent.resize(std::min(out.absent.size(), Passages::kMaxAbsent));
  const auto set_subjects = [&](double covered) {
    out.absent_subjects = subjects_of(absent, text, question, covered);
    out.absent_subjects.resize(std::min(out.absent_subjects.size(), Passages::kMaxAbsent));
  };
  set_subjects(0);
  WEFT_ASSIGN_OR_RETURN(out.taken, taken_words(index, text, std::move(question.taken)));
  if (ranked.empty()) {
    out.found = PassagesFound::kNone;
    return out;
  }
  for (Candidate& one : ranked) one.hit.score = ranker.score(one);
  std::ranges::stable_sort(ranked, std::greater<>(),
                           [](const Candidate& one) { return one.hit.score; });  // ties as FTS5's
  out.relevance = ranker.relevance(ranked.front());
  const bool is_weak = says_too_little(question, counts, ranker, ranked.front(), options);
  out.found = is_weak ? PassagesFound::kWeak : PassagesFound::kYes;
  if (is_weak && !options.anyway) return out;
  put_newer_first(ranked);
  std::vector<Candidate> shown = take_best(std::move(ranked), options);
  mark_older_versions(shown);
  set_subjects(covered_at_most(question, ranker, shown));
  std::vector<Hit> best;
  for (Candidate& one : shown) best.push_back(std::move(one.hit));
  out.hits = with_neighbours_together(std::move(best));
  return out;
}

}  // namespace weft::retrieval
