#include "sparse/budget.h"

#include <algorithm>
#include <cmath>

#include "base/narrow.h"

namespace weft::sparse {
namespace {

// A budget of so many pages has room for the sink, and for the newest page.
constexpr int32_t kSinkFrom = 3;
constexpr int32_t kNewestFrom = 4;
// UCM's GSA keeps the last two blocks, and StreamingLLM is nothing but a sink and the newest.
constexpr int32_t kNewestOfGsa = 2;

int32_t budget_pages(const SparseOptions& options, int32_t n_pages, int32_t page_tokens) {
  if (options.budget_tokens > 0) return options.budget_tokens / page_tokens;
  if (options.retain > 0) return std::max(kLeastRetainedPages, n_pages / kMostRetainedDivisor);
  const auto share = narrow<int32_t>(std::llround(std::ceil(options.ratio * n_pages)));
  return std::max(kLeastPages, share);
}

}  // namespace

PageBudget page_budget(const SparseOptions& options, int32_t slot, int32_t committed,
                       int32_t page_tokens) {
  const int32_t n_pages = slot / page_tokens + 1;
  const int32_t n_sealed = std::min(committed / page_tokens, n_pages - 1);
  const int32_t n_read = budget_pages(options, n_pages, page_tokens);
  if (n_read >= n_pages) return {.n_pages = n_pages};
  int32_t newest = n_read >= kNewestFrom ? 1 : 0;
  if (options.policy == Policy::kGsa && n_read > kNewestFrom) newest = kNewestOfGsa - 1;
  const int32_t sink = n_read >= kSinkFrom ? 1 : 0;
  PageBudget budget{.n_pages = n_pages,
                    .first = std::min(sink, n_sealed),
                    .end = std::max(n_sealed - newest, std::min(sink, n_sealed))};
  const auto choose = [&](int32_t n) {
    return std::clamp(n - budget.n_fixed(), std::min(1, budget.n_candidates()),
                      budget.n_candidates());
  };
  budget.n_chosen = choose(n_read);
  budget.n_least = options.retain > 0 ? choose(kLeastRetainedPages) : budget.n_chosen;
  return budget;
}

}  // namespace weft::sparse
