// Assertions about weft itself. What input can trigger is an error (Status), never a check.
#pragma once

namespace weft {
/// Prints file, line and expression to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* expression);
}  // namespace weft

#define WEFT_CHECK(expr) \
  (static_cast<bool>(expr) ? void(0) : ::weft::check_failed(__FILE__, __LINE__, #expr))
#ifdef NDEBUG
#define WEFT_DCHECK(expr) ((void)0)
#else
#define WEFT_DCHECK(expr) WEFT_CHECK(expr)
#endif
