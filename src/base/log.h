// Warnings and notes for people, on stderr. Answers and reports never go through here.
// A message is one line: line breaks in it become U+FFFD. Where stderr is a terminal and
// base/terminal_streams.h filters it, what could drive the terminal does too. Thread-safe.
#pragma once

#include <string_view>

namespace weft {

enum class LogLevel { kQuiet, kWarning, kInfo, kDebug };

/// For tests: what is printed from now on; kWarning until called.
void set_log_level(LogLevel level);
void log_warning(std::string_view message);
void log_info(std::string_view message);

}  // namespace weft
