// What a program does before anything else, so that the world it was started in does it no harm:
// descriptors that were closed, limits on files and on the stack. For main() alone, before there is
// a second thread.
#pragma once

#include <functional>

#include "base/status.h"

namespace weft {

/// Standard input, output and error are open afterwards, so that no file that is opened later takes
/// the place of one: what was closed cannot be read, or written (an error as before), and messages
/// to a closed standard error are lost.
void open_standard_streams();

/// A file that grows over `ulimit -f` is an error of the write then, not the program's end.
void ignore_file_size_signal();

/// What body() returns, run where the stack has kStackBytes (base/thread.h): here, or where the
/// limit of this stack is lower on a thread of its own, which then gets the signals. body must not
/// throw. kResourceExhausted when the machine refuses that thread; then body was not called.
Result<int> run_with_whole_stack(const std::function<int()>& body);

}  // namespace weft
