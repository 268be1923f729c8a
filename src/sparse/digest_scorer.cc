#include "sparse/digest_scorer.h"

#include <algorithm>

namespace weft::sparse {
namespace {

/// Every KV head's score is the sum over all query heads.
void sum_heads(const kernels::PageScores& scores) {
  const MatrixView<float>& groups = scores.of_groups;
  const std::span<float> sum = groups.row(0);
  std::ranges::fill(sum, 0.0f);
  for (int64_t head = 0; head < scores.of_heads.rows; ++head) {
    const std::span<const float> one = scores.of_heads.row(head);
    for (size_t page = 0; page < sum.size(); ++page) sum[page] += one[page];
  }
  for (int64_t head = 1; head < groups.rows; ++head) {
    std::ranges::copy(sum, groups.row(head).begin());
  }
}

}  // namespace

void DigestScorer::prepare(const kernels::Context& context, const kv::SelectingLayer& layer,
                           std::span<const Candidates> rows) {
  for (const Candidates& one : rows) {
    digests_ = layer.cache.digests(context, layer.layer, one.pages);
  }
}

void DigestScorer::score(const kernels::Context& context, const kv::SelectingLayer& layer,
                         std::span<const Candidates> rows) {
  int64_t n_floats = 0;
  for (const Candidates& one : rows) n_floats += layer.n_heads * std::ssize(one.pages);
  of_heads_.resize(n_floats);
  queries_.clear();
  scores_.clear();
  float* scores = of_heads_.data();
  for (const Candidates& one : rows) {
    const int64_t n_pages = std::ssize(one.pages);
    queries_.push_back({.q = one.row->q, .pages = one.pages, .scores = scores, .stride = n_pages});
    scores_.push_back({.of_heads = {scores, layer.n_heads, n_pages}, .of_groups = one.scores});
    scores += layer.n_heads * n_pages;
  }
  kernels::score_digests(context, digests_.digests, layer.n_heads, layer.scale, queries_);
  if (heads_agree_ == HeadsAgree::kByMaximum) return kernels::group_scores(context, scores_);
  for (const kernels::PageScores& one : scores_) sum_heads(one);
}

void DigestScorer::count(kernels::Isa, const kernels::KvLayout& layout, int32_t n_heads,
                         int64_t n_rows, kernels::WorkspaceSize& size) const {
  kernels::count_score_digests(kv::digest_layout(format_, layout), n_heads, n_rows, size);
}

}  // namespace weft::sparse
