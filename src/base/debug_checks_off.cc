#include "base/check.h"

namespace weft {
const bool kDebugChecks = false;
}  // namespace weft
