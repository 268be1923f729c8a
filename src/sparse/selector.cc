#include "sparse/selector.h"

#include <algorithm>
#include <utility>

#include "sparse/budgeted_selector.h"
#include "sparse/digest_scorer.h"
#include "sparse/history_scorer.h"
#include "sparse/label_scorer.h"
#include "sparse/mass_scorer.h"

namespace weft::sparse {

ReadQuality SparseCounters::all_quality() const {
  ReadQuality all;
  for (const ReadQuality& one : quality) {
    all.reads += one.reads;
    all.mass += one.mass;
    all.top10 += one.top10;
  }
  return all;
}

namespace {

/// The layers before it that choose are a part of 1 / kKeysLayersDivisor of all that do, rounded
/// up.
int32_t end_of_first_layers(const std::vector<bool>& selects) {
  const int64_t n_selecting = std::ranges::count(selects, true);
  int64_t n_left = (n_selecting + kKeysLayersDivisor - 1) / kKeysLayersDivisor;
  int32_t end = 0;
  while (n_left > 0) n_left -= selects[end++] ? 1 : 0;
  return end;
}

}  // namespace

std::unique_ptr<PageScorer> make_scorer(const SparseOptions& options,
                                        const std::vector<bool>& selects) {
  switch (options.policy) {
    case Policy::kQuest:
    case Policy::kCuboid:
      return std::make_unique<DigestScorer>(*digest_format(options), HeadsAgree::kByMaximum);
    case Policy::kLabels:
    case Policy::kLabelsSample: {
      // A share that is to be kept is of the candidates, and by logs.
      const bool retains = options.retain > 0;
      return std::make_unique<LabelScorer>(
          *digest_format(options), retains, retains ? SharesOf::kCandidates : SharesOf::kAllPages,
          retains ? HeadsJoin::kByMaximum : HeadsJoin::kBySum,
          options.chooses_runs() ? end_of_first_layers(selects) : 0);
    }
    case Policy::kDoubleSparsity:
      return std::make_unique<LabelScorer>(*digest_format(options), options.retain > 0,
                                           SharesOf::kCandidates, HeadsJoin::kByMaximum, 0);
    case Policy::kGsa:
      return std::make_unique<DigestScorer>(*digest_format(options), HeadsAgree::kBySum);
    case Policy::kH2o:
      return std::make_unique<HistoryScorer>(History::kSum);
    case Policy::kTova:
      return std::make_unique<HistoryScorer>(History::kLast);
    case Policy::kSparq:
      return std::make_unique<SparqScorer>();
    case Policy::kOracle:
      return std::make_unique<OracleScorer>();
    case Policy::kStreaming:
    case Policy::kDense:
      return nullptr;
  }
  return nullptr;
}

std::unique_ptr<CountingSelector> make_selector(const SparseOptions& options,
                                                std::vector<bool> selects, Env& env) {
  std::unique_ptr<PageScorer> scorer = make_scorer(options, selects);
  return std::make_unique<BudgetedSelector>(options, std::move(selects), env, std::move(scorer));
}

// Scores and lists as BudgetedSelector has them, of each page of a row; vectors grow by doubling.
int64_t selection_bytes(const kernels::Context& context, const SparseOptions& options,
                        const SelectionShape& shape) {
  if (!options.is_on()) return 0;
  const int64_t n_pages = shape.n_slots / shape.layout.page_tokens + 1;
  const int32_t n_parts = options.chooses_runs() ? kernels::runs_of_page(shape.layout) : 1;
  kernels::WorkspaceSize workspace;
  kernels::count_top_pages(n_pages * n_parts, workspace);
  int64_t page_bytes = shape.layout.n_kv_heads * n_parts * (sizeof(float) + 2 * sizeof(int32_t));
  if (options.samples()) {
    kernels::count_sample_pages(n_pages * n_parts, workspace);
    page_bytes += shape.layout.n_kv_heads * n_parts * 2 * sizeof(float);
  }
  if (const auto scorer = make_scorer(options, std::vector<bool>(shape.n_layers, true))) {
    page_bytes += scorer->scratch_floats_per_page(shape.n_heads, n_parts) * sizeof(float);
    scorer->count(context.isa, shape.layout, shape.n_heads, shape.n_rows, workspace);
  }
  // Of rows that see all pages what they weigh, for heads and groups, and K before and after.
  int64_t rewritten = 0;
  if (options.lock.is_on() && options.lock.checkpoint == Checkpoint::kDense) {
    page_bytes += (shape.n_heads + shape.layout.n_kv_heads) * sizeof(float);
    rewritten = (2 * shape.n_layers + 1) * options.lock.interval_tokens *
                int64_t{shape.layout.n_kv_heads} * shape.layout.head_dim * int64_t{sizeof(float)};
  }
  const int64_t measured =
      options.measure_every > 0 ? shape.n_slots * (shape.n_heads + 2) * sizeof(float) : 0;
  // Of each row's sequence what all layers keep, and a step's.
  const int64_t locked = options.lock.is_on() ? shape.n_rows * (shape.n_layers + 1) * n_pages *
                                                    shape.layout.n_kv_heads * sizeof(int32_t)
                                              : 0;
  return 2 * (shape.n_rows * n_pages * page_bytes + locked) + measured + rewritten +
         workspace.bytes(context.pool.size());
}

}  // namespace weft::sparse
