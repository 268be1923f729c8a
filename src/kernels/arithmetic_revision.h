// Which bits the arithmetic gives. What is kept to be gone on with to the bit (a session's KV,
// engine/session.h) is refused by a weft whose arithmetic is of another revision.
#pragma once

#include <cstdint>

namespace weft::kernels {

/// Raise it with every change after which some model that could be run before gets other bits of K,
/// V or logits, on any instruction set, with any matmul path or any type of K and V: another order
/// of sums, another rounding, another rule for a block's scale, other constants of an
/// approximation, steps of a layer exchanged. Not for what only new models, types or instruction
/// sets reach, nor for a faster way to the same bits. The tests compare the kernels with their
/// twins and not with yesterday's, so few would notice (kv_codec_test does for what is stored).
inline constexpr uint32_t kArithmeticRevision = 1;

}  // namespace weft::kernels
