// K is stored rotated, so a token that moves by d positions is turned by d:
//   R(p + d) k = R(d) (R(p) k).
// The turn has magnitude 1, also where YaRN or longrope scale cos and sin: that factor is in the
// stored K already. Every RoPE that weft reads is such a rotation by position * frequency, with
// frequencies that the context chosen at opening fixes, so there is no model that cannot shift; one
// with learned positions would have to be refused here.
//
// The rounding adds up: K in f16 that was turned n times is off by about sqrt(n) half units of its
// last place. Dropping half of a context turns a token a few times before it goes itself; a window
// that moves by a page of 16 in a context of 1,024 some sixty times. Blocks of four bits do not
// bear that (engine/context_shift.cc takes larger steps for them).
#include "model/context_shift.h"

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/rope.h"

namespace weft::model {

namespace {

/// Moves as many tokens as `by` has from slots [from, …) to [to, …), and K of each by its
/// positions.
void move(const kernels::Context& context, const ModelConfig& config, kv::Cache& cache,
          kv::SequenceId sequence, std::span<const int32_t> by, int32_t from, int32_t to) {
  const bool all_alike = std::ranges::count(by, by.front()) == std::ssize(by);
  std::vector<kernels::RopeTable> turns;  // of each of the model's RoPEs
  for (kernels::RopeParams rope : config.ropes) {
    rope.magnitude = 1.0f;
    turns.push_back(kernels::make_rope_table(rope, all_alike ? by.first(1) : by));
  }
  std::vector<kernels::MovedLayer> layers;
  for (int32_t layer = 0; layer < config.n_layers; ++layer) {
    layers.push_back({.kv = cache.layer(layer),
                      .block_table = cache.layer_table(sequence, layer).data(),
                      .turn = &turns[config.layers[layer].rope]});
  }
  kernels::move_in_pages(context, layers, std::ssize(by), from, to);
}

}  // namespace

Status remove_tokens(const kernels::Context& context, const ModelConfig& config, kv::Cache& cache,
                     kv::SequenceId sequence, int32_t begin, int32_t end) {
  return cache.remove(sequence, begin, end, [&](std::span<const int32_t> by) {
    move(context, config, cache, sequence, by, end, begin);
  });
}

Status set_positions(const kernels::Context& context, const ModelConfig& config, kv::Cache& cache,
                     kv::SequenceId sequence, const kv::PositionMap& positions) {
  return cache.set_positions(sequence, positions, [&](int32_t begin, std::span<const int32_t> by) {
    move(context, config, cache, sequence, by, begin, begin);
  });
}

Status shift_tokens(const kernels::Context& context, const ModelConfig& config, kv::Cache& cache,
                    kv::SequenceId sequence, const SlotRange& slots, int32_t delta) {
  return cache.shift(sequence, slots.begin, slots.end, delta, [&](std::span<const int32_t> by) {
    move(context, config, cache, sequence, by, slots.begin, slots.begin);
  });
}

Status divide_tokens(const kernels::Context& context, const ModelConfig& config, kv::Cache& cache,
                     kv::SequenceId sequence, const SlotRange& slots, int32_t divisor) {
  return cache.divide(sequence, slots.begin, slots.end, divisor, [&](std::span<const int32_t> by) {
    move(context, config, cache, sequence, by, slots.begin, slots.begin);
  });
}

}  // namespace weft::model
