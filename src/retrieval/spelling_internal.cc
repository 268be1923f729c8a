// The distance of two words is optimal string alignment: Levenshtein's with the swap of two
// neighbours as one step (Damerau 1964). A letter put in, left out or swapped is a slip of the hand
// and costs less than one replaced, which as often makes another word (password, passport; see
// kSlipCost). Words are short, so the table of all pairs of beginnings is computed plainly, three
// rows of it at a time.
//
// The second half finds what is written in parts: hyphens, and digits in groups as countries set
// them.
#include "retrieval/spelling_internal.h"

#include <algorithm>
#include <utility>

#include "base/ascii.h"
#include "base/narrow.h"
#include "base/utf8.h"

namespace weft::retrieval {
namespace {

constexpr size_t kShortWord = 5;  // letters
constexpr size_t kMaxParts = 4;   // of a compound
constexpr size_t kGroupDigits = 3;

/// Bytes above ASCII count as letters.
bool is_letter(char c) { return is_ascii_alpha(c) || is_high_byte(c); }
bool is_number(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, is_ascii_digit);
}

/// The last row of the table of costs: entry i is the cost of making b out of the first i letters
/// of a.
std::vector<int> last_costs(std::u32string_view a, std::u32string_view b) {
  std::vector<int> before_last(a.size() + 1);
  std::vector<int> last(a.size() + 1);
  std::vector<int> row(a.size() + 1);
  const int n_a = narrow<int>(a.size());
  const int n_b = narrow<int>(b.size());
  for (int i = 0; i <= n_a; ++i) last[i] = i * kSlipCost;
  for (int j = 1; j <= n_b; ++j) {
    row[0] = j * kSlipCost;
    for (int i = 1; i <= n_a; ++i) {
      const int replaced = last[i - 1] + (a[i - 1] == b[j - 1] ? 0 : kReplacedCost);
      row[i] = std::min({last[i] + kSlipCost, row[i - 1] + kSlipCost, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[i] = std::min(row[i], before_last[i - 2] + kSlipCost);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last;
}

/// "12400": 12, 400.
std::vector<std::string> grouped(std::string_view digits) {
  std::vector<std::string> groups;
  while (!digits.empty()) {
    const size_t over = digits.size() % kGroupDigits;
    const size_t n = over == 0 ? kGroupDigits : over;
    groups.emplace_back(digits.substr(0, n));
    digits.remove_prefix(n);
  }
  return groups;
}

/// "e119b": e, 119, b.
std::vector<std::string> parts_by_kind(std::string_view word) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < word.size();) {
    size_t end = begin + 1;
    while (end < word.size() && is_ascii_digit(word[end]) == is_ascii_digit(word[begin])) ++end;
    parts.emplace_back(word.substr(begin, end - begin));
    begin = end;
  }
  return parts;
}

// ------------------------------------------------------------------------------------- compounds

bool is_hyphen(std::string_view sign) {
  return sign == "-" || sign == "\u2010" || sign == "\u2011";
}
bool is_space(std::string_view sign) { return sign == " "; }
/// What is between the groups of digits of one number, in some country.
bool is_grouping(std::string_view sign) {
  constexpr std::string_view kSigns[] = {".",      ",",      "'",      "\u2019",
                                         "\u00A0", "\u202F", "\u2009", " "};
  return std::ranges::find(kSigns, sign) != std::end(kSigns);
}

/// Bytes of a sign at text[at] that is not ASCII and separates words all the same; 0: none.
size_t wide_sign(std::string_view text, size_t at) {
  for (const std::string_view sign :
       {"\u2010", "\u2011", "\u2012", "\u2013", "\u2014", "\u2019", "\u00A0", "\u202F", "\u2009"}) {
    if (text.substr(at).starts_with(sign)) return sign.size();
  }
  return 0;
}

/// A run of letters and digits.
struct Piece {
  size_t begin = 0;
  size_t end = 0;
  std::string_view text;
  std::string_view sign;  // between it and the next one; "" at the end
};

std::vector<Piece> pieces_in(std::string_view text) {
  std::vector<Piece> pieces;
  for (size_t at = 0; at < text.size();) {
    const auto is_in_word = [&] {
      return at < text.size() && (is_ascii_digit(text[at]) || is_letter(text[at])) &&
             wide_sign(text, at) == 0;
    };
    const size_t begin = at;
    while (is_in_word()) ++at;
    if (at > begin) {
      if (!pieces.empty()) {
        Piece& last = pieces.back();
        last.sign = text.substr(last.end, begin - last.end);
      }
      pieces.push_back({begin, at, text.substr(begin, at - begin), {}});
    } else {
      at += std::max<size_t>(wide_sign(text, at), 1);
    }
  }
  return pieces;
}

Compound compound_of(std::string_view text, const std::vector<Piece>& pieces, size_t first,
                     size_t last) {
  Compound out;
  for (size_t i = first; i <= last; ++i) {
    out.parts.emplace_back(pieces[i].text);
    out.joined += pieces[i].text;
  }
  out.written = text.substr(pieces[first].begin, pieces[last].end - pieces[first].begin);
  return out;
}

/// The last piece of the number in groups that begins with pieces[i]; i: it is none.
size_t last_group(const std::vector<Piece>& pieces, size_t i) {
  const Piece& first = pieces[i];
  const auto goes_on = [&](size_t k) {
    return is_number(pieces[k].text) && is_grouping(pieces[k].sign) && k + 1 < pieces.size() &&
           is_number(pieces[k + 1].text);
  };
  const bool begins = is_number(first.text) && first.text[0] != '0' &&
                      first.text.size() <= kGroupDigits && is_grouping(first.sign) &&
                      (i == 0 || !goes_on(i - 1));
  if (!begins) return i;
  size_t last = i;
  while (goes_on(last) && pieces[last].sign == first.sign) {
    if (pieces[last + 1].text.size() != kGroupDigits) return i;
    ++last;
  }
  // "12 400 33" is a telephone's; "12.400,50" has decimals.
  if (last > i && is_space(first.sign) && goes_on(last) && is_space(pieces[last].sign)) return i;
  return last;
}

}  // namespace

std::u32string letters_of(std::string_view word) {
  std::u32string letters;
  for (size_t at = 0; at < word.size();) {
    const size_t n = utf8_char_bytes(word, at);
    letters += n == 0 ? U'\uFFFD' : decode_utf8_char(word, at, n);
    at += std::max<size_t>(n, 1);
  }
  return letters;
}

int spelling_cost(std::u32string_view a, std::u32string_view b, int most) {
  const int64_t more = std::abs(std::ssize(a) - std::ssize(b));
  if (more * kSlipCost > most) return most + 1;
  return last_costs(a, b).back();
}

int cost_of_beginning(std::u32string_view word, std::u32string_view stem, int most) {
  if ((std::ssize(stem) - std::ssize(word)) * kSlipCost > most) return most + 1;
  return std::ranges::min(last_costs(word, stem));
}

bool are_swapped(std::u32string_view a, std::u32string_view b) {
  if (a.size() != b.size()) return false;
  const size_t at = std::ranges::mismatch(a, b).in1 - a.begin();
  return at + 1 < a.size() && a[at] == b[at + 1] && a[at + 1] == b[at] &&
         a.substr(at + 2) == b.substr(at + 2);
}

int most_spelling_cost(size_t n_letters) {
  return n_letters <= kShortWord ? kReplacedCost : kSlipCost + kReplacedCost;
}

bool is_clear_misspelling(size_t n_letters, int cost, bool is_swap) {
  constexpr size_t kSlipTells = 6;
  constexpr size_t kReplacedTells = 7;
  return is_swap || (cost <= kSlipCost && n_letters >= kSlipTells) ||
         (cost <= kReplacedCost && n_letters >= kReplacedTells);
}

std::string parted(std::string_view word) {
  constexpr size_t kMostDigits = 15;
  std::vector<std::string> parts;
  if (is_number(word)) {
    if (word[0] != '0' && word.size() <= kMostDigits) parts = grouped(word);
  } else {
    parts = parts_by_kind(word);
  }
  if (parts.size() < 2 || parts.size() > kMaxParts + 1) return "";
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : " ") + part;
  return out;
}

std::vector<Compound> compounds_of(std::string_view text) {
  const std::vector<Piece> pieces = pieces_in(text);
  std::vector<Compound> out;
  for (size_t i = 0; i < pieces.size(); ++i) {
    size_t last = i;
    while (is_hyphen(pieces[last].sign)) ++last;  // the last piece has no sign
    if (last == i) last = last_group(pieces, i);
    if (last > i && last - i < kMaxParts) out.push_back(compound_of(text, pieces, i, last));
    i = last;
  }
  return out;
}

}  // namespace weft::retrieval
