// Rotary position embedding (Su et al. 2021) over the first n_dims of each head, with the model's
// own frequencies. cos and sin of a step's positions are computed once, in double, and serve every
// layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/context.h"
#include "kernels/paged_kv.h"
#include "tensor/matrix_view.h"

namespace weft::kernels {

enum class RopePairing {
  kNorm,  // pairs neighbours (2i, 2i+1): llama, mistral3, smollm3
  kNeox,  // pairs halves (i, i + n_dims/2): qwen, gemma, phi
};

/// n_dims below head_dim: the dims after it stay as they are (partial rotary); 0: no rotation.
/// inverse_frequencies [n_dims/2], all scaling applied: angle = position * inverse_frequencies[i].
struct RopeParams {
  RopePairing pairing = RopePairing::kNorm;
  int32_t n_dims = 0;
  std::vector<double> inverse_frequencies;
  float magnitude = 1.0f;  // YaRN's and longrope's factor on cos and sin; 1 for the others
};

/// cos and sin, [positions][n_dims/2] each, magnitude applied.
struct RopeTable {
  RopePairing pairing = RopePairing::kNorm;
  int32_t n_dims = 0;
  std::vector<float> cos;
  std::vector<float> sin;
};

/// [positions.size()] rows in the positions' order; positions may repeat, and be negative, which
/// turns back. Aborts where the number of frequencies is not half of n_dims.
RopeTable make_rope_table(const RopeParams& params, std::span<const int32_t> positions);

/// In place: x [n_rows, n_heads * head_dim], row r rotated by the table's row table_begin + r.
void apply_rope(const Context& context, const RopeTable& table, int64_t table_begin,
                MatrixView<float> x, int32_t head_dim);

/// What is added to K before rotation and to V of every token: k, v [n_kv_heads * head_dim]; both
/// empty for nothing, which leaves every bit as it is.
struct KvShift {
  std::span<const float> k;
  std::span<const float> v;
};

/// A layer of a stored chunk: k, v [n_tokens][n_kv_heads][head_dim] of one type, K before rotation.
struct KvRecord {
  DType type{};
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
};

/// Puts a stored chunk's K and V into a sequence's pages: token i goes to slot first_slot + i and
/// takes the table's row table_begin + i. K is widened, shifted, rotated and rounded once to the
/// page's type; V is copied where the types are the same and nothing is shifted, else widened,
/// shifted and rounded once.
void rotate_into_pages(const Context& context, const RopeTable& table, int64_t table_begin,
                       const KvRecord& record, int64_t n_tokens, int32_t first_slot,
                       const int32_t* block_table, const PagedKv& kv, const KvShift& shift = {});

/// The same shift for tokens that are in their pages already: K there + the shift rotated by the
/// table's row, V + the shift, both through f32 and rounded once more. An empty shift changes
/// nothing.
void shift_in_pages(const Context& context, const RopeTable& table, int64_t table_begin,
                    const KvShift& shift, int64_t n_tokens, int32_t first_slot,
                    const int32_t* block_table, const PagedKv& kv);

/// A layer in which tokens move: its pages, the sequence's block table in them, and its angles.
struct MovedLayer {
  PagedKv kv;
  const int32_t* block_table = nullptr;
  const RopeTable* turn = nullptr;  // of magnitude 1: the angles from old positions to new ones
                                    // (make_rope_table of their differences), a row for each token
                                    // or one for all
};

/// Moves n_tokens tokens from slots [from_slot, …) to [to_slot, …), to_slot <= from_slot, in every
/// layer: K of token i is turned by its row of the layer's table and rounded once to its type, V is
/// copied. Slots from to_slot + n_tokens on keep what they have, and a token that neither moves nor
/// turns every bit. The pages written must be the sequence's alone.
void move_in_pages(const Context& context, std::span<const MovedLayer> layers, int64_t n_tokens,
                   int32_t from_slot, int32_t to_slot);

}  // namespace weft::kernels
