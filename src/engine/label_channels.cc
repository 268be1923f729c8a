#include "engine/label_channels.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/narrow.h"
#include "engine/kv_size.h"
#include "kernels/isa.h"
#include "kv/cache.h"
#include "model/executor.h"
#include "model/forward.h"
#include "sparse/channel_meter.h"

namespace weft::engine {
namespace {

using kernels::LabelKind;

/// Rows that go through the model together: not many, as what they take is beside what --kv-limit
/// counts. With 16 a model of a billion parameters took 1.6 times as long (Sapphire Rapids).
constexpr int32_t kRows = 64;

constexpr std::string_view kText =
    "The harbour was built in 1874, after two winters in which the old pier lost its outer end. "
    "Its plans name a length of 412 metres and a cost of 38,000 crowns, of which the town paid a "
    "third. Who keeps the light today? A family of three: they clean the lens each Monday, write "
    "down wind and pressure at six, noon and nine, and call the coast guard when a boat is late. "
    "\"We have never missed an hour,\" says the eldest. The list of ships has four columns (name, "
    "flag, cargo, draught), and its last entry reads: Ingrid; Norway; timber; 3.2 m. Since then "
    "the channel has filled with sand, so that larger vessels wait outside until the tide turns.";

Result<std::vector<uint8_t>> find(const model::Model& model, const text::Tokenizer& tokenizer,
                                  const kernels::Context& context, LabelKind labels) {
  const model::ModelConfig& config = model.config();
  WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, tokenizer.encode(kText));
  if (tokens.empty()) tokens.push_back(0);
  tokens.resize(std::min<size_t>(tokens.size(), config.context_tokens));
  WEFT_ASSIGN_OR_RETURN(
      kv::Cache::Options options,
      kv_cache_options({.context_tokens = narrow<int32_t>(tokens.size())}, config));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<kv::Cache> cache, kv::Cache::create(options));
  // Its workspace is freed in the end; its matmuls are in f32, whatever the caller's are in, so
  // that what is kept does not depend on who came first.
  const kernels::Context own{context.pool, context.isa, kernels::MatmulPath::kF32};
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
  return meter.channels(labels);
}

int64_t n_of_head(const model::ModelConfig& config, LabelKind labels) {
  return kernels::n_label_channels({.kind = labels, .head_dim = config.head_dim});
}

/// Whether each head has dimensions that it has, none twice, and in kChannels' order.
bool are_channels(std::span<const uint8_t> channels, const model::ModelConfig& config,
                  LabelKind labels) {
  const int64_t n = n_of_head(config, labels);
  if (std::ssize(channels) != int64_t{config.n_layers} * config.n_kv_heads * n) return false;
  for (auto rest = channels; !rest.empty(); rest = rest.subspan(n)) {
    std::vector<uint8_t> of_head(rest.begin(), rest.begin() + n);
    const bool ascends = std::ranges::is_sorted(of_head);
    std::ranges::sort(of_head);
    if (labels == LabelKind::kChannels && !ascends) return false;
    if (std::ranges::adjacent_find(of_head) != of_head.end()) return false;
    if (of_head.back() >= config.head_dim) return false;
  }
  return true;
}

std::optional<std::vector<uint8_t>> find_kept(Env& env, const std::string& file,
                                              const model::ModelConfig& config, LabelKind labels) {
  const uint64_t n = uint64_t{1} * config.n_layers * config.n_kv_heads * n_of_head(config, labels);
  const auto kept = read_file(env, file, n, Links::kRefuse);
  if (!kept.is_ok()) return std::nullopt;
  std::vector<uint8_t> channels(kept->begin(), kept->end());
  if (!are_channels(channels, config, labels)) return std::nullopt;
  return channels;
}

/// A folder that cannot be written to costs no more than a line in the log.
void keep(Env& env, const std::string& folder, const std::string& file,
          std::span<const uint8_t> channels) {
  const auto write = [&]() -> Status {
    WEFT_RETURN_IF_ERROR(env.make_dirs(folder));
    return write_file_durably(env, file,
                              {reinterpret_cast<const char*>(channels.data()), channels.size()},
                              {.links = Links::kRefuse});
  };
  if (const Status status = write(); !status.is_ok()) {
    log_info("the dimensions of labels were not kept: " + status.message());
  }
}

}  // namespace

// A file of its own for each model, and not a line of those that measurements share: of a model
// with many heads it is a quarter of a megabyte. And for each instruction set, whose sums may rank
// two dimensions in another order.
Result<std::vector<uint8_t>> label_channels(Env& env, const model::Model& model,
                                            const text::Tokenizer& tokenizer,
                                            const kernels::Context& context, LabelKind labels,
                                            const std::string& kept_folder) {
  const model::ModelConfig& config = model.config();
  if (n_of_head(config, labels) > config.head_dim) {
    return unsupported(
        fmt::format("--sparse double-sparsity labels a key by {} of its dimensions, and this "
                    "model's heads have {}",
                    kernels::kLabelChannels, config.head_dim));
  }
  if (kept_folder.empty()) return find(model, tokenizer, context, labels);
  const std::string file =
      join_path(kept_folder, fmt::format("{}-{}-{}", model.fingerprint().to_hex(),
                                         kernels::isa_name(context.isa),
                                         labels == LabelKind::kSides ? "order" : "channels"));
  if (auto kept = find_kept(env, file, config, labels)) return std::move(*kept);
  WEFT_ASSIGN_OR_RETURN(std::vector<uint8_t> found, find(model, tokenizer, context, labels));
  keep(env, kept_folder, file, found);
  return found;
}

}  // namespace weft::engine
