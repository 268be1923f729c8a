// Text without spaces could be cut into words by a dictionary, one for each language and many
// megabytes each, with errors that lose a word. Pairs of characters need none, and find every word
// of two or more characters wherever it is; the price are more terms and some false hits, which
// ranking by many pairs evens out. FTS5's trigram tokenizer would not do: it finds nothing shorter
// than three characters, and most words of Chinese have two.
//
// A pair is written as ASCII digits (name_of), so that the index's tokenizer leaves it whole.
#include "retrieval/unspaced_internal.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <unordered_set>

#include "base/ascii.h"
#include "base/utf8.h"

namespace weft::retrieval {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// Letters and marks; their digits and punctuation separate words as elsewhere.
constexpr std::array<Range, 21> kUnspaced = {{
    {0x0E01, 0x0E3A},    // Thai
    {0x0E40, 0x0E4E},    //
    {0x0E81, 0x0ECE},    // Lao
    {0x1000, 0x103F},    // Burmese
    {0x1780, 0x17D3},    // Khmer
    {0x3005, 0x3005},    // 々
    {0x3007, 0x3007},    // 〇
    {0x3041, 0x3096},    // hiragana
    {0x309D, 0x309F},    //
    {0x30A1, 0x30FA},    // katakana
    {0x30FC, 0x30FF},    //
    {0x3105, 0x312F},    // bopomofo
    {0x31F0, 0x31FF},    // katakana
    {0x3400, 0x4DBF},    // Han
    {0x4E00, 0x9FFF},    //
    {0xAC00, 0xD7A3},    // hangul
    {0xF900, 0xFAFF},    // Han
    {0xFF66, 0xFF9D},    // katakana
    {0x20000, 0x2A6DF},  // Han
    {0x2A700, 0x2EBE0},  //
    {0x30000, 0x323AF},  //
}};

bool is_unspaced(char32_t c) {
  const auto range = std::ranges::upper_bound(kUnspaced, c, {}, &Range::first);
  return range != kUnspaced.begin() && c <= std::prev(range)->last;
}

bool is_hiragana(char32_t c) { return c >= 0x3041 && c <= 0x309F; }

// What a question consists of besides its subject: taken out of its runs, the longest first where
// one begins another. 有, 在 and the like are left in: too many words have them.
// (Marks above letters are no columns, but clang-format takes them for some.)
// clang-format off
constexpr std::array<std::u32string_view, 57> kAskingWords = {
    U"为什么", U"為什麼", U"什么", U"什麼", U"甚麼", U"怎么", U"怎麼", U"怎样", U"怎樣",
    U"如何", U"多少", U"哪里", U"哪裡", U"哪个", U"哪個", U"哪些", U"哪", U"谁", U"誰", U"是", U"的",
    U"了", U"吗", U"嗎", U"呢", U"何",
    U"무엇입니까", U"무엇인가요", U"무엇을", U"무엇", U"어디에", U"어디", U"누구", U"언제", U"어떻게", U"어떤",
    U"입니까", U"인가요", U"습니까", U"나요",
    U"อะไร", U"ที่ไหน", U"ใคร", U"คือ", U"เมื่อไหร่", U"เมื่อไร", U"อย่างไร",
    U"ทำไม", U"เท่าไหร่", U"เท่าไร", U"ไหม", U"ของ", U"ครับ", U"ค่ะ", U"เป็น",
    U"ที่", U"และ",
};
// clang-format on

/// The character at `at`, and how many bytes it takes; of bytes that are no UTF-8 one, as U+FFFD.
char32_t decode(std::string_view text, size_t at, size_t& n_bytes) {
  const size_t n = utf8_char_bytes(text, at);
  n_bytes = std::max<size_t>(n, 1);
  return n == 0 ? U'\uFFFD' : decode_utf8_char(text, at, n);
}

/// A character as "u" and six digits. FTS5's stemmer leaves digits alone, and with one width for
/// all a search for the beginning of a term finds exactly the pairs that begin with the character.
std::string name_of(char32_t c) {
  std::string digits = std::to_string(uint32_t{c});
  return "u" + std::string(6 - std::min<size_t>(digits.size(), 6), '0') + digits;
}

bool is_ascii_word(char32_t c) { return c < 0x80 && is_ascii_alnum(static_cast<char>(c)); }

void append(std::string& to, std::string_view term) {
  if (!to.empty()) to += ' ';
  to += term;
}

void append_pieces(std::string_view text, std::string& pieces) {
  std::u32string run;
  std::string word;           // of ASCII, up to here
  bool word_touches = false;  // a run before it
  const auto end_run = [&] {
    for (size_t i = 0; i < run.size(); ++i) {
      append(pieces, i + 1 < run.size() ? name_of(run[i]) + name_of(run[i + 1]) : name_of(run[i]));
    }
    run.clear();
  };
  for (size_t at = 0; at < text.size();) {
    size_t n_bytes = 0;
    const char32_t c = decode(text, at, n_bytes);
    at += n_bytes;
    if (is_unspaced(c)) {
      if (!word.empty()) append(pieces, word);
      word.clear();
      run += c;
      continue;
    }
    if (is_ascii_word(c)) {
      if (!run.empty()) word_touches = true;
      end_run();
      word += static_cast<char>(c);
      continue;
    }
    end_run();
    if (word_touches && !word.empty()) append(pieces, word);
    word.clear();
    word_touches = false;
  }
  end_run();
  if (word_touches && !word.empty()) append(pieces, word);
}

/// Cuts `run` where words only ask.
std::vector<std::u32string> without_asking_words(const std::u32string& run) {
  std::vector<std::u32string> parts(1);
  for (size_t at = 0; at < run.size();) {
    const auto rest = std::u32string_view(run).substr(at);
    const auto word = std::ranges::find_if(
        kAskingWords, [&](std::u32string_view asking) { return rest.starts_with(asking); });
    if (word != kAskingWords.end()) {
      at += word->size();
      if (!parts.back().empty()) parts.emplace_back();
    } else {
      parts.back() += run[at++];
    }
  }
  if (parts.back().empty()) parts.pop_back();
  return parts;
}

}  // namespace

std::string pieces_of(std::string_view title, std::string_view text) {
  std::string pieces;
  append_pieces(title, pieces);
  append_pieces(text, pieces);
  return pieces;
}

UnspacedQuestion split_unspaced(std::string_view question) {
  UnspacedQuestion out;
  std::u32string run;
  std::vector<std::u32string> parts;
  const auto end_run = [&] {
    std::ranges::move(without_asking_words(run), std::back_inserter(parts));
    run.clear();
  };
  for (size_t at = 0; at < question.size();) {
    size_t n_bytes = 0;
    const char32_t c = decode(question, at, n_bytes);
    if (is_unspaced(c)) {
      if (run.empty()) out.spaced += ' ';
      run += c;
    } else {
      if (!run.empty()) end_run();
      out.spaced += question.substr(at, n_bytes);
    }
    at += n_bytes;
  }
  if (!run.empty()) end_run();
  // Hiragana alone is mostly endings and particles.
  const auto has_subject = [](const std::u32string& part) {
    return !std::ranges::all_of(part, is_hiragana);
  };
  const bool leave_out_hiragana = std::ranges::any_of(parts, has_subject);
  std::unordered_set<std::string> seen;
  for (const std::u32string& part : parts) {
    if (part.size() == 1 && (!leave_out_hiragana || has_subject(part))) {
      std::string begin = name_of(part[0]);
      if (seen.insert(begin).second) out.begins.push_back(std::move(begin));
    }
    for (size_t i = 0; i + 1 < part.size(); ++i) {
      if (leave_out_hiragana && is_hiragana(part[i]) && is_hiragana(part[i + 1])) continue;
      std::string pair = name_of(part[i]) + name_of(part[i + 1]);
      if (seen.insert(pair).second) out.pairs.push_back(std::move(pair));
    }
  }
  return out;
}

}  // namespace weft::retrieval
