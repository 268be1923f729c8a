// From a question's text to search terms. The index folds case and diacritics and stems English;
// what it cannot bridge is bridged here, by giving a term several spellings instead of changing the
// index: ae for \u00E4, ss for \u00DF, wifi for Wi-Fi, 12,400 for 12400, and clear misspellings. A
// query with more spellings costs one lookup each; an index with more forms would be larger and
// would have to be made anew for each idea.
//
// The order matters. Each step asks the index which terms it has, and the next one only tries to
// help terms that nothing has: umlauts first, then parts, then near words, which guess most.
#include "retrieval/question_internal.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/utf8.h"
#include "retrieval/function_words.h"
#include "retrieval/spelling_internal.h"
#include "retrieval/unspaced_internal.h"

namespace weft::retrieval {
namespace {

constexpr size_t kMaxWordsRead = 1 << 14;  // of a question

/// The word with each `from` replaced by `to`, except right after one of the letters `not_after`.
std::string replaced(std::string_view word, std::string_view from, std::string_view to,
                     std::string_view not_after = "") {
  std::string out;
  for (size_t at = 0; at < word.size();) {
    const bool is_kept = at > 0 && not_after.find(word[at - 1]) != std::string_view::npos;
    const bool is_there = word.substr(at).starts_with(from) && !is_kept;
    out += is_there ? to : word.substr(at, 1);
    at += is_there ? from.size() : 1;
  }
  return out;
}

/// A folded word with German's umlauts for ae, oe, ue; not in Bauer, neue, quer.
std::string with_umlauts(std::string_view word) {
  return replaced(replaced(replaced(word, "ae", "a"), "oe", "o"), "ue", "u", "aeq");
}

/// A text with ae, oe, ue for umlauts.
std::string without_umlauts(std::string_view text) {
  std::string out(text);
  constexpr std::pair<std::string_view, std::string_view> kUmlauts[] = {
      {"\u00E4", "ae"}, {"\u00F6", "oe"},  {"\u00FC", "ue"},  {"\u00C4", "Ae"}, {"\u00D6", "Oe"},
      {"\u00DC", "Ue"}, {"a\u0308", "ae"}, {"o\u0308", "oe"}, {"u\u0308", "ue"}};
  for (const auto& [umlaut, letters] : kUmlauts) out = replaced(out, umlaut, letters);
  return out;
}

/// The words of a text that have umlauts, folded, and how they are written without.
Result<std::map<std::string, std::string>> expanded_umlauts(Index& index, std::string_view text) {
  std::map<std::string, std::string> out;
  const std::string expanded = without_umlauts(text);
  if (expanded == text) return out;
  std::vector<std::string> folded;
  WEFT_RETURN_IF_ERROR(index.each_word(text, [&](std::string_view word) {
    folded.emplace_back(word);
    return true;
  }));
  size_t i = 0;  // letters became letters, so there are as many words
  WEFT_RETURN_IF_ERROR(index.each_word(expanded, [&](std::string_view word) {
    if (i < folded.size() && folded[i] != word) out[folded[i]] = word;
    return ++i < folded.size();
  }));
  return out;
}

/// Other spellings of a word: those in `also`, and of each the ones with ss for \u00DF, oe for
/// \u0153 and ae for \u00E6, or the reverse.
std::vector<std::string> spellings_of(const std::string& word, std::vector<std::string> also) {
  constexpr std::pair<std::string_view, std::string_view> kLigatures[] = {
      {"\u00DF", "ss"}, {"\u0153", "oe"}, {"\u00E6", "ae"}};
  std::vector<std::string> out;
  const auto add = [&](std::string form) {
    if (form != word && std::ranges::find(out, form) == out.end()) out.push_back(std::move(form));
  };
  also.push_back(word);
  for (const std::string& one : also) {
    add(one);
    for (const auto& [ligature, letters] : kLigatures) {
      add(replaced(one, ligature, letters));
      add(replaced(one, letters, ligature));
    }
  }
  if (std::string parts = parted(word); !parts.empty()) out.push_back(std::move(parts));
  return out;
}

/// Wi-Fi is two words for the index. Each of them gets "wifi" as a spelling, so that documents that
/// write it as one word are found.
Status add_joined(Index& index, std::string_view text, std::vector<Term>& terms) {
  for (const Compound& compound : compounds_of(text)) {
    WEFT_ASSIGN_OR_RETURN(const auto joined, index.words(compound.joined, 2));
    if (joined.size() != 1) continue;
    for (const std::string& part : compound.parts) {
      WEFT_ASSIGN_OR_RETURN(const auto folded, index.words(part, 2));
      const auto term = std::ranges::find_if(
          terms, [&](const Term& one) { return folded.size() == 1 && one.text == folded.front(); });
      if (term != terms.end()) term->spellings.push_back(joined.front());
    }
  }
  return Status::ok();
}

/// The terms of the question's wording alone; what documents have is not looked at yet.
Result<Question> read_terms(Index& index, std::string_view text) {
  Question question;
  const UnspacedQuestion unspaced = split_unspaced(text);
  WEFT_ASSIGN_OR_RETURN(const auto words, index.words(unspaced.spaced, kMaxWordsRead));
  const Language language = question.language = language_of(words);
  question.is_language_known = std::ranges::any_of(
      words, [&](const std::string& word) { return is_function_word(language, word); });
  WEFT_ASSIGN_OR_RETURN(const auto expanded,
                        expanded_umlauts(index, unspaced.spaced.substr(0, kMaxTextWritten)));
  for (std::string& word : content_words(words)) {
    const std::string umlauts = with_umlauts(word);
    if (umlauts != word && is_function_word(language, umlauts)) continue;  // ueber, fuer
    const auto written = expanded.find(word);
    std::vector<std::string> also;
    if (written != expanded.end()) also.push_back(written->second);
    if (language == Language::kGerman) also.push_back(umlauts);
    std::vector<std::string> spellings = spellings_of(word, also);
    question.terms.push_back({std::move(word), false, std::move(spellings)});
  }
  WEFT_RETURN_IF_ERROR(
      add_joined(index, unspaced.spaced.substr(0, kMaxTextWritten), question.terms));
  if (question.terms.size() > Index::kMaxQueryTerms) {  // what is asked is at an end of a long text
    const std::ptrdiff_t half = Index::kMaxQueryTerms / 2;
    question.terms.erase(question.terms.begin() + half, question.terms.end() - half);
  }
  question.n_words = question.terms.size();
  for (const std::string& pair : unspaced.pairs) question.terms.push_back({pair});
  for (const std::string& begin : unspaced.begins) question.terms.push_back({begin, true});
  question.is_unspaced = question.terms.size() > 2 * question.n_words;
  question.terms.resize(std::min(question.terms.size(), Index::kMaxQueryTerms));
  return question;
}

/// For words whose stem is a short function word (Ines, ores: in, or): they are searched for as
/// written and in their own forms only, or every chunk with "in" would be found.
Status find_whole_words(Index& index, Question& question) {
  constexpr size_t kShort = 2;
  for (size_t i = 0; i < std::min(question.n_words, question.terms.size()); ++i) {
    Term& term = question.terms[i];
    WEFT_ASSIGN_OR_RETURN(const Index::Forms forms,
                          index.forms_of(std::vector<Term>{{.text = term.text}}));
    if (forms.words.empty()) continue;
    const std::string& stem = forms.words.begin()->first;
    const bool misleads = stem != term.text && stem.size() <= kShort &&
                          stem != "us" &&  // use, used
                          is_function_word(Language::kEnglish, stem);
    if (!misleads) continue;
    term.only = {stem + "e", stem + "es", stem + "ed", stem + "ing", stem + "s"};
    if (std::ranges::find(term.only, term.text) == term.only.end()) term.only.push_back(term.text);
    WEFT_ASSIGN_OR_RETURN(const auto ids, index.chunks_with_words(term));
    if (!ids) {  // too many to look: as any other
      term.only.clear();
      continue;
    }
    question.counts.chunks_with[i] = std::ssize(*ids);
    question.whole.insert(question.whole.end(), ids->begin(), ids->end());
  }
  return Status::ok();
}

/// In a question of any language a word that no document has may be one with an umlaut: Mueller is
/// M\u00FCller. Where documents have it as it is, it is left so: guest is not gust.
bool try_umlauts(Question& question) {
  bool is_changed = false;
  for (size_t i = 0; i < std::min(question.n_words, question.terms.size()); ++i) {
    Term& term = question.terms[i];
    const std::string umlauts = with_umlauts(term.text);
    if (question.counts.chunks_with[i] > 0 || umlauts == term.text) continue;
    for (std::string& form : spellings_of(term.text, {umlauts})) {
      term.spellings.push_back(std::move(form));
    }
    is_changed = true;
  }
  return is_changed;
}

/// wifi is Wi-Fi, and email e-mail, where documents have the two parts next to each other. Which
/// they are is not known, so all are tried of a word that no document has, and of another those
/// that begin with a letter or two, as people are of two minds about these. Function words are no
/// parts: "is land" is no island.
Result<bool> try_parts(Index& index, Question& question) {
  constexpr size_t kMostWords = 32;
  constexpr size_t kMostLetters = 24;
  constexpr size_t kShortPart = 2;
  bool is_changed = false;
  for (size_t i = 0; i < std::min(question.n_words, kMostWords); ++i) {
    Term& term = question.terms[i];
    const std::u32string letters = letters_of(term.text);
    const bool has_digit = term.text.find_first_of("0123456789") != std::string::npos;
    if (has_digit || letters.size() > kMostLetters) continue;
    const bool is_absent = question.counts.chunks_with[i] <= 0;
    size_t bytes = 0;
    std::vector<Term> phrases;
    for (size_t at = 1; at + kShortPart <= letters.size(); ++at) {
      bytes += utf8_char_bytes(term.text, bytes);
      if (!is_absent && at > kShortPart) break;
      const std::string first = term.text.substr(0, bytes);
      const std::string second = term.text.substr(bytes);
      if (is_function_word(question.language, first) || is_function_word(question.language, second))
        continue;
      phrases.push_back({first + " " + second});
    }
    WEFT_ASSIGN_OR_RETURN(const TermCounts counts, index.count(phrases));
    for (size_t k = 0; k < phrases.size(); ++k) {
      if (counts.chunks_with[k] <= 0) continue;
      term.spellings.push_back(std::move(phrases[k].text));
      is_changed = true;
    }
  }
  return is_changed;
}

/// Whether the word is one of the language's function words with two letters swapped: "waht".
bool is_swapped_function_word(Language language, std::string word) {
  constexpr size_t kLeast = 4;
  if (word.size() < kLeast) return false;
  for (size_t i = 0; i + 1 < word.size(); ++i) {
    std::swap(word[i], word[i + 1]);
    const bool is_one = is_function_word(language, word);
    std::swap(word[i], word[i + 1]);
    if (is_one) return true;
  }
  return false;
}

/// Drops words that only carry the question (please, my notes) and that no document has, unless
/// nothing else is left.
void drop_fillers(Question& question) {
  const auto is_dropped = [&](size_t i) {
    return question.counts.chunks_with[i] <= 0 &&
           (is_filler_word(question.terms[i].text) ||
            is_swapped_function_word(question.language, question.terms[i].text));
  };
  size_t n_kept = question.terms.size() - question.n_words;
  for (size_t i = 0; i < question.n_words; ++i) n_kept += is_dropped(i) ? 0 : 1;
  if (n_kept == 0) return;
  for (size_t i = question.n_words; i-- > 0;) {
    if (!is_dropped(i)) continue;
    question.terms.erase(question.terms.begin() + i);
    question.counts.chunks_with.erase(question.counts.chunks_with.begin() + i);
    --question.n_words;
  }
}

/// "Thanks!" asks for no document, unless one has the word.
bool asks_nothing(const Question& question) {
  std::vector<std::string> words;
  for (size_t i = 0; i < question.n_words; ++i) {
    if (question.counts.chunks_with[i] > 0) return false;
    words.push_back(question.terms[i].text);
  }
  return words.size() == question.terms.size() && is_courtesy(words);
}

/// A word that no document has and that is clearly a misspelling of one that they have is searched
/// for as that one, too.
Result<bool> take_near_words(Index& index, Question& question) {
  constexpr size_t kMostTried = 8;  // each reads a part of the vocabulary
  size_t n_tried = 0;
  for (size_t i = 0; i < question.n_words && n_tried < kMostTried; ++i) {
    if (question.counts.chunks_with[i] > 0) continue;
    ++n_tried;
    Term& term = question.terms[i];
    WEFT_ASSIGN_OR_RETURN(NearWord near, index.near_word(term.text));
    if (!near.is_clear) continue;
    term.spellings.push_back(near.word);
    question.taken.push_back({term.text, std::move(near.word)});
  }
  return !question.taken.empty();
}

}  // namespace

Result<Question> read_question(Index& index, std::string_view text) {
  WEFT_ASSIGN_OR_RETURN(Question question, read_terms(index, text));
  if (question.terms.empty()) return question;
  question.n_words = std::min(question.n_words, question.terms.size());
  const auto count = [&]() -> Status {
    WEFT_ASSIGN_OR_RETURN(question.counts, index.count(question.terms));
    return Status::ok();
  };
  WEFT_RETURN_IF_ERROR(count());
  if (try_umlauts(question)) WEFT_RETURN_IF_ERROR(count());
  WEFT_ASSIGN_OR_RETURN(const bool has_parts, try_parts(index, question));
  if (has_parts) WEFT_RETURN_IF_ERROR(count());
  if (asks_nothing(question)) {
    question.terms.clear();
    question.n_words = 0;
    question.counts.chunks_with.clear();
    return question;
  }
  drop_fillers(question);
  WEFT_ASSIGN_OR_RETURN(const bool has_taken, take_near_words(index, question));
  if (has_taken) WEFT_RETURN_IF_ERROR(count());
  WEFT_RETURN_IF_ERROR(find_whole_words(index, question));
  return question;
}

}  // namespace weft::retrieval
