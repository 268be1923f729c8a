// Pages by what their keys are worth to the query, which takes reading them: the yardstick, and
// what SparQ makes of it.
#pragma once

#include <vector>

#include "kernels/page_mass.h"
#include "kernels/top_pages.h"
#include "sparse/page_scorer.h"

namespace weft::sparse {

/// Of a page's K, all KV heads.
int64_t key_bytes(const kernels::KvLayout& layout);

/// Shares of attention that candidates get, [n_heads][pages] of each row, as logs of sums; q and
/// scales may be others than the rows'.
class MassReader {
 public:
  /// of_heads of what is returned hold them, of_groups are the rows' scores. Valid until the next
  /// call. queries: [rows][n_heads * head_dim], scales: [rows][n_heads].
  std::span<const kernels::PageScores> read(const kernels::Context& context,
                                            const kv::SelectingLayer& layer,
                                            std::span<const Candidates> rows,
                                            std::span<const float* const> queries,
                                            std::span<const float> scales);

 private:
  std::vector<float> of_heads_;
  std::vector<kernels::MassQuery> queries_;
  std::vector<kernels::PageScores> scores_;
};

/// Exact top-k: by the share of all attention that a page, or run, gets, summed over the heads that
/// share a KV head: what keeps most of it.
class OracleScorer : public PageScorer {
 public:
  void score(const kernels::Context& context, const kv::SelectingLayer& layer,
             std::span<const Candidates> rows) override;
  int64_t bytes_read(const kernels::KvLayout& layout, int32_t, int64_t n_pages,
                     int64_t) const override;
  int64_t scratch_floats_per_page(int32_t n_heads, int32_t n_parts) const override {
    return n_heads * n_parts;
  }
  void count(kernels::Isa isa, const kernels::KvLayout& layout, int32_t n_heads, int64_t,
             kernels::WorkspaceSize& size) const override {
    kernels::count_page_mass(isa, layout, n_heads, size);
  }

 private:
  std::vector<float> of_heads_;  // [rows][n_heads][all pages of the row, or their parts]
  std::vector<float> scales_;
  std::vector<kernels::MassQuery> queries_;
};

/// By the mass of products over the r = head_dim / 4 components in which the query is largest
/// (SparQ, Ribar et al. 2024, section 4, whose r is 32 of 128). SparQ keeps K a second time,
/// transposed, so that it need not read the other components; here all is read, and counted is what
/// SparQ reads.
class SparqScorer : public PageScorer {
 public:
  void score(const kernels::Context& context, const kv::SelectingLayer& layer,
             std::span<const Candidates> rows) override;
  int64_t bytes_read(const kernels::KvLayout& layout, int32_t, int64_t n_pages,
                     int64_t) const override;
  int64_t scratch_floats_per_page(int32_t n_heads, int32_t /*n_parts*/) const override {
    return n_heads;
  }
  void count(kernels::Isa isa, const kernels::KvLayout& layout, int32_t n_heads, int64_t,
             kernels::WorkspaceSize& size) const override {
    kernels::count_page_mass(isa, layout, n_heads, size);
  }

 private:
  MassReader reader_;
  std::vector<float> cut_queries_;
  std::vector<const float*> queries_;
  std::vector<float> scales_;
};

}  // namespace weft::sparse
