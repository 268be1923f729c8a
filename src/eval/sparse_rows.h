// What an evaluation of sparse decoding found: plain data, for JSON and for the report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft::eval {

/// One task under one policy at one budget and length, over all depths or at one. What does not
/// apply is not there.
struct SparseRow {
  std::string task;     // passkey, needles, perplexity, …
  std::string weights;  // which of several files of weights; empty: the only one
  std::string policy;   // of sparse::kPolicies; "dense" is the reference
  std::optional<int32_t> budget_tokens;
  std::optional<int32_t> lock_interval;  // of locks; none: each token chooses
  std::string checkpoint;                // of sparse::kCheckpoints, with locks
  std::optional<double> update_rate;     // share of the selections that checkpoints replaced
  int32_t length_tokens = 0;
  std::optional<double> depth;
  int64_t trials = 0;
  std::optional<double> accuracy;  // 0 to 1
  std::optional<double> perplexity;
  std::optional<double> kl;  // nats a token from what dense decoding predicts
  std::optional<double> f1;
  std::optional<double> rouge_l;
  std::optional<double> mass_kept;         // share of the attention
  std::optional<double> top10_recall;      // share of the ten tokens with most of it
  std::optional<double> bytes_read_share;  // of K and V, with what was looked up for it
  std::optional<double> tokens_per_s;      // decoded
  // Mean milliseconds of a decoded token, where it was measured:
  std::optional<double> digest_ms, score_ms, choose_ms, attend_ms, other_ms;
  std::vector<double> mass_by_layer;  // of the layers that select; empty: not measured
};

}  // namespace weft::eval
