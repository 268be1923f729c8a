// The prompt of a question over the passages that were found for it.
#pragma once

#include <string>

#include "engine/engine.h"
#include "engine/generation.h"
#include "fusion/prompt.h"
#include "library/found_passages.h"
#include "library/library.h"

namespace weft::library {

/// With as many of the passages as leave room for the answer in the context; `found` loses the
/// others, which a note says. kResourceExhausted where not one fits.
Result<fusion::Prompt> question_prompt(const engine::Engine& engine, const Library& library,
                                       const std::string& question,
                                       const engine::GenerationOptions& options,
                                       FoundPassages& found);

}  // namespace weft::library
