// Settings take turns on each text, so that a machine whose speed changes does so for all of them.
#include "eval/sparse_eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/narrow.h"
#include "engine/generation.h"
#include "eval/metrics.h"
#include "eval/passkey.h"
#include "kernels/elementwise.h"
#include "sparse/selector.h"

namespace weft::eval {
namespace {

/// One read of so many is compared with all of K: in a short answer, too, all layers are met.
constexpr int32_t kMeasuredEvery = 23;

/// What one setting gave, over some cases.
struct Tally {
  int64_t trials = 0;
  double correct = 0, f1 = 0, rouge_l = 0;
  double loss = 0;  // nats
  int64_t scored = 0;
  double kl = 0;            // nats
  int64_t kl_compared = 0;  // rows
  int64_t decoded = 0;      // rows
  double decode_ns = 0;
  double attend_ns = 0;
  sparse::SparseCounters counters;

  void add(const sparse::SparseCounters& c) {
    counters.kv_bytes += c.kv_bytes;
    counters.kv_bytes_read += c.kv_bytes_read;
    counters.index_bytes_read += c.index_bytes_read;
    counters.digest_ns += c.digest_ns;
    counters.score_ns += c.score_ns;
    counters.choose_ns += c.choose_ns;
    counters.measure_ns += c.measure_ns;
    counters.locks.kept += c.locks.kept;
    counters.locks.updated += c.locks.updated;
    counters.quality.resize(c.quality.size());
    for (size_t layer = 0; layer < c.quality.size(); ++layer) {
      counters.quality[layer].reads += c.quality[layer].reads;
      counters.quality[layer].mass += c.quality[layer].mass;
      counters.quality[layer].top10 += c.quality[layer].top10;
    }
  }
};

class Run {
 public:
  Run(engine::Engine& engine, const SparseEvalOptions& options,
      FunctionRef<bool(int64_t, int64_t)> progress)
      : engine_(engine), options_(options), progress_(progress), base_(engine.create_sequence()) {}

  Result<SparseEvalResults> run() {
    std::vector<std::vector<SparseCase>> of_length;
    for (const int32_t length : options_.lengths) {
      SparseTaskOptions cases = options_.cases;
      cases.length_tokens = length;
      WEFT_ASSIGN_OR_RETURN(std::vector<SparseCase> some,
                            sparse_cases(engine_, options_.task, cases));
      n_left_ += std::ssize(some);
      of_length.push_back(std::move(some));
    }
    n_total_ = n_left_ * std::ssize(options_.settings);
    for (size_t i = 0; i < of_length.size(); ++i) {
      for (const SparseCase& one : of_length[i]) {
        const Status done = run_case(one, options_.lengths[i]);
        if (done.code() == StatusCode::kCancelled) return SparseEvalResults{rows(), n_left_};
        WEFT_RETURN_IF_ERROR(done);
        --n_left_;
      }
      base_ = engine_.create_sequence();  // not part of another length's texts
      base_tokens_.clear();
    }
    return SparseEvalResults{rows(), n_left_};
  }

 private:
  static Status stopped() { return cancelled("the evaluation was stopped"); }
  bool goes_on() { return progress_(n_done_, n_total_); }

  Result<std::vector<float>> append(const kv::OwnedSequence& sequence,
                                    std::span<const int32_t> tokens, model::RowKind kind) {
    const auto is_cancelled = [&] { return !goes_on(); };
    const FunctionRef<bool()> cancelled(is_cancelled);
    auto logits = engine_.append(sequence, tokens, {.kind = kind, .cancelled = &cancelled});
    if (logits.status().code() == StatusCode::kCancelled) return stopped();
    return logits;
  }

  /// The text's sequence with the logits after it. What the next texts have in common with it is
  /// kept, for them to go on from.
  Result<std::pair<kv::OwnedSequence, std::vector<float>>> prefill(const SparseCase& one) {
    const std::span<const int32_t> text = one.text;
    const bool goes_on_from_base =
        std::ssize(base_tokens_) <= one.n_shared &&
        std::ranges::equal(base_tokens_, text.first(base_tokens_.size()));
    if (!goes_on_from_base) {
      base_ = engine_.create_sequence();
      base_tokens_.clear();
    }
    const auto more = text.subspan(base_tokens_.size(), one.n_shared - base_tokens_.size());
    if (!more.empty()) {
      WEFT_RETURN_IF_ERROR(append(base_, more, model::RowKind::kPrompt).status());
      base_tokens_.insert(base_tokens_.end(), more.begin(), more.end());
    }
    WEFT_ASSIGN_OR_RETURN(kv::OwnedSequence sequence, base_.fork());
    WEFT_ASSIGN_OR_RETURN(
        std::vector<float> logits,
        append(sequence, text.subspan(base_tokens_.size()), model::RowKind::kPrompt));
    return std::pair(std::move(sequence), std::move(logits));
  }

  Status run_case(const SparseCase& one, int32_t length) {
    const int64_t needed = std::ssize(one.text) + std::ssize(one.question) + one.answer_tokens;
    if (needed > engine_.context_tokens()) {
      return resource_exhausted(fmt::format("{} tokens do not fit the context of {}; {}", needed,
                                            engine_.context_tokens(), engine_.way_to_hold(needed)));
    }
    WEFT_RETURN_IF_ERROR(engine_.use_sparse({}));
    WEFT_ASSIGN_OR_RETURN(const auto text, prefill(one));
    dense_logits_.clear();
    std::vector<Tally> of_settings;  // they count when all are there
    for (size_t setting = 0; setting < options_.settings.size(); ++setting) {
      sparse::SparseOptions options = options_.settings[setting];
      options.measure_every = kMeasuredEvery;
      // Each makes its digests: with those of the one before it, it would seem to need none.
      WEFT_RETURN_IF_ERROR(engine_.use_sparse({}));
      WEFT_RETURN_IF_ERROR(engine_.use_sparse(options));
      WEFT_ASSIGN_OR_RETURN(const kv::OwnedSequence sequence, text.first.fork());
      Tally tally{.trials = 1};
      const double attended_ns = attend_ns();
      WEFT_RETURN_IF_ERROR(one.answer_tokens > 0
                               ? answer(sequence, one, tally)
                               : score(sequence, one.question, text.second, tally));
      tally.attend_ns = attend_ns() - attended_ns;
      if (engine_.selector() != nullptr) tally.add(engine_.selector()->counters());
      of_settings.push_back(std::move(tally));
      ++n_done_;
      if (!goes_on() && of_settings.size() < options_.settings.size()) return stopped();
    }
    for (size_t setting = 0; setting < of_settings.size(); ++setting) {
      const Tally& tally = of_settings[setting];
      add(tallies_[{length, setting, std::nullopt}], tally);
      if (options_.by_depth && one.depth) add(tallies_[{length, setting, one.depth}], tally);
    }
    return Status::ok();
  }

  /// Of all that was decoded so far: reading K and V, without choosing.
  double attend_ns() const {
    double all = 0;
    for (const model::AttentionTime& layer : engine_.attention_times()) all += layer.attend_ns;
    return all;
  }

  Status answer(const kv::OwnedSequence& sequence, const SparseCase& one, Tally& tally) {
    const int64_t begin_ns = engine_.env().monotonic_ns();
    std::vector<float> logits;
    for (size_t i = 0; i < one.question.size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(
          logits, append(sequence, std::span(one.question).subspan(i, 1), model::RowKind::kDecode));
    }
    WEFT_ASSIGN_OR_RETURN(const engine::Generation generation,
                          engine::generate(engine_, sequence, std::move(logits),
                                           {.max_tokens = one.answer_tokens,
                                            .one_line = has_short_answers(options_.task)},
                                           [&](std::string_view) { return goes_on(); }));
    if (generation.stop_reason == engine::StopReason::kCancelled) return stopped();
    tally.decode_ns = engine_.env().monotonic_ns() - begin_ns;
    tally.decoded = sequence.length() - std::ssize(one.text);  // the last token may not be run
    const std::string& text = generation.text;
    if (one.depth) {
      tally.correct = holds_value(text, one.answers.front()) ? 1 : 0;
    } else if (options_.task == SparseTask::kSummary) {
      tally.rouge_l = rouge_l(text, one.answers);
    } else {
      tally.f1 = answer_f1(text, one.answers);
      tally.correct = contains_answer(text, one.answers) ? 1 : 0;
    }
    return Status::ok();
  }

  /// Teacher forcing: each token from the logits of the row before it, which are compared with
  /// dense decoding's if that was the first setting.
  Status score(const kv::OwnedSequence& sequence, std::span<const int32_t> tokens,
               std::vector<float> logits, Tally& tally) {
    std::vector<float> logprobs(engine_.model().config().vocab_size);
    for (size_t i = 0; i < tokens.size(); ++i) {
      // The first is prefill's to predict: the same for every setting.
      if (i > 0) {
        kernels::log_softmax(logits, logprobs);
        tally.loss -= logprobs[tokens[i]];
        ++tally.scored;
        compare(i - 1, logits, tally);
      }
      const int64_t begin_ns = engine_.env().monotonic_ns();
      WEFT_ASSIGN_OR_RETURN(logits,
                            append(sequence, tokens.subspan(i, 1), model::RowKind::kDecode));
      WEFT_RETURN_IF_ERROR(engine::check_logits(logits));
      tally.decode_ns += engine_.env().monotonic_ns() - begin_ns;
    }
    tally.decoded = std::ssize(tokens);
    return Status::ok();
  }

  void compare(size_t row, const std::vector<float>& logits, Tally& tally) {
    const bool is_dense = engine_.selector() == nullptr;
    if (is_dense && row == dense_logits_.size()) dense_logits_.push_back(logits);
    if (is_dense || row >= dense_logits_.size()) return;
    tally.kl += kl_divergence(dense_logits_[row], logits);
    ++tally.kl_compared;
  }

  static void add(Tally& all, const Tally& one) {
    all.trials += one.trials;
    all.correct += one.correct;
    all.f1 += one.f1;
    all.rouge_l += one.rouge_l;
    all.loss += one.loss;
    all.scored += one.scored;
    all.kl += one.kl;
    all.kl_compared += one.kl_compared;
    all.decoded += one.decoded;
    all.decode_ns += one.decode_ns;
    all.attend_ns += one.attend_ns;
    all.add(one.counters);
  }

  /// In the order of the settings, then of the lengths; depths after all others.
  std::vector<SparseRow> rows() const {
    std::vector<SparseRow> all;
    for (const bool of_depths : {false, true}) {
      for (size_t setting = 0; setting < options_.settings.size(); ++setting) {
        for (const auto& [key, tally] : tallies_) {
          if (key.setting == setting && key.depth.has_value() == of_depths) {
            all.push_back(row_of(key, tally));
          }
        }
      }
    }
    return all;
  }

  struct Key {
    int32_t length = 0;
    size_t setting = 0;
    std::optional<double> depth;
    auto operator<=>(const Key&) const = default;
  };

  SparseRow row_of(const Key& key, const Tally& tally) const {
    const sparse::SparseOptions& setting = options_.settings[key.setting];
    const SparseTask task = options_.task;
    const double n = std::max<int64_t>(1, tally.trials);
    const sparse::SparseCounters& c = tally.counters;
    SparseRow row{.task = kSparseTasks.name(task),
                  .policy = sparse::kPolicies.name(setting.policy),
                  .length_tokens = key.length,
                  .depth = key.depth,
                  .trials = tally.trials};
    if (setting.budget_tokens > 0) row.budget_tokens = setting.budget_tokens;
    if (task == SparseTask::kPerplexity) row.perplexity = std::exp(tally.loss / tally.scored);
    if (tally.kl_compared > 0) row.kl = tally.kl / tally.kl_compared;
    if (task != SparseTask::kPerplexity && task != SparseTask::kSummary) {
      row.accuracy = tally.correct / n;
    }
    if (has_short_answers(task)) row.f1 = tally.f1 / n;
    if (task == SparseTask::kSummary) row.rouge_l = tally.rouge_l / n;
    // Digests of the text are made once, whatever is asked, and nobody but an evaluation measures.
    const double token_ns = (tally.decode_ns - c.digest_ns - c.measure_ns) / tally.decoded;
    row.tokens_per_s = 1e9 / token_ns;
    const auto of_token = [&](double ns) { return 1e-6 * ns / tally.decoded; };
    row.attend_ms = of_token(tally.attend_ns);
    row.other_ms = 1e-6 * token_ns - of_token(tally.attend_ns + c.score_ns + c.choose_ns);
    row.bytes_read_share = 1;
    if (!setting.is_on()) return row;
    row.bytes_read_share = (1.0 * c.kv_bytes_read + c.index_bytes_read) / c.kv_bytes;
    if (setting.lock.is_on()) {
      row.lock_interval = setting.lock.interval_tokens;
      row.checkpoint = sparse::kCheckpoints.name(setting.lock.checkpoint);
    }
    if (const int64_t compared = c.locks.kept + c.locks.updated; compared > 0) {
      row.update_rate = 1.0 * c.locks.updated / compared;
    }
    row.digest_ms = of_token(c.digest_ns);
    row.score_ms = of_token(c.score_ns);
    row.choose_ms = of_token(c.choose_ns);
    const sparse::ReadQuality quality = c.all_quality();
    if (quality.reads == 0) return row;
    row.mass_kept = quality.mass / quality.reads;
    row.top10_recall = quality.top10 / quality.reads;
    for (const sparse::ReadQuality& layer : c.quality) {
      if (layer.reads > 0) row.mass_by_layer.push_back(layer.mass / layer.reads);
    }
    return row;
  }

  engine::Engine& engine_;
  const SparseEvalOptions& options_;
  FunctionRef<bool(int64_t, int64_t)> progress_;
  kv::OwnedSequence base_;
  std::vector<int32_t> base_tokens_;
  std::vector<std::vector<float>> dense_logits_;  // of a text's scored rows, if they were first
  int64_t n_done_ = 0;
  int64_t n_total_ = 0;
  int64_t n_left_ = 0;  // texts
  std::map<Key, Tally> tallies_;
};

}  // namespace

Result<SparseEvalResults> sparse_eval(engine::Engine& engine, const SparseEvalOptions& options,
                                      FunctionRef<bool(int64_t, int64_t)> progress) {
  auto results = Run(engine, options, progress).run();
  WEFT_RETURN_IF_ERROR(engine.use_sparse({}));  // also where it was stopped
  return results;
}

}  // namespace weft::eval
