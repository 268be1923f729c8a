// A file that says how sparse decoding chooses and how long it keeps what it chose, in the form of
// KVStar's (UCM):
//   kvstar: {base_method: gsa, checkpoint_interval: 8, lock_duration: 16, update_threshold: 2,
//            sparse_ratio: 0.3}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "sparse/options.h"

namespace weft::sparse {

/// What a file has at most.
inline constexpr uint64_t kMostConfigBytes = 4096;

/// Keys that are missing mean the numbers above. kInvalidArgument: one line with the file's name
/// and, where it is known, the line in it; for no YAML, other keys, and values of another type or
/// range. Thread-safe.
Result<SparseOptions> parse_sparse_config(std::string_view yaml, const std::string& name);

}  // namespace weft::sparse
