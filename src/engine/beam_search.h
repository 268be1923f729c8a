// Beam search over scores that somebody else computes: which texts go on, which have ended, which
// are the best. It knows tokens and sums of log-probabilities; no model, no text, no KV cache
// (beam_generation.h joins them).
//
// It is transformers' search (generation/utils.py, _beam_search, of 5.24) with early_stopping=False
// and length_penalty=1, which tests/beams_test.cc compares it with. What that decides and papers
// leave open:
// - A score is a text's log-probability divided by its tokens, of which the one that ended it is
//   one.
// - Of a step's candidates only the n_beams best can end; one that ends further down is dropped.
// - Texts that end at a limit are rated among those that ended before.
// - It is over when n_beams texts have ended and the best that goes on, divided by the tokens that
//   it has now, is no better than the worst of them. That is a guess: more tokens could raise it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "engine/generation.h"
#include "tensor/matrix_view.h"

namespace weft::engine {

/// A text that goes on.
struct Beam {
  std::vector<int32_t> tokens;
  double logprob = 0;  // natural logarithm of the text's probability after the prompt
  int32_t parent = 0;  // index, before the last step, of the beam that it continues
};

/// A text that has ended.
struct Hypothesis {
  std::vector<int32_t> tokens;  // the one that ended it is the last
  double score = 0;             // log-probability divided by tokens
  StopReason reason = StopReason::kEnd;
};

/// Not thread-safe.
class BeamSearch {
 public:
  struct Options {
    int32_t n_beams = 1;         // 1 or more; 1 gives the tokens of greedy search
    int32_t n_end_tokens = 1;    // of the vocabulary: so many candidates of a beam may end it
    std::vector<int32_t> never;  // ids that follow nothing; the probabilities of others stay
  };
  explicit BeamSearch(const Options& options) : options_(options) {}

  /// Texts that go on, the best first: one without tokens before the first step; n_beams, or as
  /// many as the vocabulary and impossible tokens leave. All have as many tokens.
  std::span<const Beam> running() const { return running_; }
  int32_t n_tokens() const { return n_tokens_; }
  bool is_done() const { return is_done_; }

  /// Whether, and why, running()[beam] with token `id` after it has ended; n_tokens() counts it.
  using Ends = FunctionRef<std::optional<StopReason>(int32_t beam, int32_t id)>;
  /// The next token of every beam, of which `logits` [running, n_vocab] has a row each. NaN and
  /// -infinity count as impossible and are followed by nothing. Of equal candidates the one of the
  /// better beam counts as better, then the one with the lower id. Not once is_done().
  void step(const MatrixView<const float>& logits, Ends ends);

  /// What has ended, the best first, n_beams at most. Before is_done() those that go on are among
  /// them, with reason kCancelled.
  std::vector<Hypothesis> best() const;

 private:
  struct Candidate {
    int32_t beam = 0;
    int32_t id = 0;
    double logprob = 0;  // of the text with it
  };
  std::vector<Candidate> expand(const MatrixView<const float>& logits) const;
  std::vector<int32_t> tokens_with(const Candidate& candidate) const;
  void keep(Hypothesis hypothesis, std::vector<Hypothesis>& best) const;
  bool can_improve() const;

  Options options_;
  std::vector<Beam> running_{Beam{}};
  std::vector<Hypothesis> ended_;  // the best first, n_beams at most
  int32_t n_tokens_ = 0;
  bool is_done_ = false;
};

}  // namespace weft::engine
