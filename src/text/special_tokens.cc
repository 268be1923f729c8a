#include "text/special_tokens.h"

#include <algorithm>
#include <map>

namespace weft::text {
namespace {

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Phi-3: these three keep the white space behind them.
bool keeps_space(std::string_view token) {
  return token == "<unk>" || token == "<s>" || token == "<|endoftext|>";
}

}  // namespace

SpecialTokens::SpecialTokens(const VocabData& vocab, const std::vector<bool>& is_control) {
  std::vector<int32_t> user_defined;
  std::vector<int32_t> all;
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    if (vocab.tokens[id].empty()) continue;
    const bool user = vocab.types[id] == TokenType::kUserDefined && !is_control[id];
    if (user) user_defined.push_back(static_cast<int32_t>(id));
    if (user || is_control[id]) all.push_back(static_cast<int32_t>(id));
  }
  user_defined_ = group_by_length(vocab, user_defined);
  all_ = group_by_length(vocab, all);
  if (vocab.strip_after_special) {
    strips_space_.resize(vocab.tokens.size());
    for (const int32_t id : all) {
      const auto index = static_cast<size_t>(id);
      strips_space_[index] = !keeps_space(vocab.tokens[index]);
    }
  }
}

std::vector<SpecialTokens::SameLength> SpecialTokens::group_by_length(
    const VocabData& vocab, const std::vector<int32_t>& ids) {
  std::map<size_t, SameLength, std::greater<>> groups;
  for (const int32_t id : ids) {
    const std::string_view token = vocab.tokens[static_cast<size_t>(id)];
    SameLength& group = groups[token.size()];
    group.n_bytes = token.size();
    group.first_bytes.set(static_cast<unsigned char>(token[0]));
    group.ids.emplace(token, id);
  }
  std::vector<SameLength> result;
  for (auto& [n_bytes, group] : groups) result.push_back(std::move(group));
  return result;
}

void SpecialTokens::split_fragment(std::string_view text, const SameLength& group,
                                   std::vector<Fragment>& out) const {
  size_t begin = 0;
  size_t at = 0;
  while (at + group.n_bytes <= text.size()) {
    if (!group.first_bytes[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const auto found = group.ids.find(text.substr(at, group.n_bytes));
    if (found == group.ids.end()) {
      ++at;
      continue;
    }
    if (at > begin) out.push_back({text.substr(begin, at - begin)});
    out.push_back({text.substr(at, group.n_bytes), found->second});
    at += group.n_bytes;
    if (!strips_space_.empty() && strips_space_[static_cast<size_t>(found->second)]) {
      while (at < text.size() && is_ascii_space(text[at])) ++at;
    }
    begin = at;
  }
  if (begin < text.size()) out.push_back({text.substr(begin)});
}

std::vector<Fragment> SpecialTokens::split(std::string_view text, bool parse_control) const {
  std::vector<Fragment> fragments;
  if (text.empty()) return fragments;
  fragments.push_back({text});
  std::vector<Fragment> next;
  for (const SameLength& group : parse_control ? all_ : user_defined_) {
    next.clear();
    for (const Fragment& fragment : fragments) {
      if (fragment.id == kNoToken) {
        split_fragment(fragment.text, group, next);
      } else {
        next.push_back(fragment);
      }
    }
    fragments.swap(next);
  }
  return fragments;
}

}  // namespace weft::text
