// A limit is met by fewer pages, found by halving: bytes are no multiple of pages, since a group
// that rolls stops growing at its window, and since more pages allow longer steps.
#include "engine/kv_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/byte_sizes.h"
#include "base/narrow.h"

namespace weft::engine {
namespace {

// Beyond the context: the anchor and the chunk after it, and pages that the prefix index keeps.
constexpr int32_t kSpareTokens = 4096;

/// What layers with a window keep where they roll: a window of each context, a step, and what a
/// sequence may be cut back by before it has to be computed again.
std::vector<kv::RollingWindow> rolling_windows(const KvRequest& request,
                                               const model::ModelConfig& config) {
  constexpr int32_t kCutTokens = 1024;
  std::vector<kv::RollingWindow> windows;
  if (!request.rolls_windows) return windows;
  for (const int32_t window : config.group_windows()) {
    // A window that begins within a page holds a page more.
    const int64_t n_tokens = (int64_t{window} + 2 * request.page_tokens) * request.n_contexts +
                             kRollingStepTokens + kCutTokens;
    const bool fits = n_tokens <= std::numeric_limits<int32_t>::max();
    windows.push_back({.window_tokens = fits ? window : 0,
                       .capacity_tokens = fits ? narrow<int32_t>(n_tokens) : 0});
  }
  return windows;
}

}  // namespace

int64_t kv_cache_bytes(const kv::Cache::Options& cache, int64_t n_pages) {
  const int64_t kv_bytes =
      int64_t{cache.layout.page_tokens} * kernels::kv_token_bytes(cache.layout);
  int64_t digest_bytes = 0;  // with its tokens' labels, and of which of its page's lives they are
  if (cache.digests) {
    digest_bytes = kv::page_digest_bytes(*cache.digests, cache.layout) +
                   kv::page_label_bytes(*cache.digests, cache.layout) + sizeof(uint64_t);
  }
  int64_t n_bytes = 0;
  for (size_t layer = 0; layer < cache.layer_groups.size(); ++layer) {
    const int32_t group = cache.layer_groups[layer];
    const bool has_digests =
        cache.digests && (cache.digests->layers.empty() || cache.digests->layers[layer]);
    const int64_t page_bytes = kv_bytes + (has_digests ? digest_bytes : 0);
    const kv::RollingWindow w = cache.windows.empty() ? kv::RollingWindow() : cache.windows[group];
    const int64_t rolling_pages =
        (int64_t{w.capacity_tokens} + cache.layout.page_tokens - 1) / cache.layout.page_tokens;
    n_bytes += page_bytes * (w.window_tokens > 0 ? std::min(n_pages, rolling_pages) : n_pages);
  }
  return n_bytes;
}

Result<kv::Cache::Options> kv_cache_options(const KvRequest& request,
                                            const model::ModelConfig& config) {
  kv::Cache::Options cache{.n_layers = config.n_layers,
                           .layer_groups = config.layer_groups(),
                           .layout = config.kv_layout(request.types, request.page_tokens),
                           .windows = rolling_windows(request, config)};
  // Before a page's bytes are asked for: not every type takes every head size.
  WEFT_RETURN_IF_ERROR(kernels::check_kv_layout(cache.layout));
  const int64_t wanted = std::min<int64_t>(
      int64_t{request.context_tokens} * request.n_contexts + kSpareTokens,
      std::numeric_limits<int32_t>::max() / request.page_tokens * request.page_tokens);
  cache.capacity_tokens = narrow<int32_t>(wanted);
  return cache;
}

int64_t limit_for_pages(const kv::Cache::Options& cache, int64_t n_pages, StepBytes step_bytes) {
  const int64_t capacity = n_pages * cache.layout.page_tokens;
  return kv_cache_bytes(cache, n_pages) +
         step_bytes(capacity, std::min<int64_t>(kLeastStepRows, capacity));
}

Result<KvPlan> limit_kv(const kv::Cache::Options& wanted, uint64_t limit_bytes,
                        StepBytes step_bytes) {
  const auto fits = [&](int64_t n_bytes) { return std::cmp_less_equal(n_bytes, limit_bytes); };
  // The most from `least` on, which fits, to `most` for which `bytes_of` fits: it grows.
  const auto most_that_fits = [&](int64_t least, int64_t most, const auto& bytes_of) {
    for (int64_t too_many = most + 1; too_many - least > 1;) {
      const int64_t middle = least + (too_many - least) / 2;
      (fits(bytes_of(middle)) ? least : too_many) = middle;
    }
    return least;
  };
  const auto with_pages = [&](int64_t n) { return limit_for_pages(wanted, n, step_bytes); };
  if (!fits(with_pages(1))) {
    return invalid_argument(fmt::format(
        "--kv-limit {}: a page of {} tokens takes {} with this model, and a step beside it {}: at "
        "least {} is needed",
        size_flag(limit_bytes), wanted.layout.page_tokens,
        size_flag_for(narrow<uint64_t>(kv_cache_bytes(wanted, 1))),
        size_flag_for(narrow<uint64_t>(with_pages(1) - kv_cache_bytes(wanted, 1))),
        size_flag_for(narrow<uint64_t>(with_pages(1)))));
  }
  const int64_t n_pages = most_that_fits(
      1, (wanted.capacity_tokens + wanted.layout.page_tokens - 1) / wanted.layout.page_tokens,
      with_pages);
  const int64_t capacity = n_pages * wanted.layout.page_tokens;
  const int64_t step_rows = most_that_fits(
      std::min<int64_t>(kLeastStepRows, capacity), capacity,
      [&](int64_t rows) { return kv_cache_bytes(wanted, n_pages) + step_bytes(capacity, rows); });
  KvPlan plan{.cache = wanted,
              .step_rows = narrow<int32_t>(step_rows),
              .scratch_bytes = step_bytes(capacity, step_rows)};
  plan.cache.capacity_tokens = narrow<int32_t>(capacity);
  return plan;
}

}  // namespace weft::engine
