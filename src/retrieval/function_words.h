// The words of a question that say nothing about its subject (the, what, der, était, …), by
// language. It splits no text and knows no index.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::retrieval {

enum class Language { kEnglish, kGerman, kFrench, kSpanish, kItalian, kPortuguese, kDutch };
inline constexpr int kLanguages = 7;

/// Words are lower case without diacritics, as Index::words gives them.
bool is_function_word(Language language, std::string_view word);

/// In any of the languages.
bool is_function_word(std::string_view word);

/// Whether a word only carries a question (thanks, please, my notes, going) so that it says nothing
/// about the documents that none of them has it.
bool is_filler_word(std::string_view word);

/// Whether a content word only says what is asked of a subject (name, date, cost, fecha, …), so
/// that a passage which has no more of a question does not answer it.
bool is_aspect_word(std::string_view word);

/// Whether questions about anything are asked with the word (pay, high, appointment, faire, …), so
/// that it says nothing to a reader that no document has it.
bool is_common_word(std::string_view word);

/// Whether a text with these content words asks nothing: thanks, greetings, ok. Not where there are
/// none.
bool is_courtesy(std::span<const std::string> content);

/// The language whose function words most of the words are, two at least; English where as many are
/// English.
/// What is a function word in one language may be the subject in another (die, war, son), so the
/// words that a question has besides decide.
Language language_of(std::span<const std::string> words);

/// The words without those of the question's own language that are function words.
std::vector<std::string> content_words(std::span<const std::string> words);

}  // namespace weft::retrieval
