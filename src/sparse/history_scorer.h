// Pages by the attention that they got so far: what is dropped once is never read again. A page
// takes the place of the papers' tokens, and what is counted begins where decoding begins.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "sparse/mass_scorer.h"
#include "sparse/page_scorer.h"
#include "tensor/dtype.h"

namespace weft::sparse {

enum class History {
  kSum,   // H2O (Zhang et al. 2023): heavy hitters by the sum of attention over all steps, for half
          // of the budget; the other half are the newest pages
  kLast,  // TOVA (Oren et al. 2024): by the attention of the newest step alone
};

class HistoryScorer : public PageScorer {
 public:
  explicit HistoryScorer(History history) : history_(history) {}
  void score(const kernels::Context& context, const kv::SelectingLayer& layer,
             std::span<const Candidates> rows) override;
  bool remembers() const override { return true; }
  void written(kv::SequenceId sequence, int32_t slot, int32_t layer) override;
  int64_t bytes_read(const kernels::KvLayout& layout, int32_t, int64_t n_pages,
                     int64_t) const override {
    return n_pages * layout.n_kv_heads * layout.page_tokens *
           row_bytes(layout.k_type, layout.head_dim);
  }
  int64_t scratch_floats_per_page(int32_t n_heads, int32_t /*n_parts*/) const override {
    return 2 * n_heads;
  }
  void count(kernels::Isa isa, const kernels::KvLayout& layout, int32_t n_heads, int64_t,
             kernels::WorkspaceSize& size) const override {
    kernels::count_page_mass(isa, layout, n_heads, size);
  }

 private:
  /// What is known after a row.
  struct Kept {
    int32_t slot = 0;                      // the row's
    std::vector<std::vector<float>> mass;  // [n_kv_heads][pages]; -inf: dropped
  };
  /// Of a sequence at a layer.
  struct Past {
    int64_t changes = 0;     // of the sequence, when it was seen last
    std::vector<Kept> kept;  // by slots: after its last committed row, and after those that follow
  };
  Kept& kept_of(const kv::SelectingLayer& layer, const Candidates& one);
  void forget_ended(const kv::Cache& cache);
  void add_step(const kernels::PageScores& scores, int32_t first, Kept& kept) const;
  /// Drops what is not among the best n_chosen of the row's scores.
  void drop_others(const kernels::Context& context, const Candidates& one, Kept& kept);

  History history_;
  MassReader reader_;
  std::vector<const float*> queries_;
  std::vector<float> scales_;
  std::vector<int32_t> chosen_;
  std::map<std::pair<kv::SequenceId, int32_t>, Past> pasts_;  // sequence, layer
};

}  // namespace weft::sparse
