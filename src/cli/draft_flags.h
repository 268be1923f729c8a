// The flags of speculative decoding, and what commands say of it.
#pragma once

#include <string>

#include "cli/app.h"

namespace weft::cli {

/// --draft and --draft-tokens; returns the first.
Flag add_draft_flags(Command command, ModelFlags& flags);
/// What they ask for; kInvalidArgument for what does not go together.
Result<spec::DraftOptions> draft_options(const App& app, const ModelFlags& flags);
/// With --draft how drafts went, as "speculation" of the answer.
void add_draft_json(const engine::Engine& engine, Json& json);
/// The same as a line for people.
void print_drafts(const engine::Engine& engine);

}  // namespace weft::cli
