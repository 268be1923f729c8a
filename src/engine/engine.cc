// Opens a model with all that a request needs: threads, kernels, vocabulary, cache. Opening maps
// the file and reads no matrix, so that it takes milliseconds; what the first prompt touches is
// read then. The compute path is measured once per machine and kept (compute_choice.h), which the
// first command pays and reports as calibration_ms.
#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/byte_sizes.h"
#include "base/check.h"
#include "base/narrow.h"
#include "base/out_of_memory.h"
#include "engine/compute_choice.h"
#include "engine/prefill_rates.h"

namespace weft::engine {
namespace {

// Beyond the context: the anchor and the chunk after it, and pages that the prefix index keeps.
constexpr int32_t kSpareTokens = 4096;
// vLLM's size: of a sequence's last page half is empty on average, 8 slots.
constexpr int32_t kPageTokens = 16;

/// Tokens of the KV cache: what the contexts need, or what the limit holds.
/// A whole number of pages; --kv-limit never makes it more than the contexts need.
Result<int32_t> kv_capacity(const EngineOptions& options, const model::ModelConfig& config) {
  // Before a page's bytes are asked for: not every type takes every head size.
  WEFT_RETURN_IF_ERROR(kernels::check_kv_layout(config.kv_layout(options.kv_types, kPageTokens)));
  const int64_t wanted =
      std::min<int64_t>(int64_t{config.context_tokens} * options.n_contexts + kSpareTokens,
                        std::numeric_limits<int32_t>::max() / kPageTokens * kPageTokens);
  if (options.kv_limit_bytes == 0) return narrow<int32_t>(wanted);
  const auto page_bytes =
      narrow<uint64_t>(config.n_layers * kPageTokens *
                       kernels::kv_token_bytes(config.kv_layout(options.kv_types, kPageTokens)));
  const uint64_t n_pages = options.kv_limit_bytes / page_bytes;
  if (n_pages == 0) {
    return invalid_argument(
        fmt::format("--kv-limit {}: a page of {} tokens takes {} with this model",
                    size_flag(options.kv_limit_bytes), kPageTokens, size_flag_for(page_bytes)));
  }
  const auto most = narrow<uint64_t>(wanted / kPageTokens);
  return narrow<int32_t>(std::min(n_pages, most)) * kPageTokens;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(Env& env, const EngineOptions& options) {
  return or_out_of_memory("opening " + options.model_path,
                          "take a smaller model, a smaller context (-c) or fewer threads (-t)",
                          [&] { return open_all(env, options); });
}

Result<std::unique_ptr<Engine>> Engine::open_all(Env& env, const EngineOptions& options) {
  const int64_t begin_ns = env.monotonic_ns();
  const int n_threads = options.n_threads == 0 ? usable_cores() : options.n_threads;
  kernels::Isa isa = kernels::best_isa();
  if (!options.isa.empty()) {
    WEFT_ASSIGN_OR_RETURN(isa, kernels::parse_isa(options.isa));
  }
  WEFT_ASSIGN_OR_RETURN(auto pool, ThreadPool::create(n_threads));
  std::unique_ptr<Engine> engine(new Engine(env, std::move(pool), isa));

  engine->model_ = options.model;
  if (engine->model_ == nullptr) {
    WEFT_ASSIGN_OR_RETURN(auto file, gguf::File::open(env, options.model_path));
    WEFT_ASSIGN_OR_RETURN(engine->model_, model::Model::open(file, options.context_tokens));
  }
  WEFT_ASSIGN_OR_RETURN(engine->tokenizer_, text::Tokenizer::open(engine->model_->file()));
  const model::ModelConfig& config = engine->model_->config();
  // A token beyond the embedding would be read from behind the tensor; the other way round is
  // usual.
  if (engine->tokenizer_->vocab_size() > config.vocab_size) {
    return corrupt(fmt::format("{}: {} tokens in the vocabulary, {} rows in the embedding",
                               engine->model_->file().path(), engine->tokenizer_->vocab_size(),
                               config.vocab_size));
  }

  engine->rates_kept_file_ = options.rates_kept_file;
  engine->is_kv_limited_ = options.kv_limit_bytes > 0;
  WEFT_ASSIGN_OR_RETURN(const int32_t capacity_tokens, kv_capacity(options, config));
  engine->context_tokens_ = std::min(config.context_tokens, capacity_tokens);
  WEFT_ASSIGN_OR_RETURN(
      engine->cache_, kv::Cache::create({.n_layers = config.n_layers,
                                         .layer_groups = config.layer_groups(),
                                         .layout = config.kv_layout(options.kv_types, kPageTokens),
                                         .capacity_tokens = capacity_tokens}));
  engine->load_ms_ = env.ms_since(begin_ns);

  const int64_t calibration_ns = env.monotonic_ns();
  WEFT_ASSIGN_OR_RETURN(
      engine->context_.matmul_path,
      choose_matmul_path(env, *engine->pool_, isa,
                         // The type that most of a step's products have: the feed-forward
                         // network's.
                         engine->model_->weights().layers.front().experts.front().gate.dtype,
                         options.compute, options.compute_kept_file));
  engine->calibration_ms_ = env.ms_since(calibration_ns);
  engine->forward_ = std::make_unique<model::ForwardPass>(*engine->model_, engine->context_);
  return engine;
}

Result<text::ChatTemplate> Engine::chat_template() const {
  const gguf::File& file = model_->file();
  auto source = file.get_string("tokenizer.chat_template");
  if (!source.is_ok() && source.status().code() == StatusCode::kNotFound) {
    return not_found(fmt::format(
        "{}: the model has no chat template; weft generate --raw takes the prompt as it is, and "
        "ask answers without one (--prompt fewshot)",
        file.path()));
  }
  if (!source.is_ok()) return source.status();
  auto compiled = text::ChatTemplate::compile(
      *source, {.bos = std::string(tokenizer_->token_bytes(tokenizer_->bos(), true)),
                .eos = std::string(tokenizer_->token_bytes(tokenizer_->eos(), true)),
                .now = local_time()});
  if (!compiled.is_ok()) {
    return unsupported(fmt::format(
        "{}: {}; weft generate --raw takes the prompt as it is, and --prompt fewshot of "
        "ingest, ask and eval does without the template",
        file.path(), compiled.status().message()));
  }
  return compiled;
}

// Both flags where both are too small, so that nobody is sent back a second time.
std::string Engine::flags_to_hold(int64_t tokens) const {
  if (tokens > model_->config().context_length) return "";
  const int64_t pages = (tokens + kPageTokens - 1) / kPageTokens;
  std::string flags;
  if (tokens > model_->config().context_tokens) flags = fmt::format("-c {}", tokens);
  if (!flags.empty() && !is_kv_limited_) return flags;
  if (pages <= cache_->page_count()) return flags;
  return fmt::format("{}{}--kv-limit {}", flags, flags.empty() ? "" : " ",
                     size_flag_for(narrow<uint64_t>(pages * page_bytes())));
}

// What to do, as the second half of an error: the model's limit, the counting's, or flags.
std::string Engine::way_to_hold(int64_t tokens) const {
  const int32_t most = model_->config().context_length;
  if (tokens > most) {
    return fmt::format(
        "the model holds {} at most: a shorter question, shorter passages or fewer "
        "tokens of an answer (-n) are needed",
        most);
  }
  if (tokens > counted_tokens()) {
    return fmt::format("a shorter question is needed, or a context (-c) of more than {}",
                       counted_tokens());
  }
  return flags_to_hold(tokens) + " holds them";
}

int64_t Engine::counted_tokens() const {
  constexpr int32_t kMostCounted = 128 * 1024;  // some 100 ms, and what most models hold
  return std::max(context_tokens_, std::min(model_->config().context_length, kMostCounted));
}

std::string Engine::tokens_text(int64_t tokens) const {
  const int64_t most = counted_tokens();
  if (tokens > most) return fmt::format("more than {} tokens", most);
  return fmt::format("{} token{}", tokens, tokens == 1 ? "" : "s");
}

// At the first request that asks for them, not at opening: `generate` and `chat` never do.
Result<fusion::PrefillRates> Engine::prefill_rates(const std::function<void()>& measuring) {
  if (!rates_) {
    const int64_t begin_ns = env_.monotonic_ns();
    WEFT_ASSIGN_OR_RETURN(rates_, engine::prefill_rates(env_, *model_, context_, *cache_,
                                                        rates_kept_file_, measuring));
    calibration_ms_ += env_.ms_since(begin_ns);
  }
  return *rates_;
}

std::tm Engine::local_time() const {
  const std::time_t seconds = env_.unix_ms() / 1000;
  std::tm local{};
  localtime_r(&seconds, &local);
  return local;
}

fusion::KeyScope Engine::key_scope(std::vector<int32_t> anchor) const {
  return {.model_fingerprint = model_->fingerprint(),
          .ropes = model_->config().ropes,
          .anchor = std::move(anchor),
          .salt = ""};
}

std::unique_ptr<fusion::Fusor> Engine::make_fusor(store::ChunkStore* store,
                                                  std::vector<int32_t> anchor) {
  return std::make_unique<fusion::Fusor>(*forward_, *cache_, context_, env_, store,
                                         key_scope(std::move(anchor)));
}

kv::Usage Engine::kv_usage() const {
  return {.page_tokens = cache_->page_tokens(),
          .pages = cache_->page_count(),
          .free = cache_->free_page_count(),
          .evictable = cache_->evictable_page_count()};
}

Result<std::vector<kv::Reservation>> Engine::reserve(std::span<const Appended> appended,
                                                     model::RowKind kind) {
  std::vector<kv::Reservation> reservations;
  for (const Appended& one : appended) {
    WEFT_CHECK(one.sequence->is_of(*cache_));
    const int64_t n_tokens = int64_t{one.sequence->length()} + std::ssize(one.tokens);
    if (n_tokens > context_tokens_) {
      return resource_exhausted(
          fmt::format("{} tokens do not fit the context of {}", n_tokens, context_tokens_));
    }
    WEFT_ASSIGN_OR_RETURN(kv::Reservation reservation,
                          cache_->reserve(one.sequence->id(), narrow<int32_t>(one.tokens.size()),
                                          model::slot_kind(kind)));
    reservations.push_back(std::move(reservation));
  }
  return reservations;
}

namespace {

/// A group of rows for each, from where its sequence ends.
model::Rows rows_of(std::span<const Appended> appended, model::RowKind kind) {
  model::Rows rows;
  for (const Appended& one : appended) {
    rows.add(one.sequence->id(), one.tokens, one.sequence->length(), kind);
  }
  return rows;
}

/// std::bad_alloc of `fn` as an error that says what was tried and what to do.
template <class Fn>
auto with_memory_for(std::span<const Appended> appended, const Fn& fn) -> decltype(fn()) {
  int64_t n_tokens = 0;
  for (const Appended& one : appended) n_tokens += std::ssize(one.tokens);
  return or_out_of_memory(fmt::format("running {} tokens", n_tokens),
                          "take a shorter prompt, or a smaller context (-c)", fn);
}

}  // namespace

Result<std::vector<float>> Engine::append_all(std::span<const Appended> appended,
                                              const AppendOptions& options) {
  return with_memory_for(appended, [&]() -> Result<std::vector<float>> {
    model::Rows rows = rows_of(appended, options.kind);
    WEFT_ASSIGN_OR_RETURN(std::vector<kv::Reservation> reservations,
                          reserve(appended, options.kind));
    std::vector<int64_t> wanted;
    for (const model::RowGroup& group : rows.groups) {
      for (int64_t row = options.every_row ? group.row_begin : group.row_end - 1;
           row < group.row_end; ++row) {
        wanted.push_back(row);
      }
    }
    model::RowsPass pass(*forward_, *cache_, std::move(rows), {.wanted = std::move(wanted)});
    for (kv::Reservation& reservation : reservations) pass.hold(std::move(reservation));
    WEFT_RETURN_IF_ERROR(model::Executor(*forward_).run(pass, options.cancelled));
    return std::move(pass.logits());
  });
}

Status Engine::score(std::span<const Appended> appended, std::span<const int64_t> wanted,
                     FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  constexpr size_t kRowsAtOnce = 64;  // 64 rows of 128 K logits are 32 MB
  return with_memory_for(appended, [&]() -> Status {
    model::Rows rows = rows_of(appended, model::RowKind::kPrompt);
    WEFT_ASSIGN_OR_RETURN(std::vector<kv::Reservation> reservations,
                          reserve(appended, model::RowKind::kPrompt));
    model::RowsPass pass(*forward_, *cache_, std::move(rows), {.keep_all_rows = true});
    for (kv::Reservation& reservation : reservations) pass.hold(std::move(reservation));
    WEFT_RETURN_IF_ERROR(model::Executor(*forward_).run(pass));
    const int64_t n_vocab = model_->config().vocab_size;
    std::vector<float> memory(std::min(kRowsAtOnce, wanted.size()) * n_vocab);
    for (size_t begin = 0; begin < wanted.size(); begin += kRowsAtOnce) {
      const auto some = wanted.subspan(begin, std::min(kRowsAtOnce, wanted.size() - begin));
      const MatrixView<float> logits(memory.data(), std::ssize(some), n_vocab);
      forward_->logits(pass.batch(), some, logits, kernels::KernelClass::kPrefill);
      for (int64_t i = 0; i < logits.rows; ++i) on_logits(some[i], logits.row(i));
    }
    return Status::ok();
  });
}

}  // namespace weft::engine
