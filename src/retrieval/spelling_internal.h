// How far two words are apart by the errors that people make in writing, and how else a word is
// written that is no error: ligatures, ß, hyphens, groups of digits. Internal to this room; knows
// no index and no dictionary.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace weft::retrieval {

/// What an error costs: a letter put in, left out or swapped with its neighbour is a slip, a letter
/// replaced by another as often makes another word (horse, house).
inline constexpr int kSlipCost = 2;
inline constexpr int kReplacedCost = 3;

std::u32string letters_of(std::string_view word);

/// The least cost of making b of a; what is more than `most` may be any number above it. Takes time
/// in the product of their lengths.
int spelling_cost(std::u32string_view a, std::u32string_view b, int most);
/// The least cost of making `stem` of any beginning of `word`.
int cost_of_beginning(std::u32string_view word, std::u32string_view stem, int most);

/// What a misspelling of a word of so many letters costs at most: one error up to five letters, two
/// in a longer one, of which at most one replaces a letter (password is no passport).
int most_spelling_cost(size_t n_letters);
/// Whether such a misspelling is one beyond much doubt, so that it may be searched for as what it
/// is near to: one error, as two make a translation of transactions; and the shorter a word, the
/// more others are near.
bool is_clear_misspelling(size_t n_letters, int cost, bool is_swap);
/// Whether b is a with two neighbours swapped and nothing else.
bool are_swapped(std::u32string_view a, std::u32string_view b);

/// How a folded word is written in parts elsewhere: 12400 as "12 400" (so also 12,400 and 12.400:
/// signs separate words), e119 as "e 119". "" of other words.
std::string parted(std::string_view word);

/// What a text writes in parts and others in one word: Wi-Fi, E-119, 12,400, 12 400.
struct Compound {
  std::vector<std::string> parts;  // as written
  std::string written;
  std::string joined;  // the parts without what is between
};
/// Of digits with spaces between only those that are one number beyond doubt: one to three digits,
/// then three each, and no others beside them.
std::vector<Compound> compounds_of(std::string_view text);

}  // namespace weft::retrieval
