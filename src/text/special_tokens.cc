#include "text/special_tokens.h"

#include <algorithm>

namespace weft::text {
namespace {

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Phi-3: these three keep the white space after them.
bool keeps_space(std::string_view token) {
  return token == "<unk>" || token == "<s>" || token == "<|endoftext|>";
}

size_t common_prefix_bytes(std::string_view a, std::string_view b) {
  const size_t n = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + n, b.begin()).first - a.begin());
}

}  // namespace

SpecialTokens::SpecialTokens(const VocabData& vocab, const std::vector<bool>& is_control)
    : is_control_(is_control), strip_after_special_(vocab.strip_after_special) {
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    const std::string_view text = vocab.tokens[id];
    if (text.empty()) continue;
    if (!is_control[id] && vocab.types[id] != TokenType::kUserDefined) continue;
    tokens_.push_back({text, static_cast<int32_t>(id), is_control[id], strips_space_behind(text)});
    if (!is_control[id]) begins_user_defined_[static_cast<unsigned char>(text[0])] = true;
  }
  std::sort(tokens_.begin(), tokens_.end(),
            [](const Token& a, const Token& b) { return a.text < b.text; });
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    ++first_byte_[static_cast<unsigned char>(tokens_[i].text[0]) + 1u];
    if (i == 0) continue;
    // In sorted order a token's beginnings are among its left neighbour and that one's beginnings.
    uint32_t shorter = i - 1;
    while (shorter != kNone && !tokens_[i].text.starts_with(tokens_[shorter].text)) {
      shorter = tokens_[shorter].shorter;
    }
    tokens_[i].shorter = shorter;
  }
  for (size_t byte = 0; byte < 256; ++byte) first_byte_[byte + 1] += first_byte_[byte];
}

bool SpecialTokens::strips_space_behind(std::string_view token) const {
  return strip_after_special_ && !keeps_space(token);
}

// The token that sorts last among those not after `text`, and what it begins with, hold every token
// that `text` begins with.
const SpecialTokens::Token* SpecialTokens::longest_at(std::string_view text,
                                                      bool parse_control) const {
  const auto byte = static_cast<unsigned char>(text[0]);
  const auto begin = tokens_.begin() + first_byte_[byte];
  const auto end = tokens_.begin() + first_byte_[byte + 1u];
  const auto after = std::upper_bound(
      begin, end, text, [](std::string_view t, const Token& token) { return t < token.text; });
  if (after == begin) return nullptr;
  const Token* token = &*(after - 1);
  const size_t n_common = common_prefix_bytes(token->text, text);
  while (token->text.size() > n_common || (token->is_control && !parse_control)) {
    if (token->shorter == kNone) return nullptr;
    token = &tokens_[token->shorter];
  }
  return token;
}

std::vector<Fragment> SpecialTokens::split(std::string_view text, bool parse_control) const {
  std::vector<Fragment> fragments;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool may_begin =
        parse_control ? first_byte_[byte] != first_byte_[byte + 1u] : begins_user_defined_[byte];
    const Token* token = may_begin ? longest_at(text.substr(at), parse_control) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    if (at > begin) fragments.push_back({text.substr(begin, at - begin)});
    fragments.push_back({text.substr(at, token->text.size()), token->id});
    at += token->text.size();
    while (token->strips_space && at < text.size() && is_ascii_space(text[at])) ++at;
    begin = at;
  }
  if (begin < text.size()) fragments.push_back({text.substr(begin)});
  return fragments;
}

std::vector<Fragment> SpecialTokens::split(std::string_view text,
                                           std::span<const ByteRange> control) const {
  std::vector<Fragment> fragments;
  size_t begin = 0;  // of what comes after the last control token
  const auto split_up_to = [&](size_t end) {
    if (end <= begin) return;
    const std::vector<Fragment> between = split(text.substr(begin, end - begin), false);
    fragments.insert(fragments.end(), between.begin(), between.end());
  };
  for (const ByteRange& range : control) {
    for (const Fragment& f : split(text.substr(range.begin, range.end - range.begin), true)) {
      if (f.id == kNoToken || !is_control_[static_cast<size_t>(f.id)]) continue;
      const auto at = static_cast<size_t>(f.text.data() - text.data());
      split_up_to(at);
      fragments.push_back(f);
      begin = at + f.text.size();
      if (!strips_space_behind(f.text)) continue;
      while (begin < text.size() && is_ascii_space(text[begin])) ++begin;
    }
  }
  split_up_to(text.size());
  return fragments;
}

}  // namespace weft::text
