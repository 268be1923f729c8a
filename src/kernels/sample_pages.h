// From the shares of attention that pages are estimated to get to a sample of them that stands for
// all: what the best pages leave out is not like them, and an attention over these alone is drawn
// to where it is largest.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/top_pages.h"
#include "kernels/workspace_size.h"

namespace weft::kernels {

/// Of the pages that a drawn one stands for beside itself, the part that counts. All of them are an
/// estimate without bias that varies with what is drawn, none a steady one that is drawn to the
/// best pages; the squared error is least between them.
inline constexpr double kRestCounted = 0.6;

/// Scores are shares, as sum_shares has them. chosen = chosen.size() pages, ascending: the n_best
/// with the largest shares, and of the others each with a probability p in proportion to its share;
/// weights = 1 + kRestCounted (1 / p - 1), where 1 / p, what the page stands for, is Horvitz and
/// Thompson's (1952). A page whose share is that of a drawn one or more is certain, as the best
/// are, and stands for itself alone: weight 1. The others are drawn where equally distant points
/// fall on the line of their shares (systematic sampling, Madow 1949); the points are where they
/// are and not thrown, so that the same scores give the same pages. A share that is NaN or too low
/// to count (1e-26) is never drawn: where those that may be are too few, the pages are those of
/// top_pages and the weights 1. A choice without weights is top_pages'.
void sample_pages(const Context& context, std::span<const PageChoice> samples);

/// What sample_pages takes of the workspace for samples of up to so many pages.
void count_sample_pages(int64_t n_pages, WorkspaceSize& size);

}  // namespace weft::kernels
