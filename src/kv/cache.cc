#include "kv/cache.h"

#include <fmt/format.h>

namespace weft::kv {

Result<std::unique_ptr<Cache>> Cache::create(const Options& options) {
  if (options.capacity_tokens <= 0 || options.layout.page_tokens <= 0) {
    return invalid_argument(
        fmt::format("KV cache: capacity of {} tokens in pages of {}: both must "
                    "be at least 1",
                    options.capacity_tokens, options.layout.page_tokens));
  }
  const int64_t n_pages = (int64_t{options.capacity_tokens} + options.layout.page_tokens - 1) /
                          options.layout.page_tokens;
  WEFT_ASSIGN_OR_RETURN(auto memory, PageMemory::create({.n_layers = options.n_layers,
                                                         .n_pages = static_cast<int32_t>(n_pages),
                                                         .layout = options.layout}));
  return std::unique_ptr<Cache>(
      new Cache(std::move(memory), options, static_cast<int32_t>(n_pages)));
}

}  // namespace weft::kv
