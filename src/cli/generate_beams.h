// weft generate --beams: the best answers of a beam search.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "cli/app.h"
#include "engine/beam_generation.h"

namespace weft::cli {

struct BeamFlags {
  bool json = false;
  bool quiet = false;
  engine::BeamOptions search;
};

/// The flags of `command` that choose among tokens in another way, keep one text or make many, none
/// of which a beam search has: `beams` is not taken together with them. All but --parallel, --batch
/// and --session, which must have been added.
void exclude_from_beams(Command command, Flag beams);

/// Prints the best answer's text, or with --json all of them, best first.
Status run_beams(engine::Engine& engine, std::span<const int32_t> prompt, const BeamFlags& flags);

}  // namespace weft::cli
