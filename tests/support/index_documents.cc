#include "support/index_documents.h"

namespace weft::test {

Hash128 record_of(std::span<const int32_t> tokens) { return hash128(std::as_bytes(tokens)); }

Hash128 record_of(const std::string& text) {
  return record_of(std::vector<int32_t>(text.begin(), text.end()));
}

Result<int64_t> put(retrieval::Index& index, const std::string& path,
                    const std::vector<std::string>& texts, const std::string& title,
                    const std::string& content_hash) {
  std::vector<std::vector<int32_t>> ids;
  for (const std::string& text : texts) ids.emplace_back(text.begin(), text.end());
  std::vector<retrieval::ChunkText> chunks;
  uint64_t begin = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    chunks.push_back(
        {begin, begin + texts[i].size(), texts[i], ids[i], record_of(ids[i]), i + 1, i + 1});
    begin += texts[i].size();
  }
  return index.replace_document(
      {.path = path,
       .title = title,
       .size_bytes = begin,
       .modified_ns = 12345,
       .content_hash = content_hash.empty() ? "hash of " + path : content_hash,
       .root = "/"},
      chunks);
}

}  // namespace weft::test
