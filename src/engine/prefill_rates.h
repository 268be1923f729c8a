// How fast this machine prefills with this model, measured once: what --ratio auto predicts with.
#pragma once

#include <string>

#include "base/env.h"
#include "base/status.h"
#include "fusion/prompt.h"
#include "kernels/context.h"
#include "model/model.h"

namespace weft::engine {

/// What `kept_file` says for this CPU, number of cores, instruction set, compute path, model and
/// context, else a measurement (about a second; for a large model a few), which is then kept there;
/// an empty kept_file keeps nothing. Always with all cores, in a cache of its own, so the threads
/// that were asked for and what is cached change nothing. kResourceExhausted for threads that the
/// machine refuses and memory that it has not.
Result<fusion::PrefillRates> prefill_rates(Env& env, const model::Model& model,
                                           const kernels::Context& context,
                                           const std::string& kept_file);

}  // namespace weft::engine
