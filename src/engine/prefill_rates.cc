#include "engine/prefill_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <sstream>

#include "base/narrow.h"
#include "base/out_of_memory.h"
#include "base/thread_pool.h"
#include "engine/compute_choice.h"
#include "engine/kept_measurements.h"
#include "fusion/record_type.h"
#include "kernels/kv_codec.h"
#include "kernels/rope.h"
#include "kv/cache.h"
#include "model/executor.h"
#include "model/forward.h"

namespace weft::engine {
namespace {

using fusion::PrefillRates;

/// Rows that are run by the clock, all in the pages of one sequence.
struct Lengths {
  int32_t few_rows = 64;
  int32_t many_rows = 512;  // a block of model/forward.cc
  int32_t far_rows = 128;
  int32_t far_position = 2048;

  int32_t tokens() const { return std::max(many_rows, far_position + far_rows); }
  bool are_usual() const { return tokens() == Lengths().tokens(); }
};

/// Within so many tokens of KV cache, a page at least: no prompt there is longer than that, so what
/// a shorter measurement cannot see is not asked for either.
Lengths lengths_within(int32_t tokens) {
  Lengths lengths;
  if (tokens >= lengths.tokens()) return lengths;
  lengths.many_rows = std::min(lengths.many_rows, tokens);
  lengths.few_rows = std::max(lengths.many_rows / 8, 1);
  lengths.far_rows = std::max(std::min(lengths.far_rows, tokens / 4), 1);
  lengths.far_position = tokens - lengths.far_rows;
  return lengths;
}

constexpr int kRounds = 3;
constexpr int kMostRounds =
    8;  // of a busy machine, which needs more for one that is near the least
constexpr double kRoundMs = 250;  // a round runs as many layers as fit this, one at least

std::string key_of(Env& env, const model::Model& model, const kernels::Context& context,
                   const kernels::KvLayout& layout, const Lengths& lengths) {
  std::string key = fmt::format("{} / {} / {} cores / {} / {} / context {}", cpu_name(env),
                                kernels::isa_name(context.isa), usable_cores(),
                                kMatmulPaths.name(context.matmul_path),
                                model.fingerprint().to_hex(), model.config().context_tokens);
  // Only what is not usual, so that what was kept before there was a choice is still found.
  const kernels::KvTypes usual;
  if (layout.k_type != usual.k || layout.v_type != usual.v) {
    key +=
        fmt::format(" / KV {} {}", dtype_info(layout.k_type).name, dtype_info(layout.v_type).name);
  }
  if (!lengths.are_usual()) key += fmt::format(" / {} tokens", lengths.tokens());
  return key;
}

std::string kept_value(const PrefillRates& r) {
  return fmt::format("{} {} {} {} {}", r.block_ms, r.row_ms, r.key_ms, r.kv_byte_ms, r.logits_ms);
}

std::optional<PrefillRates> parse_kept(const std::string& value) {
  std::istringstream in(value);
  in.imbue(std::locale::classic());
  PrefillRates r;
  in >> r.block_ms >> r.row_ms >> r.key_ms >> r.kv_byte_ms >> r.logits_ms;
  if (in.fail() || !(in >> std::ws).eof()) return std::nullopt;
  for (const double ms : {r.block_ms, r.row_ms, r.key_ms, r.kv_byte_ms, r.logits_ms}) {
    if (!(ms >= 0 && ms < 1e9)) return std::nullopt;
  }
  return r.row_ms > 0 ? std::optional(r) : std::nullopt;
}

/// Keys that rows at positions [begin, begin + n) look at in a layer.
double keys_of(const model::LayerConfig& layer, int32_t begin, int32_t n) {
  double keys = 0;
  for (int32_t p = begin; p < begin + n; ++p) {
    keys += layer.window_tokens > 0 ? std::min(p + 1, layer.window_tokens) : p + 1;
  }
  return keys;
}

/// x with a x = b; a is well-conditioned enough for three unlike measurements.
std::array<double, 3> solve(std::array<std::array<double, 3>, 3> a, std::array<double, 3> b) {
  for (size_t c = 0; c < 3; ++c) {
    size_t pivot = c;
    for (size_t r = c; r < 3; ++r) {
      if (std::abs(a[r][c]) > std::abs(a[pivot][c])) pivot = r;
    }
    std::swap(a[c], a[pivot]);
    std::swap(b[c], b[pivot]);
    for (size_t r = 0; r < 3; ++r) {
      if (r == c || a[c][c] == 0) continue;
      const double factor = a[r][c] / a[c][c];
      for (size_t i = 0; i < 3; ++i) a[r][i] -= factor * a[c][i];
      b[r] -= factor * b[c];
    }
  }
  return {b[0] / a[0][0], b[1] / a[1][1], b[2] / a[2][2]};
}

/// Time as a machine with nothing else to do would take it. The work is shared by `n_threads` that
/// take tasks as they are free, so what they waited for cores, in sum, made it longer by an
/// n_threads-th of that. Without this, rates that were measured beside a compiler were kept, twice
/// to seven times too slow, and reuse was chosen where full prefill would have been soon done.
class QuietWatch {
 public:
  QuietWatch(Env& env, int n_threads)
      : env_(env),
        n_threads_(n_threads),
        begin_wait_ns_(env.core_wait_ns()),
        begin_ns_(env.monotonic_ns()) {}

  double ms() const {
    const double ms = env_.ms_since(begin_ns_);
    return std::max(ms - waited_ms(), kLeastShare * ms);
  }
  bool was_quiet() const { return waited_ms() < kQuietShare * env_.ms_since(begin_ns_); }

 private:
  static constexpr double kLeastShare = 0.05;  // of the time that passed: a wait is no more than it
  static constexpr double kQuietShare = 0.05;

  double waited_ms() const { return (env_.core_wait_ns() - begin_wait_ns_) * 1e-6 / n_threads_; }

  Env& env_;
  const int n_threads_;
  const int64_t begin_wait_ns_;
  const int64_t begin_ns_;
};

/// Runs layers over a sequence of the cache, by the clock, and commits nothing.
class RateMeter {
 public:
  RateMeter(Env& env, const model::Model& model, const kernels::Context& context, kv::Cache& cache,
            const Lengths& lengths)
      : env_(env),
        config_(model.config()),
        context_(context),
        cache_(cache),
        lengths_(lengths),
        forward_(model, context) {}

  Result<PrefillRates> measure() {
    const kv::OwnedSequence sequence(cache_, cache_.create_sequence());
    WEFT_ASSIGN_OR_RETURN(const kv::Reservation reservation,
                          cache_.reserve(sequence.id(), lengths_.tokens()));
    sequence_ = sequence.id();
    WEFT_ASSIGN_OR_RETURN(const double trial_ms, run(0, lengths_.many_rows, {0}));  // warms up, too
    const auto fitting = static_cast<int32_t>(kRoundMs / (2 * std::max(trial_ms, 0.01)));
    const int32_t n = std::clamp(fitting, 1, config_.n_layers);
    for (int32_t i = 0; i < n; ++i) layers_.push_back(i * config_.n_layers / n);

    PrefillRates rates;
    constexpr double kNever = 1e300;
    double few_ms = kNever, many_ms = kNever, far_ms = kNever;
    rates.kv_byte_ms = rates.logits_ms = kNever;
    // The least of the rounds: a machine is only ever slower than it can be.
    int n_quiet = 0;
    for (int round = 0; round < kMostRounds && n_quiet < kRounds; ++round) {
      const QuietWatch whole_round = start_watch();
      rates.kv_byte_ms = std::min(rates.kv_byte_ms, place_bytes());
      WEFT_ASSIGN_OR_RETURN(const double few, run(0, lengths_.few_rows, layers_));
      WEFT_ASSIGN_OR_RETURN(const double many, run(0, lengths_.many_rows, layers_));
      WEFT_ASSIGN_OR_RETURN(const double far,
                            run(lengths_.far_position, lengths_.far_rows, layers_));
      few_ms = std::min(few_ms, few);
      many_ms = std::min(many_ms, many);
      far_ms = std::min(far_ms, far);
      rates.logits_ms = std::min(rates.logits_ms, last_logits());
      if (whole_round.was_quiet()) ++n_quiet;
    }
    const auto row = [&](int32_t begin, int32_t n_rows) {
      double keys = 0;
      for (const int32_t l : layers_) {
        keys += keys_of(config_.layers[l], begin, n_rows);
      }
      const double n_layers = layers_.size();
      return std::array{n_layers, n_layers * n_rows, keys};
    };
    const auto solved = solve({row(0, lengths_.few_rows), row(0, lengths_.many_rows),
                               row(lengths_.far_position, lengths_.far_rows)},
                              {few_ms, many_ms, far_ms});
    const bool is_solved = std::ranges::all_of(solved, [](double ms) { return std::isfinite(ms); });
    if (is_solved) {
      rates.block_ms = std::max(solved[0], 0.0);
      rates.row_ms = std::max(solved[1], 1e-9);
      rates.key_ms = std::max(solved[2], 0.0);
    } else {  // of a model whose rows all see as many keys, the keys are in the rows
      rates.row_ms = std::max(many_ms / (1.0 * layers_.size() * lengths_.many_rows), 1e-9);
    }
    return rates;
  }

 private:
  QuietWatch start_watch() { return {env_, context_.pool.size()}; }

  /// Milliseconds of a prompt's rows at positions [begin, begin + n) through the layers.
  Result<double> run(int32_t begin, int32_t n, const std::vector<int32_t>& layers) {
    std::vector<int32_t> tokens(n);
    for (int64_t i = 0; i < n; ++i) tokens[i] = i * 7919 % config_.vocab_size;
    const QuietWatch watch = start_watch();
    model::RowsPass pass(forward_, cache_, model::Rows::of(sequence_, tokens, begin),
                         {.keep_all_rows = true, .layers = layers});
    WEFT_RETURN_IF_ERROR(model::Executor(forward_).run(pass));
    batch_.emplace(pass.take_batch());
    return watch.ms();
  }

  /// Milliseconds a byte. Also what the far rows look at: pages that nobody wrote are all one page
  /// of zeros, in the nearest cache.
  double place_bytes() {
    const int64_t n = lengths_.far_position * config_.kv_width();
    const int64_t half = row_bytes(fusion::kUsualRecordType, n);
    std::vector<std::byte> record(2 * half);
    kernels::encode_kv(context_.isa, fusion::kUsualRecordType, std::vector<float>(2 * n, 1.0f / 16),
                       record.data());
    std::vector<int32_t> positions(lengths_.far_position);
    std::iota(positions.begin(), positions.end(), 0);
    double bytes = 0;
    const kernels::RopeTable table = make_rope_table(config_.rope_of(0), positions);
    const QuietWatch watch = start_watch();
    for (const int32_t l : layers_) {
      kernels::rotate_into_pages(
          context_, table, 0, {fusion::kUsualRecordType, record.data(), record.data() + half},
          lengths_.far_position, 0, cache_.layer_table(sequence_, l).data(), cache_.layer(l));
      bytes += record.size();
    }
    return watch.ms() / bytes;
  }

  double last_logits() {
    const int64_t n_vocab = config_.vocab_size;
    std::vector<float> logits(n_vocab);
    const int64_t last[] = {batch_->n_rows() - 1};
    const QuietWatch watch = start_watch();
    forward_.logits(*batch_, last, {logits, n_vocab});
    return watch.ms();
  }

  Env& env_;
  const model::ModelConfig& config_;
  const kernels::Context& context_;
  kv::Cache& cache_;
  const Lengths lengths_;
  model::ForwardPass forward_;
  std::optional<model::Batch> batch_;  // the last one that ran
  kv::SequenceId sequence_{};
  std::vector<int32_t> layers_;  // evenly from all: kinds of layers differ
};

Result<PrefillRates> measure(Env& env, const model::Model& model, const kernels::Context& like,
                             kv::Cache& cache, const Lengths& lengths) {
  WEFT_ASSIGN_OR_RETURN(const auto pool, ThreadPool::create(usable_cores()));
  const kernels::Context context{*pool, like.isa, like.matmul_path};
  return RateMeter(env, model, context, cache, lengths).measure();
}

}  // namespace

int64_t prefill_rates_bytes(const model::StepScratch& scratch, const model::ModelConfig& config,
                            int64_t capacity_tokens) {
  const Lengths lengths =
      lengths_within(narrow<int32_t>(std::min(capacity_tokens, int64_t{Lengths().tokens()})));
  // The record that is placed, as f32 and as it is stored, and its angles: place_bytes().
  const int64_t record = row_bytes(fusion::kUsualRecordType, 2 * config.kv_width());
  const int64_t placed_bytes =
      lengths.far_position *
      (record + (2 * config.kv_width() + config.head_dim + 1) * int64_t{sizeof(float)});
  // The batch of the run before is there until the next one has ended.
  const int64_t rows = 2 * lengths.many_rows;
  const int64_t step_bytes = scratch.bytes({.prompt_rows = lengths.many_rows,
                                            .most_rows = rows,
                                            .n_slots = lengths.tokens(),
                                            .logit_rows = 1},
                                           usable_cores());
  return step_bytes + placed_bytes;
}

Result<PrefillRates> prefill_rates(Env& env, const model::Model& model,
                                   const kernels::Context& context, kv::Cache& cache,
                                   const std::string& kept_file,
                                   const std::function<void()>& measuring) {
  // One at least, so that a full cache refuses it.
  const int32_t n_pages = std::max(cache.free_page_count() + cache.evictable_page_count(), 1);
  const Lengths lengths = lengths_within(narrow<int32_t>(
      std::min(int64_t{n_pages} * cache.page_tokens(), int64_t{Lengths().tokens()})));
  const std::string key =
      kept_file.empty() ? "" : key_of(env, model, context, cache.layer(0).layout, lengths);
  if (!kept_file.empty()) {
    const auto kept = find_kept(env, kept_file, key);
    if (const auto rates = kept ? parse_kept(*kept) : std::nullopt) return *rates;
  }
  if (measuring) measuring();
  WEFT_ASSIGN_OR_RETURN(const PrefillRates measured,
                        or_out_of_memory("measuring how fast this machine prefills",
                                         "--ratio R does without that measurement", [&] {
                                           return measure(env, model, context, cache, lengths);
                                         }));
  if (!kept_file.empty()) keep(env, kept_file, key, kept_value(measured));
  return measured;
}

}  // namespace weft::engine
