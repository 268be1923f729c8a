#include "sparse/label_scorer.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace weft::sparse {

int64_t LabelScorer::n_labelled(int64_t n_pages, int64_t n_chosen) const {
  const int64_t n = retains_ ? n_chosen : kLabelledPerChosen * n_chosen;
  return std::min(n_pages, std::max(n, kLeastLabelled));
}

void LabelScorer::choose_places(const kernels::Context& context, const kv::SelectingLayer& layer,
                                std::span<const Candidates> rows) {
  const int64_t n_kv_heads = layer.cache.layout().n_kv_heads;
  cut_.clear();
  int64_t n_places = 0;
  for (const Candidates& one : rows) {
    const int64_t n = n_labelled(std::ssize(one.pages), one.n_chosen);
    if (n < std::ssize(one.pages)) cut_.push_back(one);
    n_places += n_kv_heads * n;
  }
  if (!cut_.empty()) coarse_.score(context, layer, cut_);
  places_.resize(n_places);
  of_groups_.clear();
  choices_.clear();
  std::span<int32_t> rest(places_);
  for (const Candidates& one : rows) {
    const int64_t n = n_labelled(std::ssize(one.pages), one.n_chosen);
    for (int64_t head = 0; head < n_kv_heads; ++head) {
      const std::span<int32_t> places = rest.first(n);
      rest = rest.subspan(n);
      of_groups_.push_back(places);
      if (n < std::ssize(one.pages)) {
        choices_.push_back({.scores = one.scores.row(head), .chosen = places});
      } else {
        std::iota(places.begin(), places.end(), 0);
      }
    }
  }
  kernels::top_pages(context, choices_);
}

void LabelScorer::score(const kernels::Context& context, const kv::SelectingLayer& layer,
                        std::span<const Candidates> rows) {
  choose_places(context, layer, rows);
  const int64_t n_kv_heads = layer.cache.layout().n_kv_heads;
  const int64_t n_both = layer.n_heads + n_kv_heads;
  scores_.resize(std::ssize(places_) / n_kv_heads * n_both);
  queries_.clear();
  page_scores_.clear();
  float* scores = scores_.data();
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto places = std::span(of_groups_).subspan(i * n_kv_heads, n_kv_heads);
    const int64_t n = std::ssize(places[0]);
    queries_.push_back({.q = rows[i].row->q,
                        .pages = rows[i].pages,
                        .places = places,
                        .scores = scores,
                        .stride = n});
    page_scores_.push_back({.of_heads = {scores, layer.n_heads, n},
                            .of_groups = {scores + layer.n_heads * n, n_kv_heads, n}});
    scores += n_both * n;
  }
  const kv::LayerDigests& digests = coarse_.digests();
  kernels::score_labels(context, digests.digests, digests.labels.value(), layer.n_heads,
                        layer.scale, queries_);
  kernels::group_scores(context, page_scores_);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int64_t head = 0; head < n_kv_heads; ++head) {
      const std::span<float> to = rows[i].scores.row(head);
      const std::span<const int32_t> places = queries_[i].places[head];
      const std::span<const float> of_places = page_scores_[i].of_groups.row(head);
      std::ranges::fill(to, -std::numeric_limits<float>::infinity());
      for (size_t place = 0; place < places.size(); ++place) to[places[place]] = of_places[place];
    }
  }
}

int64_t LabelScorer::bytes_read(const kernels::KvLayout& layout, int64_t n_pages,
                                int64_t n_chosen) const {
  const int64_t n = n_labelled(n_pages, n_chosen);
  // Sides are sides of the digest's middle.
  const bool reads_digests = n < n_pages || format_.labels == kernels::LabelKind::kSides;
  const int64_t digest_bytes = reads_digests ? coarse_.bytes_read(layout, n_pages, n_chosen) : 0;
  return digest_bytes + n * kv::page_label_bytes(format_, layout);
}

void LabelScorer::count(kernels::Isa isa, const kernels::KvLayout& layout, int32_t n_heads,
                        int64_t n_rows, kernels::WorkspaceSize& size) const {
  coarse_.count(isa, layout, n_heads, n_rows, size);
  kernels::count_score_labels(kv::label_layout(format_, layout), n_heads, n_rows, size);
}

}  // namespace weft::sparse
