// Memory that runs out. std::bad_alloc (and std::length_error, a size that no memory could have) is
// the one exception that may cross a room's border: what it leaves on its way is released by
// destructors, and where a caller's request begins or_out_of_memory makes a Status of it. Never
// retries, and never frees anything to make room.
#pragma once

#include <cstddef>
#include <new>
#include <stdexcept>
#include <string_view>

#include "base/status.h"

namespace weft {

/// An allocation whose size is known: what() names it. Takes no memory itself.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(size_t size_bytes) noexcept;
  const char* what() const noexcept override { return text_; }

 private:
  char text_[64];
};

/// "<doing>: out of memory (<how much, where `error` says>); <advice>", kResourceExhausted.
Status out_of_memory(std::string_view doing, std::string_view advice, const std::exception& error);

/// What fn() returns, a Status or a Result; out_of_memory() when memory ran out in it. `doing` is
/// what the user asked for ("opening m.gguf"), `advice` what would need less of it.
template <class F>
auto or_out_of_memory(std::string_view doing, std::string_view advice, F&& fn) -> decltype(fn()) {
  try {
    return fn();
  } catch (const std::bad_alloc& error) {
    return out_of_memory(doing, advice, error);
  } catch (const std::length_error& error) {
    return out_of_memory(doing, advice, error);
  }
}

}  // namespace weft
