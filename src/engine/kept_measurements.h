// Measurements of this machine that later runs take over: a text file of lines, each a key, a tab
// and a value. Anyone may have written to it: what does not read as expected is measured again.
#pragma once

#include <optional>
#include <string>

#include "base/env.h"

namespace weft::engine {

/// As /proc/cpuinfo has it; "unknown CPU" where it does not say.
std::string cpu_name(Env& env);

/// The value of the last line with this key. Nothing where there is none, the file cannot be read
/// or is larger than 64 KiB.
std::optional<std::string> find_kept(Env& env, const std::string& file, const std::string& key);
/// Adds the line. A file that is full or cannot be read is begun anew; one that cannot be written
/// costs no more than a line in the log.
void keep(Env& env, const std::string& file, const std::string& key, const std::string& value);

}  // namespace weft::engine
