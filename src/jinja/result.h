// How the jinja room reports failure: a one-line message and the place in the template (or in the
// JSON) that it is about. The room depends on no other room, so it has its own small type. Nothing
// is thrown across the room's border. Thread safety: value types.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace weft::jinja {

/// A place in the template's source or in a JSON text. `line` and `column` count from 1, columns in
/// characters; 0 where there is no place to name.
struct Position {
  int line = 0;
  int column = 0;
};

/// What went wrong, in one line of at most some 600 bytes: control characters that the template or
/// the input put into it are blanks by then (template.cc), since it is printed on terminals.
struct Error {
  std::string message;
  Position position;
  bool at_limit = false;  // one of jinja/limits.h, so that trying again ends the same way

  /// "line 3, column 7: message".
  std::string to_string() const {
    if (position.line == 0) return message;
    return "line " + std::to_string(position.line) + ", column " + std::to_string(position.column) +
           ": " + message;
  }
};

/// A T or an Error. Dereferencing an Error is undefined: ask is_ok() first.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool is_ok() const { return value_.has_value(); }
  const Error& error() const { return error_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Error error_;
  std::optional<T> value_;
};

}  // namespace weft::jinja
