// Finds what a word that no chunk has was most likely meant to be.
//
// The index has stems, and stems are nearer to each other than words are, so comparing with them
// alone would suggest too much and show words that nobody writes ("librari"). So it is done in two
// steps: stems that begin with the same letter are compared with the word's beginnings, and of the
// six nearest the whole words are read from a chunk that has them, and compared again. Reading only
// stems of one first letter bounds the work and rarely misses: people seldom mistype the first
// letter, and the swap of the first two is looked at, too.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "retrieval/function_words.h"
#include "retrieval/index_state_internal.h"
#include "retrieval/spelling_internal.h"

namespace weft::retrieval {
namespace {

constexpr size_t kLeastLetters = 5;  // in a shorter one a letter makes another word: born, barn
constexpr size_t kMostLetters = 40;
constexpr size_t kLeastStem = 3;
constexpr int64_t kMostTermsRead = 200'000;  // some 50 ms
constexpr int64_t kMostGoingOn = 1000;       // stems that begin with a word
constexpr size_t kLeastBeginning = 6;        // letters of a word that may be another's beginning
constexpr size_t kMostStems = 6;             // whose words are looked up, each in a chunk

/// Makes FTS5's tables of the index's terms (fts5vocab), for this connection alone. A read-only one
/// may have them, too, since they are temporary and not in the file; query_only has to be lifted
/// for it.
Status make_vocabulary(Database& database) {
  constexpr const char* kMake =
      "PRAGMA query_only = OFF;"
      "CREATE VIRTUAL TABLE IF NOT EXISTS temp.term_rows USING fts5vocab(main, chunk_terms, row);"
      "CREATE VIRTUAL TABLE IF NOT EXISTS temp.term_places"
      " USING fts5vocab(main, chunk_terms, instance);";
  WEFT_ASSIGN_OR_RETURN(const int64_t was, read_integer(database, "PRAGMA query_only"));
  const Status made = database.execute(kMake);
  if (was != 0) WEFT_RETURN_IF_ERROR(database.execute("PRAGMA query_only = ON"));
  return made;
}

/// The word, and its singular if it may be an English plural: "libary" is one letter from
/// "library", also where the documents only have "libraries".
std::vector<std::u32string> with_singulars(std::u32string word) {
  std::vector<std::u32string> out{word};
  const size_t n = word.size();
  if (n > kLeastStem && word.ends_with(U"ies")) {
    out.push_back(word.substr(0, n - 3) + U"y");
  } else if (n > kLeastStem && word.ends_with(U"s")) {
    out.push_back(word.substr(0, n - 1));
  }
  return out;
}

/// The least cost between two whole words or their singulars.
int cost_between(const std::u32string& word, const std::u32string& other, int most) {
  int least = spelling_cost(word, other, most);
  for (const std::u32string& one : with_singulars(word)) {
    for (const std::u32string& two : with_singulars(other)) {
      least = std::min(least, spelling_cost(one, two, most));
    }
  }
  return least;
}

/// Whether a misspelling may begin so: with the same letter, or the first two swapped.
bool begin_alike(std::u32string_view word, std::u32string_view other) {
  if (word.empty() || other.empty()) return false;
  if (word[0] == other[0]) return true;
  return word.size() > 1 && other.size() > 1 && word[0] == other[1] && word[1] == other[0];
}

struct Stem {
  std::string text;
  int cost = 0;  // of the nearest beginning of the word
  size_t n_letters = 0;
  int64_t chunks = 0;
};

/// The stems that begin as the word may, nearest first.
Result<std::vector<Stem>> near_stems(Database& database, const std::u32string& word) {
  const int most = most_spelling_cost(word.size());
  std::string first;
  std::string swapped;
  append_utf8(word[0], first);
  append_utf8(word[1], swapped);
  swapped += first;
  std::vector<Stem> stems;
  for (const std::string& begin : {first, swapped}) {
    WEFT_ASSIGN_OR_RETURN(Statement rows,
                          database.prepare("SELECT term, doc FROM temp.term_rows"
                                           " WHERE term >= ?1 AND term < ?2 LIMIT ?3"));
    rows.bind_text(begin).bind_text(begin + "\U0010FFFF").bind(kMostTermsRead);
    while (true) {
      WEFT_ASSIGN_OR_RETURN(const bool has_row, rows.step());
      if (!has_row) break;
      Stem stem{.text = rows.bytes(0), .chunks = rows.integer(1)};
      std::u32string letters = letters_of(stem.text);
      stem.n_letters = letters.size();
      const bool has_digit = stem.text.find_first_of("0123456789") != std::string::npos;
      if (stem.n_letters < std::max(kLeastStem, word.size() / 2) || has_digit) continue;
      if (letters.back() == U'i') letters.pop_back();  // Porter's, of a y as often
      stem.cost = cost_of_beginning(word, letters, most);
      if (stem.cost <= most) stems.push_back(std::move(stem));
    }
    if (word[0] == word[1]) break;
  }
  std::ranges::stable_sort(stems, [](const Stem& a, const Stem& b) {
    if (a.cost != b.cost) return a.cost < b.cost;
    if (a.n_letters != b.n_letters) return a.n_letters > b.n_letters;
    return a.chunks > b.chunks;
  });
  stems.resize(std::min(stems.size(), kMostStems));
  return stems;
}

/// The only stem of the index that begins with the word; "" where there is none or are several.
/// Stems with digits are not counted: postgresql16 is a postgresql.
Result<std::string> only_stem_from(Database& database, const std::string& word) {
  WEFT_ASSIGN_OR_RETURN(Statement rows,
                        database.prepare("SELECT term FROM temp.term_rows"
                                         " WHERE term >= ?1 AND term < ?2 LIMIT ?3"));
  rows.bind_text(word).bind_text(word + "\U0010FFFF").bind(kMostGoingOn);
  std::string only;
  int64_t n_read = 0;
  for (;; ++n_read) {
    WEFT_ASSIGN_OR_RETURN(const bool has_row, rows.step());
    if (!has_row) break;
    std::string stem = rows.bytes(0);
    if (stem.find_first_of("0123456789") != std::string::npos) continue;
    if (!only.empty()) return std::string();
    only = std::move(stem);
  }
  return n_read < kMostGoingOn ? only : std::string();  // else there may be more
}

}  // namespace

/// The words of this stem in the first chunk that has it.
Result<std::vector<std::string>> Index::words_of_stem(const std::string& stem) {
  Database& database = *state_->database;
  std::vector<std::string> out;
  int64_t id = 0;
  {
    WEFT_ASSIGN_OR_RETURN(
        Statement place,
        database.prepare("SELECT doc FROM temp.term_places WHERE term = ? LIMIT 1"));
    WEFT_ASSIGN_OR_RETURN(const bool has_row, place.bind_text(stem).step());
    if (!has_row) return out;
    id = place.integer(0);
  }
  WEFT_ASSIGN_OR_RETURN(const Chunk found, chunk(id));
  WEFT_ASSIGN_OR_RETURN(const Document document, state_->find("d.id = ?", [&](Statement& row) {
    row.bind(found.document_id);
  }));
  for (const std::string_view text :
       {std::string_view(found.text), std::string_view(document.info.title)}) {
    WEFT_ASSIGN_OR_RETURN(const auto all, words(text, SIZE_MAX));
    for (const std::string& one : all) {
      if (one[0] != stem[0]) continue;
      WEFT_ASSIGN_OR_RETURN(const std::string its, stem_of(one));
      if (its == stem) out.push_back(one);
    }
  }
  return out;
}

Result<NearWord> Index::near_word(std::string_view word) {
  Database& database = *state_->database;
  WEFT_ASSIGN_OR_RETURN(const auto reading, state_->begin_reading());
  WEFT_ASSIGN_OR_RETURN(const auto folded, words(word, 1));
  NearWord best;
  if (folded.empty() || folded[0].find_first_of("0123456789") != std::string::npos) return best;
  const std::u32string letters = letters_of(folded[0]);
  if (letters.size() < kLeastLetters || letters.size() > kMostLetters) return best;
  WEFT_RETURN_IF_ERROR(make_vocabulary(database));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Stem> stems, near_stems(database, letters));
  int least = most_spelling_cost(letters.size()) + 1;
  for (const Stem& stem : stems) {
    WEFT_ASSIGN_OR_RETURN(const auto its_words, words_of_stem(stem.text));
    for (const std::string& one : its_words) {
      const std::u32string other = letters_of(one);
      if (!begin_alike(letters, other) || is_function_word(one)) continue;
      const int cost = cost_between(letters, other, least);
      if (cost == 0 || cost >= least) continue;
      least = cost;
      best.word = one;
      best.is_clear = is_clear_misspelling(letters.size(), cost, are_swapped(letters, other));
    }
  }
  if (best.is_clear || letters.size() < kLeastBeginning) return best;
  WEFT_ASSIGN_OR_RETURN(const std::string stem, only_stem_from(database, folded[0]));
  if (stem.empty()) return best;
  WEFT_ASSIGN_OR_RETURN(const auto its_words, words_of_stem(stem));
  const auto whole = std::ranges::find_if(its_words, [&](const std::string& one) {
    // At least two thirds of it: kubern is too little of kubernetes, to be sure.
    return one.starts_with(folded[0]) && 2 * letters_of(one).size() <= 3 * letters.size();
  });
  if (whole != its_words.end()) best = {*whole, true};
  return best;
}

}  // namespace weft::retrieval
