#include "sparse/history_scorer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/narrow.h"

namespace weft::sparse {
namespace {

constexpr float kDropped = -std::numeric_limits<float>::infinity();

}  // namespace

void HistoryScorer::forget_ended(const kv::Cache& cache) {
  std::erase_if(pasts_, [&](const auto& one) { return !cache.contains(one.first.first); });
}

/// What the row goes on from, to be changed to what is known after it. A sequence that was cut, or
/// had tokens taken out, begins anew: its slots are other tokens'. A row that is run again, as the
/// one after a draft that was rejected, goes on from the one before it.
HistoryScorer::Kept& HistoryScorer::kept_of(const kv::SelectingLayer& layer,
                                            const Candidates& one) {
  const std::pair key(one.row->sequence, layer.layer);
  if (!pasts_.contains(key)) forget_ended(layer.cache);
  Past& past = pasts_[key];
  const int64_t changes = layer.cache.changes(one.row->sequence);
  if (changes != past.changes) past.kept.clear();
  past.changes = changes;
  std::vector<Kept>& kept = past.kept;
  while (!kept.empty() && kept.back().slot >= one.row->slot) kept.pop_back();
  const int32_t committed = layer.cache.length(one.row->sequence);
  while (kept.size() > 1 && (kept[1].slot < committed || std::ssize(kept) > kv::kMostTriedRows)) {
    kept.erase(kept.begin());
  }
  kept.push_back(kept.empty() ? Kept() : kept.back());
  Kept& now = kept.back();
  now.slot = one.row->slot;
  now.mass.resize(layer.cache.layout().n_kv_heads);
  for (std::vector<float>& mass : now.mass) {
    mass.resize(std::max<size_t>(mass.size(), one.first + one.pages.size()), 0.0f);
  }
  return now;
}

void HistoryScorer::written(kv::SequenceId sequence, int32_t slot, int32_t layer) {
  const auto past = pasts_.find({sequence, layer});
  if (past == pasts_.end()) return;
  std::erase_if(past->second.kept, [&](const Kept& one) { return one.slot >= slot; });
}

/// The share of attention that each page gets of what is left, summed over the group's heads.
void HistoryScorer::add_step(const kernels::PageScores& scores, int32_t first, Kept& kept) const {
  const auto n_kv_heads = std::ssize(kept.mass);
  const int64_t group = scores.of_heads.rows / n_kv_heads;
  const int64_t n_pages = scores.of_heads.columns;
  std::vector<float> step(n_pages);
  for (int64_t kv_head = 0; kv_head < n_kv_heads; ++kv_head) {
    const std::span<float> mass = std::span(kept.mass[kv_head]).subspan(first, n_pages);
    std::ranges::fill(step, 0.0f);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const std::span<const float> of_head = scores.of_heads.row(head);
      float most = kDropped, sum = 0;
      for (int64_t i = 0; i < n_pages; ++i) {
        if (mass[i] != kDropped) most = std::max(most, of_head[i]);
      }
      for (int64_t i = 0; i < n_pages; ++i) {
        if (mass[i] != kDropped) sum += std::exp(of_head[i] - most);
      }
      for (int64_t i = 0; i < n_pages && sum > 0; ++i) step[i] += std::exp(of_head[i] - most) / sum;
    }
    for (int64_t i = 0; i < n_pages; ++i) {
      if (mass[i] == kDropped) continue;
      mass[i] = history_ == History::kSum ? mass[i] + step[i] : step[i];
    }
  }
}

void HistoryScorer::drop_others(const kernels::Context& context, const Candidates& one,
                                Kept& kept) {
  chosen_.resize(one.n_chosen);
  for (int64_t head = 0; head < one.scores.rows; ++head) {
    const kernels::PageChoice choice[] = {{one.scores.row(head), chosen_}};
    kernels::top_pages(context, choice);  // as the selector will
    const auto mass = std::span(kept.mass[head]).subspan(one.first, one.pages.size());
    size_t next = 0;
    for (int32_t page = 0; page < std::ssize(mass); ++page) {
      const bool is_chosen = next < chosen_.size() && chosen_[next] == page;
      next += is_chosen ? 1 : 0;
      if (!is_chosen) mass[page] = kDropped;
    }
  }
}

// Row by row: of a sequence that has several in a step each sees what the one before it dropped, as
// it would in a step of its own.
void HistoryScorer::score(const kernels::Context& context, const kv::SelectingLayer& layer,
                          std::span<const Candidates> rows) {
  queries_.clear();
  for (const Candidates& one : rows) queries_.push_back(one.row->q);
  scales_.assign(rows.size() * layer.n_heads, layer.scale);
  const auto scores = reader_.read(context, layer, rows, queries_, scales_);
  for (size_t i = 0; i < rows.size(); ++i) {
    Kept& kept = kept_of(layer, rows[i]);
    add_step(scores[i], rows[i].first, kept);
    for (int64_t head = 0; head < rows[i].scores.rows; ++head) {
      const std::span<float> out = rows[i].scores.row(head);
      std::ranges::copy(std::span(kept.mass[head]).subspan(rows[i].first, out.size()), out.begin());
      if (history_ != History::kSum) continue;
      // The newest half of the budget, before any sum of shares.
      const int64_t n_newest = rows[i].n_chosen / 2;
      std::fill(out.end() - n_newest, out.end(), std::numeric_limits<float>::max());
    }
    drop_others(context, rows[i], kept);
  }
}

}  // namespace weft::sparse
