#include "base/check.h"

namespace weft {
const bool kDebugChecks = true;
}  // namespace weft
