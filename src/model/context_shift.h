// Tokens out of the middle of a sequence's KV, with those after them at their new positions: what
// lets a text go on past the end of its context (StreamingLLM, Xiao et al. 2023; llama.cpp's
// context shift). And other positions for tokens that stay (Self-Extend, Jin et al. 2024). It
// decides nothing about which tokens go, and where.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kernels/context.h"
#include "kv/cache.h"
#include "model/config.h"

namespace weft::model {

/// Removes the tokens [begin, end) of the sequence; 0 <= begin <= end <= its length. The tokens
/// after them move to the positions from `begin` on: their K is turned there with each layer's own
/// RoPE, and rounded once more to its type; their V is what it was. Both still depend on what is
/// gone. kInvalidArgument for other ranges and a sequence with an open reservation;
/// kResourceExhausted where pages that are shared cannot be copied. After an error the sequence is
/// as it was.
Status remove_tokens(const kernels::Context& context, const ModelConfig& config, kv::Cache& cache,
                     kv::SequenceId sequence, int32_t begin, int32_t end);

/// The tokens of the sequence, and those that come, get these positions: the K of those that have
/// another one is turned there with each layer's own RoPE, and rounded once more to its type. Slots
/// stay. Errors as kv::Cache::set_positions; the sequence is then as it was.
Status set_positions(const kernels::Context& context, const ModelConfig& config, kv::Cache& cache,
                     kv::SequenceId sequence, const kv::PositionMap& positions);

/// Slots [begin, end) of a sequence.
struct SlotRange {
  int32_t begin = 0;
  int32_t end = 0;
};

/// For tests so far. The tokens in these slots get positions that are `delta` larger, or are
/// divided by `divisor` and rounded down: their K is turned there with each layer's own RoPE, and
/// rounded once more to its type. Slots stay. Errors as kv::Cache::shift and divide; the sequence
/// is then as it was.
Status shift_tokens(const kernels::Context& context, const ModelConfig& config, kv::Cache& cache,
                    kv::SequenceId sequence, const SlotRange& slots, int32_t delta);
/// For tests so far, as shift_tokens.
Status divide_tokens(const kernels::Context& context, const ModelConfig& config, kv::Cache& cache,
                     kv::SequenceId sequence, const SlotRange& slots, int32_t divisor);

}  // namespace weft::model
