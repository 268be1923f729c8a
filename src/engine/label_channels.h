// The dimensions of K by which Double Sparsity labels tokens, found by letting a text of our own
// through the model: its "offline calibration", tenths of a second for a small model.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kernels/context.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace weft::engine {

/// As sparse::SparseOptions::channels; the same for a model whatever its cache's types.
/// kUnsupported for heads of fewer dimensions than a label has; kResourceExhausted.
Result<std::vector<uint8_t>> label_channels(const model::Model& model,
                                            const text::Tokenizer& tokenizer,
                                            const kernels::Context& context);

}  // namespace weft::engine
