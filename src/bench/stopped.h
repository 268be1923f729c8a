// How a benchmark ends that was asked to stop, wherever in a run that was.
#pragma once

#include "base/status.h"

namespace weft::bench {

inline Status stopped() { return cancelled("stopped"); }

}  // namespace weft::bench
