#include "sparse/mass_scorer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace weft::sparse {
namespace {

constexpr int32_t kSparqDivisor = 4;

/// `out` = q of one head with its r components of largest magnitude alone; returns what share of
/// the magnitudes they have.
float keep_largest(std::span<const float> q, int64_t r, std::span<float> out) {
  std::vector<std::pair<float, int64_t>> by_size;  // ties to the lower index
  float all = 0;
  for (int64_t d = 0; d < std::ssize(q); ++d) {
    by_size.emplace_back(-std::abs(q[d]), d);
    all += std::abs(q[d]);
  }
  std::ranges::fill(out, 0.0f);
  std::ranges::partial_sort(by_size, by_size.begin() + r);
  float kept = 0;
  for (int64_t i = 0; i < r; ++i) {
    out[by_size[i].second] = q[by_size[i].second];
    kept -= by_size[i].first;
  }
  return all > 0 ? kept / all : 1.0f;
}

}  // namespace

int64_t key_bytes(const kernels::KvLayout& layout) {
  const int64_t elements = int64_t{layout.n_kv_heads} * layout.page_tokens * layout.head_dim;
  return row_bytes(layout.k_type, elements);
}

std::span<const kernels::PageScores> MassReader::read(const kernels::Context& context,
                                                      const kv::SelectingLayer& layer,
                                                      std::span<const Candidates> rows,
                                                      std::span<const float* const> queries,
                                                      std::span<const float> scales) {
  int64_t n_floats = 0;
  for (const Candidates& one : rows) n_floats += layer.n_heads * std::ssize(one.pages);
  of_heads_.resize(n_floats);
  queries_.clear();
  scores_.clear();
  float* scores = of_heads_.data();
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t n_pages = std::ssize(rows[i].pages);
    queries_.push_back({.q = queries[i],
                        .scales = scales.subspan(i * layer.n_heads, layer.n_heads),
                        .pages = rows[i].pages,
                        .last_page_tokens = layer.cache.page_tokens(),
                        .scores = scores,
                        .stride = n_pages});
    scores_.push_back({.of_heads = {scores, layer.n_heads, n_pages}, .of_groups = rows[i].scores});
    scores += layer.n_heads * n_pages;
  }
  kernels::page_mass(context, layer.cache.layer(layer.layer), layer.n_heads, queries_);
  return scores_;
}

// Over all pages and not the candidates alone, as a head that finds all in its first page has
// little to ask of the others.
void OracleScorer::score(const kernels::Context& context, const kv::SelectingLayer& layer,
                         std::span<const Candidates> rows) {
  const int32_t n_parts = rows[0].n_parts, part_tokens = layer.cache.page_tokens() / n_parts;
  int64_t n_floats = 0;
  for (const Candidates& one : rows) n_floats += one.row->slot / part_tokens + 1;
  of_heads_.resize(n_floats * layer.n_heads);
  scales_.assign(layer.n_heads, layer.scale);
  queries_.clear();
  float* scores = of_heads_.data();
  for (const Candidates& one : rows) {
    const int32_t page_tokens = layer.cache.page_tokens(), slot = one.row->slot;
    const int64_t n = slot / part_tokens + 1;
    queries_.push_back({.q = one.row->q,
                        .scales = scales_,
                        .pages = one.row->block_table.first(slot / page_tokens + 1),
                        .last_page_tokens = slot % page_tokens + 1,
                        .part_tokens = n_parts == 1 ? 0 : part_tokens,
                        .scores = scores,
                        .stride = n});
    scores += layer.n_heads * n;
  }
  kernels::page_mass(context, layer.cache.layer(layer.layer), layer.n_heads, queries_);
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t n = queries_[i].stride, n_kv_heads = rows[i].scores.rows;
    const int64_t group = layer.n_heads / n_kv_heads, first = int64_t{rows[i].first} * n_parts;
    for (int64_t head = 0; head < layer.n_heads; ++head) {
      const std::span<const float> of_head(queries_[i].scores + head * n, n);
      const std::span<float> sum = rows[i].scores.row(head / group);
      if (head % group == 0) std::ranges::fill(sum, 0.0f);
      const float most = *std::ranges::max_element(of_head);
      float all = 0;
      for (const float part : of_head) all += std::exp(part - most);
      for (int64_t part = 0; part < std::ssize(sum); ++part) {
        sum[part] += std::exp(of_head[first + part] - most) / all;
      }
      if (head % group + 1 < group) continue;
      for (float& score : sum) score = std::log(score);
    }
  }
}

int64_t OracleScorer::bytes_read(const kernels::KvLayout& layout, int32_t, int64_t n_pages,
                                 int64_t) const {
  return n_pages * key_bytes(layout);
}

// Scores of fewer components are smaller: the temperature makes up for it (section 4.1).
void SparqScorer::score(const kernels::Context& context, const kv::SelectingLayer& layer,
                        std::span<const Candidates> rows) {
  const int64_t head_dim = layer.cache.layout().head_dim;
  const int64_t width = layer.n_heads * head_dim;
  cut_queries_.resize(rows.size() * width);
  queries_.clear();
  scales_.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::span<const float> q(rows[i].row->q, width);
    const auto cut = std::span(cut_queries_).subspan(i * width, width);
    for (int64_t head = 0; head < layer.n_heads; ++head) {
      const float share =
          keep_largest(q.subspan(head * head_dim, head_dim), head_dim / kSparqDivisor,
                       cut.subspan(head * head_dim, head_dim));
      scales_.push_back(layer.scale / std::sqrt(std::max(share, 1e-6f)));
    }
    queries_.push_back(cut.data());
  }
  kernels::group_scores(context, reader_.read(context, layer, rows, queries_, scales_));
}

int64_t SparqScorer::bytes_read(const kernels::KvLayout& layout, int32_t, int64_t n_pages,
                                int64_t) const {
  return n_pages * key_bytes(layout) / kSparqDivisor;
}

}  // namespace weft::sparse
