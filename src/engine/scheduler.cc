#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/narrow.h"

namespace weft::engine {
namespace {

std::string counted(int64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

int64_t number(RequestId id) { return to_underlying(id); }

}  // namespace

/// Makes one plan: what is free and which rows are left, as they go.
class Scheduler::Planner {
 public:
  Planner(Scheduler& scheduler, int32_t free_pages, int64_t now_ms)
      : scheduler_(scheduler),
        limits_(scheduler.limits_),
        now_ms_(now_ms),
        free_(free_pages),
        rows_(scheduler.limits_.step_rows) {
    plan_.step = scheduler.next_step_++;
    for (auto& [id, request] : scheduler.requests_) {
      if (request.running) running_.push_back({id, &request});
    }
  }

  /// Preempts until each row that must run has its page. False when that is not certain: no row may
  /// run then.
  bool make_room() {
    int64_t possibly_free = free_;
    while (pages_for_next_rows() > possibly_free && running_.size() > 1) {
      const Request& youngest = *running_.back().request;
      possibly_free +=
          pages_for(youngest.is_under_way() ? youngest.shape.prompt_tokens : youngest.computed);
      free_ += certainly_exclusive_pages(youngest);
      preempt(running_.back());
      running_.pop_back();
    }
    return pages_for_next_rows() <= free_;
  }

  void add_decode_rows() {
    for (const Running& r : running_) {
      if (!r.request->decodes()) continue;
      free_ -= pages_for_next_row(*r.request);
      add_slice(r, SliceKind::kDecode, r.request->computed, r.request->computed + 1);
    }
  }

  void continue_prompts() {
    for (size_t i = 0; i < running_.size(); ++i) {
      const Request& request = *running_[i].request;
      if (request.is_under_way()) {
        add_whole(running_[i]);
      } else if (!request.decodes()) {
        add_rows(running_[i], i == 0 ? 0 : watermark(0));
      }
    }
  }

  void admit(FunctionRef<int32_t(RequestId)> reusable_tokens) {
    for (auto& [id, request] : scheduler_.requests_) {
      if (request.running || scheduler_.waits_for_prompt(request)) continue;
      request.needed_pages = 0;
      const auto n_running = narrow<int32_t>(running_.size());
      const bool place_left = n_running < limits_.max_running && n_running <= request.most_beside;
      if (!place_left || rows_ == 0 || !fits(request)) return;
      if (request.shape.is_whole) {
        // Each takes the rows that are left, so this is the first of the plan.
        if (std::ranges::any_of(running_,
                                [](const Running& r) { return r.request->is_under_way(); }))
          return;
        start_whole({id, &request});
      } else {
        start({id, &request}, reusable_tokens(id));
      }
    }
  }

  StepPlan take() { return std::move(plan_); }

 private:
  struct Running {
    RequestId id;
    Request* request;
  };

  int32_t pages_for(int32_t n_tokens) const { return scheduler_.pages_for(n_tokens); }
  int32_t pages_for_next_row(const Request& request) const {
    if (request.is_under_way()) return 0;  // they are set aside
    return pages_for(request.computed + 1) - pages_for(request.computed);
  }

  /// Of the rows that every step has: decode rows, and one of the oldest request.
  int32_t pages_for_next_rows() const {
    int32_t n_pages = 0;
    for (size_t i = 0; i < running_.size(); ++i) {
      const Request& request = *running_[i].request;
      if (i == 0 || request.decodes()) n_pages += pages_for_next_row(request);
    }
    return n_pages;
  }

  /// Pages that are free or evictable once this sequence is freed, whatever the others hold. Rows
  /// only write to pages of their own sequence, so of two sequences with the same page one attached
  /// it, at its admission, in the slot where the other has it: among its attached pages, which are
  /// its first ones. A page after all that any running sequence attached, this one included, is
  /// therefore in no other block table; at most the prefix cache holds it too. Pages before that
  /// may come back as well, since their other holders may have left, but who held them isn't known
  /// here.
  int32_t certainly_exclusive_pages(const Request& request) const {
    int32_t attached = 0;
    for (const Running& r : running_) attached = std::max(attached, r.request->attached);
    return std::max(pages_for(request.computed) - pages_for(attached), 0);
  }

  void preempt(const Running& r) {
    plan_.preempted.push_back({r.id, r.request->computed});
    r.request->dropped = std::exchange(r.request->computed, 0);
    r.request->attached = 0;
    r.request->running = false;
    ++r.request->n_preemptions;
  }

  /// A page for the next token of each running sequence and of `n_newcomers`.
  int32_t watermark(int32_t n_newcomers) const {
    return narrow<int32_t>(running_.size()) + n_newcomers;
  }

  /// Rows of prompt, then of tokens to compute again: as many as there are rows, and pages beyond
  /// `kept_pages`. Rows on a page that the sequence has already need none.
  void add_rows(const Running& r, int32_t kept_pages) {
    const Request& request = *r.request;
    const int32_t begin = request.computed;
    const int64_t n_pages = pages_for(begin) + std::max<int64_t>(free_ - kept_pages, 0);
    const auto end = narrow<int32_t>(std::min(
        {int64_t{request.n_tokens()}, int64_t{begin} + rows_, n_pages * limits_.page_tokens}));
    const int32_t border = std::clamp(request.shape.prompt_tokens, begin, end);
    free_ -= pages_for(end) - pages_for(begin);
    add_slice(r, SliceKind::kPrompt, begin, border);
    add_slice(r, SliceKind::kRecompute, border, end);
  }

  void add_whole(const Running& r) {
    if (rows_ == 0) return;
    plan_.slices.push_back({r.id, SliceKind::kWhole, 0, rows_, r.request->generated == 0});
    rows_ = 0;
  }

  void add_slice(const Running& r, SliceKind kind, int32_t begin, int32_t end) {
    if (begin == end) return;
    plan_.slices.push_back({r.id, kind, begin, end - begin, end == r.request->n_tokens()});
    rows_ -= end - begin;
  }

  /// Whether pages for all its tokens are there. None have to be kept for running prompts: one that
  /// is not complete took the last rows, and then this is not asked, or found no page beyond the
  /// watermark, and then this says no.
  bool fits(Request& request) const {
    const int32_t for_work = running_.empty() ? 0 : request.shape.work_pages;
    const int32_t needed = pages_for(request.n_tokens()) + for_work;
    const int64_t spare = running_.empty() ? free_ : free_ - watermark(1);
    if (needed <= spare) return true;
    request.needed_pages = needed;
    request.free_pages = narrow<int32_t>(std::max<int64_t>(spare, 0));
    return false;
  }

  /// Its first rows: of what is not reusable. At least one token is computed, for its logits.
  void start(const Running& r, int32_t reusable) {
    Request& request = *r.request;
    WEFT_CHECK(reusable >= 0 && reusable <= request.shape.prompt_tokens);
    reusable = std::min(reusable, request.n_tokens() - 1);
    request.attached = reusable - reusable % limits_.page_tokens;
    request.computed = request.attached;
    run(r);
    free_ -= pages_for(request.attached);
    add_rows(r, 0);  // fits() saw to what has to stay free
  }

  void start_whole(const Running& r) {
    run(r);
    free_ -= pages_for(r.request->shape.prompt_tokens);
    add_whole(r);
  }

  void run(const Running& r) {
    r.request->running = true;
    if (!r.request->admitted_ms) r.request->admitted_ms = now_ms_;
    plan_.admitted.push_back({r.id, r.request->attached});
    running_.push_back(r);
  }

  Scheduler& scheduler_;
  const SchedulerLimits& limits_;
  int64_t now_ms_;
  int64_t free_;                  // certainly
  int32_t rows_;                  // left
  std::vector<Running> running_;  // by arrival, then those admitted in this plan
  StepPlan plan_;
};

Result<Scheduler> Scheduler::create(const SchedulerLimits& limits) {
  const std::pair<const char*, int32_t> positive[] = {{"total_pages", limits.total_pages},
                                                      {"page_tokens", limits.page_tokens},
                                                      {"context_tokens", limits.context_tokens},
                                                      {"step_rows", limits.step_rows},
                                                      {"max_running", limits.max_running}};
  for (const auto& [name, value] : positive) {
    if (value <= 0) {
      return invalid_argument(fmt::format("scheduler: {} is {}, must be 1 or more", name, value));
    }
  }
  if (limits.max_running > limits.step_rows) {
    return invalid_argument(
        fmt::format("scheduler: {} may run at once, but a step has {}: each needs one",
                    counted(limits.max_running, "request"), counted(limits.step_rows, "row")));
  }
  return Scheduler(limits);
}

int32_t Scheduler::pages_for(int64_t n_tokens) const {
  return narrow<int32_t>((n_tokens + limits_.page_tokens - 1) / limits_.page_tokens);
}

Result<RequestId> Scheduler::submit(const RequestShape& shape, int64_t now_ms) {
  if (shape.prompt_tokens <= 0) return invalid_argument("request: the prompt has no tokens");
  if (shape.max_new_tokens <= 0) {
    return invalid_argument(fmt::format("request: {} tokens to generate (-n), must be 1 or more",
                                        shape.max_new_tokens));
  }
  if (shape.after && (number(*shape.after) < 0 || number(*shape.after) >= next_id_)) {
    return invalid_argument(fmt::format("request: it is to run after request {}, which is unknown",
                                        number(*shape.after)));
  }
  // The last token that is generated is never computed.
  const int64_t n_tokens = int64_t{shape.prompt_tokens} + shape.max_new_tokens - 1;
  const std::string asked =
      fmt::format("request: {} of prompt and {} to generate need ",
                  counted(shape.prompt_tokens, "token"), shape.max_new_tokens);
  if (n_tokens > limits_.context_tokens) {
    return resource_exhausted(
        fmt::format("{}a context of {}, it has {}; shorten the prompt or generate fewer (-n)",
                    asked, counted(n_tokens, "token"), limits_.context_tokens));
  }
  if (pages_for(n_tokens) > limits_.total_pages) {
    return resource_exhausted(fmt::format(
        "{}{} of {} in the KV cache, it has {}; raise --kv-limit, shorten the prompt or generate "
        "fewer (-n)",
        asked, counted(pages_for(n_tokens), "page"), counted(limits_.page_tokens, "token"),
        limits_.total_pages));
  }
  const RequestId id{next_id_++};
  Request& request = requests_[id];
  request.shape = shape;
  request.submitted_ms = now_ms;
  return id;
}

StepPlan Scheduler::plan(int32_t free_pages, int64_t now_ms,
                         FunctionRef<int32_t(RequestId)> reusable_tokens) {
  WEFT_CHECK(!open_plan_ && free_pages >= 0 && free_pages <= limits_.total_pages);
  Planner planner(*this, free_pages, now_ms);
  if (planner.make_room()) {
    planner.add_decode_rows();
    planner.continue_prompts();
    planner.admit(reusable_tokens);
  }
  StepPlan plan = planner.take();
  open_plan_ = plan;  // where memory runs out here no plan is open, and nobody has to end it
  return plan;
}

void Scheduler::close(const StepPlan& plan) {
  WEFT_CHECK(open_plan_ && open_plan_->step == plan.step);
  open_plan_.reset();
}

void Scheduler::commit(const StepPlan& plan, std::span<const RequestId> finished,
                       WholePrompt whole, std::span<const AcceptedDraft> drafts) {
  close(plan);
  for (const Slice& slice : plan.slices) {
    Request& request = requests_.at(slice.id);
    WEFT_CHECK(request.computed == slice.begin);
    if (slice.kind == SliceKind::kWhole) {
      end_whole(request, whole);
      if (whole != WholePrompt::kComputed) continue;
    } else {
      request.computed += slice.n;
    }
    if (slice.samples) ++request.generated;
  }
  for (const AcceptedDraft& draft : drafts) {
    Request& request = requests_.at(draft.id);
    WEFT_CHECK(draft.n >= 0 && request.decodes());
    request.computed += draft.n;
    request.generated += draft.n;
  }
  for (const RequestId id : finished) WEFT_CHECK(requests_.erase(id) == 1);
  for (const Slice& slice : plan.slices) {
    const auto it = requests_.find(slice.id);
    if (it != requests_.end()) WEFT_CHECK(it->second.generated < it->second.shape.max_new_tokens);
  }
}

void Scheduler::end_whole(Request& request, WholePrompt whole) {
  switch (whole) {
    case WholePrompt::kGoesOn:
      break;
    case WholePrompt::kComputed:
      request.computed = request.shape.prompt_tokens;
      // Which of its pages came from the prefix cache isn't known here: any of them may have.
      request.attached = request.computed - request.computed % limits_.page_tokens;
      break;
    case WholePrompt::kPostponed:
      request.running = false;
      request.most_beside = n_running() - 1;
      WEFT_CHECK(request.most_beside >= 0);
      break;
  }
}

void Scheduler::roll_back(const StepPlan& plan) { close(plan); }

void Scheduler::abort(RequestId id) {
  WEFT_CHECK(!open_plan_ && number(id) >= 0 && number(id) < next_id_);
  requests_.erase(id);
}

bool Scheduler::waits_for_prompt(const Request& request) const {
  if (!request.shape.after) return false;
  const auto first = requests_.find(*request.shape.after);
  return first != requests_.end() && first->second.computed < first->second.shape.prompt_tokens;
}

int32_t Scheduler::n_running() const {
  return narrow<int32_t>(std::count_if(requests_.begin(), requests_.end(),
                                       [](const auto& entry) { return entry.second.running; }));
}

bool Scheduler::is_under_way(RequestId id) const {
  const auto it = requests_.find(id);
  return it != requests_.end() && it->second.is_under_way();
}

RequestState Scheduler::state(RequestId id) const {
  WEFT_CHECK(number(id) >= 0 && number(id) < next_id_);
  using Phase = RequestState::Phase;
  RequestState state;
  const auto it = requests_.find(id);
  if (it == requests_.end()) return state;
  const Request& request = it->second;
  state.phase = request.running             ? Phase::kRunning
                : request.n_preemptions > 0 ? Phase::kPreempted
                                            : Phase::kWaiting;
  state.prompt_tokens = request.shape.prompt_tokens;
  state.computed_tokens = request.computed;
  state.generated_tokens = request.generated;
  state.dropped_tokens = request.dropped;
  state.n_preemptions = request.n_preemptions;
  if (!request.running && waits_for_prompt(request)) state.waits_for = request.shape.after;
  for (auto before = requests_.begin(); before != it; ++before) {
    if (!before->second.running && !waits_for_prompt(before->second)) ++state.n_before;
  }
  state.needed_pages = request.needed_pages;
  state.free_pages = request.free_pages;
  if (n_running() == limits_.max_running) state.running_limit = limits_.max_running;
  state.submitted_ms = request.submitted_ms;
  state.admitted_ms = request.admitted_ms;
  return state;
}

std::string RequestState::describe() const {
  if (phase == Phase::kDone) return "done";
  if (phase == Phase::kPreempted) {
    return fmt::format("preempted: {} to compute again", counted(dropped_tokens, "token"));
  }
  if (phase == Phase::kRunning) {
    if (generated_tokens == 0) {
      return fmt::format("running: {} of {}", computed_tokens,
                         counted(prompt_tokens, "prompt token"));
    }
    const int32_t n_tokens = prompt_tokens + generated_tokens;
    if (computed_tokens + 1 < n_tokens) {
      return fmt::format("running: {} of {} computed again", computed_tokens,
                         counted(n_tokens, "token"));
    }
    return fmt::format("running: {} generated", counted(generated_tokens, "token"));
  }
  if (waits_for) return fmt::format("waits for request {}'s prompt", number(*waits_for));
  if (n_before > 0) return fmt::format("waits: {} before it", counted(n_before, "request"));
  if (needed_pages > 0) {
    return fmt::format("waits: {} needed, {} free", counted(needed_pages, "page"), free_pages);
  }
  if (running_limit > 0) {
    return fmt::format("waits: {} running, the most at once", counted(running_limit, "request"));
  }
  return "waits for the next step";
}

/// Collects what is wrong. It trusts nothing but the limits.
class Scheduler::Checker {
 public:
  explicit Checker(const Scheduler& scheduler) : scheduler_(scheduler) {}

  std::vector<std::string> run() {
    for (const auto& [id, request] : scheduler_.requests_) check_request(id, request);
    check_sums();
    if (scheduler_.open_plan_) check_plan(*scheduler_.open_plan_);
    return std::move(found_);
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    found_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  void check_request(RequestId id, const Request& request) {
    if (request.computed < 0 || request.computed >= request.n_tokens()) {
      add("request {} has {} of {} tokens computed, and none to run", number(id), request.computed,
          request.n_tokens());
    }
    if (request.generated < 0 || request.generated >= request.shape.max_new_tokens) {
      add("request {} has {} of {} tokens generated and has not left", number(id),
          request.generated, request.shape.max_new_tokens);
    }
    if (request.attached < 0 || request.attached % scheduler_.limits_.page_tokens != 0 ||
        request.attached > std::min(request.computed, request.shape.prompt_tokens)) {
      add("request {} has {} tokens attached, {} computed, {} of prompt", number(id),
          request.attached, request.computed, request.shape.prompt_tokens);
    }
    if (!request.running && request.computed != 0) {
      add("request {} waits with {} tokens computed", number(id), request.computed);
    }
    if (request.running && scheduler_.waits_for_prompt(request)) {
      add("request {} runs before the prompt of request {} is computed", number(id),
          number(*request.shape.after));
    }
  }

  void check_sums() {
    const SchedulerLimits& limits = scheduler_.limits_;
    int n_whole = 0;
    int64_t n_pages = 0;  // each written by one sequence, so none is counted twice
    for (const auto& [id, request] : scheduler_.requests_) {
      n_pages += scheduler_.pages_for(request.computed) - scheduler_.pages_for(request.attached);
      if (!request.is_under_way()) continue;
      n_pages += scheduler_.pages_for(request.shape.prompt_tokens);
      if (++n_whole > 1) add("{} whole prompts are under way", n_whole);
    }
    if (n_pages > limits.total_pages) {
      add("running requests hold {} pages of {}", n_pages, limits.total_pages);
    }
    if (scheduler_.n_running() > limits.max_running) {
      add("{} requests run, {} may", scheduler_.n_running(), limits.max_running);
    }
  }

  void check_plan(const StepPlan& plan) {
    for (const Admission& admission : plan.admitted) admitted_.insert(admission.id);
    for (const Slice& slice : plan.slices) check_slice(slice);
    if (n_rows_ > scheduler_.limits_.step_rows) {
      add("the step has {} rows of {}", n_rows_, scheduler_.limits_.step_rows);
    }
    for (size_t i = 1; i < plan.admitted.size(); ++i) {
      if (plan.admitted[i].id <= plan.admitted[i - 1].id) add("admissions are not by arrival");
    }
    for (const auto& [id, request] : scheduler_.requests_) {
      if (request.decodes() && !plan.slices.empty() && !ends_.contains(id)) {
        add("request {} has no decode row", number(id));
      }
      for (const Preemption& preemption : plan.preempted) {
        if (request.running && id >= preemption.id) {
          add("request {} was preempted, request {} runs", number(preemption.id), number(id));
        }
      }
    }
  }

  void check_slice(const Slice& slice) {
    const int64_t end = int64_t{slice.begin} + slice.n;
    n_rows_ += slice.n;
    const auto it = scheduler_.requests_.find(slice.id);
    if (it == scheduler_.requests_.end() || !it->second.running) {
      return add("request {} has rows and does not run", number(slice.id));
    }
    const Request& request = it->second;
    if (slice.kind == SliceKind::kWhole || request.is_under_way()) {
      if (slice.kind != SliceKind::kWhole || !request.is_under_way() || slice.begin != 0 ||
          slice.n <= 0 || slice.samples != (request.generated == 0)) {
        add("request {} has rows [{}, {}) of a whole prompt, samples: {}", number(slice.id),
            slice.begin, end, slice.samples);
      }
      return;
    }
    const auto [before, first] = ends_.emplace(slice.id, request.computed);
    if (slice.begin != before->second || slice.n <= 0 || end > request.n_tokens() ||
        slice.samples != (end == request.n_tokens())) {
      add("request {} has rows [{}, {}) after {} of {} tokens, samples: {}", number(slice.id),
          slice.begin, end, before->second, request.n_tokens(), slice.samples);
    }
    before->second = end;
    const bool prompt = end <= request.shape.prompt_tokens;
    const bool generated = slice.begin >= request.shape.prompt_tokens;
    if (slice.kind == SliceKind::kPrompt ? !prompt : !generated) {
      add("request {} has rows [{}, {}) of the wrong kind", number(slice.id), slice.begin, end);
    }
    // Who is admitted with all but the newest token reused computes it again, as others their rows.
    const bool decodes = slice.kind == SliceKind::kDecode;
    const bool should_decode = request.decodes() && !admitted_.contains(slice.id);
    if (decodes != should_decode || (decodes && n_rows_ != ++n_decode_rows_)) {
      add("request {} has a decode row out of order, or other rows for it", number(slice.id));
    }
  }

  const Scheduler& scheduler_;
  std::vector<std::string> found_;
  std::set<RequestId> admitted_;
  std::map<RequestId, int64_t> ends_;  // of the slices so far
  int64_t n_rows_ = 0;
  int64_t n_decode_rows_ = 0;
};

std::vector<std::string> Scheduler::violations() const { return Checker(*this).run(); }

}  // namespace weft::engine
