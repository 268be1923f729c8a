// Over a few hundred shares, in double: what is left to be drawn is a sum that a thousand shares
// were taken from, and must not be one page short. Of the thousands of pages that have none nothing
// is kept: with them at each pass, choosing took 0.12 to 0.18 ms a layer of a 1B model at 32,768
// tokens, and takes 0.08 to 0.12 (Cascade Lake; the best pages alone 0.03 to 0.04).
#include "kernels/sample_pages.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/top_pages_internal.h"

namespace weft::kernels {
namespace {

constexpr float kLeastShare = 1e-26f;
constexpr float kMostShare = 1e6f;  // of any sum of heads' shares: +inf counts as that
constexpr double kCertain = -1;     // in place of a share

/// A page that is certain, or may be drawn.
struct Drawable {
  int32_t page;
  double share;
};

/// Those of the scores, in their order; `best` ascends. Each is written and kept if the next one
/// does not take its place: which have a share no branch can foretell.
std::span<Drawable> find_drawable(std::span<const float> scores, std::span<const int32_t> best,
                                  Drawable* memory) {
  Drawable* to = memory;
  for (int32_t page = 0; page < std::ssize(scores); ++page) {
    const bool is_best = !best.empty() && best.front() == page;
    if (is_best) best = best.subspan(1);
    *to = {page, is_best ? kCertain : std::min(scores[page], kMostShare)};
    to += static_cast<int>(is_best) | static_cast<int>(scores[page] > kLeastShare);
  }
  return {memory, to};
}

/// What is left to be drawn when the certain ones are taken.
struct Draw {
  int64_t n = 0;
  double step = 0;  // that a drawn page stands for
};

/// Marks as certain what is as large as a step. The others' step is the smaller for it, so that
/// more may be: a few passes, as each share is compared with the step of all that are left.
Draw take_certain(int64_t n_drawn, std::span<Drawable> pages) {
  Draw draw{.n = n_drawn};
  double left = 0;
  for (const Drawable& one : pages) left += std::max(one.share, 0.0);
  for (int64_t n_before = -1; draw.n > 0 && draw.n != n_before;) {
    n_before = draw.n;
    draw.step = left / static_cast<double>(draw.n);
    left = 0;
    for (Drawable& one : pages) {
      if (one.share >= draw.step && draw.n > 0) {
        one.share = kCertain;
        --draw.n;
      } else {
        left += std::max(one.share, 0.0);
      }
    }
  }
  return draw;
}

float weight_of(double stands_for) {
  return static_cast<float>(1 + kRestCounted * (stands_for - 1));
}

/// After the last point half a step is left, and a share is less than a step: rounding may put two
/// points into one page's part of the line, of which the second then falls to the next page, but
/// none past the end.
void sample(const PageChoice& to, std::span<Drawable> pages) {
  const Draw draw = take_certain(std::ssize(to.chosen) - to.n_best, pages);
  int64_t n_chosen = 0, n_drawn = 0;
  double end = 0;  // of the line so far
  for (const Drawable& one : pages) {
    const bool is_certain = one.share == kCertain;
    if (!is_certain) end += one.share;
    const bool is_drawn =
        !is_certain && n_drawn < draw.n && end > (static_cast<double>(n_drawn) + 0.5) * draw.step;
    if (!is_certain && !is_drawn) continue;
    n_drawn += is_drawn ? 1 : 0;
    to.weights[n_chosen] = is_drawn ? weight_of(draw.step / one.share) : 1.0f;
    to.chosen[n_chosen++] = one.page;
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
    take_best(one.n_best);
    const std::span<Drawable> pages =
        find_drawable(one.scores, one.chosen.first(one.n_best),
                      context.workspace->of_worker<Drawable>(worker, Use::kSums, n_pages));
    if (pages.size() > one.chosen.size()) return sample(one, pages);
    take_best(std::ssize(one.chosen));
    std::ranges::fill(one.weights, 1.0f);
  });
}

void count_sample_pages(int64_t n_pages, WorkspaceSize& size) {
  size.of_worker(Use::kSums, n_pages * int64_t{sizeof(Drawable)});
  size.of_worker(Use::kScratch, padded_keys(n_pages) * int64_t{sizeof(int32_t)});
}

}  // namespace weft::kernels
