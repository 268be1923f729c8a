// A row reads what its budget allows: fixed pages, and the best by the policy's scores.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kernels/sample_pages.h"
#include "kernels/top_pages.h"
#include "sparse/budget.h"
#include "sparse/page_scorer.h"
#include "sparse/read_meter.h"
#include "sparse/row_lists.h"
#include "sparse/selector.h"

namespace weft::sparse {

class BudgetedSelector : public CountingSelector {
 public:
  /// Null scorer: the newest pages.
  BudgetedSelector(const SparseOptions& options, std::vector<bool> selects, Env& env,
                   std::unique_ptr<PageScorer> scorer);
  std::span<const std::span<const kernels::HeadPages>> select(
      const kernels::Context& context, const kv::SelectingLayer& layer) override;
  bool sees_attention() const override {
    return options_.lock.is_on() && options_.lock.checkpoint == Checkpoint::kDense;
  }
  void attended(const kernels::Context& context, const kv::SelectingLayer& layer,
                std::span<const kv::PageLogSums> sums) override;
  bool remembers() const override {
    return locks_.has_value() || (scorer_ != nullptr && scorer_->remembers());
  }
  void written(kv::SequenceId sequence, int32_t slot, int32_t layer) override {
    if (locks_) locks_->written(sequence, slot, layer);
    if (scorer_ != nullptr) scorer_->written(sequence, slot, layer);
  }
  const SparseCounters& counters() const override { return counters_; }
  const std::vector<bool>& selects() const override { return selects_; }
  SelectionLocks* locks() override { return locks_ ? &*locks_ : nullptr; }
  void add_rewritten(int64_t n_tokens, double drift) override {
    counters_.rewritten_tokens += n_tokens;
    counters_.drift += drift;
  }

 private:
  using Action = SelectionLocks::Action;
  void score(const kernels::Context& context, const kv::SelectingLayer& layer);
  void choose(const kernels::Context& context, const kv::SelectingLayer& layer);
  /// Sees to it that locks have what was chosen, and that all rows read what locks have.
  void keep(const kv::SelectingLayer& layer);
  void make_lists(const kv::SelectingLayer& layer);
  /// Where a chooser's lists are, or are to be: beside the lock's selection, for rows after it, or,
  /// where other rows of the step have the same selection, in made_.
  RowLists& lists_of(const kv::SelectingLayer& layer, size_t chooser);
  /// A chooser's, but for the fixed pages at the end, which are left for finish_lists().
  void begin_lists(const kv::SelectingLayer& layer, size_t chooser, RowLists& lists) const;
  void finish_lists(const kv::SelectingLayer& layer, size_t chooser, RowLists& lists);
  /// Writes the pages, or all of their runs; returns the end.
  int32_t* add_pages(std::span<const int32_t> pages, int32_t* to) const;
  /// Whether the row's pages are nobody else's: of a draft that shares none with what verifies it.
  bool is_alone(const kv::SelectingRow& row) const {
    return row.use == kv::RowUse::kDraft && !options_.lock.drafts_share;
  }
  /// Of one sequence's rows, what the next ones are to read.
  void learn(const kernels::Context& context, const kv::SelectingLayer& layer,
             std::span<const kv::SelectingRow> rows, std::span<const kv::PageLogSums> sums);
  void join_rows(const kernels::Context& context, const kv::SelectingLayer& layer,
                 const PageBudget& budget, std::span<const kv::PageLogSums> sums);
  void measure(const kernels::Context& context, const kv::SelectingLayer& layer);
  /// The time since then is that part's; returns now.
  int64_t add_time(int64_t since_ns, int64_t& part_ns);

  SparseOptions options_;
  std::vector<bool> selects_;  // [n_layers]
  Env& env_;
  std::unique_ptr<PageScorer> scorer_;
  std::optional<SelectionLocks> locks_;
  SparseCounters counters_;
  ReadMeter meter_;
  int64_t n_selections_ = 0;
  int32_t n_parts_ = 1;  // of a page that are chosen by themselves
  // Of the layer at hand. A chooser is a row that does not read everything.
  // Unless a lock has its pages, it scores them.
  std::vector<int64_t> choosers_;             // rows
  std::vector<PageBudget> budgets_;           // [choosers]
  std::vector<Action> actions_;               // [choosers]
  std::vector<int64_t> scoring_;              // choosers
  std::vector<Candidates> candidates_;        // [scoring]
  std::vector<float> scores_;                 // [scoring][n_kv_heads][candidates][parts]
  std::vector<int32_t> chosen_;               // [scoring][n_kv_heads][chosen], of these
  std::vector<kernels::PageChoice> choices_;  // [scoring][n_kv_heads]
  std::vector<float> chosen_weights_;         // as chosen_, where they are drawn
  std::vector<float> of_rows_;                // of a dense pass: [rows][n_kv_heads][pages]
  std::vector<kernels::PageScores> row_scores_;
  Selection selection_;                                     // of the chooser at hand
  std::vector<Selection> alone_;                            // of those that share none
  std::vector<const Selection*> kept_of_;                   // [choosers], with locks
  std::vector<RowLists> made_;                              // [choosers], or more
  std::vector<std::span<const kernels::HeadPages>> lists_;  // [rows]
};

}  // namespace weft::sparse
