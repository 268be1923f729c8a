// Documents that tests fill an index with.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "retrieval/index.h"

namespace weft::test {

/// The name of the record of these token ids, as the tests have it.
Hash128 record_of(std::span<const int32_t> tokens);
Hash128 record_of(const std::string& text);

/// Puts a document with these chunk texts in, each on a line of its own; a chunk's token ids are
/// its bytes.
Result<int64_t> put(retrieval::Index& index, const std::string& path,
                    const std::vector<std::string>& texts, const std::string& title = "",
                    const std::string& content_hash = "");

}  // namespace weft::test
