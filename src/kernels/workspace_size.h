// How much of a workspace a step's ops take, before any of them runs: what the KV limit sets aside
// for them. Sums of numbers; nothing is allocated.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>

#include "base/narrow.h"
#include "kernels/workspace.h"

namespace weft::kernels {

/// Ops tell it what they will ask a Workspace for, each by the function beside it (count_matmul,
/// count_attention). Of a use the most counts that any op takes, as in the workspace itself.
class WorkspaceSize {
 public:
  void of_op(Use use, int64_t n_bytes) { grow(of_op_[to_underlying(use)], n_bytes); }
  void of_worker(Use use, int64_t n_bytes) { grow(of_worker_[to_underlying(use)], n_bytes); }
  /// What a product of `in_features` keeps for each worker (Workspace::product_of).
  void of_product(int64_t in_features, int64_t worker_bytes) {
    grow(of_products_[in_features], worker_bytes);
  }
  /// To ask oneDNN once: what a product keeps does not depend on the rows.
  bool knows_product(int64_t in_features) const { return of_products_.contains(in_features); }

  /// These alone.
  WorkspaceSize products() const {
    WorkspaceSize only;
    only.of_products_ = of_products_;
    return only;
  }

  int64_t bytes(int n_workers) const {
    int64_t all = 0;
    int64_t worker = 0;
    for (const int64_t n : of_op_) all += n;
    for (const int64_t n : of_worker_) worker += n;
    for (const auto& [in_features, n] : of_products_) worker += n;
    return all + n_workers * worker;
  }

 private:
  static void grow(int64_t& bytes, int64_t n_bytes) { bytes = std::max(bytes, n_bytes); }

  std::array<int64_t, kUses> of_op_{};
  std::array<int64_t, kUses> of_worker_{};
  std::map<int64_t, int64_t> of_products_;
};

}  // namespace weft::kernels
