// Each n-gram's newest place is kept in a table, so that a token costs a few insertions however
// long the text is, where a search would go through all of it for each.
#include "spec/ngram_drafter.h"

#include <algorithm>

#include "base/narrow.h"

namespace weft::spec {
namespace {

uint64_t hash_of(std::span<const int32_t> ngram) {
  uint64_t hash = 0;
  for (const int32_t token : ngram) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

void NgramDrafter::add(std::span<const int32_t> tokens) {
  tokens_.reserve(tokens_.size() + tokens.size());
  for (const int32_t token : tokens) {
    const auto end = narrow<int32_t>(std::ssize(tokens_));
    for (int32_t n = kShortest; n <= std::min(kLongest, end); ++n) {
      ends_[n][hash_of(std::span(tokens_).last(n))] = end;
    }
    tokens_.push_back(token);
  }
}

// Tokens are compared, as hashes may be equal without them.
NgramDrafter::Match NgramDrafter::find() const {
  const auto size = narrow<int32_t>(std::ssize(tokens_));
  for (int32_t n = std::min(kLongest, size); n >= kShortest; --n) {
    const auto newest = std::span(tokens_).last(n);
    const auto found = ends_[n].find(hash_of(newest));
    if (found == ends_[n].end()) continue;
    if (std::ranges::equal(newest, std::span(tokens_).subspan(found->second - n, n))) {
      return {.length = n, .end = found->second};
    }
  }
  return {};
}

int32_t NgramDrafter::evidence() {
  const int32_t length = find().length;
  return length == 0 ? 0 : length - 1;
}

Result<std::vector<int32_t>> NgramDrafter::draft(int32_t n) {
  const Match match = find();
  std::vector<int32_t> out;
  if (match.length == 0) return out;
  out.reserve(n);
  const auto size = std::ssize(tokens_);
  for (int64_t at = match.end; std::ssize(out) < n; ++at) {
    out.push_back(at < size ? tokens_[at] : out[at - size]);
  }
  return out;
}

}  // namespace weft::spec
