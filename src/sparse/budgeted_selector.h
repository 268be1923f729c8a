// A row reads what its budget allows: fixed pages, and the best by the policy's scores.
#pragma once

#include <memory>
#include <vector>

#include "kernels/top_pages.h"
#include "sparse/budget.h"
#include "sparse/page_scorer.h"
#include "sparse/read_meter.h"
#include "sparse/selector.h"

namespace weft::sparse {

class BudgetedSelector : public CountingSelector {
 public:
  /// Null scorer: the newest pages.
  BudgetedSelector(const SparseOptions& options, std::vector<bool> selects, Env& env,
                   std::unique_ptr<PageScorer> scorer);
  std::span<const std::span<const kernels::HeadPages>> select(
      const kernels::Context& context, const kv::SelectingLayer& layer) override;
  const SparseCounters& counters() const override { return counters_; }
  const std::vector<bool>& selects() const override { return selects_; }

 private:
  void score(const kernels::Context& context, const kv::SelectingLayer& layer);
  void choose(const kernels::Context& context, const kv::SelectingLayer& layer);
  void make_lists(const kv::SelectingLayer& layer);
  void measure(const kernels::Context& context, const kv::SelectingLayer& layer);
  /// The time since then is that part's; returns now.
  int64_t add_time(int64_t since_ns, int64_t& part_ns);

  SparseOptions options_;
  std::vector<bool> selects_;  // [n_layers]
  Env& env_;
  std::unique_ptr<PageScorer> scorer_;
  SparseCounters counters_;
  ReadMeter meter_;
  int64_t n_selections_ = 0;
  // Of the layer at hand. A chooser is a row that does not read everything.
  std::vector<int64_t> choosers_;             // rows
  std::vector<PageBudget> budgets_;           // [choosers]
  std::vector<Candidates> candidates_;        // [choosers]
  std::vector<float> scores_;                 // [choosers][n_kv_heads][candidates]
  std::vector<int32_t> chosen_;               // [choosers][n_kv_heads][chosen], of the candidates
  std::vector<kernels::PageChoice> choices_;  // [choosers][n_kv_heads]
  std::vector<int32_t> pages_;                // [choosers][n_kv_heads][read], ids
  std::vector<kernels::HeadPages> heads_;     // [choosers][n_kv_heads]
  std::vector<std::span<const kernels::HeadPages>> lists_;  // [rows]
};

}  // namespace weft::sparse
