// The one way weft reports failure. A Status carries a code and a message that names the file, the
// field and the limit, fit to be shown to a user as one line. Result<T> is a T or a Status.
// No exception crosses a room's border. Thread safety: value types, as std::string is.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace weft {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,    // the caller's or the user's input is wrong: say what to do
  kNotFound,           // no such file, record, model, document
  kCorrupt,            // a file or record violates its format
  kResourceExhausted,  // a limit (memory, pages, disk, context) was reached
  kUnsupported,        // well-formed, but weft does not do it
  kIoError,            // the operating system said no
  kCancelled,          // the user said stop
  kAlreadyExists,      // a name that had to be new is taken
};

/// For tests: the code's name in lower case with spaces ("not found"); never null.
const char* status_code_name(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status ok() { return {}; }
  bool is_ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status invalid_argument(std::string m) {
  return {StatusCode::kInvalidArgument, std::move(m)};
}
inline Status not_found(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
inline Status corrupt(std::string m) { return {StatusCode::kCorrupt, std::move(m)}; }
inline Status resource_exhausted(std::string m) {
  return {StatusCode::kResourceExhausted, std::move(m)};
}
inline Status unsupported(std::string m) { return {StatusCode::kUnsupported, std::move(m)}; }
inline Status io_error(std::string m) { return {StatusCode::kIoError, std::move(m)}; }
inline Status cancelled(std::string m) { return {StatusCode::kCancelled, std::move(m)}; }
inline Status already_exists(std::string m) { return {StatusCode::kAlreadyExists, std::move(m)}; }

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    WEFT_CHECK(!status_.is_ok());
  }

  bool is_ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return WEFT_CHECK(value_.has_value()), *value_; }
  const T& value() const& { return WEFT_CHECK(value_.has_value()), *value_; }
  T value() && { return WEFT_CHECK(value_.has_value()), std::move(*value_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace weft

#define WEFT_CONCAT_INNER(a, b) a##b
#define WEFT_CONCAT(a, b) WEFT_CONCAT_INNER(a, b)

/// Returns the expression's Status from the calling function when it is not ok.
#define WEFT_RETURN_IF_ERROR(expr)                                                        \
  do {                                                                                    \
    if (::weft::Status weft_status_ = (expr); !weft_status_.is_ok()) return weft_status_; \
  } while (false)

/// WEFT_ASSIGN_OR_RETURN(auto file, env.open(path));
#define WEFT_ASSIGN_OR_RETURN(lhs, expr) \
  WEFT_ASSIGN_OR_RETURN_INNER(WEFT_CONCAT(weft_result_, __LINE__), lhs, expr)
#define WEFT_ASSIGN_OR_RETURN_INNER(result, lhs, expr) \
  auto result = (expr);                                \
  if (!result.is_ok()) return result.status();         \
  lhs = std::move(result).value()
