#include "engine/label_channels.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "base/narrow.h"
#include "engine/kv_size.h"
#include "kv/cache.h"
#include "model/executor.h"
#include "model/forward.h"
#include "sparse/channel_meter.h"

namespace weft::engine {
namespace {

/// Rows that go through the model together: few, as what they take is beside what --kv-limit
/// counts.
constexpr int32_t kRows = 16;

constexpr std::string_view kText =
    "The harbour was built in 1874, after two winters in which the old pier lost its outer end. "
    "Its plans name a length of 412 metres and a cost of 38,000 crowns, of which the town paid a "
    "third. Who keeps the light today? A family of three: they clean the lens each Monday, write "
    "down wind and pressure at six, noon and nine, and call the coast guard when a boat is late. "
    "\"We have never missed an hour,\" says the eldest. The list of ships has four columns (name, "
    "flag, cargo, draught), and its last entry reads: Ingrid; Norway; timber; 3.2 m. Since then "
    "the channel has filled with sand, so that larger vessels wait outside until the tide turns.";

}  // namespace

Result<std::vector<uint8_t>> label_channels(const model::Model& model,
                                            const text::Tokenizer& tokenizer,
                                            const kernels::Context& context) {
  const model::ModelConfig& config = model.config();
  if (config.head_dim < kernels::kLabelChannels) {
    return unsupported(
        fmt::format("--sparse double-sparsity labels a key by {} of its dimensions, and this "
                    "model's heads have {}",
                    kernels::kLabelChannels, config.head_dim));
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, tokenizer.encode(kText));
  if (tokens.empty()) tokens.push_back(0);
  tokens.resize(std::min<size_t>(tokens.size(), config.context_tokens));
  WEFT_ASSIGN_OR_RETURN(
      kv::Cache::Options options,
      kv_cache_options({.context_tokens = narrow<int32_t>(tokens.size())}, config));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<kv::Cache> cache, kv::Cache::create(options));
  const kernels::Context own{context.pool, context.isa, context.matmul_path};  // freed in the end
  model::ForwardPass forward(model, own);
  sparse::ChannelMeter meter(config.n_layers, config.n_kv_heads, config.head_dim);
  forward.set_selector(&meter);
  const kv::OwnedSequence sequence(*cache, cache->create_sequence());
  for (std::span<const int32_t> rest(tokens); !rest.empty();) {
    const auto some = rest.first(std::min<size_t>(rest.size(), kRows));
    rest = rest.subspan(some.size());
    const int32_t begin = sequence.length();
    WEFT_ASSIGN_OR_RETURN(kv::Reservation reservation,
                          cache->reserve(sequence.id(), narrow<int32_t>(some.size())));
    // All rows to the end: of a last layer whose rows nobody wants there is no query.
    model::RowsPass pass(forward, *cache,
                         model::Rows::of(sequence.id(), some, begin, model::RowKind::kVerify),
                         {.keep_all_rows = true});
    WEFT_RETURN_IF_ERROR(model::Executor(forward).run(pass));
    reservation.commit();
  }
  return meter.channels();
}

}  // namespace weft::engine
