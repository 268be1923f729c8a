#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace weft {

void check_failed(const char* file, int line, const char* expression) {
  std::fprintf(stderr, "weft: internal error at %s:%d: %s\n", file, line, expression);
  std::abort();
}

}  // namespace weft
