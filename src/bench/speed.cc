// What `llama-bench -p N -n M -d D` measures, by the same rules: random tokens, no sampling, the
// logits of the last row alone, the cache empty before each prefill. A sampler would add the same
// to every engine, and greedy text of a small model ends early.
#include "bench/speed.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/narrow.h"
#include "base/spread.h"
#include "bench/random_tokens.h"
#include "bench/stopped.h"
#include "sparse/selector.h"

namespace weft::bench {
namespace {

double seconds_since(Env& env, int64_t begin_ns) { return (env.monotonic_ns() - begin_ns) * 1e-9; }

/// Tokens a second of one prompt from an empty sequence, in steps as the engine cuts them.
Result<double> time_prefill(engine::Engine& engine, std::span<const int32_t> tokens,
                            const FunctionRef<bool()>& cancelled) {
  const kv::OwnedSequence sequence = engine.create_sequence();
  const int64_t begin_ns = engine.env().monotonic_ns();
  WEFT_RETURN_IF_ERROR(engine.append(sequence, tokens, {.cancelled = &cancelled}).status());
  const double seconds = seconds_since(engine.env(), begin_ns);
  return tokens.size() / seconds;
}

/// Attention of the layers that see all slots, those that choose pages and the others.
class AttentionClock {
 public:
  explicit AttentionClock(const engine::Engine& engine) : engine_(engine) {
    for (size_t layer = 0; layer < engine.attention_times().size(); ++layer) {
      const bool selects = engine.selector() != nullptr && engine.selector()->selects()[layer];
      if (engine.model().config().layers[layer].window_tokens > 0) continue;
      (selects ? selecting_ : dense_).layers.push_back(layer);
    }
    skip();
  }

  /// What was run since then is not counted.
  void skip() {
    const auto now = engine_.attention_times();
    last_.assign(now.begin(), now.end());
  }

  /// What was run since then were so many tokens.
  void add(size_t n_tokens) {
    for (Kind* kind : {&dense_, &selecting_}) {
      const double n = 1e6 * n_tokens * std::max<size_t>(1, kind->layers.size());
      double attention_ns = 0, select_ns = 0;
      for (const size_t layer : kind->layers) {
        const model::AttentionTime& now = engine_.attention_times()[layer];
        select_ns += now.select_ns - last_[layer].select_ns;
        attention_ns += now.attend_ns - last_[layer].attend_ns;
      }
      kind->attention_ms.push_back((attention_ns + select_ns) / n);
      kind->select_ms.push_back(select_ns / n);
    }
  }

  AttentionSpeed dense() const { return dense_.speed(); }
  AttentionSpeed selecting() const { return selecting_.speed(); }

 private:
  struct Kind {
    std::vector<size_t> layers;
    std::vector<double> attention_ms, select_ms;  // of each run; the first one warms up

    AttentionSpeed speed() const {
      return {.n_layers = narrow<int32_t>(layers.size()),
              .ms = spread_of({attention_ms.begin() + 1, attention_ms.end()}),
              .select_ms = spread_of({select_ms.begin() + 1, select_ms.end()})};
    }
  };

  const engine::Engine& engine_;
  std::vector<model::AttentionTime> last_;
  Kind dense_, selecting_;
};

/// Tokens a second of one token a step after the first `depth` of them, which the sequence is cut
/// back to, so that every repeat decodes at the same depth. Given tokens, not sampled ones:
/// decode's work does not depend on which they are.
Result<double> time_decode(engine::Engine& engine, kv::OwnedSequence& sequence,
                           std::span<const int32_t> tokens, int32_t depth, AttentionClock& clock,
                           const FunctionRef<bool()>& cancelled) {
  // Not even those are there at first, nor where the steps rolled a window past them.
  const auto missing = tokens.first(depth).subspan(sequence.length());
  if (!missing.empty()) {
    WEFT_RETURN_IF_ERROR(engine.append(sequence, missing, {.cancelled = &cancelled}).status());
  }
  const auto steps = tokens.subspan(depth);
  clock.skip();
  const int64_t begin_ns = engine.env().monotonic_ns();
  for (size_t i = 0; i < steps.size(); ++i) {
    WEFT_RETURN_IF_ERROR(engine
                             .append(sequence, steps.subspan(i, 1),
                                     {.kind = model::RowKind::kDecode, .cancelled = &cancelled})
                             .status());
  }
  const double seconds = seconds_since(engine.env(), begin_ns);
  clock.add(steps.size());
  WEFT_RETURN_IF_ERROR(sequence.truncate(sequence.longest_cut(depth)));
  return steps.size() / seconds;
}

/// The first run of each warms up and is not counted.
template <class Time>
Result<Spread> repeat(int32_t n, Time time, FunctionRef<bool()> tick) {
  std::vector<double> values;
  for (int32_t i = 0; i <= n; ++i) {
    const Result<double> value = time();
    if (value.status().code() == StatusCode::kCancelled) return stopped();
    WEFT_RETURN_IF_ERROR(value.status());
    if (i > 0) values.push_back(*value);
    if (!tick()) return stopped();
  }
  return spread_of(values);
}

}  // namespace

Result<SpeedReport> bench_speed(engine::Engine& engine, const SpeedOptions& options,
                                FunctionRef<bool(int64_t, int64_t)> progress) {
  int64_t longest = int64_t{options.depth_tokens} + options.decode_tokens;
  for (const int32_t n : options.prefill_tokens) longest = std::max<int64_t>(longest, n);
  if (longest > engine.context_tokens() || options.decode_tokens < 0 || options.depth_tokens < 0) {
    return invalid_argument(
        fmt::format("{} tokens do not fit the context of {}", longest, engine.context_tokens()));
  }
  // One text for all lengths: a shorter prompt is the beginning of a longer one.
  const std::vector<int32_t> tokens = random_tokens(engine, narrow<int32_t>(longest), /*seed=*/7);
  const auto n_parts = std::ssize(options.prefill_tokens) + (options.decode_tokens > 0 ? 1 : 0);
  int64_t done = 0;
  const int64_t n_runs = n_parts * (int64_t{options.repeat} + 1);
  const auto tick = [&] { return progress(++done, n_runs); };
  const auto is_cancelled = [&] { return !progress(done, n_runs); };
  const FunctionRef<bool()> cancelled(is_cancelled);

  SpeedReport report;
  for (const int32_t n : options.prefill_tokens) {
    if (n < 1) return invalid_argument("-p: prompts have at least 1 token");
    const auto prompt = std::span(tokens).first(n);
    WEFT_ASSIGN_OR_RETURN(
        const Spread spread,
        repeat(
            options.repeat, [&] { return time_prefill(engine, prompt, cancelled); }, tick));
    report.prefill.push_back({n, spread});
  }
  report.decode_depth = options.depth_tokens;
  if (options.decode_tokens > 0) {
    const int32_t depth = options.depth_tokens;
    kv::OwnedSequence sequence = engine.create_sequence();
    if (options.fills_random) {
      WEFT_ASSIGN_OR_RETURN(sequence, engine.random_sequence(depth));
    }
    AttentionClock clock(engine);
    const auto run = std::span<const int32_t>(tokens).first(depth + options.decode_tokens);
    WEFT_ASSIGN_OR_RETURN(
        report.decode_tokens_per_s,
        repeat(
            options.repeat,
            [&] { return time_decode(engine, sequence, run, depth, clock, cancelled); }, tick));
    report.dense = clock.dense();
    report.selecting = clock.selecting();
  }
  return report;
}

}  // namespace weft::bench
