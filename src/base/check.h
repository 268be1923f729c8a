// Assertions about weft itself. What input can trigger is an error (Status), never a check.
#pragma once

namespace weft {
/// Prints file, line and expression to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* expression);

/// Whether WEFT_DCHECK looks and freed pages are poisoned. A program links one of two object files
/// (debug_checks_on.cc: the tests and the program that they run; debug_checks_off.cc: what users
/// run), so that all else is compiled once for both. Not NDEBUG: it would need two of everything.
extern const bool kDebugChecks;
}  // namespace weft

#define WEFT_CHECK(expr) \
  (static_cast<bool>(expr) ? void(0) : ::weft::check_failed(__FILE__, __LINE__, #expr))
/// A check that is too dear for users: it looks where kDebugChecks says so.
#define WEFT_DCHECK(expr) WEFT_CHECK(!::weft::kDebugChecks || (expr))
