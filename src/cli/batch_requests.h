// The lines of `weft generate --batch`: one request each, as JSON. They are from anyone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "engine/generation.h"

namespace weft::cli {

/// A request of a batch file.
struct BatchLine {
  // Any bytes that JSON can say; empty is refused by who tokenises it.
  std::string prompt;
  bool raw = false;
  std::string cache_salt;  // KV is shared with lines of the same salt alone
  engine::GenerationOptions options;
};

/// As much as a prompt from a file or a pipe may have.
inline constexpr size_t kMaxBatchLineBytes = size_t{64} << 20;

/// Reads {"prompt","n"?,"temp"?,"top_k"?,"top_p"?,"min_p"?,"seed"?,"stop"?,"raw"?,
/// "cache_salt"?}; what is absent is as in `defaults`. `most_tokens`: the largest "n". Of a key
/// that is given several times the last value counts. kInvalidArgument, without the line's number,
/// for what is no such object: it names the key, its value and its range, or the byte that is no
/// JSON. Memory: what the line's texts take. Thread-safe.
Result<BatchLine> parse_batch_line(std::string_view line, const BatchLine& defaults,
                                   int32_t most_tokens);

}  // namespace weft::cli
