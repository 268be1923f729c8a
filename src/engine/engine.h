// One open model, ready to answer: weights, tokenizer, KV cache, workers, and the way products are
// computed, all decided once. Requests run one at a time.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/function_ref.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "engine/recent_tokens.h"
#include "engine/step_memory.h"
#include "fusion/fusor.h"
#include "kernels/context.h"
#include "kv/cache.h"
#include "kv/self_extend.h"
#include "kv/usage.h"
#include "model/context_shift.h"
#include "model/executor.h"
#include "model/forward.h"
#include "model/model.h"
#include "sparse/options.h"
#include "spec/draft_length.h"
#include "spec/drafter.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace weft::sparse {
class CountingSelector;  // sparse/selector.h
}

namespace weft::engine {

struct EngineOptions {
  std::string model_path;
  std::shared_ptr<const model::Model> model;  // an open one to share, in place of the path
  int n_threads = 0;                          // 0: one for each core this process may use
  /// Longest prompt and answer together; 0: the model's, at most 8192, or what a shared model was
  /// opened for; with self_extend its groups' size times as many.
  int32_t context_tokens = 0;
  kv::SelfExtend self_extend;    // then no window rolls
  bool beyond_context = false;   // context_tokens may be more than the model was trained for
  sparse::SparseOptions sparse;  // which pages decode reads
  spec::DraftOptions draft;      // several tokens a step, where guesses at them are right
  /// Of the KV cache's pages and what a step takes beside them, never exceeded; 0: what n_contexts
  /// need, and steps of any length.
  uint64_t kv_limit_bytes = 0;
  StepNeeds steps;            // what is to be run under it
  kernels::KvTypes kv_types;  // of the KV cache
  int32_t page_tokens = 0;    // of its pages: a power of two, 16 to 256; 0: as usual
  int32_t n_contexts = 1;     // requests that may each fill a context at once
  /// Layers with a sliding window keep what it holds, and not whole contexts. Then chunks are not
  /// fused, sequences not saved, and tokens not removed.
  bool rolls_windows = false;
  std::string isa;                 // "" is the best one that the CPU has
  std::string compute = "auto";    // auto, f32, bf16, int8
  std::string compute_kept_file;   // where auto's measurement is kept; "" keeps nothing
  std::string rates_kept_file;     // where prefill_rates() are kept; "" keeps nothing
  std::string labels_kept_folder;  // where label_channels() are kept; "" keeps nothing
};

using weft::kMaxThreads;

/// Of an engine that has_dense_checkpoints().
inline constexpr std::string_view kOneAnswerAtATime =
    "--checkpoint dense is for one answer at a time: take --checkpoint select with --batch, "
    "--parallel and --beams";

/// Tokens after what a sequence holds, in a step of several.
struct Appended {
  const kv::OwnedSequence* sequence = nullptr;
  std::span<const int32_t> tokens;
};

struct AppendOptions {
  model::RowKind kind = model::RowKind::kPrompt;
  bool every_row = false;  // logits of all rows
  /// May be null; asked in front of each layer: true ends it with kCancelled and the sequence as it
  /// was.
  const FunctionRef<bool()>* cancelled = nullptr;
  const char* what = "prompt";  // for -v
};

/// Rows that were run and are not committed: dropped, they leave the sequences as they were.
struct TriedRows {
  std::vector<float> logits;  // [rows][vocab_size], those of the first sequence, then of the second
  std::vector<kv::Reservation> reservations;  // of each sequence
  std::vector<std::vector<int32_t>> tokens;   // likewise, or none: what accept() needs of them
};

/// The pages of a group of layers.
struct GroupUse {
  kv::PageUse pages;
  int32_t n_layers = 0;
  int32_t window_tokens = 0;  // that its layers see; 0: all
  int64_t page_bytes = 0;     // K and V of a page, its layers
};

/// Not thread-safe.
class Engine {
 public:
  ~Engine();
  /// Errors of what it opens; kResourceExhausted for threads that the machine refuses, or when
  /// memory runs out.
  static Result<std::unique_ptr<Engine>> open(Env& env, const EngineOptions& options);

  Env& env() { return env_; }
  const model::Model& model() const { return *model_; }
  /// For tests so far: for a second engine over the same weights, which may run on another thread.
  std::shared_ptr<const model::Model> shared_model() const { return model_; }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  /// kUnsupported, with a line that offers --raw, when the model's template cannot be compiled;
  /// kNotFound when it has none. It sees the time of this call; ChatTemplate::at gives it another.
  Result<text::ChatTemplate> chat_template() const;
  const kernels::Context& context() const { return context_; }
  /// The longest prompt and answer together: the context, or what the KV limit holds of it.
  int32_t context_tokens() const { return context_tokens_; }
  /// The flag that sets it, for lines that ask for more: -c or --kv-limit.
  const char* context_flag() const {
    return context_tokens_ < asked_context_tokens_ ? "--kv-limit" : "-c";
  }
  /// The context that was asked for, whatever the KV limit holds of it.
  int32_t asked_context_tokens() const { return asked_context_tokens_; }
  /// How decode chooses pages; null where it reads all.
  const sparse::CountingSelector* selector() const { return selector_.get(); }
  const sparse::SparseOptions& sparse_options() const { return sparse_; }
  const spec::DraftOptions& draft_options() const { return draft_; }
  /// The model that drafts, with a KV cache of its own; null where none does.
  Engine* draft_engine() { return draft_engine_.get(); }
  const Engine* draft_engine() const { return draft_engine_.get(); }
  /// Drafts so from now on; counters begin anew. kMostDraftTokens at most, and no more tokens than
  /// the engine was opened for where its memory is limited.
  void use_drafts(const spec::DraftOptions& options);
  /// Of the steps that checked drafts, and those beside them.
  spec::StepCost& step_cost() { return step_cost_; }
  /// Says once that the draft model's context is too short for a text of so many tokens.
  void warn_of_draft_context(int64_t text_tokens);
  /// Of all answers so far.
  spec::DraftCounters& draft_counters() { return draft_counters_; }
  const spec::DraftCounters& draft_counters() const { return draft_counters_; }
  /// Decode chooses so from now on; counters begin anew. For measuring policies beside each other:
  /// no memory is set aside for it, so it is kInvalidArgument under a KV limit.
  Status use_sparse(const sparse::SparseOptions& options);
  /// Of each layer whether it would choose pages. Any thread.
  std::vector<bool> selecting_layers(const sparse::SparseOptions& options) const;
  /// Of decode, since the engine was opened: [n_layers].
  std::span<const model::AttentionTime> attention_times() const {
    return forward_->attention_times();
  }
  /// The longest that could be asked for.
  int32_t longest_context() const { return longest_context_; }
  const kv::SelfExtend& self_extend() const { return self_extend_; }
  /// The flags with which it would hold so many: "-c 448", "--kv-limit 10.4MB" or both; where fewer
  /// guesses at once leave the room, "--kv-limit 10.4MB or --draft-tokens 3"; "" where the model
  /// holds fewer.
  std::string flags_to_hold(int64_t tokens) const;
  /// These as the end of a line, "-c 448 holds them", or that the model does not hold so many.
  std::string way_to_hold(int64_t tokens) const;
  /// The --kv-limit under which the cache has so many pages, with what a step then takes.
  int64_t limit_to_hold(int64_t n_pages) const;
  /// Longer ones gain nothing, as rows go through a layer in blocks, and could be cancelled only
  /// after minutes.
  static constexpr int32_t kMostStepRows = 8192;
  /// Rows of a prompt that go in one step where it can be divided.
  int32_t step_rows() const { return step_rows_; }
  /// What --kv-limit sets aside for a step, beside the pages; 0 where there is no limit.
  int64_t scratch_bytes() const { return scratch_bytes_; }
  /// Prompts are counted up to here, also where the context is smaller, so that it can be said what
  /// would hold them. A longer one has more tokens than this, nobody knows how many.
  int64_t counted_tokens() const;
  /// "1 token", "412 tokens", or "more than 131072 tokens" past counted_tokens().
  std::string tokens_text(int64_t tokens) const;
  /// An empty sequence of the KV cache; the engine must outlive it.
  kv::OwnedSequence create_sequence() { return kv::OwnedSequence(*cache_); }
  kv::Usage kv_usage() const;
  /// Of the cache's keys.
  DType k_type() const { return cache_options_.layout.k_type; }
  /// What the pages of each group of layers are used for now, in the order of the model's groups.
  std::vector<GroupUse> kv_use() const;
  /// Calls `seen` after each pass that was committed, with the sequences that it ran still there.
  /// It looks at every sequence and page: for -v.
  void watch_kv(std::function<void(const std::vector<GroupUse>&)> seen);
  /// For tests: all of its metadata.
  std::vector<kv::Snapshot> kv_snapshots() const { return cache_->snapshots(); }
  /// Empties the prefix index but for pages in use: the next prompt is prefilled from its
  /// beginning.
  void forget_prefixes() { cache_->evict_unused_prefixes(); }
  /// A sequence of so many slots whose K and V are random numbers: a long context in seconds, for
  /// measuring what does not depend on the text. kResourceExhausted where the cache holds fewer.
  /// Not with self_extend or rolls_windows.
  Result<kv::OwnedSequence> random_sequence(int32_t n_tokens);
  /// A bounded step of giving back memory that the KV cache's pages no longer need, which each step
  /// of rows ends with. Returns whether another one would do more: for a program that waits.
  bool give_back_memory();
  /// K and V of a page, all layers.
  int64_t page_bytes() const { return cache_->page_bytes(); }
  int64_t kv_token_bytes() const { return cache_->page_bytes() / cache_->page_tokens(); }
  /// Now, for chat templates that print the date or the time.
  std::tm local_time() const;
  double load_ms() const { return load_ms_; }
  double calibration_ms() const { return calibration_ms_; }

  /// How fast this machine prefills with this model, with all its cores: measured at the first call
  /// on a machine, by a later run as that one found it. `measuring` is called where it is now
  /// measured, which takes seconds.
  Result<fusion::PrefillRates> prefill_rates(const std::function<void()>& measuring = {});
  /// Where they are kept; "": nowhere.
  const std::string& rates_kept_file() const { return rates_kept_file_; }

  /// What the chunks computed after `anchor` have in common.
  fusion::KeyScope key_scope(std::vector<int32_t> anchor,
                             DType record_type = fusion::kUsualRecordType) const;
  /// Chunks computed after `anchor`, found in and put to `store` (may be null) as records of a type
  /// that fusion::check_record_type takes. What it stores and publishes is found by fusors of the
  /// same salt (a tenant's) alone.
  std::unique_ptr<fusion::Fusor> make_fusor(store::ChunkStore* store, std::vector<int32_t> anchor,
                                            DType record_type = fusion::kUsualRecordType,
                                            std::string salt = {});

  /// Runs `tokens` after what the sequence holds and commits them, in steps of step_rows(). Returns
  /// the logits of the last row, or of all, in one step: [rows, vocab_size]. kResourceExhausted
  /// past the context or when memory runs out; kInvalidArgument for no tokens and ids outside the
  /// vocabulary. After an error the sequence is as it was, or empty, if by then it could not be cut
  /// back. With self_extend a step ends, too, where more of the sequence is grouped, and its K is
  /// turned before the next one.
  Result<std::vector<float>> append(const kv::OwnedSequence& sequence,
                                    std::span<const int32_t> tokens,
                                    const AppendOptions& options = {}) {
    const Appended one[] = {{&sequence, tokens}};
    return append_all(one, options);
  }
  /// The same of several sequences, each named once, in one step: the rows of the first, then of
  /// the second. Each gets what it gets alone. With self_extend a row each.
  Result<std::vector<float>> append_all(std::span<const Appended> appended,
                                        const AppendOptions& options = {});
  /// The same rows of generated tokens, but none of them is committed before accept(): drafts, of
  /// which each sequence keeps the first so many. Each gets what it gets when it is decoded.
  Result<TriedRows> try_rows(std::span<const Appended> appended);
  /// n_tokens: of each sequence that the rows are of, what it keeps of them.
  void accept(TriedRows rows, std::span<const int32_t> n_tokens);
  /// Rows of generated tokens after what the sequence holds that may be tried in one step.
  int64_t tried_rows(const kv::OwnedSequence& sequence) const;
  /// Whether what is generated is dense decoding's, whichever pages a selector chooses: drafts
  /// alone read those.
  bool answers_dense() const {
    return draft_.kind == spec::DrafterKind::kSelf && draft_.verify == spec::Verify::kDense;
  }
  /// Whether committed tokens are run again over all pages from time to time.
  bool has_dense_checkpoints() const;
  /// n tokens that the model itself would go on with after the sequence and `newest`, reading the
  /// pages that its selector chooses; the sequence stays as it was. At most tried_rows() - 1.
  /// `cancelled` as AppendOptions has it.
  Result<std::vector<int32_t>> draft_rows(const kv::OwnedSequence& sequence, int32_t newest,
                                          int32_t n,
                                          const FunctionRef<bool()>* cancelled = nullptr);
  static constexpr int64_t kScoredRowsAtOnce = 64;  // 64 rows of 128 K logits are 32 MB
  /// The same, all of them prompts' rows, for the logits of the listed rows (which ascend) in
  /// prefill's arithmetic: on_logits(row, logits [vocab_size]), in order. With self_extend in
  /// steps, and an error leaves what was run before. `cancelled` as AppendOptions has it.
  Status score(std::span<const Appended> appended, std::span<const int64_t> rows,
               FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits,
               const FunctionRef<bool()>* cancelled = nullptr);

  /// Takes tokens out of the sequence; those after them move there (model::remove_tokens).
  Status remove_tokens(const kv::OwnedSequence& sequence, int32_t begin, int32_t end) {
    return model::remove_tokens(context_, model_->config(), *cache_, sequence.id(), begin, end);
  }

 private:
  friend class Batcher;
  friend class SavedSession;

  enum class LogitRows { kNone, kLast, kAll };
  /// Committed tokens that were decoded over chosen pages and are to be run again before the rows.
  struct Rewritten {
    kv::SequenceId sequence{};
    int32_t first_slot = 0;
    std::vector<int32_t> tokens;
    std::vector<float> keys;  // before: [n_layers][tokens][n_kv_heads * head_dim]
  };

  bool rolls_windows() const { return !cache_options_.windows.empty(); }
  /// kResourceExhausted where the tokens go past the context.
  Status check_fits(const Appended& one) const;
  /// How many of so many rows after what the sequence holds go in one step.
  int64_t rows_of_step(const Appended& all, model::RowKind kind) const;
  Status score_in_one_step(std::span<const Appended> appended, std::span<const int64_t> rows,
                           FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits,
                           const FunctionRef<bool()>* cancelled);
  Result<std::vector<float>> append_in_steps(const Appended& all, const AppendOptions& options);
  Result<std::vector<float>> append_in_one_step(std::span<const Appended> appended,
                                                const AppendOptions& options, LogitRows logit_rows);
  Result<std::unique_ptr<model::RowsPass>> pass_of(std::span<const Appended> appended,
                                                   model::RowKind kind, LogitRows logit_rows,
                                                   std::span<const Rewritten> rewritten);
  Result<std::vector<kv::Reservation>> reserve(std::span<const Appended> appended,
                                               model::RowKind kind);
  Status set_positions(std::span<const Appended> appended);
  Result<std::vector<Rewritten>> begin_dense_passes(std::span<const Appended> appended,
                                                    model::RowKind kind);
  Status rewrite_pending(std::span<const Appended> appended);
  void remember(kv::SequenceId sequence, int32_t slot, std::span<const int32_t> tokens) noexcept;
  std::vector<float> keys_of(const Rewritten& one);
  void end_dense_passes(std::span<const Rewritten> rewritten);
  /// Of rows of generated tokens.
  model::RowKind kind_of(model::RowKind kind) const {
    const bool is_dense = answers_dense() && kind != model::RowKind::kPrompt;
    return is_dense ? model::RowKind::kDense : kind;
  }
  void end_speculation(kv::SequenceId sequence, bool all_accepted);
  int64_t rows_before_checkpoint(const kv::OwnedSequence& sequence) const;
  static Result<std::unique_ptr<Engine>> open_all(Env& env, const EngineOptions& options);
  Status open_model(const EngineOptions& options);
  Status make_cache(const EngineOptions& options);
  /// Rows beside the newest token's in a step, where drafts have so many.
  int32_t tried_tokens(int32_t draft_tokens) const;
  /// Under a limit the pass's scratch is taken at once, at its full size: what grows needs old and
  /// new together.
  void take_scratch() {
    if (is_kv_limited_) forward_->reserve(block_rows_);
  }
  StepMemory step_memory() const;
  /// What of speculative decoding to take less of, so that the limit holds so many pages:
  /// "--draft-tokens 3" or "no --draft"; "" where that does not help.
  std::string fewer_drafts(int64_t n_pages) const;
  /// The model that drafts, of as long texts.
  Status open_draft_engine(const EngineOptions& options);
  void log_drafts() const;
  /// What the model adds to what the user asks of sparse decoding.
  Result<sparse::SparseOptions> complete(sparse::SparseOptions options);
  void make_selector(const sparse::SparseOptions& options);
  /// What those layers' pages are told apart by; none: nothing.
  std::optional<kv::DigestFormat> digest_format(const sparse::SparseOptions& options) const;
  void log_opened(const EngineOptions& options) const;
  void log_prompt(std::span<const Appended> appended, const char* what, double ms) const;

  Engine(Env& env, std::unique_ptr<ThreadPool> pool, kernels::Isa isa);

  Env& env_;
  std::unique_ptr<ThreadPool> pool_;
  kernels::Context context_;
  std::shared_ptr<const model::Model> model_;
  std::optional<text::Tokenizer> tokenizer_;
  kv::Cache::Options cache_options_;
  std::unique_ptr<kv::Cache> cache_;
  sparse::SparseOptions sparse_;
  spec::DraftOptions draft_;
  std::unique_ptr<Engine> draft_engine_;
  RecentTokens recent_{sparse::kMostRewritten +
                       kv::kMostTriedRows};  // where there are dense checkpoints
  spec::StepCost step_cost_;
  spec::DraftCounters draft_counters_;
  bool warned_of_draft_context_ = false;
  bool warned_none_selects_ = false;  // once is enough, of policies beside each other too
  std::map<kernels::LabelKind, std::vector<uint8_t>> label_channels_;  // once they were asked for
  std::unique_ptr<sparse::CountingSelector> selector_;                 // before what refers to it
  std::unique_ptr<model::ForwardPass> forward_;
  int32_t context_tokens_ = 0;
  int32_t asked_context_tokens_ = 0;
  int32_t longest_context_ = 0;
  kv::SelfExtend self_extend_;
  bool is_kv_limited_ = false;
  uint64_t kv_limit_bytes_ = 0;
  StepNeeds steps_;
  int32_t step_rows_ = kMostStepRows;
  int64_t scratch_bytes_ = 0;
  int64_t block_rows_ = 0;  // that the longest step has, under a limit
  std::string rates_kept_file_;
  std::string labels_kept_folder_;
  std::optional<fusion::PrefillRates> rates_;
  double load_ms_ = 0;
  double calibration_ms_ = 0;
};

}  // namespace weft::engine
