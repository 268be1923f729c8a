// How fast this machine prefills with this model, measured once: what --ratio auto predicts with.
#pragma once

#include <functional>
#include <string>

#include "base/env.h"
#include "base/status.h"
#include "fusion/prompt.h"
#include "kernels/context.h"
#include "kv/cache.h"
#include "model/model.h"
#include "model/step_scratch.h"

namespace weft::engine {

/// What the measurement takes at most, beside a cache of so many tokens: all cores take part.
int64_t prefill_rates_bytes(const model::StepScratch& scratch, const model::ModelConfig& config,
                            int64_t capacity_tokens);

/// What `kept_file` says for this CPU, number of cores, instruction set, compute path, model,
/// context and types of KV, else a measurement (about a second; for a large model a few), which is
/// then kept there; an empty kept_file keeps nothing. Always with all cores, so the threads that
/// were asked for change nothing. It runs in pages of `cache` that no sequence holds, at most 2176
/// tokens of them, and leaves them free: a limit of the cache holds here, too, and where fewer are
/// left it measures a shorter prompt. What threads waited for cores that others held is taken off,
/// so that a busy machine gets about the rates of a quiet one. `measuring` (may be empty) is called
/// where nothing was kept, before the first step. kResourceExhausted for threads that
/// the machine refuses, memory that it has not, and a cache that is full.
Result<fusion::PrefillRates> prefill_rates(Env& env, const model::Model& model,
                                           const kernels::Context& context, kv::Cache& cache,
                                           const std::string& kept_file,
                                           const std::function<void()>& measuring = {});

}  // namespace weft::engine
