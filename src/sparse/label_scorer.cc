#include "sparse/label_scorer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/narrow.h"
#include "sparse/mass_scorer.h"

namespace weft::sparse {

int64_t LabelScorer::n_labelled(int64_t n_pages, int64_t n_chosen) const {
  const int64_t n = retains_ ? n_chosen : kLabelledPerChosen * n_chosen;
  return std::min(n_pages, std::max(n, kLeastLabelled));
}

// By all bits only what sides do not rule out. Where sides would rule out less than half of the
// pages, all bits of all of them at once take less time.
int64_t LabelScorer::n_refined(int64_t n_pages, int64_t n_chosen) const {
  const int64_t n = n_labelled(n_pages, n_chosen), half = n / 2;
  const bool is_all = retains_ || format_.labels != kernels::LabelKind::kSides;
  if (is_all || half < kLeastRefinedPerChosen * n_chosen) return n;
  return std::min(half, kRefinedPerChosen * n_chosen);
}

int64_t LabelScorer::n_by_keys(int64_t n_pages, int64_t n_chosen) {
  const int64_t n_looked_up = (n_pages - 1) / kLookedUpDivisor + 1;
  return std::min(n_pages, kByKeysPerChosen * std::min(n_chosen, n_looked_up));
}

void LabelScorer::find_rows_to_cut(std::span<const Candidates> rows, Count n) {
  rows_.clear();
  cut_.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t n_places = std::ssize(places_of(i)[0]);
    if ((this->*n)(std::ssize(rows[i].pages), rows[i].n_chosen) == n_places) continue;
    rows_.push_back(i);
    cut_.push_back(rows[i]);
    cut_.back().n_parts = 1;
    cut_.back().scores = {rows[i].scores.data, n_kv_heads_, std::ssize(rows[i].pages)};
  }
}

// In their place: a page's index is no more than its parts', so that these are read before they are
// overwritten.
void LabelScorer::add_parts() {
  if (n_parts_ == 1) return;
  for (const Candidates& one : cut_) {
    const std::span<float> of_pages = one.scores.elements();
    const float* const of_parts = of_pages.data();
    for (int64_t page = 0; page < std::ssize(of_pages); ++page) {
      const float* const first = of_parts + page * n_parts_;
      of_pages[page] = std::accumulate(first + 1, first + n_parts_, *first);
    }
  }
}

void LabelScorer::cut(const kernels::Context& context, std::span<const Candidates> rows, Count n,
                      std::vector<int32_t>& memory) {
  const auto n_of = [&](size_t row) {
    return (this->*n)(std::ssize(rows[row].pages), rows[row].n_chosen);
  };
  int64_t n_places = 0;
  for (const size_t row : rows_) n_places += n_kv_heads_ * n_of(row);
  memory.resize(n_places);
  choices_.clear();
  std::span<int32_t> rest(memory);
  for (size_t i = 0; i < rows_.size(); ++i) {
    for (int64_t head = 0; head < n_kv_heads_; ++head) {
      const std::span<int32_t> places = rest.first(n_of(rows_[i]));
      rest = rest.subspan(places.size());
      choices_.push_back({.scores = cut_[i].scores.row(head), .chosen = places});
      places_of(rows_[i])[head] = places;
    }
  }
  kernels::top_pages(context, choices_);
}

void LabelScorer::score(const kernels::Context& context, const kv::SelectingLayer& layer,
                        std::span<const Candidates> rows) {
  n_kv_heads_ = layer.cache.layout().n_kv_heads;
  n_parts_ = rows[0].n_parts;
  WEFT_CHECK(n_parts_ == 1 || join_ == HeadsJoin::kBySum);  // shares add up, their logs do not
  int64_t most = 0;
  for (const Candidates& one : rows) most = std::max<int64_t>(most, std::ssize(one.pages));
  all_.resize(most);
  std::iota(all_.begin(), all_.end(), 0);
  places_.clear();
  for (const Candidates& one : rows) {
    places_.insert(places_.end(), n_kv_heads_, std::span(all_).first(one.pages.size()));
  }
  if (shares_of_ == SharesOf::kAllPages) weigh_fixed(context, layer, rows);
  find_rows_to_cut(rows, &LabelScorer::n_labelled);
  if (!rows_.empty()) {
    coarse_.score(context, layer, cut_);
    cut(context, rows, &LabelScorer::n_labelled, labelled_);
  }
  const bool is_by_keys = layer.layer < end_by_keys_;
  rows_.clear();
  if (!is_by_keys) find_rows_to_cut(rows, &LabelScorer::n_refined);
  sides_.rows = rows_;
  if (!rows_.empty()) {
    estimate(context, layer, rows, kernels::LabelDepth::kSide, sides_);
    tell(context, rows, sides_);
    add_parts();
    cut(context, rows, &LabelScorer::n_refined, refined_);
  }
  both_.rows.resize(rows.size());
  std::iota(both_.rows.begin(), both_.rows.end(), 0);
  estimate(context, layer, rows, kernels::LabelDepth::kAll, both_);
  join_sides(layer.n_heads / n_kv_heads_);
  tell(context, rows, both_);
  if (is_by_keys) look_at_keys(context, layer, rows);
}

void LabelScorer::weigh_fixed(const kernels::Context& context, const kv::SelectingLayer& layer,
                              std::span<const Candidates> rows) {
  const int32_t n_heads = layer.n_heads, page_tokens = layer.cache.page_tokens();
  fixed_pages_.clear();
  for (const Candidates& one : rows) {
    const auto table = one.row->block_table.first(one.row->slot / page_tokens + 1);
    std::ranges::copy(table.first(one.first), std::back_inserter(fixed_pages_));
    std::ranges::copy(table.subspan(one.first + one.pages.size()),
                      std::back_inserter(fixed_pages_));
  }
  of_fixed_pages_.resize(n_heads * fixed_pages_.size());
  scales_.assign(n_heads, layer.scale);
  mass_queries_.clear();
  int64_t n_before = 0;
  for (const Candidates& one : rows) {
    const int32_t slot = one.row->slot;
    const int64_t n = slot / page_tokens + 1 - std::ssize(one.pages);
    mass_queries_.push_back({.q = one.row->q,
                             .scales = scales_,
                             .pages = std::span(fixed_pages_).subspan(n_before, n),
                             .last_page_tokens = slot % page_tokens + 1,
                             .scores = of_fixed_pages_.data() + n_heads * n_before,
                             .stride = n});
    n_before += n;
  }
  kernels::page_mass(context, layer.cache.layer(layer.layer), n_heads, mass_queries_);
  fixed_.clear();
  for (const kernels::MassQuery& one : mass_queries_) {
    for (int32_t head = 0; head < n_heads; ++head) {
      const std::span<const float> of_head(one.scores + head * one.stride, one.pages.size());
      const float top = *std::ranges::max_element(of_head);
      float sum = 0;
      for (const float page : of_head) sum += std::exp(page - top);
      fixed_.push_back(top + std::log(sum));
    }
  }
}

void LabelScorer::estimate(const kernels::Context& context, const kv::SelectingLayer& layer,
                           std::span<const Candidates> rows, kernels::LabelDepth depth,
                           Stage& stage) {
  const int64_t n_both = layer.n_heads + n_kv_heads_;
  const int64_t n_more = shares_of_ == SharesOf::kAllPages ? 1 : 0;
  int64_t n_floats = 0;
  stage.places.clear();
  for (const size_t row : stage.rows) {
    n_floats += n_both * (std::ssize(places_of(row)[0]) * n_parts_ + n_more);
    std::ranges::copy(places_of(row), std::back_inserter(stage.places));
  }
  stage.scores.resize(n_floats);
  stage.queries.clear();
  stage.page_scores.clear();
  float* scores = stage.scores.data();
  for (size_t i = 0; i < stage.rows.size(); ++i) {
    const Candidates& row = rows[stage.rows[i]];
    const auto places = std::span(stage.places).subspan(i * n_kv_heads_, n_kv_heads_);
    const int64_t n = std::ssize(places[0]) * n_parts_ + n_more;
    stage.queries.push_back({.q = row.row->q,
                             .pages = row.pages,
                             .places = places,
                             .part_tokens = layer.cache.page_tokens() / narrow<int32_t>(n_parts_),
                             .scores = scores,
                             .stride = n});
    stage.page_scores.push_back({.of_heads = {scores, layer.n_heads, n},
                                 .of_groups = {scores + layer.n_heads * n, n_kv_heads_, n}});
    for (int64_t head = 0; head < n_more * layer.n_heads; ++head) {
      scores[head * n + n - 1] = fixed_[stage.rows[i] * layer.n_heads + head];
    }
    scores += n_both * n;
  }
  const kv::LayerDigests& digests = coarse_.digests();
  kernels::score_labels(context, digests.digests, digests.labels.value(), depth, layer.n_heads,
                        layer.scale, stage.queries);
}

// A page that is drawn stands for others, so that these need a share as well, if by one bit.
void LabelScorer::join_sides(int64_t group) {
  for (size_t i = 0; i < sides_.rows.size(); ++i) {
    const kernels::LabelQuery& to = sides_.queries[i];
    kernels::LabelQuery& from = both_.queries[sides_.rows[i]];
    for (int64_t kv_head = 0; kv_head < n_kv_heads_; ++kv_head) {
      auto at = to.places[kv_head].begin();
      for (int64_t j = 0; j < std::ssize(from.places[kv_head]); ++j) {
        const auto found = std::find(at, to.places[kv_head].end(), from.places[kv_head][j]);
        if (found == to.places[kv_head].end()) continue;  // no sides: scores were no numbers
        at = found;                                       // both ascend
        const int64_t side = at - to.places[kv_head].begin();
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          std::copy_n(from.scores + head * from.stride + j * n_parts_, n_parts_,
                      to.scores + head * to.stride + side * n_parts_);
        }
      }
    }
    from = to;
    both_.page_scores[sides_.rows[i]] = sides_.page_scores[i];
  }
}

void LabelScorer::look_at_keys(const kernels::Context& context, const kv::SelectingLayer& layer,
                               std::span<const Candidates> rows) {
  choose_by_keys(context, rows);
  const auto entry_tokens = narrow<int32_t>(layer.cache.page_tokens() / n_parts_);
  key_entries_.clear();
  for (const kernels::PageChoice& choice : choices_) {
    const Candidates& row = rows[(&choice - choices_.data()) / n_kv_heads_];
    for (const int32_t place : choice.chosen) {
      const int32_t page = place / row.n_parts;
      key_entries_.push_back(row.pages[page] * row.n_parts + place - page * row.n_parts);
    }
  }
  key_heads_.clear();
  const int32_t* entry = key_entries_.data();
  for (const kernels::PageChoice& choice : choices_) {
    const auto n = narrow<int32_t>(std::ssize(choice.chosen));
    key_heads_.push_back(
        {.table = entry, .last_slot = n * entry_tokens - 1, .entry_tokens = entry_tokens});
    entry += n;
  }
  of_keys_.resize(layer.n_heads / n_kv_heads_ * key_entries_.size());
  scales_.assign(layer.n_heads, layer.scale);
  mass_queries_.clear();
  float* scores = of_keys_.data();
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t n = std::ssize(choices_[i * n_kv_heads_].chosen);
    mass_queries_.push_back({.q = rows[i].row->q,
                             .scales = scales_,
                             .scores = scores,
                             .stride = n,
                             .heads = std::span(key_heads_).subspan(i * n_kv_heads_, n_kv_heads_)});
    scores += layer.n_heads * n;
  }
  kernels::page_mass(context, layer.cache.layer(layer.layer), layer.n_heads, mass_queries_);
  put_scores_of_keys(rows, layer.n_heads / n_kv_heads_);
  tell(context, rows, both_);
}

void LabelScorer::choose_by_keys(const kernels::Context& context,
                                 std::span<const Candidates> rows) {
  const auto n_of = [&](const Candidates& row) {
    const int64_t n_labelled = std::ssize(both_.queries[&row - rows.data()].places[0]);
    return n_parts_ * std::min(n_labelled, n_by_keys(std::ssize(row.pages), row.n_chosen));
  };
  int64_t n_places = 0;
  for (const Candidates& row : rows) n_places += n_kv_heads_ * n_of(row);
  key_places_.resize(n_places);
  choices_.clear();
  std::span<int32_t> rest(key_places_);
  for (const Candidates& row : rows) {
    for (int64_t head = 0; head < n_kv_heads_; ++head) {
      choices_.push_back({.scores = row.scores.row(head), .chosen = rest.first(n_of(row))});
      rest = rest.subspan(n_of(row));
    }
  }
  kernels::top_pages(context, choices_);
}

void LabelScorer::put_scores_of_keys(std::span<const Candidates> rows, int64_t group) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const kernels::LabelQuery& to = both_.queries[i];
    const kernels::MassQuery& from = mass_queries_[i];
    for (int64_t kv_head = 0; kv_head < n_kv_heads_; ++kv_head) {
      const std::span<const int32_t> chosen = choices_[i * n_kv_heads_ + kv_head].chosen;
      auto at = to.places[kv_head].begin();
      for (int64_t j = 0; j < std::ssize(chosen); ++j) {
        const auto page = narrow<int32_t>(chosen[j] / n_parts_);
        const auto found = std::find(at, to.places[kv_head].end(), page);
        if (found == to.places[kv_head].end()) continue;  // not labelled: scores were no numbers
        at = found;                                       // both ascend
        const int64_t part = (at - to.places[kv_head].begin()) * n_parts_ + chosen[j] % n_parts_;
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          to.scores[head * to.stride + part] = from.scores[head * from.stride + j];
        }
      }
    }
  }
}

void LabelScorer::tell(const kernels::Context& context, std::span<const Candidates> rows,
                       const Stage& stage) {
  join_ == HeadsJoin::kBySum ? kernels::sum_shares(context, stage.page_scores)
                             : kernels::group_scores(context, stage.page_scores);
  for (size_t i = 0; i < stage.rows.size(); ++i) {
    for (int64_t head = 0; head < n_kv_heads_; ++head) {
      const std::span<float> to = rows[stage.rows[i]].scores.row(head);
      const std::span<const int32_t> places = stage.queries[i].places[head];
      const std::span<const float> of_places = stage.page_scores[i].of_groups.row(head);
      std::ranges::fill(to, -std::numeric_limits<float>::infinity());
      for (int64_t place = 0; place < std::ssize(places); ++place) {
        std::ranges::copy(of_places.subspan(place * n_parts_, n_parts_),
                          to.begin() + places[place] * n_parts_);
      }
    }
  }
}

int64_t LabelScorer::bytes_read(const kernels::KvLayout& layout, int32_t layer, int64_t n_pages,
                                int64_t n_chosen) const {
  const bool is_by_keys = layer < end_by_keys_;
  const int64_t n = n_labelled(n_pages, n_chosen);
  const int64_t n_fine = is_by_keys ? n : n_refined(n_pages, n_chosen);
  const int64_t label_bytes = kv::page_label_bytes(format_, layout);
  if (format_.labels == kernels::LabelKind::kSides) {  // of the digest's middle
    const int64_t first_bytes =
        layout.n_kv_heads * kernels::first_side_bytes(kv::label_layout(format_, layout));
    // Of those that are chosen K is read twice, and is in the cache the second time.
    const int64_t n_keys = is_by_keys ? n_by_keys(n_pages, n_chosen) : 0;
    return coarse_.bytes_read(layout, layer, n_pages, n_chosen) + n * first_bytes +
           n_fine * (label_bytes - first_bytes) + n_keys * key_bytes(layout);
  }
  const int64_t digest_bytes =
      n < n_pages ? coarse_.bytes_read(layout, layer, n_pages, n_chosen) : 0;
  return digest_bytes + n * label_bytes;
}

void LabelScorer::count(kernels::Isa isa, const kernels::KvLayout& layout, int32_t n_heads,
                        int64_t n_rows, kernels::WorkspaceSize& size) const {
  coarse_.count(isa, layout, n_heads, n_rows, size);
  kernels::count_score_labels(kv::label_layout(format_, layout), n_heads, n_rows, size);
  if (shares_of_ == SharesOf::kAllPages) kernels::count_page_mass(isa, layout, n_heads, size);
}

}  // namespace weft::sparse
