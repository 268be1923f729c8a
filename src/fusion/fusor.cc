#include "fusion/fusor.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/narrow.h"
#include "fusion/gathering_internal.h"
#include "fusion/prefill.h"
#include "fusion/selection.h"
#include "fusion/with_memory_internal.h"

namespace weft::fusion {
namespace {

/// Positions and token counts are 32 bits wide.
Status check_size(const Prompt& prompt) {
  size_t n_tokens = prompt.prefix.size() + prompt.suffix.size();
  for (const std::vector<int32_t>& chunk : prompt.chunks) n_tokens += chunk.size();
  if (n_tokens <= size_t{std::numeric_limits<int32_t>::max()}) return Status::ok();
  return resource_exhausted(fmt::format("a prompt of {} tokens: the limit is {}", n_tokens,
                                        std::numeric_limits<int32_t>::max()));
}

Status check_prompt(const Prompt& prompt, const FusionOptions& options, int32_t n_layers) {
  if (prompt.suffix.empty()) {
    return invalid_argument("the prompt has no question after its chunks");
  }
  for (const std::vector<int32_t>& chunk : prompt.chunks) {
    if (chunk.empty()) return invalid_argument("the prompt has an empty chunk");
  }
  WEFT_RETURN_IF_ERROR(check_size(prompt));
  if (!(options.ratio >= 0 && options.ratio <= 1)) {
    return invalid_argument(fmt::format("ratio {}: must lie in 0 to 1", options.ratio));
  }
  if (!(options.propagate >= 0 && options.propagate <= 1)) {
    return invalid_argument(fmt::format("propagate {}: must lie in 0 to 1", options.propagate));
  }
  if (traits_of(options.mode).recomputes_chunks && options.auto_ratio && !options.rates) {
    return invalid_argument("an automatic ratio needs the machine's rates");
  }
  // Also where plain prefill is chosen: the same request must not fail only with a longer prompt.
  if (!options.checks.empty()) WEFT_RETURN_IF_ERROR(check_layers(options, n_layers).status());
  return Status::ok();
}

Status check_sources(const Prompt& prompt, const std::vector<ChunkSource>& sources) {
  if (sources.size() != prompt.chunks.size()) {
    return invalid_argument(
        fmt::format("{} sources for {} chunks", sources.size(), prompt.chunks.size()));
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].n_tokens() != std::ssize(prompt.chunks[i])) {
      return invalid_argument(fmt::format("the source of chunk {} has {} tokens, the chunk {}",
                                          i + 1, sources[i].n_tokens(), prompt.chunks[i].size()));
    }
  }
  return Status::ok();
}

/// The record's shape is what this model's chunk of n_tokens must have in this type.
bool fits(const store::RecordInfo& info, const model::ModelConfig& config, DType type,
          int64_t n_tokens) {
  const int64_t layer_bytes = record_layer_bytes(config, type, n_tokens);
  return std::cmp_equal(info.n_layers, config.n_layers) &&
         std::cmp_equal(info.n_tokens, n_tokens) && std::cmp_equal(info.layer_bytes, layer_bytes);
}

}  // namespace

Fusor::Fusor(model::ForwardPass& forward, kv::Cache& cache, const kernels::Context& context,
             Env& env, store::ChunkStore* store, KeyScope scope, const kv::SelfExtend& self_extend)
    : forward_(forward),
      cache_(cache),
      context_(context),
      env_(env),
      store_(store),
      scope_(std::move(scope)),
      self_extend_(self_extend),
      computer_(forward, cache, context, scope_.anchor, scope_.record_type) {}

Fusor::~Fusor() = default;

Result<std::unique_ptr<Prefill>> Fusor::start(Prompt prompt, FusionOptions options) {
  WEFT_RETURN_IF_ERROR(check_prompt(prompt, options, forward_.model().config().n_layers));
  return with_memory_for(prompt.n_tokens(), [&]() -> Result<std::unique_ptr<Prefill>> {
    return std::unique_ptr<Prefill>(
        new Prefill(*this, std::move(prompt), std::move(options), std::nullopt));
  });
}

Result<Prefilled> Fusor::prefill(const Prompt& prompt, const FusionOptions& options) {
  return with_memory_for(0, [&]() -> Result<Prefilled> {
    WEFT_ASSIGN_OR_RETURN(const auto prefill, start(prompt, options));
    WEFT_RETURN_IF_ERROR(run_to_end(*prefill, options));
    return prefill->take();
  });
}

Result<Prefilled> Fusor::prefill_from(const Prompt& prompt, const FusionOptions& options,
                                      std::vector<ChunkSource>& sources) {
  WEFT_RETURN_IF_ERROR(check_prompt(prompt, options, forward_.model().config().n_layers));
  WEFT_RETURN_IF_ERROR(check_sources(prompt, sources));
  return with_memory_for(prompt.n_tokens(), [&]() -> Result<Prefilled> {
    Prefill prefill(*this, prompt, options, std::move(sources));
    const Status status = run_to_end(prefill, options);
    sources = std::move(prefill.sources_);
    WEFT_RETURN_IF_ERROR(status);
    return prefill.take();
  });
}

/// Work that rests between layers, without rests.
template <class Work>
Status Fusor::run_to_end(Work& work, const FusionOptions& options) {
  for (;;) {
    if (options.cancelled && options.cancelled()) return cancelled("stopped");
    WEFT_ASSIGN_OR_RETURN(const int64_t n_rows, work.advance());
    if (n_rows == 0) return Status::ok();
  }
}

int32_t Fusor::pages_for_missing(const Prompt& prompt) const {
  const int64_t page = cache_.page_tokens();
  const auto pages = [&](int64_t n_tokens) { return (n_tokens + page - 1) / page; };
  int64_t longest = 0;
  for (const std::vector<int32_t>& chunk : prompt.chunks) {
    longest = std::max(longest, std::ssize(chunk));
  }
  // A step's chunks, each with the start of a page of the anchor's and the end of one of its own.
  const int64_t step =
      pages(std::max(longest, std::min<int64_t>(kChunkStepRows, prompt.n_chunk_tokens())));
  return narrow<int32_t>(pages(std::ssize(computer_.anchor())) + step +
                         2 * std::ssize(prompt.chunks));
}

/// As if every chunk were stored.
ReuseCounts Fusor::count(const Prompt& prompt) const {
  ReuseCounts counts;
  counts.prefix_found = cache_.match_prefix(prompt.prefix, scope_.salt);
  counts.prefix_missing = std::ssize(prompt.prefix) - counts.prefix_found;
  counts.anchor_tokens = std::ssize(computer_.anchor());
  counts.suffix_tokens = std::ssize(prompt.suffix);
  counts.hit_tokens = prompt.n_chunk_tokens();
  return counts;
}

Result<std::vector<ChunkSource>> Fusor::gather(const Prompt& prompt) {
  WEFT_RETURN_IF_ERROR(check_size(prompt));
  return with_memory_for(prompt.n_tokens(), [&] { return gather_all(prompt); });
}

Result<std::vector<ChunkSource>> Fusor::gather_all(const Prompt& prompt) {
  const std::vector<NamedChunk> chunks = named(prompt);
  std::vector<std::optional<ChunkSource>> found = look_up(chunks);
  Gathering gathering(*this, chunks, found);
  WEFT_RETURN_IF_ERROR(run_to_end(gathering, {}));
  std::vector<ChunkSource> sources;
  for (std::optional<ChunkSource>& source : found) sources.push_back(std::move(*source));
  return sources;
}

Fusor::NamedChunk Fusor::named(std::span<const int32_t> tokens) const {
  NamedChunk chunk{.tokens = tokens, .identity = chunk_identity(scope_, tokens), .key = {}};
  chunk.key = store::Key::of(chunk.identity);
  return chunk;
}

std::vector<Fusor::NamedChunk> Fusor::named(const Prompt& prompt) const {
  std::vector<NamedChunk> chunks;
  for (const std::vector<int32_t>& tokens : prompt.chunks) chunks.push_back(named(tokens));
  return chunks;
}

std::vector<std::optional<ChunkSource>> Fusor::look_up(std::span<const NamedChunk> chunks) {
  std::vector<std::optional<ChunkSource>> found(chunks.size());
  if (store_ == nullptr) return found;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const auto& [tokens, identity, key] = chunks[i];
    auto handle = store_->find(key);
    if (!handle.is_ok()) {
      if (handle.status().code() != StatusCode::kNotFound) log_warning(handle.status().message());
    } else if (!fits(handle->info(), forward_.model().config(), scope_.record_type,
                     tokens.size())) {
      // The identity is this model's and chunk's, so whoever wrote the rest did not compute it.
      store_->reject(key, fmt::format("{} layers of {} bytes for {} tokens, not the shape of this "
                                      "chunk's KV of {} tokens in {}: damaged",
                                      handle->info().n_layers, handle->info().layer_bytes,
                                      handle->info().n_tokens, tokens.size(),
                                      kRecordTypes.name(scope_.record_type)));
    } else {
      found[i].emplace(std::move(*handle), scope_.record_type);
    }
  }
  return found;
}

/// What was just computed, which is stored if that is possible.
ChunkSource Fusor::keep(const NamedChunk& chunk, ChunkKv kv) {
  if (store_ != nullptr && store_->is_read_only()) return ChunkSource(std::move(kv));
  if (const Status stored = put(chunk, kv); !stored.is_ok()) {
    log_warning("not stored: " + stored.message());
  }
  return ChunkSource(std::move(kv));
}

Status Fusor::put(const NamedChunk& chunk, const ChunkKv& kv, store::PutOptions options) {
  if (store_ == nullptr) return Status::ok();
  std::vector<std::span<const std::byte>> layers;
  for (const std::vector<std::byte>& layer : kv.layers) layers.emplace_back(layer);
  const auto put_record = [&] {
    return store_->put(chunk.key, narrow<uint32_t>(kv.n_tokens), layers, options);
  };
  return keep_record_ ? keep_record_(chunk.key.hash, put_record) : put_record();
}

bool Fusor::is_stored(std::span<const int32_t> tokens) {
  return store_ != nullptr && store_->contains(named(tokens).key);
}

Status Fusor::ensure_stored(std::span<const int32_t> tokens, store::PutOptions options) {
  return ensure_first_stored(
      {&tokens, 1}, [](bool) {}, options);
}

Status Fusor::ensure_first_stored(std::span<const std::span<const int32_t>> chunks,
                                  FunctionRef<void(bool)> on_stored, store::PutOptions options) {
  int64_t n_tokens = 0;
  for (const std::span<const int32_t> tokens : chunks) n_tokens += std::ssize(tokens);
  return with_memory_for(std::min(n_tokens, kChunkStepRows), [&]() -> Status {
    std::vector<NamedChunk> all;
    std::vector<std::span<const int32_t>> missing;  // each once
    std::vector<bool> is_computed;                  // for each chunk
    for (const std::span<const int32_t> tokens : chunks) {
      all.push_back(named(tokens));
      const bool is_there = store_ != nullptr && store_->contains(all.back().key);
      const auto is_same = [&](const auto& other) { return std::ranges::equal(tokens, other); };
      is_computed.push_back(!is_there && std::ranges::none_of(missing, is_same));
      if (is_computed.back()) missing.push_back(tokens);
    }
    std::vector<ChunkKv> computed;
    if (!missing.empty()) {
      WEFT_ASSIGN_OR_RETURN(computed, computer_.compute_first(missing));
    }
    size_t n_put = 0;
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (is_computed[i]) {
        if (n_put == computed.size()) break;
        WEFT_RETURN_IF_ERROR(put(all[i], computed[n_put++], options));
      }
      on_stored(is_computed[i]);
    }
    return Status::ok();
  });
}

}  // namespace weft::fusion
