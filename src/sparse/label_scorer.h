// Pages from coarse to fine: digests tell which pages may be worth reading, labels of their tokens
// which of these are, the sides of kSides labels before all of their bits, and in the first layers
// that choose K itself.
#pragma once

#include <vector>

#include "base/check.h"
#include "kernels/page_mass.h"
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
/// By all bits of kSides labels, for each page that is chosen, but no more than half of the pages.
/// Where that half is less than kLeastRefinedPerChosen for each, all are.
inline constexpr int64_t kRefinedPerChosen = 8;
inline constexpr int64_t kLeastRefinedPerChosen = 4;

/// In the first of the layers that choose, a third of them, sides rule out nothing, and the best
/// pages by labels are scored once more by K itself, so many for each that is chosen: what these
/// layers miss no later layer asks for (docs/sparse.md, "The first layers"). Where more than
/// 1 / kLookedUpDivisor of the pages is chosen the rest is a sample, and so many of those are.
inline constexpr int64_t kKeysLayersDivisor = 3;
inline constexpr int64_t kByKeysPerChosen = 2;

/// What a head's shares are parts of: of what it gives the pages to choose from, so that each head
/// has as much to say, or of all its attention, with the pages that are read in any case: a head
/// that finds what it is after in these asks for little.
enum class SharesOf { kCandidates, kAllPages };
/// What a page gets of the heads that share a KV head: the largest share that one gives it, or the
/// sum.
enum class HeadsJoin { kByMaximum, kBySum };

class LabelScorer : public PageScorer {
 public:
  /// retains: how many pages are chosen is found by their scores; n_chosen is then the most, and no
  /// more than that are scored by labels. end_by_keys: layers before it are scored by K in the end,
  /// with SharesOf::kAllPages.
  LabelScorer(const kv::DigestFormat& format, bool retains, SharesOf shares_of, HeadsJoin join,
              int32_t end_by_keys)
      : format_(format),
        retains_(retains),
        shares_of_(shares_of),
        join_(join),
        end_by_keys_(end_by_keys),
        coarse_(format, HeadsAgree::kByMaximum) {
    WEFT_CHECK(end_by_keys == 0 || shares_of == SharesOf::kAllPages);
  }
  void prepare(const kernels::Context& context, const kv::SelectingLayer& layer,
               std::span<const Candidates> rows) override {
    coarse_.prepare(context, layer, rows);
  }
  void score(const kernels::Context& context, const kv::SelectingLayer& layer,
             std::span<const Candidates> rows) override;
  int64_t bytes_read(const kernels::KvLayout& layout, int32_t layer, int64_t n_pages,
                     int64_t n_chosen) const override;
  /// Of each head, and of KV heads, of which there are no more, scores by one bit and by both, and
  /// two places; of an eighth of the pages scores by K, places and entries; of pages that are
  /// read in any case exact ones; and what digests take.
  int64_t scratch_floats_per_page(int32_t n_heads, int32_t n_parts) const override {
    return (2 + 5 * n_parts + (shares_of_ == SharesOf::kAllPages ? 1 : 0)) * n_heads +
           coarse_.scratch_floats_per_page(n_heads, n_parts);
  }
  void count(kernels::Isa isa, const kernels::KvLayout& layout, int32_t n_heads, int64_t n_rows,
             kernels::WorkspaceSize& size) const override;

 private:
  /// How many of a row's n_pages are scored by labels, and by all bits of these.
  int64_t n_labelled(int64_t n_pages, int64_t n_chosen) const;
  int64_t n_refined(int64_t n_pages, int64_t n_chosen) const;
  /// And by K, where the layer is scored by it.
  static int64_t n_by_keys(int64_t n_pages, int64_t n_chosen);
  /// rows_ and cut_, whose scores are of whole pages: the rows that have more places than n lets
  /// through.
  using Count = int64_t (LabelScorer::*)(int64_t n_pages, int64_t n_chosen) const;
  void find_rows_to_cut(std::span<const Candidates> rows, Count n);
  /// cut_'s scores, of pages, become the sums of those of their parts; these are lost.
  void add_parts();
  /// Leaves to each of them n places, those with the largest scores; memory is theirs.
  void cut(const kernels::Context& context, std::span<const Candidates> rows, Count n,
           std::vector<int32_t>& memory);
  /// What query heads make of the places that are left of some rows.
  struct Stage {
    std::vector<size_t> rows;
    std::vector<std::span<const int32_t>> places;  // [rows][n_kv_heads]
    // [rows][n_heads + n_kv_heads][places][parts], of SharesOf::kAllPages one more: of all others.
    std::vector<float> scores;
    std::vector<kernels::LabelQuery> queries;
    std::vector<kernels::PageScores> page_scores;
  };
  /// fixed_ = of the pages that a row reads in any case the log of what each head gives them.
  void weigh_fixed(const kernels::Context& context, const kv::SelectingLayer& layer,
                   std::span<const Candidates> rows);
  void estimate(const kernels::Context& context, const kv::SelectingLayer& layer,
                std::span<const Candidates> rows, kernels::LabelDepth depth, Stage& stage);
  /// Of each row's best places, which tell() told, scores by K are in the place of those by labels.
  void look_at_keys(const kernels::Context& context, const kv::SelectingLayer& layer,
                    std::span<const Candidates> rows);
  void choose_by_keys(const kernels::Context& context, std::span<const Candidates> rows);
  void put_scores_of_keys(std::span<const Candidates> rows, int64_t group);
  /// Puts the scores by both bits in the place of those by sides, which stay for the others.
  void join_sides(int64_t group);
  /// The rows' scores are those of the stage, -inf where it has none.
  void tell(const kernels::Context& context, std::span<const Candidates> rows, const Stage& stage);
  std::span<std::span<const int32_t>> places_of(size_t row) {
    return std::span(places_).subspan(row * n_kv_heads_, n_kv_heads_);
  }

  kv::DigestFormat format_;
  bool retains_;
  SharesOf shares_of_;
  HeadsJoin join_;
  int32_t end_by_keys_;
  DigestScorer coarse_;
  int64_t n_kv_heads_ = 0;
  int64_t n_parts_ = 1;                           // of a page
  std::vector<int32_t> all_;                      // 0, 1, …
  std::vector<int32_t> labelled_, refined_;       // [rows cut][n_kv_heads][n]
  std::vector<std::span<const int32_t>> places_;  // [rows][n_kv_heads], in any of these
  std::vector<size_t> rows_;                      // that are to be cut
  std::vector<Candidates> cut_;                   // these, with scores of whole pages
  std::vector<kernels::PageChoice> choices_;
  Stage sides_, both_;
  // Of SharesOf::kAllPages:
  std::vector<int32_t> fixed_pages_;
  std::vector<float> scales_, of_fixed_pages_;
  std::vector<kernels::MassQuery> mass_queries_;
  std::vector<float> fixed_;  // [rows][n_heads]
  // By K, of each row and KV head: the chosen parts' places among the candidates' and in the cache.
  std::vector<int32_t> key_places_, key_entries_;
  std::vector<kernels::HeadPages> key_heads_;
  std::vector<float> of_keys_;  // [rows][n_heads][parts]
};

}  // namespace weft::sparse
