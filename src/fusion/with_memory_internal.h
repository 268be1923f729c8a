// What the fusor's parts do when memory runs out.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "base/out_of_memory.h"

namespace weft::fusion {

/// fn's result; kResourceExhausted where it throws std::bad_alloc.
template <class F>
auto with_memory_for(int64_t n_tokens, F&& fn) -> decltype(fn()) {
  return or_out_of_memory(fmt::format("running {} tokens", n_tokens),
                          "ask for fewer or shorter passages, or take a smaller context (-c)",
                          std::forward<F>(fn));
}

}  // namespace weft::fusion
