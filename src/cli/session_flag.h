// --session FILE of generate and chat: what there is to go on with, and with which settings. What a
// session is and how it is kept is engine/session.h's.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "cli/app.h"
#include "cli/flags.h"
#include "engine/session.h"

namespace weft::cli {

Flag add_session_flag(Command command, std::string& path, const std::string& help);

/// The session of FILE; null where the file is absent, which begins one. Tries, too, whether FILE
/// can be written at the end, and removes what a killed run left beside it. What is refused stays
/// as it is, with exit status 1.
Result<std::unique_ptr<engine::SavedSession>> open_session(App& app, const std::string& path,
                                                           engine::SessionKind kind);

/// The error of a session that cannot be gone on with, as the command's: exit status 1, in a line
/// that names the flag. An interruption stays one.
Status of_session(const Status& status, const std::string& path);

/// --compute auto takes the way in which the session was computed: what auto would find (measured
/// anew where no measurement is kept, or with other threads) may be another one.
void take_compute(const engine::SavedSession& saved, ModelFlags& flags);

/// The session's settings, but for those that the command line gives. `command` has
/// add_sampling_flags' flags, which wrote `flags`.
sampling::SamplingOptions with_given_flags(Command command, const sampling::SamplingOptions& flags,
                                           sampling::SamplingOptions stored);

}  // namespace weft::cli
