// The dimensions of K by which tokens are labelled, found by letting a text of our own through the
// model: for a model of a billion parameters a second or so, so that it is kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "kernels/context.h"
#include "kernels/token_labels_layout.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace weft::engine {

/// As sparse::SparseOptions::channels; the same for a model and an instruction set, whatever
/// the cache's types and the path of matmuls. What a file of `kept_folder` says for these, else
/// what is found, which is then kept there; an empty kept_folder keeps nothing. kUnsupported for
/// heads of fewer dimensions than a label has; kResourceExhausted.
Result<std::vector<uint8_t>> label_channels(Env& env, const model::Model& model,
                                            const text::Tokenizer& tokenizer,
                                            const kernels::Context& context,
                                            kernels::LabelKind labels,
                                            const std::string& kept_folder);

}  // namespace weft::engine
