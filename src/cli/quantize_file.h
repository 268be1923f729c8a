// Rewrites a GGUF with its matrices in other types: reads through the mapping, expands, quantises
// on a thread pool and writes, some rows at a time. The new file gets its name when it is whole;
// nothing else is left of it. Nothing is computed twice, nothing is held but a few megabytes.
#pragma once

#include <cstdint>
#include <string>

#include "base/function_ref.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "gguf/gguf.h"
#include "gguf/recipe.h"
#include "kernels/isa.h"

namespace weft::cli {

struct QuantizeReport {
  int64_t tensors = 0;
  int64_t quantised = 0;    // that changed their type
  int64_t fell_back = 0;    // that got another type than the recipe's, for their rows' length
  int64_t requantised = 0;  // whose rounding adds to an earlier one
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
};

/// Writes `out`, replacing a file of that name; `out` must be no part of `in`. Metadata is copied
/// whole but for general.file_type, general.quantization_version and the split keys. A weight that
/// is not finite, or too large for half floats, is kCorrupt and names the tensor. `progress` gets
/// bytes read of all, and ends it with kCancelled by returning false.
Result<QuantizeReport> quantize_file(Env& env, const gguf::File& in, const std::string& out,
                                     const gguf::Recipe& recipe, ThreadPool& pool, kernels::Isa isa,
                                     FunctionRef<bool(int64_t done, int64_t total)> progress);

}  // namespace weft::cli
