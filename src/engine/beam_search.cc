// Expand, keep the best, put aside what has ended. Sums are in double: transformers' are floats,
// which round by up to 4e-6 a token once a sum is past -32.
#include "engine/beam_search.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/narrow.h"
#include "sampling/logprobs.h"

namespace weft::engine {

void BeamSearch::step(const MatrixView<const float>& logits, Ends ends) {
  WEFT_CHECK(!is_done_ && logits.rows == std::ssize(running_));
  ++n_tokens_;
  std::vector<Beam> next;
  int32_t rank = 0;
  for (const Candidate& candidate : expand(logits)) {
    const bool is_among_best = rank++ < options_.n_beams;
    const std::optional<StopReason> reason = ends(candidate.beam, candidate.id);
    if (!reason && std::ssize(next) < options_.n_beams) {
      next.push_back({tokens_with(candidate), candidate.logprob, candidate.beam});
    } else if (reason && is_among_best) {
      keep({tokens_with(candidate), candidate.logprob / n_tokens_, *reason}, ended_);
    }
  }
  running_ = std::move(next);
  is_done_ = running_.empty() || !can_improve();
}

// So many that n_beams go on even where every end token is among the best of every beam; twice
// n_beams at least, as transformers has it.
std::vector<BeamSearch::Candidate> BeamSearch::expand(const MatrixView<const float>& logits) const {
  const int32_t n_kept = options_.n_beams * (1 + std::max(1, options_.n_end_tokens));
  const int32_t n_looked_at = n_kept + narrow<int32_t>(options_.never.size());
  std::vector<Candidate> candidates;
  for (int32_t beam = 0; beam < std::ssize(running_); ++beam) {
    const std::span<const float> row = logits.row(beam);
    const double log_sum = sampling::log_sum_exp(row);
    for (const int32_t id : sampling::top_tokens(row, n_looked_at)) {
      if (std::ranges::count(options_.never, id) > 0) continue;
      const double logprob = sampling::logprob_of(row[id], log_sum);
      candidates.push_back({beam, id, running_[beam].logprob + logprob});
    }
  }
  // Stable: a beam's candidates come by their logits, in which two may still differ that are equal
  // as sums, and then by id. So one beam is greedy search.
  std::ranges::stable_sort(candidates, std::ranges::greater(), &Candidate::logprob);
  candidates.resize(std::min<size_t>(candidates.size(), n_kept));
  return candidates;
}

std::vector<int32_t> BeamSearch::tokens_with(const Candidate& candidate) const {
  std::vector<int32_t> tokens = running_[candidate.beam].tokens;
  tokens.push_back(candidate.id);
  return tokens;
}

void BeamSearch::keep(Hypothesis hypothesis, std::vector<Hypothesis>& best) const {
  const auto place =
      std::ranges::upper_bound(best, hypothesis.score, std::ranges::greater(), &Hypothesis::score);
  best.insert(place, std::move(hypothesis));
  if (std::ssize(best) > options_.n_beams) best.pop_back();
}

bool BeamSearch::can_improve() const {
  return std::ssize(ended_) < options_.n_beams ||
         running_.front().logprob / n_tokens_ > ended_.back().score;
}

std::vector<Hypothesis> BeamSearch::best() const {
  std::vector<Hypothesis> best = ended_;
  if (is_done_) return best;
  for (const Beam& beam : running_) {
    keep({beam.tokens, beam.logprob / std::max(1, n_tokens_), StopReason::kCancelled}, best);
  }
  return best;
}

}  // namespace weft::engine
