// The mode of the terminal at standard input, given back however the program ends: by a signal from
// outside, by a fault or a failed check, by Ctrl-Z. A line editor changes the mode; this knows what
// it was before. It never changes a terminal that another process has in the foreground.
#pragma once

namespace weft {

/// Keeps the terminal's mode as it is now, and from now on gives it back when a signal is about to
/// end or to stop this process (then the signal does what it did before). SIGINT, SIGTERM and
/// SIGHUP are left to whoever handles them. False when standard input is no terminal. Call it once,
/// from the main thread.
bool keep_terminal_mode();

/// A control sequence to be written to standard output with that, until another one is set. It must
/// live as long as the process.
void undo_with_terminal_mode(const char* sequence);

/// Gives the kept mode back now; false when none is kept or the terminal is not ours at present.
/// For what ends the process by itself. May be called in a signal handler.
bool restore_terminal_mode();

/// Whether the process was continued (SIGCONT) since it was last asked: the mode may be another.
bool was_continued();

}  // namespace weft
