// Warnings for people, and with -v what is being done, on stderr. Answers and reports never go
// through here. A message is one line: line breaks in it become U+FFFD. Where stderr is a terminal
// and base/terminal_streams.h filters it, what could drive the terminal does too. Thread-safe.
#pragma once

#include <string_view>

namespace weft {

enum class LogLevel { kQuiet, kWarning, kInfo, kDebug };

/// What is printed from now on; kWarning until called. -v is kInfo.
void set_log_level(LogLevel level);
/// Whether log_info prints: for lines that take work to make.
bool logs_info();
void log_warning(std::string_view message);
void log_info(std::string_view message);

}  // namespace weft
