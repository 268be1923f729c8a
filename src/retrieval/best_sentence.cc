#include "retrieval/best_sentence.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "retrieval/function_words.h"
#include "retrieval/unspaced_internal.h"

namespace weft::retrieval {
namespace {

constexpr size_t kMaxBytes = 64 << 10;
constexpr double kHeadingsShare = 0.5;  // of its terms' weight, for a sentence below it
constexpr double kHeadingItself = 0.25;
constexpr double kInTitle = 0.25;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_alpha(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// ------------------------------------------------------------------------------------- lines

bool is_heading(std::string_view line) {
  const size_t level = std::min(line.find_first_not_of('#'), line.size());
  return level >= 1 && level <= 6 && level < line.size() && is_space(line[level]);
}

/// "====" or "----": what is above it is a heading, and it is nothing itself.
bool is_underline(std::string_view line) {
  return line.size() >= 3 && (line[0] == '=' || line[0] == '-') &&
         line.find_first_not_of(line[0]) == std::string_view::npos;
}

/// Whether the '=' at line[at] is between a name and its value, as programs log them.
bool is_after_name(std::string_view line, size_t at) {
  size_t begin = at;
  while (begin > 0 && (std::isalnum(static_cast<unsigned char>(line[begin - 1])) != 0 ||
                       line[begin - 1] == '_' || line[begin - 1] == '.')) {
    --begin;
  }
  return begin < at && (begin == 0 || is_space(line[begin - 1]));
}

/// Whether a line is a row of a table, a CSV file or a log: its parts are not separated as
/// a sentence's are.
bool is_row(std::string_view line) {
  if (line.find('\t') != std::string_view::npos) return true;
  constexpr size_t kSeparators = 2;
  size_t n = 0;
  for (size_t at = 0; at < line.size() && n < kSeparators; ++at) {
    const char next = at + 1 < line.size() ? line[at + 1] : ' ';
    const bool is_tight = !is_space(next) || at + 1 == line.size();
    const bool in_number = at > 0 && is_digit(line[at - 1]) && is_digit(next);
    if (line[at] == '|') ++n;
    if ((line[at] == ',' || line[at] == ';') && is_tight && !in_number) ++n;
    if (line[at] == '=' && is_tight && is_after_name(line, at)) ++n;
  }
  return n >= kSeparators;
}

/// Whether a line ends only because it is full: the next one goes on in lower case, or after a long
/// line in letters.
bool is_wrapped(std::string_view line, std::string_view next) {
  if (next.empty()) return false;
  constexpr size_t kLongLine = 60;
  return std::islower(static_cast<unsigned char>(next[0])) != 0 ||
         (line.size() >= kLongLine && is_alpha(next[0]));
}

// ------------------------------------------------------------------------------------- sentences

bool begins_with_month(std::string_view text) {
  constexpr std::string_view kGerman[] = {"Jan", "Feb", "M\u00E4r", "Apr", "Mai", "Jun",
                                          "Jul", "Aug", "Sep",      "Okt", "Nov", "Dez"};
  return std::ranges::any_of(kGerman, [&](std::string_view m) { return text.starts_with(m); });
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
  if (!word.empty() && word.size() <= 2 && std::ranges::all_of(word, is_digit)) {
    return begins_with_month(text.substr(next));  // "am 3. Mai"
  }
  // "No." is a sentence, too; before a number it is none.
  if (word == "No" || word == "Nr") return next < text.size() && is_digit(text[next]);
  return std::ranges::find(kAbbreviations, word) != std::end(kAbbreviations);
}

/// Bytes of the mark that ends a sentence at text[at]; 0: none.
size_t sentence_end(std::string_view text, size_t at) {
  if (text[at] == '.' || text[at] == '!' || text[at] == '?') {
    if (text[at] == '.' && is_within_sentence(text, at)) return 0;
    return at + 1 == text.size() || is_space(text[at + 1]) ? 1 : 0;
  }
  for (const std::string_view mark : {"。", "！", "？"}) {
    if (text.substr(at).starts_with(mark)) return mark.size();
  }
  return 0;
}

struct Sentence {
  std::string_view text;
  bool is_heading = false;
};

void split_prose(std::string_view text, std::vector<Sentence>& out) {
  size_t begin = 0;
  const auto add = [&](size_t end) {
    const std::string_view one = trimmed(text.substr(begin, end - begin));
    if (!one.empty()) out.push_back({one});
    begin = end;
  };
  for (size_t at = 0; at < text.size();) {
    const size_t n_bytes = sentence_end(text, at);
    at += std::max<size_t>(n_bytes, 1);
    if (n_bytes > 0) add(at);
  }
  add(text.size());
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(trimmed(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<Sentence> sentences_of(std::string_view text) {
  const std::vector<std::string_view> lines = lines_of(text);
  std::vector<Sentence> sentences;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    if (line.empty() || is_underline(line)) continue;
    const bool is_underlined = i + 1 < lines.size() && is_underline(lines[i + 1]);
    if (is_heading(line) || is_underlined || is_row(line)) {
      sentences.push_back({line, is_heading(line) || is_underlined});
      continue;
    }
    size_t last = i;
    while (last + 1 < lines.size() && !is_row(lines[last + 1]) &&
           is_wrapped(lines[last], lines[last + 1]) &&
           (last + 2 == lines.size() || !is_underline(lines[last + 2]))) {
      ++last;
    }
    const char* end = lines[last].data() + lines[last].size();
    split_prose(std::string_view(line.data(), static_cast<size_t>(end - line.data())), sentences);
    i = last;
  }
  return sentences;
}

// ------------------------------------------------------------------------------------- terms

/// How much of the terms' weight texts have.
class Scale {
 public:
  static Result<Scale> make(Index& index, std::span<const WeightedTerm> terms) {
    std::vector<Term> plain;
    for (const WeightedTerm& term : terms) plain.push_back(term.term);
    WEFT_ASSIGN_OR_RETURN(Index::Forms forms, index.forms_of(plain));
    return Scale(index, terms, std::move(forms));
  }

  /// For each term whether the text has it.
  Result<std::vector<bool>> has(std::string_view text) const {
    WEFT_ASSIGN_OR_RETURN(auto n, index_->occurrences(forms_, text));
    if (const std::string pieces = pieces_of("", text); !pieces.empty()) {
      WEFT_ASSIGN_OR_RETURN(const auto more, index_->occurrences(forms_, pieces));
      std::ranges::transform(n, more, n.begin(), std::plus<>());
    }
    std::vector<bool> has(n.size());
    for (size_t i = 0; i < n.size(); ++i) has[i] = n[i] > 0;
    return has;
  }

  double weight(const std::vector<bool>& has) const {
    double sum = 0;
    for (size_t i = 0; i < has.size(); ++i) sum += has[i] ? terms_[i].weight : 0;
    return sum;
  }
  double weight_of(size_t term) const { return terms_[term].weight; }
  size_t n_terms() const { return terms_.size(); }

 private:
  Scale(Index& index, std::span<const WeightedTerm> terms, Index::Forms forms)
      : index_(&index), terms_(terms), forms_(std::move(forms)) {}

  Index* index_;
  std::span<const WeightedTerm> terms_;
  Index::Forms forms_;
};

// ------------------------------------------------------------------------------------- one line

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

struct Word {
  size_t begin = 0;
  size_t end = 0;
  std::vector<size_t> terms;  // that it has
};

/// What is too long for a word, as data without spaces, ends at a sign.
Result<std::vector<Word>> words_of(const Scale& scale, std::string_view line) {
  constexpr size_t kLongWord = 40;
  constexpr std::string_view kSigns = ",;:|&{}[]()<>\"";
  std::vector<Word> words;
  for (size_t begin = 0; begin < line.size();) {
    size_t end = std::min(line.find(' ', begin), line.size());
    if (end - begin > kLongWord) end = std::min(end, line.find_first_of(kSigns, begin + 1));
    WEFT_ASSIGN_OR_RETURN(const auto has, scale.has(line.substr(begin, end - begin)));
    Word word{begin, end, {}};
    for (size_t i = 0; i < has.size(); ++i) {
      if (has[i]) word.terms.push_back(i);
    }
    words.push_back(std::move(word));
    begin = end + (end < line.size() && line[end] == ' ' ? 1 : 0);
  }
  return words;
}

/// The first word to show, where the words from it on that fit have most of the terms' weight: the
/// line's first if that is as good, else one of the first row of equal ones, so that the terms have
/// words on both sides, and more after them.
size_t first_shown(const Scale& scale, std::span<const Word> words, size_t max_bytes) {
  std::vector<int> within(scale.n_terms(), 0);
  double weight = 0;
  double most = -1;
  size_t first = 0;
  size_t last = 0;
  for (size_t i = 0, end = 0; i < words.size(); ++i) {
    end = std::max(end, i);
    for (; end < words.size() && words[end].end - words[i].begin <= max_bytes; ++end) {
      for (const size_t term : words[end].terms) {
        if (within[term]++ == 0) weight += scale.weight_of(term);
      }
    }
    constexpr double kRounding = 1e-9;
    if (weight > most + kRounding) {
      most = weight;
      first = last = i;
    } else if (last + 1 == i && weight > most - kRounding) {
      last = i;
    }
    if (end == words.size()) break;  // a later beginning only shows less
    if (end == i) continue;          // a word that is too long by itself
    for (const size_t term : words[i].terms) {
      if (--within[term] == 0) weight -= scale.weight_of(term);
    }
  }
  return first == 0 ? 0 : last - (last - first) / 4;
}

/// Cut at a word, or at least at a character.
std::string cut_behind(std::string_view line, size_t max_bytes) {
  if (line.size() <= max_bytes) return std::string(line);
  size_t end = max_bytes;
  const size_t space = line.rfind(' ', end);
  if (space != std::string_view::npos && space > max_bytes / 2) end = space;
  while (end > 0 && is_utf8_continuation(line[end])) --end;
  return std::string(line.substr(0, end)) + " …";
}

Result<std::string> shortened(const Scale& scale, std::string_view line, size_t max_bytes) {
  if (line.size() <= max_bytes) return std::string(line);
  WEFT_ASSIGN_OR_RETURN(const std::vector<Word> words, words_of(scale, line));
  const size_t first = first_shown(scale, words, max_bytes);
  if (first == 0) return cut_behind(line, max_bytes);
  return "… " + cut_behind(line.substr(words[first].begin), max_bytes);
}

constexpr size_t kBareWords = 3;

/// "Café." or "Boiler service": words of the question and no more, so it is a heading without its
/// marks, of what follows. `words`: the sentence's, and of a longer one more than kBareWords.
bool is_bare(const std::vector<std::string>& words, const std::vector<bool>& has) {
  const auto n_terms = static_cast<size_t>(std::ranges::count(has, true));
  return n_terms > 0 && words.size() <= kBareWords && content_words(words).size() <= n_terms;
}

std::vector<bool> either(std::vector<bool> a, const std::vector<bool>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] = a[i] || b[i];
  return a;
}

}  // namespace

Result<std::string> best_sentence(Index& index, std::span<const WeightedTerm> terms,
                                  std::string_view title, std::string_view text, size_t max_bytes) {
  std::vector<WeightedTerm> weighted(terms.begin(), terms.end());
  WEFT_ASSIGN_OR_RETURN(const Scale scale, Scale::make(index, weighted));
  WEFT_ASSIGN_OR_RETURN(std::vector<bool> above, scale.has(title));  // then in the heading
  for (size_t i = 0; i < weighted.size(); ++i) weighted[i].weight *= above[i] ? kInTitle : 1;
  std::vector<bool> bare(above.size(), false);  // in such a sentence above, since the heading
  std::string_view best;
  double most = -1;
  for (const Sentence& sentence : sentences_of(text.substr(0, kMaxBytes))) {
    WEFT_ASSIGN_OR_RETURN(std::vector<bool> has, scale.has(sentence.text));
    WEFT_ASSIGN_OR_RETURN(const auto words, index.words(sentence.text, kBareWords + 1));
    const double own = scale.weight(has);
    double weight = own * kHeadingItself;
    if (sentence.is_heading) {
      above = std::move(has);
      bare.assign(above.size(), false);
    } else if (is_bare(words, has)) {
      bare = either(bare, has);
    } else {
      std::vector<bool> both = either(above, has);
      if (words.size() > 1) both = either(both, bare);  // "No." is about nothing
      weight = own + kHeadingsShare * (scale.weight(both) - own);
    }
    if (weight <= most) continue;
    most = weight;
    best = sentence.text;
  }
  return shortened(scale, squeezed(best), max_bytes);
}

}  // namespace weft::retrieval
