// Sparse decoding: selectors of pages by name, and what they did.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/env.h"
#include "kv/page_selector.h"
#include "sparse/options.h"
#include "sparse/selection_locks.h"

namespace weft::sparse {

/// What reads that chose pages kept of the attention over all of them: sums, of which `reads` make
/// means.
struct ReadQuality {
  int64_t reads = 0;
  double mass = 0;   // share of the attention that the chosen pages get, mean over the query heads
  double top10 = 0;  // share of the ten tokens with most attention that lie in them, likewise
};

/// What selecting has saved so far. A read is a row of a layer that sees all slots; bytes are of K
/// and V.
struct SparseCounters {
  int64_t reads = 0;  // that chose pages
  // That read everything, and why:
  int64_t reads_in_dense_layers = 0;
  int64_t reads_within_budget = 0;
  int64_t reads_in_dense_passes = 0;
  // Of those that chose:
  int64_t pages = 0;                 // of their contexts, of each KV head
  int64_t pages_read = 0;            // of them
  std::vector<ReadQuality> quality;  // [n_layers], of the reads that were measured
  // Of all:
  int64_t kv_bytes = 0;          // that all pages have
  int64_t kv_bytes_read = 0;     // of them
  int64_t index_bytes_read = 0;  // by which pages were told apart
  LockCounters locks;
  // Of checkpoints' dense passes; tokens whose K and V were there are rewritten:
  int64_t dense_passes = 0;
  int64_t rewritten_tokens = 0;
  double drift = 0;  // sum over these of |K' - K| / |K'|, all layers
  // Where the time went:
  int64_t digest_ns = 0;  // making what pages are told apart by
  int64_t score_ns = 0;
  int64_t choose_ns = 0;   // and listing
  int64_t measure_ns = 0;  // of `quality`

  /// Over all layers.
  ReadQuality all_quality() const;
};

/// A selector that counts.
class CountingSelector : public kv::PageSelector {
 public:
  virtual const SparseCounters& counters() const = 0;
  /// Layers that never choose read everything: [n_layers].
  virtual const std::vector<bool>& selects() const = 0;
  /// Null where nothing is locked.
  virtual SelectionLocks* locks() = 0;
  /// A checkpoint's dense pass has changed the K of so many tokens that were there by that.
  virtual void add_rewritten(int64_t n_tokens, double drift) = 0;
};

/// options.check has passed and is_on(); selects: of each layer, as selecting_layers has it. `env`
/// (its clock) must outlive it.
std::unique_ptr<CountingSelector> make_selector(const SparseOptions& options,
                                                std::vector<bool> selects, Env& env);

/// Rows of a step that selects, at most.
struct SelectionShape {
  kernels::KvLayout layout;
  int32_t n_heads = 0;
  int64_t n_rows = 0;
  int64_t n_slots = 0;  // of a row's context
  int32_t n_layers = 0;
};
/// The scratch that selecting takes for them; 0 where the policy is dense.
int64_t selection_bytes(const kernels::Context& context, const SparseOptions& options,
                        const SelectionShape& shape);

}  // namespace weft::sparse
