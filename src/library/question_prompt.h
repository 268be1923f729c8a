// The prompt of a question over the passages that were found for it.
#pragma once

#include <string>

#include "engine/engine.h"
#include "engine/generation.h"
#include "fusion/prompt.h"
#include "library/found_passages.h"
#include "library/library.h"

namespace weft::library {

/// The prompt with as many of the passages, best first, as leave room for the answer in the
/// context. The others are removed from `found`, and a note says so. kResourceExhausted where
/// passages were found and not one fits.
Result<fusion::Prompt> question_prompt(const engine::Engine& engine, const Library& library,
                                       const std::string& question,
                                       const engine::GenerationOptions& options,
                                       FoundPassages& found);

}  // namespace weft::library
