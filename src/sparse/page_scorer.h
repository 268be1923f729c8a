// What tells pages apart: the part of a policy that differs. A larger score is read first.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/context.h"
#include "kernels/top_pages.h"
#include "kernels/workspace_size.h"
#include "kv/page_selector.h"
#include "sparse/options.h"
#include "tensor/matrix_view.h"

namespace weft::sparse {

/// The pages that one row may choose from, or choose runs of, all full, in the order of their
/// slots.
struct Candidates {
  const kv::SelectingRow* row = nullptr;
  std::span<const int32_t> pages;  // ids
  int32_t first = 0;               // place of the first of them in the row's block table
  int32_t n_chosen = 0;            // that each KV head will read
  int32_t n_parts = 1;             // of a page that are told apart: 1, or its runs
  MatrixView<float> scores;  // [n_kv_heads, pages.size() * n_parts], to be filled; NaN is -inf
};

/// One thread, as the selector that it belongs to.
class PageScorer {
 public:
  virtual ~PageScorer() = default;
  /// Makes what score() reads, where it is not there yet.
  virtual void prepare(const kernels::Context&, const kv::SelectingLayer&,
                       std::span<const Candidates>) {}
  /// Of all rows of a layer that choose; none has no pages.
  virtual void score(const kernels::Context& context, const kv::SelectingLayer& layer,
                     std::span<const Candidates> rows) = 0;
  /// Whether a row's scores depend on rows that its sequence had scored before.
  virtual bool remembers() const { return false; }
  /// As PageSelector::written.
  virtual void written(kv::SequenceId, int32_t /*slot*/, int32_t /*layer*/) {}
  /// What it reads to score a row's n_pages in a layer, of which n_chosen will be read; all KV
  /// heads.
  virtual int64_t bytes_read(const kernels::KvLayout& layout, int32_t layer, int64_t n_pages,
                             int64_t n_chosen) const = 0;
  /// Floats that it keeps while it scores a page of n_parts for a row, beside the scores.
  virtual int64_t scratch_floats_per_page(int32_t n_heads, int32_t n_parts) const = 0;
  /// What its kernels take of the workspace for so many rows.
  virtual void count(kernels::Isa isa, const kernels::KvLayout& layout, int32_t n_heads,
                     int64_t n_rows, kernels::WorkspaceSize& size) const = 0;
};

/// The policy's; null where no scores are needed: the newest pages are read. selects: of each layer
/// whether it chooses.
std::unique_ptr<PageScorer> make_scorer(const SparseOptions& options,
                                        const std::vector<bool>& selects);

}  // namespace weft::sparse
