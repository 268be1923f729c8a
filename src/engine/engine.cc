// Opens a model with all that a request needs: threads, kernels, vocabulary, cache. Opening maps
// the file and reads no matrix, so that it takes milliseconds; what the first prompt touches is
// read then. The compute path is measured once per machine and kept (compute_choice.h), and so is
// once per model what labels are ordered by (label_channels.h): the first command pays for them and
// reports it as calibration_ms.
#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "base/byte_sizes.h"
#include "base/check.h"
#include "base/counts_text.h"
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
  engine->labels_kept_folder_ = options.labels_kept_folder;
  const int64_t calibration_ns = env.monotonic_ns();
  WEFT_ASSIGN_OR_RETURN(
      engine->context_.matmul_path,
      choose_matmul_path(env, *engine->pool_, isa,
                         // The type that most of a step's products have: the feed-forward
                         // network's.
                         engine->model_->weights().layers.front().experts.front().gate.dtype,
                         options.compute, options.compute_kept_file));
  WEFT_RETURN_IF_ERROR(options.sparse.check(page_tokens_of(options)));
  WEFT_ASSIGN_OR_RETURN(const sparse::SparseOptions sparse, engine->complete(options.sparse));
  engine->calibration_ms_ = env.ms_since(calibration_ns);
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
  if (options.draft.kind != spec::DrafterKind::kModel) {
    log_drafts();
    return Status::ok();
  }
  const int64_t begin_ns = env_.monotonic_ns();
  const auto of_flag = [](const Status& status) {
    return Status(status.code(), "--draft: " + status.message());
  };
  EngineOptions draft{.model_path = options.draft.model_path,
                      .n_threads = pool_->size(),
                      .kv_types = options.kv_types,
                      .n_contexts = options.n_contexts,
                      .isa = options.isa,
                      .compute = options.compute,
                      .compute_kept_file = options.compute_kept_file};
  // A draft model of a shorter context drafts as long as the text fits it.
  const auto file = gguf::File::open(env_, draft.model_path);
  if (!file.is_ok()) return of_flag(file.status());
  const auto config = model::read_config(**file);
  if (!config.is_ok()) return of_flag(config.status());
  draft.context_tokens = narrow<int32_t>(std::min<int64_t>(
      int64_t{context_tokens_} + spec::kMostDraftTokens + 1, config->context_length));
  auto engine = Engine::open(env_, draft);
  if (!engine.is_ok()) return of_flag(engine.status());
  draft_engine_ = *std::move(engine);
  load_ms_ += env_.ms_since(begin_ns);
  WEFT_RETURN_IF_ERROR(check_same_vocabulary(*this, *draft_engine_));
  if (draft.context_tokens <= spec::kMostDraftTokens + 1) warn_of_draft_context(1);
  log_drafts();
  return Status::ok();
}

void Engine::log_drafts() const {
  if (!draft_.is_on() || !logs_info()) return;
  std::string drafter = spec::kDrafters.name(draft_.kind);
  if (draft_engine_ != nullptr) {
    const model::Model& model = draft_engine_->model();
    drafter =
        fmt::format("{}: {}, {}, {}, context {}", model.file().path(), model.config().name,
                    model.config().architecture,
                    dtype_info(model.weights().layers.front().experts.front().gate.dtype).name,
                    draft_engine_->context_tokens());
  }
  log_info(
      fmt::format("--draft {}; {} at once at most", drafter, counted(draft_.most_tokens, "token")));
}

void Engine::warn_of_draft_context(int64_t text_tokens) {
  if (std::exchange(warned_of_draft_context_, true)) return;
  log_warning(fmt::format(
      "--draft {}: its context of {} tokens is too short to draft after {}: these and {} more must "
      "fit",
      draft_engine_->model().file().path(), draft_engine_->context_tokens(),
      counted(text_tokens, "token"), spec::kMostDraftTokens + 1));
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
  const auto labels = sparse::labels_of(options.policy);
  if (!labels || std::ranges::count(selecting_layers(options), true) == 0) return options;
  std::vector<uint8_t>& channels = label_channels_[*labels];
  if (channels.empty()) {
    WEFT_ASSIGN_OR_RETURN(channels, label_channels(env_, *model_, *tokenizer_, context_, *labels,
                                                   labels_kept_folder_));
  }
  options.channels = channels;
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

void Engine::use_drafts(const spec::DraftOptions& options) {
  draft_ = options;
  draft_counters_ = {};
  step_cost_ = {};
}

int32_t Engine::tried_tokens(int32_t draft_tokens) const {
  return has_dense_checkpoints() ? std::max(draft_tokens, sparse_.lock.interval_tokens)
                                 : draft_tokens;
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
  steps_.draft_tokens = tried_tokens(draft_.is_on() ? draft_.most_tokens : 0);
  steps_.turned_tokens = self_extend_.turned_tokens();
  is_kv_limited_ = options.kv_limit_bytes > 0;
  kv_limit_bytes_ = options.kv_limit_bytes;
  if (is_kv_limited_) {
    const StepMemory steps = step_memory();
    auto planned = limit_kv(cache_options_, options.kv_limit_bytes,
                            [&](int64_t capacity_tokens, int64_t step_rows) {
                              return steps.bytes(capacity_tokens, asked_context_tokens_, step_rows);
                            });
    if (!planned.is_ok()) {
      const std::string fewer = fewer_drafts(1);
      return Status(planned.status().code(),
                    planned.status().message() + (fewer.empty() ? "" : ", or " + fewer));
    }
    KvPlan plan = *std::move(planned);
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
    log_info(fmt::format("--sparse {}: where a layer chooses, a {} token reads {}",
                         sparse::kPolicies.name(sparse_.policy),
                         answers_dense() ? "guessed" : "decoded", sparse_.amount_text()));
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

std::string Engine::fewer_drafts(int64_t n_pages) const {
  if (!is_kv_limited_ || !draft_.is_on()) return "";
  const int64_t context =
      std::max<int64_t>(asked_context_tokens_, n_pages * cache_options_.layout.page_tokens);
  const auto fits = [&](int32_t draft_tokens) {
    StepNeeds needs = steps_;
    needs.draft_tokens = tried_tokens(draft_tokens);
    const StepMemory steps(*model_, context_, cache_options_.layout, needs);
    const int64_t limit_bytes =
        limit_for_pages(cache_options_, n_pages, [&](int64_t capacity_tokens, int64_t step_rows) {
          return steps.bytes(capacity_tokens, context, step_rows);
        });
    return std::cmp_less_equal(limit_bytes, kv_limit_bytes_);
  };
  if (!fits(0)) return "";
  int32_t most = 0;
  for (int32_t too_many = draft_.most_tokens; too_many - most > 1;) {
    const int32_t middle = most + (too_many - most) / 2;
    (fits(middle) ? most : too_many) = middle;
  }
  return most == 0 ? "no --draft" : fmt::format("--draft-tokens {}", most);
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
  const std::string fewer = flags.empty() ? fewer_drafts(pages) : "";
  return fmt::format("{}{}--kv-limit {}{}{}", flags, flags.empty() ? "" : " ",
                     size_flag_for(narrow<uint64_t>(limit_to_hold(pages))),
                     fewer.empty() ? "" : " or ", fewer);
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

}  // namespace weft::engine
