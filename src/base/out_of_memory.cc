#include "base/out_of_memory.h"

#include <fmt/format.h>

#include <cstdio>

namespace weft {

OutOfMemory::OutOfMemory(size_t size_bytes) noexcept : text_{} {
  std::snprintf(text_, sizeof(text_), "%zu bytes more were refused", size_bytes);
}

Status out_of_memory(std::string_view doing, std::string_view advice, const std::exception& error) {
  const auto* sized = dynamic_cast<const OutOfMemory*>(&error);
  return resource_exhausted(fmt::format("{}: out of memory{}; {}", doing,
                                        sized == nullptr ? "" : fmt::format(" ({})", sized->what()),
                                        advice));
}

}  // namespace weft
