// Whether a question follows another is told from its wording and from what the index has, without
// a model. Asking the model to rewrite the question would cost a prefill before every search, and
// could go wrong unseen; here FollowUp says what was searched for besides the question.
//
// Wording gives the signs: words that refer back (it, those, dort, celui), a beginning that goes on
// (and, what about), no content word at all. The index decides the rest: a question that does not
// refer back and whose own words are found is searched for alone, and one that names what is in no
// document is refused as it would be alone, not answered with passages of the subject before.
//
// The lists are per language, since one language's pronoun is another's noun or verb (French son,
// Italian sue). They are folded as the index folds words and sorted for a binary search.
#include "retrieval/follow_up.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "retrieval/function_words.h"
#include "retrieval/unspaced_internal.h"

namespace weft::retrieval {
namespace {

constexpr size_t kMaxBytes = 4096;  // of a question that are looked at for its wording

/// One language's lists, sorted.
struct Wording {
  std::span<const std::string_view> referring;  // for what was said before: it, she, those
  std::span<const std::string_view> going_on;   // at a question's beginning: and, but, also
};

// Folded as function_words.cc folds. Words that as often mean something else are left out: French
// "il y a", Spanish "esta" (which folds está, too), German "sein", Dutch "zijn" and "die".
constexpr std::string_view kEnglish[] = {"he",    "her",    "hers", "him",   "his",    "it",
                                         "its",   "latter", "she",  "their", "theirs", "them",
                                         "these", "they",   "this", "those"};
constexpr std::string_view kGerman[] = {
    "dabei",  "dafur", "damit",  "daran",  "darauf", "darin",  "davon",  "dazu",   "deren",
    "dessen", "diese", "diesem", "diesen", "dieser", "dieses", "dort",   "er",     "es",
    "ihm",    "ihn",   "ihnen",  "ihr",    "ihre",   "ihrem",  "ihren",  "ihrer",  "ihres",
    "jene",   "jener", "jenes",  "seine",  "seinem", "seinen", "seiner", "seines", "sie"};
constexpr std::string_view kFrench[] = {"ca",    "cela", "celle", "celles", "celui", "ces", "cet",
                                        "cette", "ceux", "elle",  "elles",  "il",    "ils", "leur",
                                        "leurs", "lui",  "sa",    "ses",    "son"};
constexpr std::string_view kSpanish[] = {
    "ahi", "alli", "aquel", "aquella", "ella",  "ellas", "ellos", "esa",  "esas", "ese",
    "eso", "esos", "este",  "esto",    "estos", "su",    "sus",   "suya", "suyo"};
constexpr std::string_view kItalian[] = {
    "essa",   "esse",   "essi",   "esso",   "lei",    "loro", "lui", "quella", "quelle", "quelli",
    "quello", "questa", "queste", "questi", "questo", "sua",  "sue", "suo",    "suoi"};
constexpr std::string_view kPortuguese[] = {"aquela", "aquele", "dela", "delas", "dele", "deles",
                                            "ela",    "elas",   "ele",  "eles",  "essa", "esse",
                                            "isso",   "isto",   "seu",  "seus",  "sua",  "suas"};
constexpr std::string_view kDutch[] = {"daar", "daarvan", "deze", "dit", "eraan", "erin", "ervan",
                                       "haar", "hem",     "hij",  "hun", "ze",    "zij"};

constexpr std::string_view kEnglishOn[] = {"also", "and", "but", "or", "so", "then"};
constexpr std::string_view kGermanOn[] = {"aber", "oder", "und"};
constexpr std::string_view kFrenchOn[] = {"et", "mais", "ou"};
constexpr std::string_view kSpanishOn[] = {"e", "o", "pero", "y"};
constexpr std::string_view kItalianOn[] = {"e", "ma", "o"};
constexpr std::string_view kPortugueseOn[] = {"e", "mas", "ou"};
constexpr std::string_view kDutchOn[] = {"en", "maar", "of"};

// In Chinese and Japanese, which have no spaces.
constexpr std::string_view kUnspacedReferring[] = {"它",   "她",   "他们", "这个", "那个",
                                                   "这里", "那里", "それ", "これ", "その",
                                                   "この", "あの", "彼"};

Wording wording_of(Language language) {
  switch (language) {
    case Language::kGerman:
      return {kGerman, kGermanOn};
    case Language::kFrench:
      return {kFrench, kFrenchOn};
    case Language::kSpanish:
      return {kSpanish, kSpanishOn};
    case Language::kItalian:
      return {kItalian, kItalianOn};
    case Language::kPortuguese:
      return {kPortuguese, kPortugueseOn};
    case Language::kDutch:
      return {kDutch, kDutchOn};
    case Language::kEnglish:
      break;
  }
  return {kEnglish, kEnglishOn};
}

template <class Words>
bool is_among(const Words& words, std::string_view word) {
  return std::ranges::find(words, word) != std::end(words);
}

struct Word {
  std::string folded;
  bool is_capital = false;  // begins with a capital letter
  bool begins_sentence = false;
};

/// The letter U+00C0 to U+00FF without its diacritic, by its second byte in UTF-8; 0 for the two
/// signs among them (multiplication and division).
char unmarked(char second) {
  constexpr std::string_view kLetters =
      "aaaaaaaceeeeiiiidnooooo ouuuuypsaaaaaaaceeeeiiiidnooooo ouuuuypy";
  const char letter = kLetters[byte_of(second) & 0x3F];
  return letter == ' ' ? '\0' : letter;
}

/// The words of a question, with how they are written: the index's own splitting folds capitals
/// away.
std::vector<Word> words_of(std::string_view text) {
  std::vector<Word> words;
  bool in_word = false;
  bool begins_sentence = true;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (!is_ascii_alnum(c) && !is_high_byte(c)) {
      in_word = false;
      begins_sentence = begins_sentence || c == '.' || c == '!' || c == '?' || c == '\n';
      continue;
    }
    const bool is_latin1 = c == '\xC3' && i + 1 < text.size();
    if (!in_word) {
      const bool capital = is_ascii_upper(c) || (is_latin1 && byte_of(text[i + 1]) <= 0x9E);
      words.push_back({"", capital, begins_sentence});
      in_word = true;
      begins_sentence = false;
    }
    const char letter = is_latin1 ? unmarked(text[i + 1]) : '\0';
    if (letter != '\0') {
      words.back().folded += letter;
      ++i;
    } else {
      words.back().folded += ascii_lower(c);
    }
  }
  return words;
}

/// English words that refer back in some places only.
bool refers_in_its_place(const std::vector<Word>& words, size_t i) {
  static constexpr std::string_view kBeforeOne[] = {"another", "first", "last", "next",  "other",
                                                    "second",  "that",  "the",  "third", "which"};
  static constexpr std::string_view kBeforeThat[] = {
      "about", "after", "and",  "before", "by", "did",  "do", "does", "for", "from", "how",
      "in",    "is",    "like", "of",     "on", "than", "to", "was",  "why", "with"};
  const std::string& word = words[i].folded;
  const bool is_last = i + 1 == words.size();
  const std::string_view before = i == 0 ? std::string_view() : words[i - 1].folded;
  if (word == "one" || word == "ones") return is_last || is_among(kBeforeOne, before);
  if (word == "that") return is_last || is_among(kBeforeThat, before);
  return word == "there" && is_last;
}

/// Whether a word of the lists does not refer back in this place: "gibt es", "y a-t-il", "il y a",
/// and "Sie" as a polite address.
bool is_idle(Language language, const std::vector<Word>& words, size_t i) {
  const auto at = [&](size_t k) {
    return k < words.size() ? std::string_view(words[k].folded) : std::string_view();
  };
  const std::string_view word = at(i);
  if (language == Language::kGerman) {
    const std::string_view before = i == 0 ? std::string_view() : at(i - 1);
    if (word == "es") return before == "gibt" || before == "gab" || at(i + 1) == "gibt";
    return words[i].is_capital && !words[i].begins_sentence;  // the polite Sie, Ihr
  }
  if (language == Language::kFrench && word == "il") {
    return at(i + 1) == "y" || at(i + 1) == "faut" || (i >= 3 && at(i - 3) == "y");
  }
  return false;
}

/// A question as its wording tells it.
struct Read {
  Reference reference;
  bool has_content = false;
  bool is_courtesy = false;
};

Read read(std::string_view question) {
  question = question.substr(0, kMaxBytes);
  const std::vector<Word> words = words_of(question);
  std::vector<std::string> folded;
  for (const Word& word : words) folded.push_back(word.folded);
  const Language language = language_of(folded);
  const Wording wording = wording_of(language);
  Read out;
  for (const std::string_view part : kUnspacedReferring) {
    if (question.find(part) != std::string_view::npos) out.reference.refers_back = true;
  }
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = folded[i];
    const bool refers =
        (std::ranges::binary_search(wording.referring, word) && !is_idle(language, words, i)) ||
        (language == Language::kEnglish && refers_in_its_place(words, i));
    if (refers && !out.reference.has_name) out.reference.refers_back = true;
    const bool is_name = words[i].is_capital && !words[i].begins_sentence && word.size() > 1 &&
                         language != Language::kGerman && !is_function_word(language, word);
    out.reference.has_name = out.reference.has_name || is_name;
  }
  if (!folded.empty()) {
    const bool about =
        folded.size() > 1 && folded[1] == "about" && (folded[0] == "what" || folded[0] == "how");
    out.reference.goes_on = about || is_among(wording.going_on, folded.front());
  }
  const std::vector<std::string> content = content_words(folded);
  out.is_courtesy = is_courtesy(content);
  out.has_content = !content.empty() && !out.is_courtesy;
  return out;
}

/// Whether a question is about what was said before it.
bool follows(const Read& question) {
  const Reference& reference = question.reference;
  return reference.refers_back || !question.has_content ||
         (reference.goes_on && !reference.has_name);
}

/// Whether a question names a subject that no document has: there are words that name one, and none
/// of them is in the index. "And the price?" names none and is asked of the subject before.
Result<bool> names_absent_subject(Index& index, const Passages& own) {
  std::vector<Term> subjects;
  for (const WeightedTerm& one : own.terms) {
    if (!is_aspect_word(one.term.text)) subjects.push_back(one.term);
  }
  if (subjects.empty()) return false;
  WEFT_ASSIGN_OR_RETURN(const TermCounts counts, index.count(subjects));
  for (size_t i = 0; i < subjects.size(); ++i) {
    // Of a term with `only` nothing is known here; that it is there is the safe guess.
    if (counts.chunks_with[i] > 0 || !subjects[i].only.empty()) return false;
  }
  return true;
}

/// Those of the hits that have the term.
Result<std::vector<Hit>> with_term(Index& index, const Term& term, std::vector<Hit> hits) {
  const Term terms[] = {term};
  std::vector<Hit> out;
  for (Hit& hit : hits) {
    WEFT_ASSIGN_OR_RETURN(const auto in_text, index.occurrences(terms, hit.chunk.text));
    WEFT_ASSIGN_OR_RETURN(const auto in_title, index.occurrences(terms, hit.title));
    if (in_text.front() + in_title.front() > 0) out.push_back(std::move(hit));
  }
  return out;
}

struct Places {
  bool in_title = false;
  bool in_text = false;
};

/// Where a hit has any of the terms.
Result<Places> places_of(Index& index, const Index::Forms& forms, const Hit& hit) {
  const auto has = [&](std::string_view text) -> Result<bool> {
    WEFT_ASSIGN_OR_RETURN(const auto n, index.occurrences(forms, text));
    return std::ranges::any_of(n, [](int64_t often) { return often > 0; });
  };
  Places out;
  WEFT_ASSIGN_OR_RETURN(out.in_title, has(hit.title));
  WEFT_ASSIGN_OR_RETURN(out.in_text, has(hit.chunk.text));
  if (!out.in_text) {
    WEFT_ASSIGN_OR_RETURN(out.in_text, has(pieces_of(hit.title, hit.chunk.text)));
  }
  return out;
}

/// Whether any of the hits has any of the terms; true where there are none.
Result<bool> have_a_term(Index& index, std::span<const WeightedTerm> weighted,
                         std::span<const Hit> hits) {
  std::vector<Term> terms;
  for (const WeightedTerm& one : weighted) terms.push_back(one.term);
  if (terms.empty()) return true;
  WEFT_ASSIGN_OR_RETURN(const Index::Forms forms, index.forms_of(terms));
  for (const Hit& hit : hits) {
    WEFT_ASSIGN_OR_RETURN(const Places places, places_of(index, forms, hit));
    if (places.in_title || places.in_text) return true;
  }
  return false;
}

Result<Index::Forms> forms_of_question(Index& index, std::string_view question) {
  WEFT_ASSIGN_OR_RETURN(const auto words, index.words(question, Index::kMaxQueryTerms));
  std::vector<Term> terms;
  for (std::string& word : content_words(words)) terms.push_back({std::move(word)});
  return index.forms_of(terms);
}

/// Puts documents of the last subject first, and returns whether any document is about it. In
/// order: those whose title has a word of it; those that have such a word and one of the question
/// that it followed ("the harbour's hours", then "and the entrance?"); those that have such a word
/// at all.
Result<bool> put_subject_first(Index& index, std::string_view subject, std::string_view older,
                               std::vector<Hit>& hits) {
  WEFT_ASSIGN_OR_RETURN(const Index::Forms of_subject, forms_of_question(index, subject));
  WEFT_ASSIGN_OR_RETURN(const Index::Forms of_older, forms_of_question(index, older));
  constexpr int kNothing = 3;
  std::map<int64_t, int> ranks;  // by document
  for (const Hit& hit : hits) {
    WEFT_ASSIGN_OR_RETURN(const Places has, places_of(index, of_subject, hit));
    WEFT_ASSIGN_OR_RETURN(const Places has_older, places_of(index, of_older, hit));
    const bool has_both = has.in_text && (has_older.in_title || has_older.in_text);
    const int rank = has.in_title ? 0 : has_both ? 1 : has.in_text ? 2 : kNothing;
    const auto [known, is_new] = ranks.try_emplace(hit.chunk.document_id, rank);
    if (!is_new) known->second = std::min(known->second, rank);
  }
  std::ranges::stable_sort(hits, std::less<>(),
                           [&](const Hit& hit) { return ranks[hit.chunk.document_id]; });
  return std::ranges::any_of(ranks, [](const auto& one) { return one.second < kNothing; });
}

/// Whether a question says itself what it is about.
bool names_subject(const Read& question) {
  return !question.reference.refers_back && question.has_content;
}

/// What "it" is in a question after these.
struct Subject {
  std::vector<std::string> questions;  // the last one, and the last that names its subject
  std::string older;                   // what that one goes on from, joined; "" of none

  std::string text() const {
    std::string joined;
    for (const std::string& one : questions) joined += (joined.empty() ? "" : "\n") + one;
    return joined;
  }
};

Subject last_subject(std::span<const std::string> before) {
  Subject out;
  if (before.empty()) return out;
  const auto beginning = [](const std::string& text) { return text.substr(0, kMaxBytes); };
  out.questions.push_back(beginning(before.back()));
  size_t named = before.size() - 1;
  while (named > 0 && !names_subject(read(before[named]))) --named;
  if (!names_subject(read(before[named]))) return out;
  if (named + 1 < before.size()) out.questions.push_back(beginning(before[named]));
  if (follows(read(before[named]))) out.older = last_subject(before.first(named)).text();
  return out;
}

}  // namespace

Reference reference_of(std::string_view question) { return read(question).reference; }

std::string subject_of(std::span<const std::string> before) { return last_subject(before).text(); }

namespace {

/// The passages of a follow-up, searched for together with its subject. Where both together are a
/// weak match, but the subject alone was found, the passages count as found: a follow-up's own
/// words ("when does it open") may be in no passage.
Result<Passages> find_with(Index& index, std::string_view question, const std::string& subject,
                           const PassageOptions& options) {
  const std::string both = std::string(question) + "\n" + subject;
  WEFT_ASSIGN_OR_RETURN(Passages passages, find_passages(index, both, options));
  if (passages.found != PassagesFound::kWeak) return passages;
  WEFT_ASSIGN_OR_RETURN(const Passages of_subject, find_passages(index, subject, options));
  if (of_subject.found != PassagesFound::kYes) return passages;
  PassageOptions anyway = options;
  anyway.anyway = true;
  WEFT_ASSIGN_OR_RETURN(passages, find_passages(index, both, anyway));
  passages.found = PassagesFound::kYes;
  return passages;
}

}  // namespace

Result<FollowUp> find_follow_up(Index& index, std::span<const std::string> before,
                                std::string_view question, const PassageOptions& options) {
  FollowUp out;
  // "Thanks" after an answer asks nothing, whatever documents have the word, and what comes then
  // goes on from the answer.
  while (!before.empty() && read(before.back()).is_courtesy)
    before = before.first(before.size() - 1);
  if (!before.empty() && read(question).is_courtesy) question = "";
  WEFT_ASSIGN_OR_RETURN(out.passages, find_passages(index, question, options));
  out.n_own_terms = out.passages.terms.size();
  const Subject subject = last_subject(before);
  if (subject.questions.empty()) return out;
  const Reference reference = reference_of(question);
  const bool has_terms = out.passages.found != PassagesFound::kNoTerms;
  const bool was_found = out.passages.found == PassagesFound::kYes;
  // One content word that several passages have: the subject chooses among them.
  const bool is_nearer = !reference.refers_back && out.passages.hits.size() > 1 && was_found &&
                         out.passages.terms.size() == 1;
  const bool looks_back = reference.refers_back || !has_terms || is_nearer ||
                          (!was_found && reference.goes_on && !reference.has_name);
  if (!looks_back) return out;
  if (has_terms && !was_found && !reference.refers_back) {
    WEFT_ASSIGN_OR_RETURN(const bool is_absent, names_absent_subject(index, out.passages));
    if (is_absent) return out;
  }

  std::vector<std::string> searched_with = subject.questions;
  WEFT_ASSIGN_OR_RETURN(Passages passages, find_with(index, question, subject.text(), options));
  if (!subject.older.empty()) {
    WEFT_ASSIGN_OR_RETURN(const bool has_subject, put_subject_first(index, subject.questions.back(),
                                                                    subject.older, passages.hits));
    if (!has_subject) {  // it was found by what it followed
      searched_with.push_back(subject.older);
      WEFT_ASSIGN_OR_RETURN(
          passages, find_with(index, question, subject.text() + "\n" + subject.older, options));
    }
  }
  if (is_nearer) {
    WEFT_ASSIGN_OR_RETURN(
        passages.hits, with_term(index, out.passages.terms.front().term, std::move(passages.hits)));
    if (passages.hits.empty()) return out;
  }
  if (passages.found != PassagesFound::kYes && was_found) return out;
  passages.absent = std::move(out.passages.absent);  // the question's own
  passages.absent_subjects = std::move(out.passages.absent_subjects);
  passages.taken = std::move(out.passages.taken);
  out.passages = std::move(passages);
  out.looked_back = true;
  out.searched_with = std::move(searched_with);
  const std::span terms(out.passages.terms);
  WEFT_ASSIGN_OR_RETURN(
      out.has_own_terms,
      have_a_term(index, terms.first(std::min(out.n_own_terms, terms.size())), out.passages.hits));
  return out;
}

}  // namespace weft::retrieval
