// How much memory a fusion takes beside its step's scratch and the KV cache: integers alone. Pure
// functions.
#pragma once

#include <cstdint>

#include "model/config.h"

namespace weft::fusion {

/// Of a prompt of n_tokens, with all of its chunks' tokens recomputed, which is the most: the
/// layers of records in flight, angles, and K and V of what is recomputed as it was stored and as
/// it changes. Not counted: records that are kept whole, those of the store's memory (--ram) and
/// those that were just computed.
int64_t fusion_scratch_bytes(const model::ModelConfig& config, int64_t n_tokens);

}  // namespace weft::fusion
