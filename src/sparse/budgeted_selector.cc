// All rows of a step choose together, so that two workers are busy with a batch of one as with a
// batch of eight: a row's scores are divided among them, and so are the lists. What a row gets
// depends on its own history alone.
#include "sparse/budgeted_selector.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/narrow.h"

namespace weft::sparse {
namespace {

/// How many of the largest scores, logs of shares, make up the share `retain` of all: of the
/// sixteenth of a nat in which the last of them lies all are taken. By buckets and not by sorting,
/// as thousands of pages are to be gone through for each head.
int32_t retained_count(std::span<const float> scores, double retain) {
  constexpr int32_t kBuckets = 320;  // down to e^-20 of the largest
  constexpr float kOfOneNat = 16;
  const float most = *std::ranges::max_element(scores);
  double mass[kBuckets] = {};
  int32_t count[kBuckets] = {};
  double all = 0;
  for (const float score : scores) {
    const float below = (most - score) * kOfOneNat;
    if (!(below < kBuckets)) continue;  // nothing of it, or NaN
    const float share = std::exp(score - most);
    mass[static_cast<int32_t>(below)] += share;
    ++count[static_cast<int32_t>(below)];
    all += share;
  }
  int32_t n = 0;
  double kept = 0;
  for (int32_t i = 0; i < kBuckets && kept < retain * all; ++i) {
    kept += mass[i];
    n += count[i];
  }
  return n;
}

/// Places in the sequence's block table, from those of candidates that begin at `first`.
void make_selection(std::span<const kernels::PageChoice> choices, int32_t first,
                    Selection& selection) {
  selection.resize(choices.size());
  for (size_t head = 0; head < choices.size(); ++head) {
    const std::span<const int32_t> chosen = choices[head].chosen;
    selection[head].assign(chosen.begin(), chosen.end());
    for (int32_t& place : selection[head]) place += first;
  }
}

/// Of a lock's pages, which are ascending, those that the row does not read in any case: all or
/// nearly all. From the ends, as a search by halves would wait for memory at each step: these were
/// read a token ago.
std::span<const int32_t> within(std::span<const int32_t> places, int32_t first, int32_t end) {
  while (!places.empty() && places.front() < first) places = places.subspan(1);
  while (!places.empty() && places.back() >= end) places = places.first(places.size() - 1);
  return places;
}

}  // namespace

BudgetedSelector::BudgetedSelector(const SparseOptions& options, std::vector<bool> selects,
                                   Env& env, std::unique_ptr<PageScorer> scorer)
    : options_(options), selects_(std::move(selects)), env_(env), scorer_(std::move(scorer)) {
  counters_.quality.resize(selects_.size());
  if (options.lock.is_on()) locks_.emplace(options.lock, narrow<int32_t>(std::ssize(selects_)));
}

std::span<const std::span<const kernels::HeadPages>> BudgetedSelector::select(
    const kernels::Context& context, const kv::SelectingLayer& layer) {
  lists_.assign(layer.rows.size(), {});
  choosers_.clear();
  budgets_.clear();
  actions_.clear();
  scoring_.clear();
  alone_.clear();
  const kernels::KvLayout& layout = layer.cache.layout();
  if (options_.chooses_runs()) n_parts_ = kernels::runs_of_page(layout);
  WEFT_CHECK(n_parts_ == 1 || !locks_);  // whose lists are finished again: by whole pages
  for (int64_t i = 0; i < std::ssize(layer.rows); ++i) {
    const kv::SelectingRow& row = layer.rows[i];
    const PageBudget budget = page_budget(options_, row.slot, layout.page_tokens);
    const int64_t bytes = (int64_t{row.slot} + 1) * kernels::kv_token_bytes(layout);
    counters_.kv_bytes += bytes;
    counters_.kv_bytes_read += bytes;  // less what is not chosen: make_lists
    if (row.use == kv::RowUse::kReadsAll) {
      ++counters_.reads_in_dense_passes;
    } else if (!selects_[layer.layer]) {
      ++counters_.reads_in_dense_layers;
    } else if (budget.reads_all()) {
      ++counters_.reads_within_budget;
    } else {
      actions_.push_back(locks_ && !is_alone(row)
                             ? locks_->action(layer.cache, row.sequence, row.slot, layer.layer)
                             : Action::kChoose);
      if (actions_.back() != Action::kRead) scoring_.push_back(std::ssize(choosers_));
      choosers_.push_back(i);
      budgets_.push_back(budget);
    }
  }
  if (choosers_.empty()) return lists_;
  if (!scoring_.empty()) score(context, layer);
  const int64_t begin_ns = env_.monotonic_ns();
  if (!scoring_.empty()) choose(context, layer);
  keep(layer);
  make_lists(layer);
  add_time(begin_ns, counters_.choose_ns);
  measure(context, layer);
  return lists_;
}

int64_t BudgetedSelector::add_time(int64_t since_ns, int64_t& part_ns) {
  const int64_t now_ns = env_.monotonic_ns();
  part_ns += now_ns - since_ns;
  return now_ns;
}

void BudgetedSelector::measure(const kernels::Context& context, const kv::SelectingLayer& layer) {
  if (options_.measure_every == 0) return;
  const int64_t n = n_selections_++;
  if (n % options_.measure_every != 0) return;
  const int64_t begin_ns = env_.monotonic_ns();
  const int64_t row = choosers_[n / options_.measure_every % std::ssize(choosers_)];
  meter_.measure(context, layer, layer.rows[row], lists_[row], counters_.quality[layer.layer]);
  add_time(begin_ns, counters_.measure_ns);
}

void BudgetedSelector::score(const kernels::Context& context, const kv::SelectingLayer& layer) {
  const int64_t n_kv_heads = layer.cache.layout().n_kv_heads;
  int64_t n_candidates = 0;
  for (const int64_t i : scoring_) n_candidates += budgets_[i].n_candidates();
  scores_.resize(n_kv_heads * n_candidates * n_parts_);
  candidates_.clear();
  float* scores = scores_.data();
  for (const int64_t i : scoring_) {
    const kv::SelectingRow& row = layer.rows[choosers_[i]];
    const int64_t n = budgets_[i].n_candidates();
    candidates_.push_back({.row = &row,
                           .pages = row.block_table.subspan(budgets_[i].first, n),
                           .first = budgets_[i].first,
                           .n_chosen = budgets_[i].n_chosen,
                           .n_parts = n_parts_,
                           .scores = {scores, n_kv_heads, n * n_parts_}});
    scores += n_kv_heads * n * n_parts_;
  }
  if (scorer_ != nullptr) {
    const int64_t begin_ns = env_.monotonic_ns();
    scorer_->prepare(context, layer, candidates_);
    const int64_t prepared_ns = add_time(begin_ns, counters_.digest_ns);
    scorer_->score(context, layer, candidates_);
    add_time(prepared_ns, counters_.score_ns);
    for (const Candidates& one : candidates_) {
      counters_.index_bytes_read += scorer_->bytes_read(layer.cache.layout(), layer.layer,
                                                        std::ssize(one.pages), one.n_chosen);
    }
    return;
  }
  for (const Candidates& one : candidates_) {
    for (int64_t head = 0; head < n_kv_heads; ++head) {
      std::iota(one.scores.row(head).begin(), one.scores.row(head).end(), 0.0f);
    }
  }
}

void BudgetedSelector::choose(const kernels::Context& context, const kv::SelectingLayer& layer) {
  const int64_t n_kv_heads = layer.cache.layout().n_kv_heads;
  int64_t most = 0, n_weighed = 0;
  for (const int64_t i : scoring_) {
    const int64_t n = n_kv_heads * budgets_[i].n_chosen * n_parts_;
    most += n;
    n_weighed += budgets_[i].samples() ? n : 0;
  }
  chosen_.resize(most);
  chosen_weights_.resize(n_weighed);
  choices_.clear();
  std::span<int32_t> rest(chosen_);
  std::span<float> rest_weights(chosen_weights_);
  for (size_t i = 0; i < scoring_.size(); ++i) {
    const PageBudget& budget = budgets_[scoring_[i]];
    for (int64_t head = 0; head < n_kv_heads; ++head) {
      const std::span<const float> scores = candidates_[i].scores.row(head);
      int32_t n = budget.n_chosen * n_parts_;
      if (options_.retain > 0) {
        n = std::clamp(retained_count(scores, options_.retain), budget.n_least, n);
      }
      const int32_t n_weights = budget.samples() ? n : 0;
      choices_.push_back({.scores = scores,
                          .chosen = rest.first(n),
                          .weights = rest_weights.first(n_weights),
                          .n_best = budget.samples() ? budget.n_best * n_parts_ : 0});
      rest = rest.subspan(n);
      rest_weights = rest_weights.subspan(n_weights);
    }
  }
  n_weighed > 0 ? kernels::sample_pages(context, choices_) : kernels::top_pages(context, choices_);
}

void BudgetedSelector::keep(const kv::SelectingLayer& layer) {
  if (!locks_) return;
  const int64_t n_kv_heads = layer.cache.layout().n_kv_heads;
  for (size_t i = 0; i < scoring_.size(); ++i) {
    const auto own = std::span(choices_).subspan(i * n_kv_heads, n_kv_heads);
    make_selection(own, budgets_[scoring_[i]].first, selection_);
    const kv::SelectingRow& row = layer.rows[choosers_[scoring_[i]]];
    if (is_alone(row)) {
      alone_.push_back(selection_);
    } else if (actions_[scoring_[i]] == Action::kChoose) {
      locks_->lock(row.sequence, row.slot, layer.layer, selection_);
    } else {
      locks_->checkpoint(row.sequence, row.slot, layer.layer, selection_);
    }
  }
  kept_of_.clear();
  size_t n_alone = 0;
  for (const int64_t i : choosers_) {
    const kv::SelectingRow& row = layer.rows[i];
    const Selection& kept = is_alone(row)
                                ? alone_[n_alone++]
                                : locks_->get_selection(row.sequence, row.slot, layer.layer);
    if (row.use == kv::RowUse::kDraft) {
      locks_->drafted(row.sequence, row.slot, layer.layer, kept);
    } else {
      locks_->verified(row.sequence, row.slot, layer.layer, kept);
    }
    kept_of_.push_back(&kept);
  }
  counters_.locks = locks_->counters();
}

void BudgetedSelector::attended(const kernels::Context& context, const kv::SelectingLayer& layer,
                                std::span<const kv::PageLogSums> sums) {
  if (!selects_[layer.layer]) return;
  const int64_t begin_ns = env_.monotonic_ns();
  for (size_t i = 0; i < layer.rows.size();) {
    const auto goes_on = [&](const kv::SelectingRow& row) {
      return row.sequence == layer.rows[i].sequence && row.use == layer.rows[i].use;
    };
    const auto rest = layer.rows.subspan(i);
    const size_t n = std::ranges::find_if_not(rest, goes_on) - rest.begin();
    if (rest[0].use == kv::RowUse::kReadsAll) {
      learn(context, layer, rest.first(n), sums.subspan(i, n));
    }
    i += n;
  }
  add_time(begin_ns, counters_.choose_ns);
}

// By what all rows of the pass attend to. Sums of their shares in place of the largest gave a
// perplexity of 22.55, not 22.49 (SmolLM2, 960 of 7,680 tokens), and took several times as long.
// The selection is the newest token's, the first that is not part of the sequence yet: whatever
// comes of a draft after it, it stays.
void BudgetedSelector::learn(const kernels::Context& context, const kv::SelectingLayer& layer,
                             std::span<const kv::SelectingRow> rows,
                             std::span<const kv::PageLogSums> sums) {
  const auto is_new = [&](const kv::SelectingRow& row) {
    return row.slot >= layer.cache.length(row.sequence);
  };
  const kv::SelectingRow& newest = *std::ranges::find_if(rows.first(rows.size() - 1), is_new);
  const PageBudget budget = page_budget(options_, newest.slot, layer.cache.page_tokens());
  if (budget.reads_all()) return;
  const bool is_first = std::ranges::find(selects_, true) - selects_.begin() == layer.layer;
  counters_.dense_passes += is_first ? 1 : 0;
  budgets_.assign(1, budget);
  scoring_.assign(1, 0);
  join_rows(context, layer, budget, sums);
  const MatrixView<float> scores(scores_, budget.n_candidates());
  const Action action =
      locks_->action_of_dense(layer.cache, newest.sequence, newest.slot, layer.layer);
  candidates_.assign(1, {.row = &newest, .first = budget.first, .scores = scores});
  choose(context, layer);
  make_selection(choices_, budget.first, selection_);
  if (action == Action::kChoose) {
    locks_->lock(newest.sequence, newest.slot, layer.layer, selection_);
  } else {
    locks_->checkpoint(newest.sequence, newest.slot, layer.layer, selection_);
  }
  counters_.locks = locks_->counters();
}

/// scores_ [n_kv_heads][candidates] = of each page the largest share that a query head of the group
/// gives it in any of the rows, as logs.
void BudgetedSelector::join_rows(const kernels::Context& context, const kv::SelectingLayer& layer,
                                 const PageBudget& budget, std::span<const kv::PageLogSums> sums) {
  const int64_t n_kv_heads = layer.cache.layout().n_kv_heads;
  int64_t n_floats = 0;
  for (const kv::PageLogSums& one : sums) n_floats += n_kv_heads * one.columns;
  of_rows_.resize(n_floats);
  row_scores_.clear();
  float* scores = of_rows_.data();
  for (const kv::PageLogSums& one : sums) {
    row_scores_.push_back({.of_heads = one, .of_groups = {scores, n_kv_heads, one.columns}});
    scores += n_kv_heads * one.columns;
  }
  kernels::group_scores(context, row_scores_);
  const int64_t n = budget.n_candidates();
  scores_.assign(n_kv_heads * n, -std::numeric_limits<float>::infinity());
  for (const kernels::PageScores& row : row_scores_) {
    const int64_t n_seen = std::min(n, row.of_groups.columns - budget.first);
    for (int64_t head = 0; head < n_kv_heads; ++head) {
      const std::span<const float> of_row = row.of_groups.row(head).subspan(budget.first, n_seen);
      float* joined = scores_.data() + head * n;
      for (int64_t i = 0; i < n_seen; ++i) joined[i] = std::max(joined[i], of_row[i]);
    }
  }
}

void BudgetedSelector::make_lists(const kv::SelectingLayer& layer) {
  if (made_.size() < choosers_.size()) made_.resize(choosers_.size());
  for (size_t i = 0; i < choosers_.size(); ++i) {
    RowLists& lists = lists_of(layer, i);
    if (&lists == &made_[i] || !lists.fit(budgets_[i], layer.cache.moves())) {
      begin_lists(layer, i, lists);
    }
    finish_lists(layer, i, lists);
    lists_[choosers_[i]] = lists.heads;
  }
}

RowLists& BudgetedSelector::lists_of(const kv::SelectingLayer& layer, size_t chooser) {
  const int64_t i = choosers_[chooser];
  const kv::SelectingRow& row = layer.rows[i];
  const auto shares_with = [&](int64_t other) {
    return other >= 0 && other < std::ssize(layer.rows) &&
           layer.rows[other].sequence == row.sequence;
  };
  if (!locks_ || is_alone(row) || shares_with(i - 1) || shares_with(i + 1)) return made_[chooser];
  return locks_->lists(row.sequence, row.slot, layer.layer);
}

int32_t* BudgetedSelector::add_pages(std::span<const int32_t> pages, int32_t* to) const {
  for (const int32_t page : pages) {
    for (int32_t part = 0; part < n_parts_; ++part) *to++ = page * n_parts_ + part;
  }
  return to;
}

void BudgetedSelector::begin_lists(const kv::SelectingLayer& layer, size_t chooser,
                                   RowLists& lists) const {
  const PageBudget& budget = budgets_[chooser];
  const auto table = layer.rows[choosers_[chooser]].block_table.first(budget.n_pages);
  const int32_t entry_tokens = layer.cache.page_tokens() / n_parts_;
  const int64_t n_kv_heads = layer.cache.layout().n_kv_heads;
  const auto chosen_by = [&](int64_t head) {
    if (!locks_) return std::span<const int32_t>(choices_[chooser * n_kv_heads + head].chosen);
    return within((*kept_of_[chooser])[head], budget.first, budget.end);
  };
  // Without locks all choosers have scored, and their places are of the candidates.
  const int32_t* const places = table.data() + (locks_ ? 0 : budget.first);
  const int parts_shift = std::countr_zero(static_cast<uint32_t>(n_parts_));
  int64_t n_ids = n_kv_heads * budget.n_fixed() * n_parts_;
  for (int64_t head = 0; head < n_kv_heads; ++head) n_ids += std::ssize(chosen_by(head));
  lists.budget = budget;
  lists.moves = layer.cache.moves();
  lists.ids.resize(n_ids);
  lists.weights.assign(budget.samples() ? n_ids : 0, 1.0f);
  lists.heads.clear();
  int32_t* id = lists.ids.data();
  for (int64_t head = 0; head < n_kv_heads; ++head) {
    int32_t* const begin = id;
    const int64_t at = begin - lists.ids.data();
    id = add_pages(table.first(budget.first), id);
    if (budget.samples()) {
      std::ranges::copy(choices_[chooser * n_kv_heads + head].weights,
                        lists.weights.begin() + at + budget.first * n_parts_);
    }
    for (const int32_t place : chosen_by(head)) {
      const int32_t page = place >> parts_shift;  // a division for each is an eighth of the lists
      *id++ = places[page] * n_parts_ + place - (page << parts_shift);
    }
    id += (budget.n_pages - budget.end) * n_parts_;
    lists.heads.push_back({.table = begin,
                           .last_slot = narrow<int32_t>(id - begin) * entry_tokens - 1,
                           .entry_tokens = entry_tokens,
                           .weights = budget.samples() ? lists.weights.data() + at : nullptr});
  }
}

/// The row's own page is the last, and as full as it is without a choice. What the heads read less
/// than all is taken off the bytes.
void BudgetedSelector::finish_lists(const kv::SelectingLayer& layer, size_t chooser,
                                    RowLists& lists) {
  const kv::SelectingRow& row = layer.rows[choosers_[chooser]];
  const PageBudget& budget = budgets_[chooser];
  const kernels::KvLayout& layout = layer.cache.layout();
  const int32_t entry_tokens = layout.page_tokens / n_parts_;
  const int64_t entry_bytes = entry_tokens * kernels::kv_token_bytes(layout) / layout.n_kv_heads;
  const auto fixed = row.block_table.first(budget.n_pages).subspan(budget.end);
  int32_t* id = lists.ids.data();
  for (kernels::HeadPages& head : lists.heads) {
    const int32_t n_read = head.last_slot / entry_tokens + 1;
    id += n_read;
    add_pages(fixed, id - std::ssize(fixed) * n_parts_);
    head.last_slot = (n_read - n_parts_) * entry_tokens + row.slot % layout.page_tokens;
    counters_.kv_bytes_read -= (budget.n_pages * n_parts_ - n_read) * entry_bytes;
    counters_.pages_read += n_read / n_parts_;
  }
  ++counters_.reads;
  counters_.pages += std::ssize(lists.heads) * budget.n_pages;
}

}  // namespace weft::sparse
