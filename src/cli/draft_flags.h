// The flags of speculative decoding, and what commands say of it.
#pragma once

#include <span>
#include <string>

#include "cli/app.h"

namespace weft::cli {

/// --draft and --draft-tokens; returns the first.
Flag add_draft_flags(Command command, ModelFlags& flags);
/// What they ask for; kInvalidArgument for what does not go together.
Result<spec::DraftOptions> draft_options(const App& app, const ModelFlags& flags);
/// With --draft how drafts went, as "speculation" of the answer.
void add_draft_json(const engine::Engine& engine, Json& json);
/// How those of an answer went, for people: "30 of 50 guessed tokens were right, …"; "": it ran
/// without drafts.
std::string drafts_text(const spec::DraftCounters& drafts);
/// The same as a line, of answers together.
void print_drafts(std::span<const engine::Generation* const> answers);

}  // namespace weft::cli
