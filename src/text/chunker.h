// Cuts a document into chunks of at most so many tokens, at paragraph ends where possible, then at
// sentence ends, then between words, then between characters. It never drops, changes or repeats a
// byte, and never cuts inside a UTF-8 character. It knows nothing of files or titles.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace weft::text {

struct ChunkOptions {
  int32_t max_tokens = 512;  // per chunk, 8 at least
};

struct Chunk {
  size_t begin = 0;  // bytes [begin, end) of the document
  size_t end = 0;
  std::vector<int32_t> tokens;  // of these bytes by themselves, without BOS
};

/// The chunks in order: the first begins at 0, each where the one before ends, the last at the
/// text's end; none for an empty text. The text may hold any bytes. Time is linear in its length.
Result<std::vector<Chunk>> split_into_chunks(const Tokenizer& tokenizer, std::string_view text,
                                             ChunkOptions options = {});

}  // namespace weft::text
