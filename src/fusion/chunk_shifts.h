// Delta propagation: the recomputed tokens of a chunk show, layer by layer, how much the true
// context changes K and V against the stored ones. Part of that change is common to the chunk, so a
// damped mean of it also corrects the tokens that are not recomputed. (Ours: no publication known;
// docs/fusion.md has the rules, docs/experiments.md what was tried.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/rope.h"

namespace weft::fusion {

/// Of one layer at a time. Not thread-safe.
class ChunkShifts {
 public:
  /// `width`: values of K, or of V, that a token has in a layer.
  ChunkShifts(size_t n_chunks, int64_t width) : n_chunks_(n_chunks), width_(width) {}

  /// Forgets what was added, for the next layer, which adds so many.
  void clear(size_t n_changes = 0);
  /// A recomputed token of `chunk`, `index` in it: K before rotation and V as they are in the
  /// prompt, and as the chunk's record has them; [width] each.
  void add(size_t chunk, int64_t index, std::span<const float> k, std::span<const float> v,
           std::span<const float> stored_k, std::span<const float> stored_v);
  /// Makes the shifts of what was added: of a chunk with n recomputed tokens the weighted mean of
  /// their changes, times factor * n / (n + kDoubtTokens), since a mean of few says little about
  /// the others. The first tokens of a chunk change most, and each in its own way: the weights are
  /// the inverse of the deviation that a token's place lets expect (selection.h), and a change
  /// longer than the shortest quarter of the layer's is cut to that length.
  void finish(double factor);
  /// What the chunk's other tokens are corrected by; empty for one without recomputed tokens. Valid
  /// until clear().
  kernels::KvShift of(size_t chunk) const;

  static constexpr double kDoubtTokens = 4;

 private:
  size_t n_chunks_;
  int64_t width_;
  std::vector<size_t> chunk_of_;  // of each change
  std::vector<float> weights_;    // of each change
  std::vector<float> changes_;    // [changes, K's width + V's width]
  std::vector<float> shifts_;     // [chunks, K's width + V's width]
  std::vector<double> scales_;    // of each chunk: what its weighted changes are multiplied by
};

}  // namespace weft::fusion
