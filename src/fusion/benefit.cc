#include "fusion/benefit.h"

#include "fusion/selection.h"

namespace weft::fusion {
namespace {

// Loading, checking and rotating a byte takes about as long as this many operations of prefill:
// some 3 GB/s beside some 300 GFLOP/s on two cores.
constexpr double kOperationsPerByte = 100;

/// Operations of one row through one layer, `context` keys in sight.
double row_work(const model::ModelConfig& c, double context) {
  const double projections =
      2.0 * c.n_embd * static_cast<double>(2 * c.q_width() + 2 * c.kv_width());
  const double feed_forward = 2.0 * 3.0 * c.n_embd * static_cast<double>(c.active_ff());
  return projections + feed_forward + 4.0 * context * static_cast<double>(c.q_width());
}

}  // namespace

double plain_work(const model::ModelConfig& config, const ReuseCounts& n) {
  const auto computed =
      static_cast<double>(n.prefix_missing + n.hit_tokens + n.missed_tokens + n.suffix_tokens);
  const double context = static_cast<double>(n.prefix_found) + computed / 2;
  return config.n_layers * computed * row_work(config, context);
}

double reuse_work(const model::ModelConfig& config, const ReuseCounts& n,
                  const FusionOptions& options) {
  const auto chunk_tokens = static_cast<double>(n.hit_tokens + n.missed_tokens);
  const auto always = static_cast<double>(n.prefix_missing + n.suffix_tokens);
  const double context =
      static_cast<double>(n.prefix_found + n.prefix_missing + n.suffix_tokens) + chunk_tokens;
  const double layers = config.n_layers;

  double work = layers * always * row_work(config, context);
  if (options.mode == ReuseMode::kBlend) {
    const auto selected =
        static_cast<double>(selected_count(options.ratio, n.hit_tokens + n.missed_tokens));
    work += layers * selected * row_work(config, context / 2);
    if (options.selector == SelectorKind::kQueryAttention) {
      work += (query_attention_layers(config).back() + 1) * always * row_work(config, context);
    } else {  // everything up to the first check
      work += chunk_tokens * row_work(config, context / 2);
    }
  }
  const double chunk_context = static_cast<double>(n.anchor_tokens) + 256;
  work += layers * static_cast<double>(n.missed_tokens) * row_work(config, chunk_context);
  work += chunk_tokens * static_cast<double>(config.kv_bytes_per_token()) * kOperationsPerByte;
  return work;
}

}  // namespace weft::fusion
