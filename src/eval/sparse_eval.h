// Policies and budgets of sparse decoding beside each other, on the same texts: what they find, how
// well they predict, what of the attention they keep, and how much they read for it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "engine/engine.h"
#include "eval/sparse_rows.h"
#include "eval/sparse_tasks.h"
#include "sparse/options.h"

namespace weft::eval {

struct SparseEvalOptions {
  SparseTask task = SparseTask::kPasskey;
  std::vector<sparse::SparseOptions> settings;  // what is off is dense decoding
  std::vector<int32_t> lengths;
  SparseTaskOptions cases;  // its length is set from `lengths`
  bool by_depth = false;    // rows for each depth, after all others
};

struct SparseEvalResults {
  std::vector<SparseRow> rows;
  int64_t n_left_out = 0;  // texts, as it was stopped; the one that was under way is one of them
};

/// Each text is prefilled once, and each setting goes on from a copy of it: for that the engine
/// needs the pages of two contexts. Of decoding with a policy: counters, times, and from time to
/// time all of K. `progress` as in evaluate(), in answers; where it says to stop, the rows are of
/// the texts that all settings have answered. Errors of sparse_cases, and kResourceExhausted where
/// a case does not fit the context. The engine decodes densely afterwards.
Result<SparseEvalResults> sparse_eval(engine::Engine& engine, const SparseEvalOptions& options,
                                      FunctionRef<bool(int64_t done, int64_t total)> progress);

}  // namespace weft::eval
