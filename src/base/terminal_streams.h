// Standard output and standard error as people see them. Where one of them is a terminal, all that
// the program writes to stdout or stderr (fmt, spdlog, stdio) goes through TerminalText on its way,
// so that no print can forget it; a pipe or a file gets every byte as it is, as from `cat`. Each of
// the two is decided for itself. What weft itself draws with control sequences (a progress bar, the
// line editor) says so and goes past. C++ streams (std::cout) do not go through here: nothing uses
// them. What child processes write is theirs.
#pragma once

#include <cstdio>
#include <string_view>

namespace weft {

/// While it lives, stdout and stderr are filtered where they are terminals. One in a program, made
/// before the first output and before any other thread.
class TerminalStreams {
 public:
  TerminalStreams();
  /// Shows what still waits.
  ~TerminalStreams();
  TerminalStreams(const TerminalStreams&) = delete;
  TerminalStreams& operator=(const TerminalStreams&) = delete;
};

/// What `stream` (stdout or stderr) was before it was filtered, for a line editor that draws on it.
/// Whoever writes to both flushes in between.
FILE* unfiltered(FILE* stream);

/// Writes a control sequence of weft's own, after what `stream` (stdout or stderr) was given
/// before. Nothing from outside may be part of it.
void write_control(FILE* stream, std::string_view sequence);

}  // namespace weft
