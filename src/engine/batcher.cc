// The scheduler (scheduler.h) plans integers; this carries a plan out and reports back. A step runs
// every running request's decode row and as many prompt rows as the budget leaves; a prompt over
// documents (a fusion) goes layer by layer beside them. A request's tokens and probabilities are
// what they would be alone, whatever shares its steps, by the kernels' promise on rows.
#include "engine/batcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "base/narrow.h"
#include "base/out_of_memory.h"

namespace weft::engine {
namespace {

int64_t now_ms(Engine& engine) { return engine.env().monotonic_ns() / 1'000'000; }

constexpr auto kNoText = [](std::string_view) { return true; };

}  // namespace

/// A plan that is rolled back unless it was ended.
class Batcher::OpenPlan {
 public:
  OpenPlan(Scheduler& scheduler, StepPlan plan) : scheduler_(scheduler), plan_(std::move(plan)) {}
  ~OpenPlan() {
    if (is_open_) scheduler_.roll_back(plan_);
  }
  OpenPlan(const OpenPlan&) = delete;
  OpenPlan& operator=(const OpenPlan&) = delete;

  const StepPlan& plan() const { return plan_; }
  void commit(std::span<const RequestId> finished, WholePrompt whole,
              std::span<const AcceptedDraft> drafts) {
    is_open_ = false;
    scheduler_.commit(plan_, finished, whole, drafts);
  }

 private:
  Scheduler& scheduler_;
  const StepPlan plan_;
  bool is_open_ = true;
};

Result<std::unique_ptr<Batcher>> Batcher::create(Engine& engine, const BatcherOptions& options) {
  if (options.prompt_rows < 1) {
    return invalid_argument(
        fmt::format("{} rows of prompts in a step: at least 1 is needed", options.prompt_rows));
  }
  if (engine.self_extend().is_on()) {
    return unsupported("Self-Extend (--grp-attn-n) is for one request at a time");
  }
  // What was preempted runs its answer's rows again in one step, past the checkpoints between them.
  if (engine.has_dense_checkpoints()) {
    return unsupported(std::string(kOneAnswerAtATime));
  }
  const kv::Cache& cache = *engine.cache_;
  const int32_t prompt_rows = std::min(options.prompt_rows, engine.step_rows());
  WEFT_ASSIGN_OR_RETURN(Scheduler scheduler,
                        Scheduler::create({.total_pages = cache.page_count(),
                                           .page_tokens = cache.page_tokens(),
                                           .context_tokens = engine.context_tokens(),
                                           .step_rows = prompt_rows + options.max_running,
                                           .max_running = options.max_running}));
  return std::unique_ptr<Batcher>(new Batcher(engine, std::move(scheduler)));
}

Batcher::~Batcher() = default;

// Equal prompts at once: the second one waits for the first one's prefill, and finds it.
Result<size_t> Batcher::submit(BatchRequest request) {
  RequestShape shape;
  const auto same = by_prompt_.find({request.salt, request.prompt});
  if (same != by_prompt_.end()) shape.after = same->second;
  return submit(shape,
                Request{.salt = std::move(request.salt), .tokens = std::move(request.prompt)},
                request.options);
}

Result<size_t> Batcher::submit(ChunkedRequest request) {
  Request made{.tokens = request.prompt.tokens()};
  const RequestShape shape{.is_whole = true,
                           .work_pages = request.fusor->pages_for_missing(request.prompt)};
  made.chunked = ChunkedPrompt{request.fusor, request.prompt, request.fusion};
  WEFT_ASSIGN_OR_RETURN(made.prefill,
                        request.fusor->start(std::move(request.prompt), std::move(request.fusion)));
  return submit(shape, std::move(made), request.options);
}

Result<size_t> Batcher::submit(RequestShape shape, Request request,
                               const GenerationOptions& options) {
  const int32_t vocab = engine_.model().config().vocab_size;
  for (const int32_t id : request.tokens) {  // a wrong one must not fail the others' step
    if (id < 0 || id >= vocab) {
      return invalid_argument(fmt::format("token {}: the vocabulary has 0 to {}", id, vocab - 1));
    }
  }
  const int64_t n_prompt = std::ssize(request.tokens);
  if (n_prompt > engine_.context_tokens()) {
    return prompt_too_long(engine_, options, "the prompt", n_prompt);
  }
  // The token that is sampled last is never run, so the context may be full before it.
  const auto room = narrow<int32_t>(engine_.context_tokens() - n_prompt + 1);
  shape.prompt_tokens = narrow<int32_t>(n_prompt);
  shape.max_new_tokens =
      options.max_tokens == kNoTokenLimit ? room : std::min(options.max_tokens, room);
  WEFT_ASSIGN_OR_RETURN(request.text,
                        TextGeneration::create(engine_.tokenizer(), options, request.tokens));
  request.index = n_submitted_;
  request.prompt_tokens = request.tokens.size();
  WEFT_ASSIGN_OR_RETURN(const RequestId id, scheduler_.submit(shape, now_ms(engine_)));
  try {
    if (!shape.is_whole) by_prompt_.try_emplace({request.salt, request.tokens}, id);
    requests_.emplace(id, std::move(request));
  } catch (const std::bad_alloc&) {
    scheduler_.abort(id);
    std::erase_if(by_prompt_, [&](const auto& one) { return one.second == id; });
    throw;
  }
  return n_submitted_++;
}

Result<bool> Batcher::step(OnDone on_done, const model::Executor::Cancelled* cancelled) {
  return or_out_of_memory("a step of several requests",
                          "take fewer at once, or a smaller --kv-limit",
                          [&] { return run_step(on_done, cancelled); });
}

Result<bool> Batcher::run_step(OnDone on_done, const model::Executor::Cancelled* cancelled) {
  if (requests_.empty()) return false;
  kv::Cache& cache = *engine_.cache_;
  const auto reusable = [&](RequestId id) {
    const Request& request = requests_.at(id);
    return cache.match_prefix(std::span(request.tokens).first(request.prompt_tokens - 1),
                              request.salt);
  };
  OpenPlan open(scheduler_, scheduler_.plan(free_pages(), now_ms(engine_), reusable));
  const StepPlan& plan = open.plan();
  WEFT_RETURN_IF_ERROR(prepare(plan));
  if (plan.plan_again()) return true;
  if (plan.slices.empty()) {
    return resource_exhausted(fmt::format(
        "{} requests wait for pages of the KV cache that others hold: {} of {} are free",
        requests_.size(), cache.free_page_count(), cache.page_count()));
  }
  // First, since what it has done stays done if the rows fail, and not the other way round.
  Status failed;
  WEFT_ASSIGN_OR_RETURN(const WholePrompt whole, run_whole(plan, cancelled, failed));
  StepRows rows;
  WEFT_RETURN_IF_ERROR(run_rows(plan, cancelled, rows));
  count_pages();
  const Ended ended = sample(plan, whole, failed, rows);
  std::vector<AcceptedDraft> drafts;
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const Slice& slice = plan.slices[i];
    if (slice.kind == SliceKind::kDecode)
      drafts.push_back({slice.id, rows.of_slices[i].n_kept - 1});
  }
  commit_rows(plan, std::move(rows));
  std::vector<RequestId> finished;
  for (const auto& [id, status] : ended) finished.push_back(id);
  open.commit(finished, whole, drafts);
  for (const auto& [id, status] : ended) {
    Request request = take(id);
    BatchAnswer answer = finish(request);
    request.sequence.reset();
    request.prefill.reset();
    if (status.is_ok()) {
      on_done(request.index, std::move(answer));
    } else {
      on_done(request.index, status);
    }
  }
  engine_.give_back_memory();
  return true;
}

// Out of the tables before its answer is handed over: on_done may submit the next one.
Batcher::Request Batcher::take(RequestId id) {
  Request request = std::move(requests_.extract(id).mapped());
  const auto prompt = by_prompt_.find(
      {request.salt, {request.tokens.begin(), request.tokens.begin() + request.prompt_tokens}});
  if (prompt != by_prompt_.end() && prompt->second == id) by_prompt_.erase(prompt);
  return request;
}

/// What is free or could be evicted, but for what a whole prompt under way is still to take.
int32_t Batcher::free_pages() const {
  const kv::Cache& cache = *engine_.cache_;
  int32_t n_pages = cache.free_page_count() + cache.evictable_page_count();
  for (const auto& [id, request] : requests_) {
    if (!scheduler_.is_under_way(id) || request.sequence) continue;
    if (request.prefill && request.prefill->has_pages()) continue;
    const int32_t page = cache.page_tokens();
    n_pages -= (request.prompt_tokens + page - 1) / page;
  }
  return std::max(n_pages, 0);
}

/// Frees the sequences that are preempted and makes those that are admitted.
Status Batcher::prepare(const StepPlan& plan) {
  for (const Preemption& preemption : plan.preempted) {
    Request& request = requests_.at(preemption.id);
    request.sequence.reset();
    request.prefill.reset();
    ++stats_.preemptions;
    if (logs_info()) {
      log_info(fmt::format("request {} waits again: its {} computed tokens make room",
                           request.index, preemption.dropped_tokens));
    }
  }
  kv::Cache& cache = *engine_.cache_;
  for (const Admission& admission : plan.admitted) {
    Request& request = requests_.at(admission.id);
    if (request.admitted_ns == 0) request.admitted_ns = engine_.env().monotonic_ns();
    if (request.chunked) continue;
    request.sequence.emplace(cache);
    const auto prefix = std::span(request.tokens).first(admission.reused_tokens);
    const kv::SequenceId id = request.sequence->id();
    WEFT_RETURN_IF_ERROR(cache.attach_prefix(id, prefix, request.salt).status());
    if (logs_info()) {
      log_info(
          fmt::format("request {} begins: {} of {} tokens of its prompt are in the prefix cache",
                      request.index, admission.reused_tokens, request.prompt_tokens));
    }
  }
  return Status::ok();
}

/// Layers of the plan's whole prompt, if it has one, until they had as many rows as a step has.
Result<WholePrompt> Batcher::run_whole(const StepPlan& plan,
                                       const model::Executor::Cancelled* cancelled,
                                       Status& failed) {
  const auto slice = std::ranges::find(plan.slices, SliceKind::kWhole, &Slice::kind);
  if (slice == plan.slices.end()) return WholePrompt::kGoesOn;
  Request& request = requests_.at(slice->id);
  if (request.sequence) return WholePrompt::kComputed;  // in a step whose other rows failed
  ChunkedPrompt& chunked = *request.chunked;
  if (!request.prefill) {
    WEFT_ASSIGN_OR_RETURN(request.prefill, chunked.fusor->start(chunked.prompt, chunked.options));
  }
  const int32_t n_layers = engine_.model().config().n_layers;
  for (int64_t rows_left = int64_t{slice->n} * n_layers; rows_left > 0;) {
    if (cancelled != nullptr && (*cancelled)()) return weft::cancelled("stopped");
    const Result<int64_t> n_rows = request.prefill->advance();
    chunked.options = request.prefill->settled();
    if (!n_rows.is_ok()) {
      request.prefill.reset();
      const bool others_run = scheduler_.n_running() > 1;
      if (n_rows.status().code() == StatusCode::kResourceExhausted && others_run) {
        return WholePrompt::kPostponed;
      }
      failed = n_rows.status();
      return WholePrompt::kGoesOn;
    }
    if (*n_rows == 0) {
      fusion::Prefilled prefilled = request.prefill->take();
      request.prefill.reset();
      request.sequence.emplace(std::move(prefilled.sequence));
      request.first_logits = std::move(prefilled.logits);
      if (!request.report) request.report = std::move(prefilled.report);
      return WholePrompt::kComputed;
    }
    rows_left -= *n_rows;
  }
  return WholePrompt::kGoesOn;
}

// A draft takes pages only where some are left when each running request has one more: it never
// makes anybody wait.
Status Batcher::add_drafts(const StepPlan& plan, const model::Executor::Cancelled* cancelled,
                           StepRows& rows) {
  if (!engine_.draft_options().is_on()) return Status::ok();
  const int32_t page = engine_.cache_->page_tokens();
  const auto pages_for = [page](int64_t n) { return (n + page - 1) / page; };
  int64_t n_free = free_pages() - int64_t{scheduler_.n_running()};
  int64_t n_decoding = 0;
  for (const Slice& slice : plan.slices) {
    n_free -= pages_for(slice.begin + slice.n) - pages_for(slice.begin);
    n_decoding += slice.kind == SliceKind::kDecode ? 1 : 0;
  }
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const Slice& slice = plan.slices[i];
    if (slice.kind != SliceKind::kDecode) continue;
    Request& request = requests_.at(slice.id);
    const auto text = std::span(request.tokens).first(request.tokens.size() - 1);
    if (!request.speculation) request.speculation = std::make_unique<Speculation>(engine_, text);
    request.speculation->catch_up(text);  // after a preemption a token came without a draft
    const int64_t end = int64_t{slice.begin} + 1;
    const int64_t held = pages_for(end);
    const int64_t n_left =
        std::min<int64_t>(engine_.context_tokens() - end, request.text->tokens_left() - 1);
    const int64_t n_held = (held + std::max<int64_t>(n_free, 0)) * page - end;
    const DraftRoom room{
        .tokens = std::min(n_held, n_left), .answer_tokens = n_left + 1, .n_rows = n_decoding};
    WEFT_ASSIGN_OR_RETURN(
        rows.of_slices[i].tokens,
        request.speculation->rows_after(*request.sequence, request.tokens.back(), room, cancelled));
    n_free -= pages_for(slice.begin + std::ssize(rows.of_slices[i].tokens)) - held;
  }
  return Status::ok();
}

Status Batcher::run_rows(const StepPlan& plan, const model::Executor::Cancelled* cancelled,
                         StepRows& out) {
  model::Rows rows;
  model::RowsPass::Options options;
  std::vector<kv::Growth> grows;       // of the requests, each once
  std::vector<int32_t> first_decoded;  // of each: its slots from there on
  out.of_slices.resize(plan.slices.size());
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const Slice& slice = plan.slices[i];
    if (slice.kind == SliceKind::kWhole) continue;
    const auto tokens = std::span(requests_.at(slice.id).tokens).subspan(slice.begin, slice.n);
    out.of_slices[i].tokens.assign(tokens.begin(), tokens.end());
  }
  WEFT_RETURN_IF_ERROR(add_drafts(plan, cancelled, out));
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const Slice& slice = plan.slices[i];
    if (slice.kind == SliceKind::kWhole) continue;
    const Request& request = requests_.at(slice.id);
    const int32_t held = request.sequence ? engine_.cache_->length(request.sequence->id()) : -1;
    const bool is_new =
        grows.empty() || !request.sequence || grows.back().id != request.sequence->id();
    const int32_t growing = is_new ? 0 : grows.back().n_tokens;
    if (held + growing != slice.begin) {
      return resource_exhausted("memory ran out in a step before: the requests must be ended");
    }
    if (is_new) {
      grows.push_back({.id = request.sequence->id()});
      first_decoded.push_back(INT32_MAX);
    }
    const std::vector<int32_t>& tokens = out.of_slices[i].tokens;
    rows.add(request.sequence->id(), tokens, slice.begin,
             engine_.kind_of(slice.kind == SliceKind::kPrompt ? model::RowKind::kPrompt
                                                              : model::RowKind::kDecode));
    // Of a draft each row may be sampled from.
    const int64_t n_sampled = slice.kind == SliceKind::kDecode ? std::ssize(tokens) : 1;
    for (int64_t row = rows.size() - n_sampled; slice.samples && row < rows.size(); ++row) {
      options.wanted.push_back(row);
    }
    out.of_slices[i].sequence = grows.size() - 1;
    grows.back().n_tokens += narrow<int32_t>(std::ssize(tokens));
    if (slice.kind != SliceKind::kPrompt) {
      first_decoded.back() = std::min(first_decoded.back(), slice.begin);
    }
  }
  if (rows.size() == 0) return Status::ok();
  WEFT_ASSIGN_OR_RETURN(std::vector<kv::Reservation> reservations,
                        engine_.cache_->reserve_all(grows));
  for (size_t i = 0; i < grows.size(); ++i) {
    if (first_decoded[i] == INT32_MAX) continue;
    reservations[i].mark_from(first_decoded[i], kv::SlotKind::kDecode);
  }
  const int64_t n_rows = rows.size();
  const int64_t begin_ns = engine_.env().monotonic_ns();
  model::RowsPass pass(*engine_.forward_, *engine_.cache_, std::move(rows), std::move(options));
  for (kv::Reservation& reservation : reservations) pass.hold(std::move(reservation));
  pass.logits() = std::move(logits_);  // its memory: MBs that the machine would zero in each step
  pass.leave_open();
  WEFT_RETURN_IF_ERROR(model::Executor(*engine_.forward_).run(pass, cancelled));
  out.tried = {std::move(pass.logits()), pass.take_reservations()};
  count_step(plan, n_rows, engine_.env().ms_since(begin_ns));
  return Status::ok();
}

void Batcher::count_step(const StepPlan& plan, int64_t n_rows, double ms) {
  if (!engine_.draft_options().is_on()) return;
  const int64_t n_decoding = std::ranges::count(plan.slices, SliceKind::kDecode, &Slice::kind);
  engine_.draft_counters().steps += n_decoding;
  if (n_decoding > 0) engine_.draft_counters().verify_ms += ms;
  // What rows cost, steps with prompts' rows do not tell.
  if (n_decoding == std::ssize(plan.slices)) engine_.step_cost().add_step(n_rows, ms);
}

Batcher::Ended Batcher::sample(const StepPlan& plan, WholePrompt whole, const Status& failed,
                               StepRows& rows) {
  Ended ended;
  const int64_t n_vocab = engine_.model().config().vocab_size;
  int64_t sampled = 0;  // rows
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const Slice& slice = plan.slices[i];
    Request& request = requests_.at(slice.id);
    SliceRows& of_slice = rows.of_slices[i];
    const bool is_whole = slice.kind == SliceKind::kWhole;
    if (is_whole && whole != WholePrompt::kComputed) {
      if (!failed.is_ok()) ended.emplace_back(slice.id, failed);
      continue;
    }
    if (slice.kind == SliceKind::kPrompt) stats_.prompt_rows += slice.n;
    of_slice.n_kept = slice.n;
    if (!slice.samples) continue;
    // Of what is not a draft the last row is sampled from.
    const std::vector<int32_t> one{request.tokens.back()};
    const bool drafts = slice.kind == SliceKind::kDecode;
    const std::span<const int32_t> tokens =
        drafts ? std::span<const int32_t>(of_slice.tokens) : one;
    std::span<float> scores = request.first_logits;
    if (!is_whole) {
      scores =
          std::span(rows.tried.logits).subspan(sampled * n_vocab, std::ssize(tokens) * n_vocab);
      sampled += std::ssize(tokens);
    }
    if (request.begin_ns == 0) request.begin_ns = engine_.env().monotonic_ns();
    const int64_t n_before = is_whole ? request.prompt_tokens : slice.begin + slice.n;
    const auto has_room = [&](int64_t n_kept) {
      return n_before + n_kept - 1 < engine_.context_tokens();
    };
    int32_t n_kept = 0;
    const auto next = request.text->next_of(tokens, scores, has_room, kNoText, n_kept);
    if (is_whole) request.first_logits = {};
    if (drafts) {
      of_slice.n_kept = next.is_ok() ? n_kept : 1;
      if (request.speculation) request.speculation->accept(of_slice.n_kept - 1);
      request.tokens.insert(request.tokens.end(), tokens.begin() + 1,
                            tokens.begin() + of_slice.n_kept);
    }
    if (!next.is_ok()) {
      ended.emplace_back(slice.id, next.status());
      continue;
    }
    stats_.new_tokens += n_kept;
    if (*next) {
      request.tokens.push_back(**next);
    } else {
      ended.emplace_back(slice.id, Status::ok());
    }
  }
  return ended;
}

void Batcher::commit_rows(const StepPlan& plan, StepRows rows) {
  std::vector<int32_t> n_kept(rows.tried.reservations.size());
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    if (plan.slices[i].kind == SliceKind::kWhole) continue;
    n_kept[rows.of_slices[i].sequence] += rows.of_slices[i].n_kept;
  }
  if (!n_kept.empty()) {
    logits_ = std::move(rows.tried.logits);
    engine_.accept(std::move(rows.tried), n_kept);
  }
  for (const Slice& slice : plan.slices) {
    const Request& request = requests_.at(slice.id);
    if (slice.kind == SliceKind::kPrompt && slice.begin + slice.n == request.prompt_tokens) {
      engine_.cache_->publish(request.sequence->id(),
                              std::span(request.tokens).first(request.prompt_tokens), request.salt);
    }
  }
}

void Batcher::count_pages() {
  const kv::Cache& cache = *engine_.cache_;
  const int32_t held = cache.used_page_count() - cache.evictable_page_count();
  if (held <= stats_.pages_peak) return;
  stats_.pages_peak = held;
  std::unordered_map<int32_t, int32_t> holders;
  for (const auto& [id, request] : requests_) {
    if (!request.sequence) continue;
    for (const int32_t page : cache.block_table(request.sequence->id(), cache.counted_group()))
      ++holders[page];
  }
  stats_.pages_shared = narrow<int32_t>(
      std::ranges::count_if(holders, [](const auto& page) { return page.second > 1; }));
}

BatchAnswer Batcher::finish(Request& request) {
  BatchAnswer answer{request.text->finish(kNoText)};
  if (request.begin_ns != 0) {
    answer.decode_ms = engine_.env().ms_since(request.begin_ns);
    answer.ttft_ms = (request.begin_ns - request.admitted_ns) * 1e-6;
  }
  answer.report = std::move(request.report);
  if (request.speculation) answer.drafts = request.speculation->counters();
  return answer;
}

void Batcher::cancel(OnDone on_done) {
  for (auto& [id, request] : requests_) {
    scheduler_.abort(id);
    request.sequence.reset();
    request.prefill.reset();
    on_done(request.index, finish(request));
  }
  requests_.clear();
  by_prompt_.clear();
}

}  // namespace weft::engine
