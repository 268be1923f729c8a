// Pages from coarse to fine: digests tell which pages may be worth reading, labels of their tokens
// which of these are.
#pragma once

#include <vector>

#include "kernels/token_labels.h"
#include "kernels/top_pages.h"
#include "sparse/digest_scorer.h"
#include "sparse/page_scorer.h"

namespace weft::sparse {

/// So many pages are scored by labels for each that is chosen (docs/sparse.md has what fewer lose),
/// and so many at least: what digests lose of a context of some thousand tokens, scoring all of its
/// pages costs little.
inline constexpr int64_t kLabelledPerChosen = 4;
inline constexpr int64_t kLeastLabelled = 512;

class LabelScorer : public PageScorer {
 public:
  /// retains: how many pages are chosen is found by their scores; n_chosen is then the most, and no
  /// more than that are scored by labels.
  LabelScorer(const kv::DigestFormat& format, bool retains)
      : format_(format), retains_(retains), coarse_(format, HeadsAgree::kByMaximum) {}
  void prepare(const kernels::Context& context, const kv::SelectingLayer& layer,
               std::span<const Candidates> rows) override {
    coarse_.prepare(context, layer, rows);
  }
  void score(const kernels::Context& context, const kv::SelectingLayer& layer,
             std::span<const Candidates> rows) override;
  int64_t bytes_read(const kernels::KvLayout& layout, int64_t n_pages,
                     int64_t n_chosen) const override;
  /// Both scores of each head, and of KV heads, of which there are no more, scores and places.
  int64_t scratch_floats_per_page(int32_t n_heads) const override { return 4 * n_heads; }
  void count(kernels::Isa isa, const kernels::KvLayout& layout, int32_t n_heads, int64_t n_rows,
             kernels::WorkspaceSize& size) const override;

 private:
  /// Of a row's n_pages.
  int64_t n_labelled(int64_t n_pages, int64_t n_chosen) const;
  /// places_: those that digests let through, all where there are no more.
  void choose_places(const kernels::Context& context, const kv::SelectingLayer& layer,
                     std::span<const Candidates> rows);

  kv::DigestFormat format_;
  bool retains_;
  DigestScorer coarse_;
  std::vector<Candidates> cut_;                      // rows of which not all pages are labelled
  std::vector<int32_t> places_;                      // [rows][n_kv_heads][labelled]
  std::vector<std::span<const int32_t>> of_groups_;  // [rows][n_kv_heads]
  std::vector<kernels::PageChoice> choices_;
  std::vector<float> scores_;  // [rows][n_heads + n_kv_heads][labelled]
  std::vector<kernels::LabelQuery> queries_;
  std::vector<kernels::PageScores> page_scores_;
};

}  // namespace weft::sparse
