// Opens a model with all that a request needs: threads, kernels, vocabulary, cache. Opening maps
// the file and reads no matrix, so that it takes milliseconds; what the first prompt touches is
// read then. The compute path is measured once per machine and kept (compute_choice.h), which the
// first command pays and reports as calibration_ms.
#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "base/byte_sizes.h"
#include "base/check.h"
#include "base/log.h"
#include "base/narrow.h"
#include "base/out_of_memory.h"
#include "engine/compute_choice.h"
#include "engine/context_size.h"
#include "engine/kv_size.h"
#include "engine/label_channels.h"
#include "engine/model_drafter.h"
#include "engine/prefill_rates.h"
#include "sparse/selector.h"

namespace weft::engine {
namespace {

int32_t page_tokens_of(const EngineOptions& options) {
  return options.page_tokens == 0 ? kKvPageTokens : options.page_tokens;
}

KvRequest kv_request(const EngineOptions& options, int32_t context_tokens) {
  return {.context_tokens = context_tokens,
          .n_contexts = options.n_contexts,
          .types = options.kv_types,
          .page_tokens = page_tokens_of(options),
          // What rolled away cannot get another position.
          .rolls_windows = options.rolls_windows && !options.self_extend.is_on()};
}

}  // namespace

Engine::Engine(Env& env, std::unique_ptr<ThreadPool> pool, kernels::Isa isa)
    : env_(env), pool_(std::move(pool)), context_{*pool_, isa} {}

Engine::~Engine() = default;

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

  WEFT_RETURN_IF_ERROR(engine->open_model(options));
  WEFT_ASSIGN_OR_RETURN(engine->tokenizer_, text::Tokenizer::open(engine->model_->file()));
  const model::ModelConfig& config = engine->model_->config();
  // A token beyond the embedding would be read from after the tensor; the other way round is
  // usual.
  if (engine->tokenizer_->vocab_size() > config.vocab_size) {
    return corrupt(fmt::format("{}: {} tokens in the vocabulary, {} rows in the embedding",
                               engine->model_->file().path(), engine->tokenizer_->vocab_size(),
                               config.vocab_size));
  }

  engine->rates_kept_file_ = options.rates_kept_file;
  const int64_t calibration_ns = env.monotonic_ns();
  WEFT_ASSIGN_OR_RETURN(
      engine->context_.matmul_path,
      choose_matmul_path(env, *engine->pool_, isa,
                         // The type that most of a step's products have: the feed-forward
                         // network's.
                         engine->model_->weights().layers.front().experts.front().gate.dtype,
                         options.compute, options.compute_kept_file));
  engine->calibration_ms_ = env.ms_since(calibration_ns);
  WEFT_RETURN_IF_ERROR(options.sparse.check(page_tokens_of(options)));
  WEFT_ASSIGN_OR_RETURN(const sparse::SparseOptions sparse, engine->complete(options.sparse));
  engine->make_selector(sparse);
  WEFT_RETURN_IF_ERROR(engine->make_cache(options));  // what a step takes depends on the path
  engine->load_ms_ = env.ms_since(begin_ns) - engine->calibration_ms_;
  engine->forward_ = std::make_unique<model::ForwardPass>(*engine->model_, engine->context_);
  engine->forward_->set_selector(engine->selector_.get());
  engine->forward_->time_attention(env);
  // Before a fusion the machine's rates may be measured, which has the limit to itself.
  if (!options.steps.fuses) engine->take_scratch();
  if (logs_info()) engine->log_opened(options);
  WEFT_RETURN_IF_ERROR(engine->open_draft_engine(options));
  return engine;
}

Status Engine::open_draft_engine(const EngineOptions& options) {
  if (options.draft.kind != spec::DrafterKind::kModel) return Status::ok();
  const int64_t begin_ns = env_.monotonic_ns();
  EngineOptions draft{.model_path = options.draft.model_path,
                      .n_threads = pool_->size(),
                      .kv_types = options.kv_types,
                      .n_contexts = options.n_contexts,
                      .isa = options.isa,
                      .compute = options.compute,
                      .compute_kept_file = options.compute_kept_file};
  // A draft model of a shorter context drafts as long as the text fits it.
  WEFT_ASSIGN_OR_RETURN(const auto file, gguf::File::open(env_, draft.model_path));
  WEFT_ASSIGN_OR_RETURN(const model::ModelConfig config, model::read_config(*file));
  draft.context_tokens = narrow<int32_t>(std::min<int64_t>(
      int64_t{context_tokens_} + spec::kMostDraftTokens + 1, config.context_length));
  auto engine = Engine::open(env_, draft);
  if (!engine.is_ok()) {
    return Status(engine.status().code(), "--draft: " + engine.status().message());
  }
  draft_engine_ = *std::move(engine);
  load_ms_ += env_.ms_since(begin_ns);
  return check_same_vocabulary(*this, *draft_engine_);
}

Status Engine::open_model(const EngineOptions& options) {
  model_ = options.model;
  std::shared_ptr<const gguf::File> file;
  model::ModelConfig config;  // with the context that is usual
  if (model_ == nullptr) {
    WEFT_ASSIGN_OR_RETURN(file, gguf::File::open(env_, options.model_path));
    WEFT_ASSIGN_OR_RETURN(config, model::read_config(*file));
  } else {
    config = model_->config();
  }
  WEFT_ASSIGN_OR_RETURN(const ContextSize size,
                        context_size({.context_tokens = options.context_tokens,
                                      .self_extend = options.self_extend,
                                      .beyond_context = options.beyond_context},
                                     config.context_length, config.context_tokens));
  if (!size.note.empty()) log_warning(size.note);
  asked_context_tokens_ = size.tokens;
  longest_context_ = size.most_tokens;
  self_extend_ = size.self_extend;
  if (model_ != nullptr) return Status::ok();
  WEFT_ASSIGN_OR_RETURN(model_, model::Model::open(file, size.model_tokens));
  return Status::ok();
}

Result<sparse::SparseOptions> Engine::complete(sparse::SparseOptions options) {
  const bool is_labelled = options.policy == sparse::Policy::kDoubleSparsity;
  if (!is_labelled || std::ranges::count(selecting_layers(options), true) == 0) return options;
  if (label_channels_.empty()) {
    WEFT_ASSIGN_OR_RETURN(label_channels_, label_channels(*model_, *tokenizer_, context_));
  }
  options.channels = label_channels_;
  return options;
}

std::vector<bool> Engine::selecting_layers(const sparse::SparseOptions& options) const {
  std::vector<int32_t> windows;
  for (const model::LayerConfig& layer : model_->config().layers) {
    windows.push_back(layer.window_tokens);
  }
  return sparse::selecting_layers(options, windows);
}

std::optional<kv::DigestFormat> Engine::digest_format(const sparse::SparseOptions& options) const {
  std::vector<bool> selects = selecting_layers(options);
  if (std::ranges::count(selects, true) == 0) return std::nullopt;
  std::optional<kv::DigestFormat> format = sparse::digest_format(options);
  if (format) format->layers = std::move(selects);
  return format;
}

void Engine::make_selector(const sparse::SparseOptions& options) {
  sparse_ = options;
  selector_ = nullptr;
  if (!sparse_.is_on()) return;
  std::vector<bool> selects = selecting_layers(options);
  if (std::ranges::count(selects, true) == 0 && !std::exchange(warned_none_selects_, true)) {
    log_warning(
        "sparse decoding: no layer chooses pages: all see a window, or are dense (--dense-layers)");
  }
  selector_ = sparse::make_selector(sparse_, std::move(selects), env_);
}

Status Engine::use_sparse(const sparse::SparseOptions& asked) {
  if (is_kv_limited_) {
    return invalid_argument("--kv-limit: the policy of sparse decoding cannot change under one");
  }
  WEFT_RETURN_IF_ERROR(asked.check(cache_->page_tokens()));
  WEFT_ASSIGN_OR_RETURN(const sparse::SparseOptions options, complete(asked));
  const auto format = digest_format(options);
  if (format != digest_format(sparse_)) {
    forward_->set_selector(nullptr);
    make_selector({});
    WEFT_RETURN_IF_ERROR(cache_->use_digests(format));
  }
  make_selector(options);
  forward_->set_selector(selector_.get());
  return Status::ok();
}

Status Engine::make_cache(const EngineOptions& options) {
  const model::ModelConfig& config = model_->config();
  WEFT_ASSIGN_OR_RETURN(cache_options_,
                        kv_cache_options(kv_request(options, asked_context_tokens_), config));
  if (rolls_windows()) step_rows_ = kRollingStepTokens;
  cache_options_.digests = digest_format(sparse_);
  steps_ = options.steps;
  steps_.sparse = sparse_;
  draft_ = options.draft;
  steps_.draft_tokens = draft_.is_on() ? draft_.most_tokens : 0;
  steps_.turned_tokens = self_extend_.turned_tokens();
  is_kv_limited_ = options.kv_limit_bytes > 0;
  if (is_kv_limited_) {
    const StepMemory steps = step_memory();
    WEFT_ASSIGN_OR_RETURN(KvPlan plan, limit_kv(cache_options_, options.kv_limit_bytes,
                                                [&](int64_t capacity_tokens, int64_t step_rows) {
                                                  return steps.bytes(capacity_tokens,
                                                                     asked_context_tokens_,
                                                                     step_rows);
                                                }));
    cache_options_ = std::move(plan.cache);
    step_rows_ = std::min(step_rows_, plan.step_rows);
    scratch_bytes_ = plan.scratch_bytes;
    block_rows_ =
        steps.block_rows(cache_options_.capacity_tokens, asked_context_tokens_, step_rows_);
  }
  context_tokens_ = std::min(asked_context_tokens_, cache_options_.capacity_tokens);
  WEFT_ASSIGN_OR_RETURN(cache_, kv::Cache::create(cache_options_));
  return Status::ok();
}

void Engine::log_opened(const EngineOptions& options) const {
  const model::ModelConfig& config = model_->config();
  const kernels::KvLayout& layout = cache_options_.layout;
  const int64_t n_bytes = kv_cache_bytes(cache_options_, cache_->page_count());
  log_info(fmt::format("{}: {} of {} layers, opened in {:.0f} ms; {} threads, {}, compute {}",
                       config.name, config.architecture, config.n_layers,
                       load_ms_ + calibration_ms_, context_.pool.size(),
                       kernels::isa_name(context_.isa), kMatmulPaths.name(context_.matmul_path)));
  log_info(fmt::format(
      "KV cache: K {}, V {}, {} pages of {} tokens in {} group{} of layers, {} at "
      "most; context {}",
      dtype_info(layout.k_type).name, dtype_info(layout.v_type).name, cache_->page_count(),
      cache_->page_tokens(), cache_->n_groups(), cache_->n_groups() == 1 ? "" : "s",
      size_text(narrow<uint64_t>(n_bytes)), context_tokens_));
  if (self_extend_.is_on()) {
    log_info(fmt::format(
        "Self-Extend: positions in groups of {}, the last {} tokens have their own; {} at most",
        self_extend_.group_tokens, self_extend_.neighbour_tokens,
        self_extend_.last_position(context_tokens_)));
  }
  if (sparse_.is_on()) {
    log_info(fmt::format("--sparse {}: where a layer chooses, a decoded token reads {}",
                         sparse::kPolicies.name(sparse_.policy), sparse_.amount_text()));
  }
  if (!is_kv_limited_) return;
  log_info(fmt::format("--kv-limit {}: {} for pages, {} for steps of up to {} tokens of a prompt",
                       size_flag(options.kv_limit_bytes), size_text(narrow<uint64_t>(n_bytes)),
                       size_text(narrow<uint64_t>(scratch_bytes_)), step_rows_));
}

StepMemory Engine::step_memory() const {
  return StepMemory(*model_, context_, cache_options_.layout, steps_);
}

int64_t Engine::limit_to_hold(int64_t n_pages) const {
  const StepMemory steps = step_memory();
  const int64_t context = std::max<int64_t>(asked_context_tokens_, n_pages * cache_->page_tokens());
  return limit_for_pages(cache_options_, n_pages, [&](int64_t capacity_tokens, int64_t step_rows) {
    return steps.bytes(capacity_tokens, context, step_rows);
  });
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
  if (tokens > longest_context_) return "";
  const int64_t pages = (tokens + cache_->page_tokens() - 1) / cache_->page_tokens();
  std::string flags;
  if (tokens > asked_context_tokens_) flags = fmt::format("-c {}", tokens);
  if (!flags.empty() && !is_kv_limited_) return flags;
  if (pages <= cache_->page_count()) return flags;
  return fmt::format("{}{}--kv-limit {}", flags, flags.empty() ? "" : " ",
                     size_flag_for(narrow<uint64_t>(limit_to_hold(pages))));
}

// What to do, as the second half of an error: the model's limit, the counting's, or flags.
std::string Engine::way_to_hold(int64_t tokens) const {
  const int32_t most = longest_context_;
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
  return std::max(context_tokens_, std::min(longest_context_, kMostCounted));
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

fusion::KeyScope Engine::key_scope(std::vector<int32_t> anchor, DType record_type) const {
  return {.model_fingerprint = model_->fingerprint(),
          .ropes = model_->config().ropes,
          .anchor = std::move(anchor),
          .salt = "",
          .record_type = record_type};
}

std::unique_ptr<fusion::Fusor> Engine::make_fusor(store::ChunkStore* store,
                                                  std::vector<int32_t> anchor, DType record_type,
                                                  std::string salt) {
  take_scratch();
  WEFT_CHECK(!rolls_windows());  // a fusion's rows see every slot until the last of them has run
  fusion::KeyScope scope = key_scope(std::move(anchor), record_type);
  scope.salt = std::move(salt);
  return std::make_unique<fusion::Fusor>(*forward_, *cache_, context_, env_, store,
                                         std::move(scope), self_extend_);
}

kv::Usage Engine::kv_usage() const {
  return {.page_tokens = cache_->page_tokens(),
          .pages = cache_->page_count(),
          .free = cache_->free_page_count(),
          .evictable = cache_->evictable_page_count()};
}

std::vector<GroupUse> Engine::kv_use() const {
  const std::vector<int32_t> windows = model_->config().group_windows();
  const std::vector<kv::Snapshot> groups = cache_->snapshots();
  const int64_t layer_bytes = page_bytes() / model_->config().n_layers;
  std::vector<GroupUse> all;
  // Where all layers have windows that roll, one group more counts whole sequences, without layers.
  for (size_t group = 0; group < std::min(windows.size(), groups.size()); ++group) {
    const auto n_layers =
        narrow<int32_t>(std::ranges::count(cache_options_.layer_groups, narrow<int32_t>(group)));
    all.push_back({.pages = kv::page_use(groups[group]),
                   .n_layers = n_layers,
                   .window_tokens = windows[group],
                   .page_bytes = n_layers * layer_bytes});
  }
  return all;
}

void Engine::watch_kv(std::function<void(const std::vector<GroupUse>&)> seen) {
  forward_->set_on_commit([this, seen = std::move(seen)] { seen(kv_use()); });
}

// One that neither moves nor returns a page waits for a reservation to end.
bool Engine::give_back_memory() {
  const kv::CompactionStep step = cache_->give_back_memory();
  return step.goes_on && step.moved_pages + step.returned_pages > 0;
}

// By the codec and not by the forward pass: prefill of 32,768 tokens takes minutes. Normal numbers,
// which is about what projections give. One of a few thousand vectors for each token and head: a
// number of its own for each of their elements would take longer than the prefill of some models.
Result<kv::OwnedSequence> Engine::random_sequence(int32_t n_tokens) {
  constexpr int64_t kVectors = 4093;
  WEFT_CHECK(!self_extend_.is_on() && !rolls_windows());
  const kernels::KvLayout& layout = cache_options_.layout;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(kVectors * layout.head_dim);
  for (float& x : numbers) x = normal(random);
  const auto encoded = [&](DType type, int32_t vector_bytes) {
    std::vector<std::byte> bytes(kVectors * vector_bytes);
    kernels::encode_kv(context_.isa, type, numbers, bytes.data());
    return bytes;
  };
  const kernels::PagedKv kv = cache_->layer(0);
  const std::vector<std::byte> k = encoded(layout.k_type, kv.k_bytes);
  const std::vector<std::byte> v = encoded(layout.v_type, kv.v_bytes);
  const int64_t n_vectors = int64_t{n_tokens} * layout.n_kv_heads;
  const auto fill = [&](int32_t, std::span<std::byte> out) {
    const auto copy = [&](const std::vector<std::byte>& from, int64_t vector_bytes,
                          std::span<std::byte> to) {
      for (int64_t i = 0; i < n_vectors; ++i) {
        const int64_t chosen = random() % kVectors;
        std::memcpy(&to[i * vector_bytes], &from[chosen * vector_bytes], vector_bytes);
      }
    };
    copy(k, kv.k_bytes, out.first(n_vectors * kv.k_bytes));
    copy(v, kv.v_bytes, out.subspan(n_vectors * kv.k_bytes));
    return Status::ok();
  };
  const kv::SlotRun kinds[] = {{n_tokens, kv::SlotKind::kFused}};  // no token ids made them
  WEFT_ASSIGN_OR_RETURN(const kv::SequenceId id, cache_->restore(n_tokens, kinds, fill));
  return kv::OwnedSequence(*cache_, id);
}

Status Engine::check_fits(const Appended& one) const {
  WEFT_CHECK(one.sequence->is_of(*cache_));
  const int64_t n_tokens = int64_t{one.sequence->length()} + std::ssize(one.tokens);
  if (n_tokens <= context_tokens_) return Status::ok();
  return resource_exhausted(
      fmt::format("{} tokens do not fit the context of {}", n_tokens, context_tokens_));
}

Result<std::vector<kv::Reservation>> Engine::reserve(std::span<const Appended> appended,
                                                     model::RowKind kind) {
  std::vector<kv::Growth> growths;
  for (const Appended& one : appended) {
    WEFT_RETURN_IF_ERROR(check_fits(one));
    // What grouped positions made is not what another text's prefix is.
    const bool is_grouped = !self_extend_.is_plain(one.sequence->length());
    growths.push_back({one.sequence->id(), narrow<int32_t>(one.tokens.size()),
                       is_grouped ? kv::SlotKind::kFused : model::slot_kind(kind)});
  }
  if (self_extend_.is_on()) WEFT_RETURN_IF_ERROR(set_positions(appended));
  return cache_->reserve_all(growths);
}

/// As the rows that come see what is there already.
Status Engine::set_positions(std::span<const Appended> appended) {
  for (const Appended& one : appended) {
    const int32_t begin = one.sequence->length();
    const int32_t end = begin + narrow<int32_t>(one.tokens.size());
    if (end > self_extend_.next_change(begin)) {
      return unsupported("Self-Extend (--grp-attn-n): rows of one step are in different groups");
    }
    WEFT_RETURN_IF_ERROR(model::set_positions(context_, model_->config(), *cache_,
                                              one.sequence->id(),
                                              self_extend_.positions(begin, end)));
  }
  return Status::ok();
}

int64_t Engine::rows_of_step(const Appended& all) const {
  const int32_t begin = all.sequence->length();
  return std::min<int64_t>(
      {std::ssize(all.tokens), step_rows_, int64_t{self_extend_.next_change(begin)} - begin});
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
  const LogitRows wanted = options.every_row ? LogitRows::kAll : LogitRows::kLast;
  return with_memory_for(appended, [&]() -> Result<std::vector<float>> {
    const bool is_long = appended.size() == 1 &&
                         rows_of_step(appended.front()) < std::ssize(appended.front().tokens);
    const int64_t begin_ns = env_.monotonic_ns();
    auto logits = is_long && !options.every_row ? append_in_steps(appended.front(), options)
                                                : append_in_one_step(appended, options, wanted);
    if (options.kind == model::RowKind::kPrompt && logits.is_ok() && logs_info()) {
      log_prompt(appended, env_.ms_since(begin_ns));
    }
    return logits;
  });
}

void Engine::log_prompt(std::span<const Appended> appended, double ms) const {
  int64_t n_tokens = 0, n_before = 0;
  for (const Appended& one : appended) {
    n_tokens += std::ssize(one.tokens);
    n_before += one.sequence->length() - std::ssize(one.tokens);
  }
  log_info(fmt::format("prompt: {} tokens after {} in {:.0f} ms ({:.1f} tokens/s)", n_tokens,
                       n_before, ms, n_tokens * 1e3 / std::max(ms, 1e-3)));
}

// The bits are those of one step: a row depends on what its sequence holds and not on the rows
// beside it. Only the last step's logits are computed.
Result<std::vector<float>> Engine::append_in_steps(const Appended& all,
                                                   const AppendOptions& options) {
  const int32_t n_before = all.sequence->length();
  WEFT_RETURN_IF_ERROR(check_fits(all));
  Result<std::vector<float>> logits = std::vector<float>();
  for (std::span<const int32_t> rest = all.tokens; !rest.empty() && logits.is_ok();) {
    const auto n_rows = narrow<size_t>(rows_of_step({all.sequence, rest}));
    const Appended some[] = {{all.sequence, rest.first(n_rows)}};
    rest = rest.subspan(n_rows);
    logits = append_in_one_step(some, options, rest.empty() ? LogitRows::kLast : LogitRows::kNone);
  }
  if (!logits.is_ok()) {
    const kv::SequenceId id = all.sequence->id();
    WEFT_RETURN_IF_ERROR(cache_->truncate(id, cache_->longest_cut(id, n_before)));
  }
  return logits;
}

Result<std::unique_ptr<model::RowsPass>> Engine::pass_of(std::span<const Appended> appended,
                                                         model::RowKind kind,
                                                         LogitRows logit_rows) {
  model::Rows rows = rows_of(appended, kind);
  WEFT_ASSIGN_OR_RETURN(std::vector<kv::Reservation> reservations, reserve(appended, kind));
  std::vector<int64_t> wanted;
  for (const model::RowGroup& group : rows.groups) {
    if (logit_rows == LogitRows::kNone) break;
    for (int64_t row = logit_rows == LogitRows::kAll ? group.row_begin : group.row_end - 1;
         row < group.row_end; ++row) {
      wanted.push_back(row);
    }
  }
  auto pass = std::make_unique<model::RowsPass>(
      *forward_, *cache_, std::move(rows), model::RowsPass::Options{.wanted = std::move(wanted)});
  for (kv::Reservation& reservation : reservations) pass->hold(std::move(reservation));
  return pass;
}

Result<std::vector<float>> Engine::append_in_one_step(std::span<const Appended> appended,
                                                      const AppendOptions& options,
                                                      LogitRows logit_rows) {
  WEFT_ASSIGN_OR_RETURN(const auto pass, pass_of(appended, options.kind, logit_rows));
  WEFT_RETURN_IF_ERROR(model::Executor(*forward_).run(*pass, options.cancelled));
  give_back_memory();
  return std::move(pass->logits());
}

Result<TriedRows> Engine::try_rows(std::span<const Appended> appended) {
  return with_memory_for(appended, [&]() -> Result<TriedRows> {
    WEFT_ASSIGN_OR_RETURN(const auto pass,
                          pass_of(appended, model::RowKind::kVerify, LogitRows::kAll));
    pass->leave_open();
    WEFT_RETURN_IF_ERROR(model::Executor(*forward_).run(*pass));
    return TriedRows{std::move(pass->logits()), pass->take_reservations()};
  });
}

void Engine::accept(TriedRows rows, std::span<const int32_t> n_tokens) {
  WEFT_CHECK(rows.reservations.size() == n_tokens.size());
  for (size_t i = 0; i < n_tokens.size(); ++i) rows.reservations[i].commit(n_tokens[i]);
  if (forward_->on_commit()) forward_->on_commit()();
  give_back_memory();
}

void Engine::use_drafts(const spec::DraftOptions& options) {
  draft_ = options;
  draft_counters_ = {};
  step_cost_ = {};
}

int64_t Engine::tried_rows(const kv::OwnedSequence& sequence) const {
  const int32_t begin = sequence.length();
  return std::min<int64_t>({int64_t{context_tokens_} - begin, step_rows_,
                            int64_t{self_extend_.next_change(begin)} - begin});
}

Status Engine::score(std::span<const Appended> appended, std::span<const int64_t> wanted,
                     FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits,
                     const FunctionRef<bool()>* cancelled) {
  if (!self_extend_.is_on()) return score_in_one_step(appended, wanted, on_logits, cancelled);
  int64_t begin = 0;  // rows that were run
  for (const Appended& one : appended) {
    for (std::span<const int32_t> rest = one.tokens; !rest.empty();) {
      const int64_t n_rows = rows_of_step({one.sequence, rest});
      std::vector<int64_t> rows;
      for (const int64_t row : wanted) {
        if (row >= begin && row < begin + n_rows) rows.push_back(row - begin);
      }
      const Appended some[] = {{one.sequence, rest.first(n_rows)}};
      WEFT_RETURN_IF_ERROR(score_in_one_step(
          some, rows,
          [&](int64_t row, std::span<const float> logits) { on_logits(begin + row, logits); },
          cancelled));
      rest = rest.subspan(n_rows);
      begin += n_rows;
    }
  }
  return Status::ok();
}

Status Engine::score_in_one_step(
    std::span<const Appended> appended, std::span<const int64_t> wanted,
    FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits,
    const FunctionRef<bool()>* cancelled) {
  constexpr size_t kRowsAtOnce = kScoredRowsAtOnce;
  return with_memory_for(appended, [&]() -> Status {
    model::Rows rows = rows_of(appended, model::RowKind::kPrompt);
    WEFT_ASSIGN_OR_RETURN(std::vector<kv::Reservation> reservations,
                          reserve(appended, model::RowKind::kPrompt));
    model::RowsPass pass(*forward_, *cache_, std::move(rows), {.keep_all_rows = true});
    for (kv::Reservation& reservation : reservations) pass.hold(std::move(reservation));
    WEFT_RETURN_IF_ERROR(model::Executor(*forward_).run(pass, cancelled));
    give_back_memory();
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
