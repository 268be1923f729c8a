#include "fusion/fusor.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/out_of_memory.h"
#include "fusion/choice.h"
#include "fusion/fusion_pass_internal.h"
#include "fusion/selection.h"

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
    return invalid_argument("the prompt has no question behind its chunks");
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
  if (options.mode == ReuseMode::kBlend && options.auto_ratio && !options.rates) {
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
    if (static_cast<size_t>(sources[i].n_tokens()) != prompt.chunks[i].size()) {
      return invalid_argument(fmt::format("the source of chunk {} has {} tokens, the chunk {}",
                                          i + 1, sources[i].n_tokens(), prompt.chunks[i].size()));
    }
  }
  return Status::ok();
}

/// Whether the cache has room for so many tokens more.
bool has_room(const kv::Cache& cache, int64_t n_tokens) {
  const int64_t pages = int64_t{cache.free_page_count()} + cache.evictable_page_count();
  return n_tokens <= pages * cache.page_tokens();
}

template <class F>
auto with_memory_for(int64_t n_tokens, F&& fn) -> decltype(fn()) {
  return or_out_of_memory(fmt::format("running {} tokens", n_tokens),
                          "ask for fewer or shorter passages, or take a smaller context (-c)",
                          std::forward<F>(fn));
}

/// The record's shape is what this model's chunk of n_tokens must have.
bool fits(const store::RecordInfo& info, const model::ModelConfig& config, size_t n_tokens) {
  return info.n_layers == static_cast<uint32_t>(config.n_layers) && info.n_tokens == n_tokens &&
         info.layer_bytes ==
             n_tokens * 2 * static_cast<uint64_t>(row_bytes(kRecordType, config.kv_width()));
}

}  // namespace

Fusor::Fusor(model::ForwardPass& forward, kv::Cache& cache, const kernels::Context& context,
             Env& env, store::ChunkStore* store, KeyScope scope)
    : forward_(forward),
      cache_(cache),
      context_(context),
      env_(env),
      store_(store),
      scope_(std::move(scope)),
      computer_(forward, cache, context, scope_.anchor) {}

Result<Prefilled> Fusor::prefill(const Prompt& prompt, const FusionOptions& options) {
  WEFT_RETURN_IF_ERROR(check_prompt(prompt, options, forward_.model().config().n_layers));
  return with_memory_for(prompt.n_tokens(), [&] { return prefill_any(prompt, options); });
}

Result<Prefilled> Fusor::prefill_any(const Prompt& prompt, const FusionOptions& options) {
  Report report;
  if (options.mode == ReuseMode::kNone || options.mode == ReuseMode::kPrefix) {
    return prefill_plain(prompt, options.mode, options, std::move(report));
  }
  if (prompt.chunks.empty()) {
    report.notes.push_back("no chunks: plain prefill");
    return prefill_plain(prompt, ReuseMode::kPrefix, options, std::move(report));
  }

  Stopwatch watch(env_);
  const std::vector<NamedChunk> chunks = named(prompt);
  std::vector<std::optional<ChunkSource>> found = look_up(chunks);
  ReuseCounts counts = count(prompt);
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i]) continue;
    counts.hit_tokens -= std::ssize(prompt.chunks[i]);
    counts.missed_tokens += std::ssize(prompt.chunks[i]);
  }
  Choice choice = choose(forward_.model().config(), counts, options);
  watch.charge(report.timings.lookup_ms);
  if (choice.is_plain) {
    found.clear();
    report.notes = std::move(choice.notes);
    report.predicted = choice.predicted;
    return prefill_plain(prompt, ReuseMode::kPrefix, options, std::move(report));
  }

  WEFT_RETURN_IF_ERROR(compute_missing(chunks, options, found));
  std::vector<ChunkSource> sources;
  for (std::optional<ChunkSource>& source : found) sources.push_back(std::move(*source));
  watch.charge(report.timings.miss_ms);
  WEFT_RETURN_IF_ERROR(check_sources(prompt, sources));
  WEFT_ASSIGN_OR_RETURN(Prefilled done, prefill_sources(prompt, choice.options, sources));
  done.report.predicted = choice.predicted;
  done.report.timings.lookup_ms += report.timings.lookup_ms;
  done.report.timings.miss_ms += report.timings.miss_ms;
  return done;
}

Result<Prefilled> Fusor::prefill_from(const Prompt& prompt, const FusionOptions& options,
                                      std::vector<ChunkSource>& sources) {
  WEFT_RETURN_IF_ERROR(check_prompt(prompt, options, forward_.model().config().n_layers));
  WEFT_RETURN_IF_ERROR(check_sources(prompt, sources));
  return with_memory_for(prompt.n_tokens(), [&]() -> Result<Prefilled> {
    FusionOptions as_asked = options;
    as_asked.allow_plain =
        false;  // what was gathered is what is fused, but for auto's full prefill
    Choice choice = choose(forward_.model().config(), count(prompt), as_asked);
    if (choice.is_plain) {
      Report report;
      report.notes = std::move(choice.notes);
      report.predicted = choice.predicted;
      return prefill_plain(prompt, ReuseMode::kPrefix, options, std::move(report));
    }
    WEFT_ASSIGN_OR_RETURN(Prefilled done, prefill_sources(prompt, choice.options, sources));
    done.report.predicted = choice.predicted;
    return done;
  });
}

/// As if every chunk were stored.
ReuseCounts Fusor::count(const Prompt& prompt) const {
  ReuseCounts counts;
  counts.prefix_found = cache_.match_prefix(prompt.prefix);
  counts.prefix_missing = std::ssize(prompt.prefix) - counts.prefix_found;
  counts.anchor_tokens = std::ssize(computer_.anchor());
  counts.suffix_tokens = std::ssize(prompt.suffix);
  counts.hit_tokens = prompt.n_chunk_tokens();
  return counts;
}

/// What became of the prompt's tokens.
void Fusor::account(const Prompt& prompt, int32_t found_prefix, Report& report) {
  report.computed_tokens = static_cast<int32_t>(prompt.prefix.size()) - found_prefix +
                           static_cast<int32_t>(prompt.suffix.size());
  for (const ChunkReport& chunk : report.chunks) {
    if (chunk.origin == ChunkOrigin::kComputed) {
      report.computed_tokens += chunk.n_tokens;
    } else {
      report.recomputed_tokens += chunk.recomputed_tokens;
    }
  }
  report.reused_tokens = report.prompt_tokens - report.computed_tokens - report.recomputed_tokens;
}

Result<Prefilled> Fusor::prefill_sources(const Prompt& prompt, const FusionOptions& options,
                                         std::vector<ChunkSource>& sources) {
  std::vector<CheckLayer> checks;
  if (options.mode == ReuseMode::kBlend && options.selector == SelectorKind::kVDeviation) {
    WEFT_ASSIGN_OR_RETURN(checks, check_layers(options, forward_.model().config().n_layers));
  }

  Report report;
  report.mode = options.mode;
  if (options.mode == ReuseMode::kBlend) {
    report.ratio = checks.empty() ? options.ratio : checks.back().ratio;
  }
  report.prompt_tokens = prompt.n_tokens();
  for (;;) {
    Stopwatch watch(env_);
    if (!has_room(cache_, prompt.n_tokens())) computer_.drop_anchor();
    kv::OwnedSequence sequence(cache_);
    WEFT_ASSIGN_OR_RETURN(const int32_t found_prefix,
                          cache_.attach_prefix(sequence.id(), prompt.prefix));
    WEFT_ASSIGN_OR_RETURN(kv::Reservation reservation,
                          cache_.reserve(sequence.id(), prompt.n_tokens() - found_prefix));
    reservation.mark_from(std::max(prompt.chunk_begin(0), found_prefix), kv::SlotKind::kFused);
    report.chunks.clear();
    for (const ChunkSource& source : sources) {
      report.chunks.push_back({source.origin(), source.n_tokens(), 0});
    }
    watch.charge(report.timings.lookup_ms);

    LoadFailure failure;
    {
      FusionPass pass({.prompt = prompt,
                       .options = options,
                       .checks = checks,
                       .sources = sources,
                       .sequence = sequence.id(),
                       .found_prefix = found_prefix,
                       .deviation_floor = deviation_floor(std::ssize(computer_.anchor()))},
                      {.forward = forward_, .cache = cache_, .context = context_, .env = env_},
                      report);
      pass.hold(std::move(reservation));
      const Status status = run(pass, options);
      if (!status.is_ok() && !pass.failed()) return status;
      if (status.is_ok()) {
        cache_.publish(sequence.id(), prompt.prefix);
        account(prompt, found_prefix, report);
        return Prefilled{std::move(sequence), std::move(pass.logits()), std::move(report)};
      }
      failure = pass.failure();
    }
    // The step is rolled back; the chunk is planned anew, as a miss. Each round leaves one record
    // fewer to fail, so this ends.
    report.notes.push_back(
        fmt::format("chunk {} was computed anew: {}", failure.chunk + 1, failure.status.message()));
    log_warning(report.notes.back());
    watch.charge(report.timings.load_wait_ms);
    WEFT_ASSIGN_OR_RETURN(sources[failure.chunk],
                          compute_missing(named(prompt.chunks[failure.chunk])));
    watch.charge(report.timings.miss_ms);
  }
}

Result<Prefilled> Fusor::prefill_plain(const Prompt& prompt, ReuseMode mode,
                                       const FusionOptions& options, Report report) {
  Stopwatch watch(env_);
  const std::vector<int32_t> tokens = prompt.tokens();
  if (!has_room(cache_, std::ssize(tokens))) computer_.drop_anchor();
  kv::OwnedSequence sequence(cache_);
  int32_t found = 0;
  if (mode == ReuseMode::kPrefix) {
    // The last token has to run: its logits are what prefill is for.
    const auto all_but_last = std::span(tokens).first(tokens.size() - 1);
    WEFT_ASSIGN_OR_RETURN(found, cache_.attach_prefix(sequence.id(), all_but_last));
  }
  const auto rest = std::span(tokens).subspan(static_cast<size_t>(found));
  WEFT_ASSIGN_OR_RETURN(kv::Reservation reservation,
                        cache_.reserve(sequence.id(), static_cast<int32_t>(rest.size())));
  watch.charge(report.timings.lookup_ms);

  model::RowsPass pass(forward_, cache_, model::Rows::of(sequence.id(), rest, found),
                       {.wanted = {std::ssize(rest) - 1}});
  pass.hold(std::move(reservation));
  WEFT_RETURN_IF_ERROR(run(pass, options));
  if (mode == ReuseMode::kPrefix) cache_.publish(sequence.id(), tokens);
  watch.charge(report.timings.prefill_ms);

  report.mode = mode;
  report.prompt_tokens = static_cast<int32_t>(tokens.size());
  report.reused_tokens = found;
  report.computed_tokens = report.prompt_tokens - found;
  return Prefilled{std::move(sequence), std::move(pass.logits()), std::move(report)};
}

Result<std::vector<ChunkSource>> Fusor::gather(const Prompt& prompt) {
  WEFT_RETURN_IF_ERROR(check_size(prompt));
  return with_memory_for(prompt.n_tokens(), [&] { return gather_all(prompt); });
}

Result<std::vector<ChunkSource>> Fusor::gather_all(const Prompt& prompt) {
  const std::vector<NamedChunk> chunks = named(prompt);
  std::vector<std::optional<ChunkSource>> found = look_up(chunks);
  WEFT_RETURN_IF_ERROR(compute_missing(chunks, {}, found));
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
    } else if (!fits(handle->info(), forward_.model().config(), tokens.size())) {
      // The identity is this model's and chunk's, so whoever wrote the rest did not compute it.
      store_->reject(key, fmt::format("{} layers of {} bytes for {} tokens, not the shape of this "
                                      "chunk's KV of {} tokens: damaged",
                                      handle->info().n_layers, handle->info().layer_bytes,
                                      handle->info().n_tokens, tokens.size()));
    } else {
      found[i].emplace(std::move(*handle));
    }
  }
  return found;
}

Result<ChunkSource> Fusor::compute_missing(const NamedChunk& chunk) {
  WEFT_ASSIGN_OR_RETURN(ChunkKv kv, computer_.compute(chunk.tokens));
  return keep(chunk, std::move(kv));
}

/// All that were not found, several in a step.
Status Fusor::compute_missing(std::span<const NamedChunk> chunks, const FusionOptions& options,
                              std::vector<std::optional<ChunkSource>>& found) {
  std::vector<size_t> missing;
  std::vector<std::span<const int32_t>> tokens;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i]) continue;
    missing.push_back(i);
    tokens.push_back(chunks[i].tokens);
  }
  const auto stops = [&] { return options.cancelled && options.cancelled(); };
  const model::Executor::Cancelled cancelled(stops);
  for (size_t done = 0; done < missing.size();) {
    WEFT_ASSIGN_OR_RETURN(std::vector<ChunkKv> computed,
                          computer_.compute_first(std::span(tokens).subspan(done), &cancelled));
    for (ChunkKv& kv : computed) {
      const size_t i = missing[done++];
      found[i] = keep(chunks[i], std::move(kv));
    }
  }
  return Status::ok();
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
    return store_->put(chunk.key, static_cast<uint32_t>(kv.n_tokens), layers, options);
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

Status Fusor::run(model::Pass& pass, const FusionOptions& options) {
  if (!options.cancelled) return model::Executor(forward_).run(pass);
  const model::Executor::Cancelled cancelled(options.cancelled);
  return model::Executor(forward_).run(pass, &cancelled);
}

}  // namespace weft::fusion
