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
/// can be written at the end. What is refused stays as it is, with exit status 1.
Result<std::unique_ptr<engine::SavedSession>> open_session(App& app, const std::string& path,
                                                           engine::SessionKind kind);

/// The session's settings, but for those that the command line gives. `command` has
/// add_sampling_flags' flags, which wrote `flags`.
sampling::SamplingOptions with_given_flags(Command command, const sampling::SamplingOptions& flags,
                                           sampling::SamplingOptions stored);

}  // namespace weft::cli
