// Over a few hundred shares, in double: what is left to be drawn is a sum that a thousand shares
// were taken from, and must not be one page short.
#include "kernels/sample_pages.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/narrow.h"
#include "kernels/top_pages_internal.h"

namespace weft::kernels {
namespace {

constexpr float kLeastShare = 1e-26f;
constexpr float kMostShare = 1e6f;  // of any sum of heads' shares: +inf counts as that
constexpr double kCertain = -1;     // in place of a share

/// shares = the scores that may be drawn, 0 for the others.
void find_shares(std::span<const float> scores, std::span<double> shares) {
  for (size_t i = 0; i < scores.size(); ++i) {
    shares[i] = scores[i] > kLeastShare ? std::min(scores[i], kMostShare) : 0;
  }
}

/// What is left to be drawn when the certain ones are taken.
struct Draw {
  int64_t n = 0;
  double step = 0;  // that a drawn page stands for
};

/// Marks as certain what is as large as a step. The others' step is the smaller for it, so that
/// more may be: a few passes, as each share is compared with the step of all that are left.
Draw take_certain(int64_t n_chosen, std::span<double> shares) {
  Draw draw{.n = n_chosen};
  for (bool found = true; found && draw.n > 0;) {
    double left = 0;
    for (const double share : shares) left += std::max(share, 0.0);
    draw.step = left / static_cast<double>(draw.n);
    found = false;
    for (double& share : shares) {
      if (share < draw.step || draw.n == 0) continue;
      share = kCertain;
      found = true;
      --draw.n;
    }
  }
  return draw;
}

/// Whether there are more than are to be drawn.
bool are_enough(std::span<const double> shares, int64_t n) {
  return std::ranges::count_if(shares, [](double share) { return share > 0; }) > n;
}

/// After the last point half a step is left, and a share is less than a step: rounding may put two
/// points into one page's part of the line, of which the second then falls to the next page, but
/// none past the end.
void sample(const PageChoice& to, std::span<double> shares) {
  const Draw draw = take_certain(std::ssize(to.chosen) - to.n_best, shares);
  int64_t n_chosen = 0, n_drawn = 0;
  double end = 0;  // of the line so far
  for (size_t i = 0; i < shares.size(); ++i) {
    const bool is_certain = shares[i] == kCertain;
    if (!is_certain) end += shares[i];
    const bool is_drawn =
        !is_certain && n_drawn < draw.n && end > (static_cast<double>(n_drawn) + 0.5) * draw.step;
    if (!is_certain && !is_drawn) continue;
    n_drawn += is_drawn ? 1 : 0;
    to.weights[n_chosen] = is_drawn ? static_cast<float>(draw.step / shares[i]) : 1.0f;
    to.chosen[n_chosen++] = narrow<int32_t>(i);
  }
  WEFT_CHECK(n_chosen == std::ssize(to.chosen));
}

}  // namespace

void sample_pages(const Context& context, std::span<const PageChoice> samples) {
  for (const PageChoice& one : samples) {
    WEFT_CHECK(std::ssize(one.chosen) <= std::ssize(one.scores));
    WEFT_CHECK(one.weights.empty() || one.weights.size() == one.chosen.size());
    WEFT_CHECK(one.n_best >= 0 && one.n_best <= std::ssize(one.chosen));
  }
  const TopPagesFns& fns = pick_top_pages_fns(context.isa);
  context.pool.run(std::ssize(samples), [&](int64_t i, int worker) {
    const PageChoice& one = samples[i];
    const int64_t n_pages = std::ssize(one.scores);
    auto* const keys =
        context.workspace->of_worker<int32_t>(worker, Use::kScratch, padded_keys(n_pages));
    const auto take_best = [&](int64_t n) {
      fns.choose(one.scores.data(), n_pages, keys, one.chosen.data(), n);
    };
    if (one.weights.empty()) return take_best(std::ssize(one.chosen));
    const std::span shares(context.workspace->of_worker<double>(worker, Use::kSums, n_pages),
                           one.scores.size());
    find_shares(one.scores, shares);
    take_best(one.n_best);
    for (const int32_t page : one.chosen.first(one.n_best)) shares[page] = kCertain;
    if (are_enough(shares, std::ssize(one.chosen) - one.n_best)) return sample(one, shares);
    take_best(std::ssize(one.chosen));
    std::ranges::fill(one.weights, 1.0f);
  });
}

void count_sample_pages(int64_t n_pages, WorkspaceSize& size) {
  size.of_worker(Use::kSums, n_pages * int64_t{sizeof(double)});
  size.of_worker(Use::kScratch, padded_keys(n_pages) * int64_t{sizeof(int32_t)});
}

}  // namespace weft::kernels
