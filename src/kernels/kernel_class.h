// Which of an op's two kernels a row takes. Decided by what the row is, never by how many there
// are: so a row's bits do not depend on what shares its step. Plain data.
#pragma once

#include <stdint.h>

namespace weft::kernels {

/// The two differ by the order of their sums, and by how finely activations are rounded. If the
/// number of rows chose, a token decoded alone and one decoded beside 63 others would get different
/// bits, and greedy answers would depend on who else asks.
enum class KernelClass : uint8_t {
  kPrefill,  // for many rows: weight panels are expanded, queries attend in tiles
  kDecode,   // for a row by itself: weights as they lie in the file, one query after another
};

}  // namespace weft::kernels
