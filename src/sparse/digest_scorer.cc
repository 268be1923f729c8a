#include "sparse/digest_scorer.h"

#include <algorithm>

namespace weft::sparse {
namespace {

/// Every KV head's score is the sum over all query heads.
void sum_heads(const MatrixView<const float>& heads, const MatrixView<float>& groups) {
  const std::span<float> sum = groups.row(0);
  std::ranges::fill(sum, 0.0f);
  for (int64_t head = 0; head < heads.rows; ++head) {
    const std::span<const float> one = heads.row(head);
    for (size_t page = 0; page < sum.size(); ++page) sum[page] += one[page];
  }
  for (int64_t head = 1; head < groups.rows; ++head) {
    std::ranges::copy(sum, groups.row(head).begin());
  }
}

}  // namespace

// What a step before saw to is not looked at again, as long as the sequence's committed slots are
// the same: the marks of a layer's 2,048 pages were 5 us, as long as it takes to choose among them.
void DigestScorer::prepare(const kernels::Context& context, const kv::SelectingLayer& layer,
                           std::span<const Candidates> rows) {
  if (std::ssize(made_) <= layer.layer) made_.resize(layer.layer + 1);
  std::vector<Made>& of_layer = made_[layer.layer];
  of_layer.resize(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const Candidates& one = rows[i];
    const kv::SequenceId sequence = one.row->sequence;
    const Pages pages = {.sequence = sequence,
                         .changes = layer.cache.changes(sequence),
                         .moves = layer.cache.moves(),
                         .first = one.first};
    const int64_t n_pages = std::ssize(one.pages);
    const int64_t n_made = pages == of_layer[i].of ? std::min(of_layer[i].n_pages, n_pages) : 0;
    digests_ = layer.cache.digests(context, layer.layer, one.pages.subspan(n_made));
    const int64_t n_committed = layer.cache.length(sequence) / layer.cache.page_tokens();
    of_layer[i] = {pages, std::clamp<int64_t>(n_committed - one.first, 0, n_pages)};
  }
}

void DigestScorer::score(const kernels::Context& context, const kv::SelectingLayer& layer,
                         std::span<const Candidates> rows) {
  heads_agree_ == HeadsAgree::kByMaximum ? score_shares(context, layer, rows)
                                         : score_sums(context, layer, rows);
}

void DigestScorer::score_shares(const kernels::Context& context, const kv::SelectingLayer& layer,
                                std::span<const Candidates> rows) {
  const auto floats_of = [&](const Candidates& one) {
    return kernels::group_query_floats(layer.n_heads, std::ssize(one.pages));
  };
  int64_t n_floats = 0;
  for (const Candidates& one : rows) n_floats += floats_of(one);
  of_heads_.grow_discard(n_floats);
  group_queries_.clear();
  float* of_heads = of_heads_.data();
  for (const Candidates& one : rows) {
    group_queries_.push_back(
        {.q = one.row->q, .pages = one.pages, .of_heads = of_heads, .of_groups = one.scores});
    of_heads += floats_of(one);
  }
  kernels::score_groups(context, digests_.digests, layer.n_heads, layer.scale, group_queries_);
}

void DigestScorer::score_sums(const kernels::Context& context, const kv::SelectingLayer& layer,
                              std::span<const Candidates> rows) {
  int64_t n_floats = 0;
  for (const Candidates& one : rows) n_floats += layer.n_heads * std::ssize(one.pages);
  of_heads_.grow_discard(n_floats);
  queries_.clear();
  float* scores = of_heads_.data();
  for (const Candidates& one : rows) {
    const int64_t n_pages = std::ssize(one.pages);
    queries_.push_back({.q = one.row->q, .pages = one.pages, .scores = scores, .stride = n_pages});
    scores += layer.n_heads * n_pages;
  }
  kernels::score_digests(context, digests_.digests, layer.n_heads, layer.scale, queries_);
  for (size_t i = 0; i < rows.size(); ++i) {
    sum_heads({queries_[i].scores, layer.n_heads, queries_[i].stride}, rows[i].scores);
  }
}

// A block of pages more or less is of a row, not of a page.
int64_t DigestScorer::scratch_floats_per_page(int32_t n_heads, int32_t /*n_parts*/) const {
  constexpr int64_t kPages = 1024;
  return kernels::group_query_floats(n_heads, kPages) / kPages + 1;
}

void DigestScorer::count(kernels::Isa, const kernels::KvLayout& layout, int32_t n_heads,
                         int64_t n_rows, kernels::WorkspaceSize& size) const {
  kernels::count_score_digests(kv::digest_layout(format_, layout), n_heads, n_rows, size);
}

}  // namespace weft::sparse
