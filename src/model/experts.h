// Which experts each token goes through, and with what weights (Switch Transformer, Fedus et al.
// 2021; Mixtral, Jiang et al. 2024). Integers and small floats: no products here.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/matrix_view.h"

namespace weft::model {

/// The rows that go through one expert, ascending, and the weight of each.
struct ExpertRows {
  std::vector<int64_t> rows;
  std::vector<float> weights;
};

/// Keeps its memory from one call to the next. Not thread-safe.
class Router {
 public:
  /// logits: [n_rows, n_experts]. Each row takes the n_used experts of the highest logits (of equal
  /// ones the lower), weighted by the softmax over those. Returns [n_experts], until the next call.
  /// A row's experts and weights do not depend on the other rows.
  const std::vector<ExpertRows>& route(MatrixView<const float> logits, int32_t n_used);
  /// Takes the memory for n_rows rows, however they are routed.
  void reserve(int64_t n_rows, int32_t n_experts, int32_t n_used);

 private:
  std::vector<ExpertRows> experts_;
  std::vector<int64_t> order_;
  std::vector<float> weights_;
};

}  // namespace weft::model
