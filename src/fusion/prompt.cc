#include "fusion/prompt.h"

#include "base/narrow.h"

namespace weft::fusion {

int32_t Prompt::chunk_begin(size_t i) const {
  size_t begin = prefix.size();
  for (size_t c = 0; c < i; ++c) begin += chunks[c].size();
  return narrow<int32_t>(begin);
}

int32_t Prompt::n_chunk_tokens() const {
  return chunk_begin(chunks.size()) - narrow<int32_t>(prefix.size());
}

int32_t Prompt::n_tokens() const {
  return chunk_begin(chunks.size()) + narrow<int32_t>(suffix.size());
}

std::vector<int32_t> Prompt::tokens() const {
  std::vector<int32_t> all(prefix);
  for (const std::vector<int32_t>& chunk : chunks)
    all.insert(all.end(), chunk.begin(), chunk.end());
  all.insert(all.end(), suffix.begin(), suffix.end());
  return all;
}

}  // namespace weft::fusion
