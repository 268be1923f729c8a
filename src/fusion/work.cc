#include "fusion/work.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "fusion/record_type.h"
#include "fusion/selection.h"

namespace weft::fusion {
namespace {

// Loading, checking and rotating a byte takes about as long as this many operations of prefill:
// some 3 GB/s beside some 300 GFLOP/s on two cores. Bytes are counted as f16's, whatever the
// records' type: to place q8_0's 0.53 of them took 0.8 to 1.35 of the time (attention_bench's
// rotate, AVX2 and AVX-512), and so a store's type changes no choice.
constexpr double kOperationsPerByte = 100;
constexpr double kBlockRows = 512;  // model/forward.cc
// A chunk that is missing is computed by itself, about half of its longest length in sight.
constexpr double kChunkContext = 256;

/// Keys that a row sees in a layer, on average over rows whose contexts go from `first` to `last`.
double keys_in_sight(const model::LayerConfig& layer, double first, double last) {
  const double window = layer.window_tokens;
  if (window == 0 || last <= window) return (first + last) / 2;
  if (first >= window) return window;
  return ((window * window - first * first) / 2 + window * (last - window)) / (last - first);
}

/// Rows with contexts from `first` to `last` through the layers [layer_begin, layer_end).
struct Rows {
  double n = 0;
  double first = 0;
  double last = 0;
};

void add_rows(const model::ModelConfig& config, int32_t layer_begin, int32_t layer_end,
              std::span<const Rows> parts, Work& work) {
  for (int32_t l = layer_begin; l < layer_end; ++l) {
    double rows = 0;
    for (const Rows& part : parts) {
      rows += part.n;
      work.keys += part.n * keys_in_sight(config.layers[l], part.first, part.last);
    }
    work.rows += rows;
    work.blocks += std::ceil(rows / kBlockRows);
  }
}

/// The rows of a fusion: the text that is no chunk, and a share of the chunks' tokens.
struct FusedRows {
  Rows prefix;
  Rows suffix;
  int64_t chunk_tokens = 0;

  std::array<Rows, 3> with_chunks(double ratio) const {
    const double n_selected = selected_count(ratio, chunk_tokens);
    return {prefix, Rows{n_selected, prefix.last, suffix.first}, suffix};
  }
};

/// All rows up to the first check, and what each check leaves from there on.
void add_deviation_rows(const model::ModelConfig& config, const FusionOptions& options,
                        const FusedRows& fused, Work& work) {
  const std::vector<CheckLayer> checks =
      options.checks.empty() ? std::vector<CheckLayer>{{1, options.ratio}} : options.checks;
  int32_t layer = 0;
  double ratio = 1;
  for (const CheckLayer& check : checks) {
    const int32_t end = std::clamp(check.layer, layer, config.n_layers);
    add_rows(config, layer, end, fused.with_chunks(ratio), work);
    layer = end;
    ratio = check.ratio;
  }
  add_rows(config, layer, config.n_layers, fused.with_chunks(ratio), work);
}

/// The text up to the last layer that is looked at, then all rows.
void add_attention_rows(const model::ModelConfig& config, const FusionOptions& options,
                        const FusedRows& fused, Work& work) {
  if (options.ratio > 0) {
    const int32_t look_end = query_attention_layers(config).back() + 1;
    add_rows(config, 0, look_end, std::array{fused.prefix, fused.suffix}, work);
  }
  add_rows(config, 0, config.n_layers, fused.with_chunks(options.ratio), work);
}

}  // namespace

Work plain_work(const model::ModelConfig& config, const ReuseCounts& n) {
  const double computed = n.prefix_missing + n.hit_tokens + n.missed_tokens + n.suffix_tokens;
  const double found = n.prefix_found;
  Work work;
  add_rows(config, 0, config.n_layers, std::array{Rows{computed, found, found + computed}}, work);
  return work;
}

Work reuse_work(const model::ModelConfig& config, const ReuseCounts& n,
                const FusionOptions& options) {
  const int64_t chunk_tokens = n.hit_tokens + n.missed_tokens;
  const double found = n.prefix_found, missing = n.prefix_missing;
  const double chunks_begin = found + missing;
  const double chunks_end = chunks_begin + chunk_tokens;
  const double suffix_tokens = n.suffix_tokens;
  const FusedRows fused{.prefix = {missing, found, chunks_begin},
                        .suffix = {suffix_tokens, chunks_end, chunks_end + suffix_tokens},
                        .chunk_tokens = chunk_tokens};
  Work work;
  if (!traits_of(options.mode).recomputes_chunks) {
    add_rows(config, 0, config.n_layers, fused.with_chunks(0), work);
  } else {
    switch (options.selector) {
      case SelectorKind::kVDeviation:
        add_deviation_rows(config, options, fused, work);
        break;
      case SelectorKind::kQueryAttention:
        add_attention_rows(config, options, fused, work);
        break;
    }
  }
  const double anchor = n.anchor_tokens, missed = n.missed_tokens;
  add_rows(config, 0, config.n_layers, std::array{Rows{missed, anchor, anchor + 2 * kChunkContext}},
           work);
  work.kv_bytes = 1.0 * chunk_tokens * record_token_bytes(config, kUsualRecordType);
  return work;
}

double operations(const model::ModelConfig& c, const Work& work) {
  const double projections = 2.0 * c.n_embd * (2 * c.q_width() + 2 * c.kv_width());
  const double feed_forward = 2.0 * 3.0 * c.n_embd * c.active_ff();
  return work.rows * (projections + feed_forward) + work.keys * 4.0 * c.q_width() +
         work.kv_bytes * kOperationsPerByte;
}

double predicted_ms(const Work& work, const PrefillRates& rates) {
  return work.blocks * rates.block_ms + work.rows * rates.row_ms + work.keys * rates.key_ms +
         work.kv_bytes * rates.kv_byte_ms + rates.logits_ms;
}

std::optional<double> auto_ratio(const model::ModelConfig& config, const ReuseCounts& counts,
                                 const FusionOptions& options, const PrefillRates& rates) {
  const double full_ms = predicted_ms(plain_work(config, counts), rates);
  if (full_ms < kSoonMs) return std::nullopt;
  const double may_take_ms = std::max(kSoonMs, kSpentShare * full_ms);
  const int64_t chunk_tokens = counts.hit_tokens + counts.missed_tokens;
  FusionOptions tried = options;
  const auto ratio_of = [&](double tokens) { return tokens / chunk_tokens; };
  // The most tokens that keep to it: more tokens never take less time.
  int64_t fits = selected_count(kLeastRatio, chunk_tokens);
  tried.ratio = kLeastRatio;
  const double least_ms = predicted_ms(reuse_work(config, counts, tried), rates);
  if (least_ms > (1 - kMinimumSaving) * full_ms) return std::nullopt;
  int64_t too_many = chunk_tokens + 1;
  while (too_many - fits > 1) {
    const int64_t middle = fits + (too_many - fits) / 2;
    tried.ratio = ratio_of(middle);
    const bool keeps = predicted_ms(reuse_work(config, counts, tried), rates) <= may_take_ms;
    (keeps ? fits : too_many) = middle;
  }
  return std::max(kLeastRatio, ratio_of(fits));
}

}  // namespace weft::fusion
