// What of a store is not whole yet, and the command that completes it, for people and for programs.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "cli/app.h"
#include "library/library.h"
#include "retrieval/index.h"

namespace weft::cli {

/// `weft ingest` for these roots of an unfinished store, each with the flags that it was begun
/// with, for a shell; several commands, joined by &&, where the flags differ. At most `max_roots`
/// of them, none of which may lie under another. `model`: what -m was given, as the store may not
/// know where the file is; "": nothing. `store_limit_bytes`: what --store-limit was given; 0: none.
std::string completing_command(const std::vector<retrieval::IngestRoot>& roots,
                               const std::string& dir, size_t max_roots,
                               const std::string& model = "", uint64_t store_limit_bytes = 0);

/// What to say of a store whose documents are not all whole, with the command that completes it;
/// "": all are.
Result<std::string> unfinished_line(retrieval::Index& index, const std::string& dir,
                                    const std::string& model = "", uint64_t store_limit_bytes = 0);

/// What to add to it where the KV that is still to be stored, at most or about so many bytes, does
/// not fit the disk: the command would stop for want of room. "" where it fits.
std::string room_note(uint64_t missing_bytes, uint64_t free_bytes);

/// unfinished_line() with room_note(), of what the index knows to be missing.
Result<std::string> unfinished_line_of(Env& env, library::Library& library, const std::string& dir,
                                       const std::string& model = "");

/// {"documents","ingest_did_not_end","paths":[…],"command"}, or null where all are whole. The
/// command has all paths.
Result<Json> unfinished_json(retrieval::Index& index, const std::string& dir);

}  // namespace weft::cli
