// A draft of n tokens, each right with p, makes (1 - p^(n+1)) / (1 - p) tokens of a step, which
// takes 1 + n c steps' time; that n is taken at which the quotient is largest (Leviathan et al.
// 2023, section 3.5, where drafting is what costs). p is counted for each evidence by itself: a
// long n-gram that was there before is right more often than a short one.
//
// c is measured as steps run: a second row cost SmolLM2 a sixth of a step on Zen 5 and two ninths
// on Cascade Lake, nine of them 2.3 and 2.6 steps (Q4_1, 2 threads, short contexts), and with a
// long context each reads all K and V once more. When each row unpacked the weights for itself,
// Cascade Lake took half a step for the second one, and short answers of which every guess was
// wrong lost 5 to 10 %.
#include "spec/draft_length.h"

#include <algorithm>

namespace weft::spec {
namespace {

constexpr double kUsualCost = 0.2;   // until it was measured
constexpr double kUsualSpread = 10;  // of rows, squared
constexpr double kKeep = 0.9;        // of what was seen before, at each draft
constexpr double kKeepTimes = 0.97;
constexpr double kWorthIt = 1.03;  // times as fast, as costs and chances are estimates
constexpr int32_t kMostPatience = 256;
constexpr int32_t kTimedEvery = 48;

struct Best {
  int32_t length = 0;
  double speedup = 1;
};

/// With a chance of p for each token at that cost, how many pay most; none where they hardly do.
Best best_length(double p, double cost, int32_t most_tokens) {
  double tokens = 1, chance = 1;
  Best best;
  for (int32_t n = 1; n <= most_tokens; ++n) {
    chance *= p;
    tokens += chance;
    const double speedup = tokens / (1 + n * cost);
    if (speedup > std::max(best.speedup, kWorthIt)) best = {n, speedup};
  }
  return best;
}

/// A guess by the least evidence is made where a text has so many steps for each draft that was
/// lost, this one included; one that was right pays for another. It is wrong more often than right,
/// and 3 % of an answer of nine tokens. A quotation has better evidence a token later: counted in
/// steps, answers that quote lost nothing (SmolLM2, 30 questions of XQuAD), where no guess below
/// even chances in the first ten tokens cost 5 %.
constexpr int64_t kStepsOfARisk = 10;

/// Before anything was seen the longer n-gram is believed more: 35 % for one of two tokens, 65 %
/// for one of five. With 60 % for all, answers of which every guess was wrong took 4 % longer
/// (SmolLM2).
double first_chance(int32_t evidence) { return std::min(0.25 + 0.1 * evidence, 0.75); }

}  // namespace

DraftLength::DraftLength(int32_t most_tokens) : most_tokens_(most_tokens) {
  for (int32_t evidence = 0; evidence < kMostEvidence; ++evidence) {
    Record& record = records_[evidence];
    record.right = record.checked * first_chance(evidence);
  }
}

void StepCost::add_step(int64_t n_rows, double ms) {
  const auto rows = static_cast<double>(n_rows);
  if (weight_ > 0) ms = std::min(ms, 3 * ms_ / weight_);  // others use the machine, too
  for (double* sum : {&weight_, &rows_, &ms_, &rows_rows_, &rows_ms_}) *sum *= kKeepTimes;
  weight_ += 1;
  rows_ += rows;
  ms_ += ms;
  rows_rows_ += rows * rows;
  rows_ms_ += rows * ms;
}

void StepCost::add_draft(int64_t n_tokens, double ms) {
  const double one_ms = ms / static_cast<double>(n_tokens);
  draft_ms_ = draft_ms_ == 0 ? one_ms : draft_ms_ + (1 - kKeepTimes) * (one_ms - draft_ms_);
}

void StepCost::add_read(int64_t n_tokens, double ms) {
  read_ms_ = ms / static_cast<double>(n_tokens);
}

void StepCost::doubt_read() { read_ms_ *= kKeep; }

// As if some steps had been seen in which rows took what they usually do: steps that are all alike
// make no line, and two rows beside one make a bad one.
double StepCost::row_ms() const {
  const double spread = weight_ * rows_rows_ - rows_ * rows_;
  const double usual = kUsualSpread * weight_;
  return (weight_ * rows_ms_ - rows_ * ms_ + usual * kUsualCost * ms_ / weight_) / (spread + usual);
}

double StepCost::step_ms(int64_t n_rows) const {
  if (ms_ <= 0) return 0;
  const double mean_ms = ms_ / weight_;
  const double more_rows = static_cast<double>(n_rows) - rows_ / weight_;
  return std::max(0.1 * mean_ms, mean_ms + row_ms() * more_rows);
}

double StepCost::of_draft(int64_t n_rows) const {
  const auto rows = static_cast<double>(n_rows);
  if (ms_ <= 0) return kUsualCost * rows;
  return std::max(0.02, (row_ms() + draft_ms_) / step_ms(n_rows)) * rows;
}

int32_t DraftLength::choose(int32_t evidence, double cost) {
  ++n_steps_;
  if (evidence <= 0 || evidence >= kMostEvidence || most_tokens_ == 0) return 0;
  // Now and then a step goes without, so that its time is known.
  if (n_drafts_ >= kTimedEvery) {
    n_drafts_ = 0;
    return 0;
  }
  if (evidence == 1 && n_steps_ < kStepsOfARisk * (1 + n_lost_)) return 0;
  Record& record = records_[evidence];
  int32_t n = best_length(record.right / record.checked, cost, most_tokens_).length;
  if (n == 0) {
    // Texts change: one token is tried, more and more seldom; and what costs as much as the step
    // that it saves is tried most seldom, as it does not pay even if it is always right.
    const bool never_pays = best_length(1, cost, most_tokens_).length == 0;
    if (++record.n_unpaid < (never_pays ? kMostPatience : record.patience)) return 0;
    record.n_unpaid = 0;
    record.patience = std::min(2 * record.patience, kMostPatience);
    n = 1;
  }
  ++n_drafts_;
  return n;
}

double DraftLength::saved_share(int32_t evidence, double cost) const {
  return 1 - 1 / best_length(first_chance(evidence), cost, most_tokens_).speedup;
}

void DraftLength::add_outcome(int32_t evidence, int32_t n_drafted, int32_t n_accepted) {
  if (n_drafted == 0 || evidence <= 0 || evidence >= kMostEvidence) return;
  Record& record = records_[evidence];
  n_lost_ += n_accepted == 0 ? 1 : -1;
  record.checked = kKeep * record.checked + n_accepted + (n_accepted < n_drafted ? 1 : 0);
  record.right = kKeep * record.right + n_accepted;
  if (n_accepted == n_drafted) record.patience = Record().patience;
}

}  // namespace weft::spec
