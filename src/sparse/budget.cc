#include "sparse/budget.h"

#include <algorithm>
#include <cmath>

#include "base/narrow.h"

namespace weft::sparse {
namespace {

// A budget of so many pages has room for the sink, and for the newest page.
constexpr int32_t kSinkFrom = 3;
constexpr int32_t kNewestFrom = 4;

int32_t budget_pages(const SparseOptions& options, int32_t n_pages, int32_t page_tokens) {
  if (options.budget_tokens > 0) return options.budget_tokens / page_tokens;
  if (options.retain > 0) return std::max(kLeastRetainedPages, n_pages / kMostRetainedDivisor);
  const auto share = narrow<int32_t>(std::llround(std::ceil(options.ratio * n_pages - 1e-9)));
  return std::max(kLeastPages, share);
}

}  // namespace

PageBudget page_budget(const SparseOptions& options, int32_t slot, int32_t page_tokens) {
  const int32_t n_pages = slot / page_tokens + 1;
  const int32_t n_read = budget_pages(options, n_pages, page_tokens);
  // A budget within a page covers a context within that page.
  if (n_read >= n_pages || slot < options.budget_tokens) return {.n_pages = n_pages};
  const int32_t newest = n_read >= kNewestFrom ? 1 : 0;
  PageBudget budget{
      .n_pages = n_pages, .first = n_read >= kSinkFrom ? 1 : 0, .end = n_pages - 1 - newest};
  budget.n_chosen = n_read - budget.n_fixed();
  budget.n_least = options.retain > 0 ? kLeastRetainedPages - budget.n_fixed() : budget.n_chosen;
  budget.n_best = budget.n_chosen;
  if (options.samples()) {
    const int32_t n_looked_up =
        options.policy == Policy::kLabels ? (n_pages - 1) / kLookedUpDivisor + 1 : 0;
    budget.n_best = std::clamp(n_looked_up - budget.n_fixed(), 0, budget.n_chosen);
  }
  return budget;
}

}  // namespace weft::sparse
