// Three steps: cut the text into sentences, rows, items and headings; score each by the weight of
// the question's terms in it; show the best, shortened round its terms if it is too long.
//
// The cutting is where the work is. Notes are not prose: a rule "a sentence ends at a full stop"
// cuts at "Dr. Smith" and "am 3. Mai", and joins the items of a list that have no full stops. So
// lines are first sorted into rows, headings, list items and prose by how they look, wrapped prose
// is joined again, and only then are sentences looked for, with lists of abbreviations per
// language.
//
// Scores are sums over terms of their inverse document frequency, as the passage's own score,
// without its counts and lengths: in one sentence a term is there or not. Headings above a sentence
// count half for it, because "Opening hours / Mon 9-12" answers a question in which only the
// heading has the words. Everything is linear in the text.
#include "retrieval/best_sentence.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "base/utf8.h"
#include "retrieval/function_words.h"
#include "retrieval/unspaced_internal.h"

namespace weft::retrieval {
namespace {

constexpr size_t kMaxBytes = 64 << 10;   // of a text: far more than a chunk that weft cuts
constexpr double kHeadingsShare = 0.5;   // of its terms' weight, for a sentence below it
constexpr double kHeadingItself = 0.25;  // of its own weight, for a heading or a table's header
constexpr size_t kDeepestLevel = 6;      // of headings
constexpr double kInTitle = 0.25;  // of a term's weight, where the title has it: all have it then

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

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

/// The level of a heading, 1 to 6; 0 for other lines.
size_t heading_level(std::string_view line) {
  return is_heading(line) ? line.find_first_not_of('#') : 0;
}

/// "====" or "----": the line above it is a heading (Markdown's setext form), and it is no text.
bool is_underline(std::string_view line) {
  return line.size() >= 3 && (line[0] == '=' || line[0] == '-') &&
         line.find_first_not_of(line[0]) == std::string_view::npos;
}

/// "|---|:--:|": the line above it names the columns of a table.
bool is_column_rule(std::string_view line) {
  return line.size() >= 3 && line.find('-') != std::string_view::npos &&
         line.find('|') != std::string_view::npos &&
         line.find_first_not_of("|-: +\t") == std::string_view::npos;
}

/// Whether the '=' at line[at] is between a name and its value, as programs log them.
bool is_after_name(std::string_view line, size_t at) {
  size_t begin = at;
  while (begin > 0 &&
         (is_ascii_alnum(line[begin - 1]) || line[begin - 1] == '_' || line[begin - 1] == '.')) {
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
    const bool in_number = at > 0 && is_ascii_digit(line[at - 1]) && is_ascii_digit(next);
    if (line[at] == '|') ++n;
    if ((line[at] == ',' || line[at] == ';') && is_tight && !in_number) ++n;
    if (line[at] == '=' && is_tight && is_after_name(line, at)) ++n;
  }
  return n >= kSeparators;
}

// ------------------------------------------------------------------------------------- sentences

/// Whether a text begins in lower case; of letters that are not ASCII, Latin-1's are known.
bool begins_lower(std::string_view text) {
  if (text.empty()) return false;
  if (is_ascii_lower(text[0])) return true;
  return text.size() > 1 && text[0] == '\xC3' && byte_of(text[1]) >= 0x9F;
}

/// The word that begins a text, in lower case.
std::string first_word(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && (is_ascii_alpha(text[end]) || is_high_byte(text[end]))) ++end;
  return ascii_lower(text.substr(0, end));
}
/// The word that a text ends with, and what is within it: "z.B" of "(z.B".
std::string_view last_word(std::string_view text) {
  constexpr std::string_view kBefore = " \t\n\r([{\"',;:/";
  return text.substr(text.find_last_of(kBefore) + 1);  // npos + 1 is 0
}

template <size_t n>
bool is_one_of(const std::string_view (&words)[n], std::string_view word) {
  return std::ranges::find(words, word) != std::end(words);
}

// In lower case, without their last full stop.
/// After these a sentence always goes on.
constexpr std::string_view kNeverLast[] = {
    "mr",  "mrs",    "ms",  "dr",   "prof", "rev",  "gen", "capt", "lt",       "sgt",         "hr",
    "fam", "sr",     "sra", "mme",  "mlle", "mm",   "mt",  "tel",  "t\u00E9l", "fax",         "mob",
    "e.g", "i.e",    "eg",  "ie",   "z.b",  "d.h",  "u.a", "v.a",  "vgl",      "vs",          "cf",
    "ca",  "approx", "bzw", "inkl", "exkl", "evtl", "ggf", "geb",  "p.ex",     "c.-\u00E0-d", "nr"};
/// These may end a sentence ("on Main St. The house"): they do when a function word follows.
constexpr std::string_view kAsOftenLast[] = {
    "st", "str", "ave", "blvd", "rd",  "inc",  "ltd", "co",  "etc", "usw", "p.m", "a.m",
    "jr", "jan", "feb", "apr",  "aug", "sept", "oct", "nov", "dez", "std", "min", "uhr"};
/// These go on when a number follows: "No. 5".
constexpr std::string_view kBeforeNumber[] = {"no",  "n",  "fig", "abb", "p",  "pp",  "s",
                                              "vol", "ch", "art", "apt", "rm", "ext", "kap",
                                              "bd",  "zi", "num", "sec", "pos"};
/// Words before a German ordinal: "im 2. Stock", "der 1. Vorsitzende".
constexpr std::string_view kBeforeOrdinal[] = {
    "ab",    "am",    "bis",   "beim", "das",   "dem",    "den",   "der",   "des",  "die",   "eine",
    "einem", "einen", "im",    "ins",  "jede",  "jeden",  "jeder", "jedes", "mein", "meine", "ihr",
    "ihre",  "sein",  "seine", "seit", "unser", "unsere", "vom",   "zum",   "zur"};

bool begins_with_month(std::string_view text) {
  constexpr std::string_view kGerman[] = {"Jan", "Feb", "M\u00E4r", "Apr", "Mai", "Jun",
                                          "Jul", "Aug", "Sep",      "Okt", "Nov", "Dez"};
  return std::ranges::any_of(kGerman, [&](std::string_view m) { return text.starts_with(m); });
}

/// "J", "J.R.R", "z. B": letters with full stops between.
bool are_initials(std::string_view word) {
  size_t n_letters = 0;
  for (size_t at = 0; at < word.size(); ++n_letters) {
    const size_t n = utf8_char_bytes(word, at);
    if (n == 0 || (n == 1 && !is_ascii_alpha(word[at]))) return false;
    at += n;
    if (at < word.size() && word[at++] != '.') return false;
  }
  return n_letters > 0;
}

/// Whether the full stop at text[at] is an abbreviation's, an initial's or an ordinal's, or the
/// next word goes on in lower case.
bool is_within_sentence(std::string_view text, size_t at) {
  size_t next = at + 1;
  while (next < text.size() && is_space(text[next])) ++next;
  if (next == text.size() || next == at + 1) return false;
  const bool is_same_line = text.substr(at, next - at).find('\n') == std::string_view::npos;
  const std::string_view rest = text.substr(next);
  if (is_same_line && begins_lower(rest)) return true;
  constexpr size_t kLongest = 24;
  const std::string_view before = text.substr(at - std::min(at, kLongest), std::min(at, kLongest));
  const std::string_view as_written = last_word(before);
  const std::string word = ascii_lower(as_written);
  if (word.empty()) return false;
  const bool is_new_sentence = is_function_word(first_word(rest));
  if (as_written.size() <= 2 && std::ranges::all_of(as_written, is_ascii_digit)) {
    const std::string_view head = trimmed(before.substr(0, before.size() - as_written.size()));
    return is_ascii_alpha(rest[0]) &&
           (begins_with_month(rest) || head.empty() ||
            (is_one_of(kBeforeOrdinal, ascii_lower(last_word(head))) && !is_new_sentence));
  }
  if (is_one_of(kNeverLast, word)) return true;
  const bool is_street = word.size() > 3 && word.ends_with("str");  // "Lindenstr. 5"
  if (is_street || is_one_of(kBeforeNumber, word)) return is_ascii_digit(rest[0]);
  if (is_one_of(kAsOftenLast, word) || are_initials(as_written)) return !is_new_sentence;
  return false;
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

// ------------------------------------------------------------------------------------- wrapped

/// Bytes of a list's mark that a line begins with; 0: none.
size_t bullet_bytes(std::string_view line) {
  for (const std::string_view mark :
       {"- ", "* ", "+ ", "\u2022 ", "\u2013 ", "\u00B7 ", "[ ]", "[x]"}) {
    if (line.starts_with(mark)) return mark.size();
  }
  size_t n = 0;
  while (n < line.size() && n < 3 && is_ascii_digit(line[n])) ++n;
  const bool is_number =
      n > 0 && n + 1 < line.size() && (line[n] == '.' || line[n] == ')') && is_space(line[n + 1]);
  return is_number ? n + 2 : 0;
}

/// "Mon: dentist": a short label, a colon and a text.
bool has_label(std::string_view line) {
  constexpr size_t kLongest = 24;
  const size_t at = line.find(':');
  return at != std::string_view::npos && at > 0 && at <= kLongest && at + 1 < line.size() &&
         is_space(line[at + 1]);
}

/// Whether a sentence ends within the line and another begins, as only in prose.
bool has_inner_end(std::string_view line) {
  for (size_t at = 0; at + 2 < line.size(); ++at) {
    if (sentence_end(line, at) > 0 && is_space(line[at + 1])) return true;
  }
  return false;
}

/// Whether a line cannot be the end of an item: after "the" something has to follow.
bool ends_open(std::string_view line) {
  constexpr std::string_view kOpen[] = {"the", "a",    "an",  "of",  "and", "or",  "with", "from",
                                        "for", "der",  "die", "das", "den", "dem", "ein",  "eine",
                                        "und", "oder", "mit", "von", "le",  "la",  "les",  "de",
                                        "des", "du",   "et",  "el",  "los", "las", "y"};
  return line.ends_with('(') || is_one_of(kOpen, ascii_lower(last_word(line)));
}

struct Line {
  std::string_view text;  // trimmed
  size_t indent = 0;
};

/// The layout of lines without a blank one between them: prose is wrapped at a common width, the
/// lines of a list end where their items do.
struct Shape {
  size_t width = 0;      // of the longest line
  bool is_list = false;  // by what its lines begin with
};

Shape shape_of(std::span<const Line> lines) {
  Shape shape;
  size_t n_lower = 0;
  size_t n_labels = 0;
  bool has_ends = false;
  for (const Line& line : lines) {
    shape.width = std::max(shape.width, line.text.size());
    n_lower += begins_lower(line.text) ? 1 : 0;
    n_labels += has_label(line.text) ? 1 : 0;
    has_ends = has_ends || has_inner_end(line.text) || line.text.ends_with('.');
  }
  shape.is_list = 2 * n_labels > lines.size() || (n_lower == lines.size() && !has_ends);
  return shape;
}

/// Whether a line ends only because it is full, and its sentence goes on in the next one.
bool is_wrapped(const Line& line, const Line& next, const Shape& shape) {
  const std::string_view text = line.text;
  if (bullet_bytes(next.text) > 0) return false;
  const bool goes_on_lower = begins_lower(next.text);
  if (bullet_bytes(text) > 0) return next.indent > line.indent;
  if (!goes_on_lower && !is_ascii_alpha(next.text[0])) return false;
  if (has_label(next.text) && has_label(text)) return false;
  if (goes_on_lower && !shape.is_list && (ends_open(text) || has_inner_end(text))) return true;
  // Prose is wrapped where the next word has no room. Narrow lists look so by chance, so a least
  // width is asked for.
  constexpr size_t kLeastWidth = 45;
  constexpr size_t kLeastCapitalWidth = 60;  // "New York" wraps, and items begin so
  const size_t word = std::min(next.text.find(' '), next.text.size());
  const bool is_full = text.size() + 1 + word > shape.width;
  const bool is_wide = text.size() >= (goes_on_lower ? kLeastWidth : kLeastCapitalWidth);
  return is_full && is_wide && !shape.is_list && !text.ends_with(':');
}

struct Sentence {
  std::string_view text;
  size_t level = 0;                 // of a heading, from 1; 0: not a heading
  bool is_header = false;           // the names of a table's columns, or what introduces a list
  std::string_view header = {};     // of a row: those of its table; of a list's item: its list's
  bool is_header_optional = false;  // it is shown only where it has a word of the question
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

std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    lines.push_back({trimmed(line), std::min(line.find_first_not_of(" \t"), line.size())});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// What a line is, for what is to be joined.
bool is_prose(std::span<const Line> lines, size_t i) {
  const std::string_view line = lines[i].text;
  const bool is_underlined = i + 1 < lines.size() && is_underline(lines[i + 1].text);
  return !line.empty() && !is_underline(line) && !is_underlined && !is_heading(line) &&
         !is_row(line);
}

/// "dentist dr. lam" before "next: tue 14 may", "For the trip" before "- charger": a short line
/// that says what those below are about, though nothing marks it. `begin`: of its paragraph.
bool introduces(std::span<const Line> lines, size_t i, size_t begin) {
  constexpr size_t kMostBytes = 48;
  const std::string_view line = lines[i].text;
  const bool ends_with_colon = line.ends_with(':');
  if (line.size() > kMostBytes || (i != begin && !ends_with_colon) || bullet_bytes(line) > 0 ||
      has_label(line) || has_inner_end(line) || line.find_last_of(".!?,;") == line.size() - 1 ||
      line.find_first_of("0123456789") != std::string_view::npos) {
    return false;
  }
  size_t next = i + 1;
  while (next < lines.size() && lines[next].text.empty()) ++next;
  return next < lines.size() && (bullet_bytes(lines[next].text) > 0 || has_label(lines[next].text));
}

/// How many separators a row has, of whichever it is made with; 0 of a log's.
size_t n_columns(std::string_view row) {
  for (const char separator : {'|', '\t', ';', ','}) {
    const size_t n = std::ranges::count(row, separator);
    if (n > 0) return n;
  }
  return 0;
}

/// Whether the row at lines[i] names the columns of those below: there is a rule under it, or it
/// begins the lines of a CSV file, and has no numbers as those have.
bool names_columns(std::span<const Line> lines, size_t i) {
  const std::string_view row = lines[i].text;
  if (i + 1 >= lines.size() || !is_row(row)) return false;
  const std::string_view next = lines[i + 1].text;
  if (is_column_rule(next)) return true;
  const bool is_first = i == 0 || lines[i - 1].text.empty() || heading_level(lines[i - 1].text) > 0;
  return is_first && row.find_first_of("0123456789=") == std::string_view::npos && is_row(next) &&
         n_columns(row) == n_columns(next) &&
         next.find_first_of("0123456789") != std::string_view::npos;
}

/// Adds the row, heading or other line at lines[i] that is not prose; nothing for a rule or a blank
/// line. `header` is that of the table that the line is in, and is kept up to date.
void add_line(std::span<const Line> lines, size_t i, std::string_view& header,
              std::vector<Sentence>& out) {
  const std::string_view line = lines[i].text;
  if (is_column_rule(line)) return;
  if (!is_row(line)) header = {};
  if (line.empty() || is_underline(line)) return;
  const bool is_underlined = i + 1 < lines.size() && is_underline(lines[i + 1].text);
  const size_t level = is_underlined ? (lines[i + 1].text[0] == '=' ? 1 : 2) : heading_level(line);
  if (level == 0 && names_columns(lines, i)) {
    header = line;
    out.push_back({.text = line, .is_header = true});
    return;
  }
  out.push_back({.text = line, .level = level, .header = level == 0 ? header : ""});
}

std::vector<Sentence> sentences_of(std::string_view text) {
  const std::vector<Line> all = lines_of(text);
  const std::span<const Line> lines(all);
  std::vector<Sentence> sentences;
  std::string_view header;
  std::string_view intro;
  for (size_t i = 0; i < lines.size();) {
    size_t end = i;
    while (end < lines.size() && is_prose(lines, end)) ++end;
    if (end == i) {
      if (!lines[i].text.empty()) intro = {};
      add_line(lines, i++, header, sentences);
      continue;
    }
    header = {};
    // It may be apart from its list by a blank line, and goes on to the list's end.
    const bool goes_on = bullet_bytes(lines[i].text) > 0 || has_label(lines[i].text);
    if (!goes_on) intro = {};
    const Shape shape = shape_of(lines.subspan(i, end - i));
    for (size_t first = i; first < end;) {
      size_t last = first;
      if (introduces(lines, first, i)) {
        intro = lines[first++].text;
        sentences.push_back({.text = intro, .is_header = true});
        continue;
      }
      while (last + 1 < end && is_wrapped(lines[last], lines[last + 1], shape)) ++last;
      const char* const stop = lines[last].text.data() + lines[last].text.size();
      const char* const start = lines[first].text.data();
      const size_t n_before = sentences.size();
      split_prose({start, stop}, sentences);
      for (size_t k = n_before; k < sentences.size(); ++k) {
        sentences[k].header = intro;
        sentences[k].is_header_optional = true;
      }
      first = last + 1;
    }
    i = end;
  }
  return sentences;
}

// ------------------------------------------------------------------------------------- terms

/// Measures texts: which of the terms they have, and the sum of these terms' weights.
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

/// Splits a line at spaces; what is too long to be a word, as data without spaces, at signs, too.
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
  // A window over the words that moves on at both ends: within[t] counts the term's words in it.
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

/// The line's first bytes, at most `max_bytes` and "…", cut after a word or at least after a
/// character.
std::string cut_after(std::string_view line, size_t max_bytes) {
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
  if (first == 0) return cut_after(line, max_bytes);
  return "… " + cut_after(line.substr(words[first].begin), max_bytes);
}

constexpr size_t kBareWords = 3;  // of a heading without marks at most

/// "Café." or "Boiler service": words of the question and no more, so it is a heading without its
/// marks, of what follows. `words`: the sentence's, and of a longer one more than kBareWords.
bool is_bare(const std::vector<std::string>& words, const std::vector<bool>& has) {
  const size_t n_terms = std::ranges::count(has, true);
  return n_terms > 0 && words.size() <= kBareWords && content_words(words).size() <= n_terms;
}

std::vector<bool> either(std::vector<bool> a, const std::vector<bool>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] = a[i] || b[i];
  return a;
}

/// The terms of the headings above a sentence. Each heading counts until the next one of its level
/// or a higher one.
class Headings {
 public:
  explicit Headings(size_t n_terms) : bare_(n_terms, false), levels_(kDeepestLevel + 1, bare_) {}

  /// Level 0: the title.
  void set(size_t level, std::vector<bool> has) {
    std::fill(levels_.begin() + level, levels_.end(), none());
    levels_[level] = std::move(has);
    bare_ = none();
  }
  /// Of a sentence that is a heading without marks, until the next heading.
  void add_bare(const std::vector<bool>& has) { bare_ = either(bare_, has); }
  std::vector<bool> with(std::vector<bool> has, bool with_bare) const {
    for (const std::vector<bool>& one : levels_) has = either(std::move(has), one);
    return with_bare ? either(std::move(has), bare_) : has;
  }

 private:
  std::vector<bool> none() const { return std::vector<bool>(bare_.size(), false); }

  std::vector<bool> bare_;
  std::vector<std::vector<bool>> levels_;
};

struct Scored {
  std::string_view text;
  double weight = 0;
  double own = 0;         // of its own words alone
  std::vector<bool> has;  // which
  std::string_view header = {};
  bool is_heading = false;  // or a table's header
};

/// Of sentences with the same weight: the one with words of the question that few of the others
/// have, then the one that is nearest to others with words of it, then the first.
const Scored* best_of_equal(const Scale& scale, std::span<const Scored> all, double most,
                            bool of_headings) {
  constexpr double kRounding = 1e-9;
  std::vector<double> n_with(scale.n_terms(), 0);
  for (const Scored& one : all) {
    for (size_t i = 0; i < one.has.size(); ++i) n_with[i] += one.has[i] ? 1 : 0;
  }
  const auto rarity = [&](const Scored& one) {
    double sum = 0;
    for (size_t i = 0; i < one.has.size(); ++i) {
      if (one.has[i]) sum += scale.weight_of(i) / n_with[i];
    }
    return sum;
  };
  const auto nearness = [&](const Scored& one) {
    constexpr std::ptrdiff_t kFar = 8;  // sentences: what is further is no neighbour
    const std::ptrdiff_t at = &one - all.data();
    double sum = 0;
    for (std::ptrdiff_t i = std::max<std::ptrdiff_t>(at - kFar, 0);
         i < std::min(std::ssize(all), at + kFar + 1); ++i) {
      if (i == at) continue;
      sum += all[i].own / std::abs(i - at);
    }
    return sum;
  };
  const Scored* best = nullptr;
  std::pair<double, double> best_tie;
  for (const Scored& one : all) {
    if (one.is_heading != of_headings || one.weight < most - kRounding) continue;
    const std::pair tie{rarity(one), nearness(one)};
    const bool is_better =
        best == nullptr || tie.first > best_tie.first + kRounding ||
        (tie.first > best_tie.first - kRounding && tie.second > best_tie.second + kRounding);
    if (!is_better) continue;
    best = &one;
    best_tie = tie;
  }
  return best;
}

/// The best sentence; a heading only if no sentence has a term, by itself or by its headings.
const Scored* best_of(const Scale& scale, std::span<const Scored> all) {
  double most[] = {-1, -1};  // of sentences, of headings
  for (const Scored& one : all) {
    double& of_kind = most[one.is_heading ? 1 : 0];
    of_kind = std::max(of_kind, one.weight);
  }
  const bool is_heading = most[0] < 0 || (most[0] == 0 && most[1] > 0);
  return best_of_equal(scale, all, most[is_heading ? 1 : 0], is_heading);
}

}  // namespace

Result<std::string> best_sentence(Index& index, std::span<const WeightedTerm> terms,
                                  std::string_view title, std::string_view text, size_t max_bytes) {
  std::vector<WeightedTerm> weighted(terms.begin(), terms.end());
  WEFT_ASSIGN_OR_RETURN(const Scale scale, Scale::make(index, weighted));
  Headings headings(weighted.size());
  WEFT_ASSIGN_OR_RETURN(std::vector<bool> in_title, scale.has(title));
  for (size_t i = 0; i < weighted.size(); ++i) weighted[i].weight *= in_title[i] ? kInTitle : 1;
  headings.set(0, std::move(in_title));
  std::vector<bool> in_header(weighted.size(), false);  // of the last table or list
  std::vector<Scored> scored;
  for (const Sentence& sentence : sentences_of(text.substr(0, kMaxBytes))) {
    WEFT_ASSIGN_OR_RETURN(std::vector<bool> has, scale.has(sentence.text));
    WEFT_ASSIGN_OR_RETURN(const auto words, index.words(sentence.text, kBareWords + 1));
    Scored one{.text = sentence.text, .own = scale.weight(has), .header = sentence.header};
    one.is_heading = sentence.level > 0 || sentence.is_header;
    one.weight = one.own * kHeadingItself;
    if (sentence.level > 0) {
      headings.set(sentence.level, has);
    } else if (sentence.is_header) {
      in_header = has;
    } else if (is_bare(words, has)) {
      headings.add_bare(has);
    } else {
      std::vector<bool> both = headings.with(has, words.size() > 1);  // "No." is about nothing
      if (!sentence.header.empty()) both = either(std::move(both), in_header);
      one.weight = one.own + kHeadingsShare * (scale.weight(both) - one.own);
    }
    if (sentence.is_header_optional && scale.weight(in_header) == 0) one.header = {};
    one.has = std::move(has);
    scored.push_back(std::move(one));
  }
  const Scored* const best = best_of(scale, scored);
  if (best == nullptr) return std::string();
  std::string line = squeezed(best->text);
  if (!best->header.empty()) {
    std::string with_header = squeezed(best->header) + " … " + line;
    if (with_header.size() <= max_bytes) line = std::move(with_header);
  }
  return shortened(scale, line, max_bytes);
}

}  // namespace weft::retrieval
