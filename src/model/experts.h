// Which experts each token goes through, and with what weights (Switch Transformer, Fedus et al.
// 2021; Mixtral, Jiang et al. 2024). Integers and small floats: no products here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft::model {

/// The rows that go through one expert, ascending, and the weight of each.
struct ExpertRows {
  std::vector<int64_t> rows;
  std::vector<float> weights;
};

/// logits [n_rows, n_experts]. Each row takes the n_used experts of the highest logits (of equal
/// ones the lower), weighted by the softmax over those. Returns [n_experts]. A row's experts and
/// weights do not depend on the other rows.
std::vector<ExpertRows> route(std::span<const float> logits, int32_t n_experts, int32_t n_used);

}  // namespace weft::model
