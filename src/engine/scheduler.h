// Decides what each step runs: which requests are admitted, which rows they have, and whose pages
// go when pages run short. Integers only: it never sees a model, a cache or a clock, and tokens are
// counts. Its caller owns the sequences, runs the rows and says what became of them.
//
// A request waits, runs (its sequence may hold pages) and leaves. Its tokens are the prompt and
// what was generated; a step computes some that are not computed yet, and the row of its last token
// samples one more. Rules:
//  - Every running request with all but its newest token computed has a decode row in each step.
//    The rows that are left go to prompts and to tokens computed again, by arrival: running
//    requests before those that wait.
//  - Who waits is admitted strictly by arrival, however few pages a later one needs; only a request
//    that waits for another's prompt (`after`) is passed over.
//  - A newcomer needs pages for all its tokens beyond the watermark, one page for the next token of
//    each running sequence and of its own, which keeps it from being preempted soon after. Prompts
//    that run leave the watermark too. The oldest running request need not.
//  - When the next row of each decoding request and of the oldest one does not fit, the youngest
//    running request is preempted: it waits in its old place, keeps what it generated, and computes
//    all again. The oldest is never preempted, so it ends at some time, and then the next is
//    oldest.
//  - A whole prompt is not cut into rows: its caller computes it by work of its own, a fusion, that
//    may rest between layers. It is in each plan, with the rows that are left for it, until the
//    caller says that it is computed. One is under way at a time; its pages are set aside.
//  - Only full pages are shared, through the prefix cache, so rows never write to a shared page and
//    no step needs a page for a copy. A sequence made by fork would break this: attach a prefix.
//
// One thread. Ids never given out and plans out of turn are the caller's bugs and abort.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/narrow.h"
#include "base/status.h"

namespace weft::engine {

/// Names a request of one scheduler. Ids ascend by arrival and are never used again.
enum class RequestId : int64_t {};

struct SchedulerLimits {
  int32_t total_pages = 0;     // pages of the KV cache
  int32_t page_tokens = 0;     // tokens of a page
  int32_t context_tokens = 0;  // longest prompt and answer together
  int32_t step_rows = 0;       // rows of a step, of all kinds
  int32_t max_running = 0;     // sequences that may hold pages at once, at most step_rows
};

struct RequestShape {
  int32_t prompt_tokens = 0;
  int32_t max_new_tokens = 0;
  /// A request with the same prompt, which is to be shared: this one waits until that one's prompt
  /// is computed or that one has left.
  std::optional<RequestId> after;
  bool is_whole = false;   // its prompt is computed by the caller's own work
  int32_t work_pages = 0;  // of a whole prompt: pages that this may need beside the prompt's
};

enum class SliceKind : uint8_t {
  kPrompt,     // given text
  kRecompute,  // tokens generated before a preemption: decode's arithmetic, any number of rows
  kDecode,     // the newest token, one row
  kWhole,      // a whole prompt: n rows of a step's work for it
};

/// Rows at the positions [begin, begin + n) of a request; kWhole: begin is 0.
struct Slice {
  RequestId id{};
  SliceKind kind = SliceKind::kPrompt;
  int32_t begin = 0;
  int32_t n = 0;
  bool samples = false;  // the last row's logits give the request's next token
};

struct Preemption {
  RequestId id{};
  int32_t dropped_tokens = 0;  // computed so far, to be computed again
};

struct Admission {
  RequestId id{};
  int32_t reused_tokens = 0;  // from the prefix cache, full pages; its rows begin there
};

/// What the caller does, in this order: frees the sequences of `preempted`; makes those of
/// `admitted`, each with exactly its reused tokens attached, all before any page is reserved; runs
/// the slices; ends the plan by commit or roll_back. The first two hold even if the rows fail.
struct StepPlan {
  int64_t step = 0;
  std::vector<Preemption> preempted;
  std::vector<Admission> admitted;
  std::vector<Slice> slices;  // decode rows first; of a request, in the order of positions

  /// True when sequences were preempted whose pages may be shared, so that only the cache can say
  /// how many came back: free them, roll back, and plan again at once. A plan with neither rows nor
  /// this has nothing to do until pages that are held elsewhere come back or a request arrives.
  bool plan_again() const { return slices.empty() && !preempted.empty(); }
};

/// Beside a decode row the caller ran drafts, and the first n of them are right: so many tokens
/// more are computed, and generated.
struct AcceptedDraft {
  RequestId id{};
  int32_t n = 0;
};

/// What became of the whole prompt of a step.
enum class WholePrompt : uint8_t {
  kGoesOn,
  kComputed,   // its pages are the sequence's
  kPostponed,  // for want of pages or memory: it waits until fewer requests run beside it
};

struct RequestState {
  enum class Phase { kWaiting, kPreempted, kRunning, kDone };

  Phase phase = Phase::kDone;
  int32_t prompt_tokens = 0;
  int32_t computed_tokens = 0;   // of prompt and generated ones, reused ones included
  int32_t generated_tokens = 0;  // sampled so far
  int32_t dropped_tokens = 0;    // kPreempted: computed before
  int32_t n_preemptions = 0;
  std::optional<RequestId> waits_for;  // whose prompt
  int32_t n_before = 0;                // waiting requests that are admitted first
  int32_t needed_pages = 0;            // if it was next and there were too few, else 0
  int32_t free_pages = 0;              // then, less those kept for running requests
  int32_t running_limit = 0;           // how many run, if no more may, else 0
  int64_t submitted_ms = 0;
  std::optional<int64_t> admitted_ms;  // first admission

  /// One line for people: "waits: 12 pages needed, 3 free".
  std::string describe() const;
};

class Scheduler {
 public:
  /// kInvalidArgument names the limit that is wrong.
  static Result<Scheduler> create(const SchedulerLimits& limits);

  /// Refuses what could not even run alone: kResourceExhausted for more tokens than the context or
  /// the KV cache has, kInvalidArgument for an empty prompt, nothing to generate, or an `after`
  /// that was never submitted.
  Result<RequestId> submit(const RequestShape& shape, int64_t now_ms);

  /// `free_pages`: what the cache has free or could evict now. `reusable_tokens` is asked once at
  /// each admission: how many tokens of the request's prompt are in the prefix cache; their pages
  /// are counted as if they were taken from the free ones, since they may be evictable. A prompt
  /// that others wait for is published before the plan after the step that ended it. Of the pages
  /// of a whole prompt under way those that it does not hold yet are not among `free_pages`. Each
  /// plan is ended by commit or roll_back before the next. Where sequences that are not the
  /// scheduler's share pages of those that are preempted, the plan may count on too many pages: a
  /// reservation fails then, and the next plan, told the truth, does without them. After
  /// std::bad_alloc the requests can only be aborted.
  StepPlan plan(int32_t free_pages, int64_t now_ms,
                FunctionRef<int32_t(RequestId)> reusable_tokens);

  /// The rows ran: each request with a slice that samples has one more token, but for those
  /// `finished`, which leave, and whose sequences the caller frees. A request that has its
  /// max_new_tokens must be among them. `whole`: of the plan's whole prompt, if it has one; not
  /// kPostponed when no other request runs. `drafts`: of the plan's decode rows; their pages were
  /// free beside what the plan took.
  void commit(const StepPlan& plan, std::span<const RequestId> finished,
              WholePrompt whole = WholePrompt::kGoesOn,
              std::span<const AcceptedDraft> drafts = {});
  /// The rows did not run, or not all: progress is as it was. Preemptions and admissions hold.
  void roll_back(const StepPlan& plan);
  /// The request leaves, if it has not yet; not while a plan is open. The caller frees its
  /// sequence.
  void abort(RequestId id);

  /// kDone for a request that left, however it did.
  RequestState state(RequestId id) const;
  /// For tests: of those that have not left.
  int32_t n_requests() const { return narrow<int32_t>(requests_.size()); }
  int32_t n_running() const;
  /// A whole prompt that was admitted and is not computed.
  bool is_under_way(RequestId id) const;

  /// Every broken invariant of the requests and of the open plan, one line each; empty when all is
  /// well. A cache that said it had more pages than it has shows here too.
  std::vector<std::string> violations() const;

 private:
  class Planner;
  class Checker;

  struct Request {
    RequestShape shape;
    bool running = false;
    int32_t computed = 0;   // tokens whose K and V the sequence holds, 0 unless running
    int32_t generated = 0;  // kept when preempted
    int32_t attached = 0;   // of the computed ones: came from the prefix cache
    int32_t dropped = 0;    // computed when it was preempted last
    int32_t n_preemptions = 0;
    int32_t most_beside = INT32_MAX;  // requests that may run when it is admitted
    int32_t needed_pages = 0;         // as in RequestState
    int32_t free_pages = 0;
    int64_t submitted_ms = 0;
    std::optional<int64_t> admitted_ms;

    int32_t n_tokens() const { return shape.prompt_tokens + generated; }
    bool is_under_way() const { return running && shape.is_whole && computed == 0; }
    bool decodes() const { return running && generated > 0 && computed + 1 == n_tokens(); }
  };

  explicit Scheduler(const SchedulerLimits& limits) : limits_(limits) {}
  int32_t pages_for(int64_t n_tokens) const;
  /// Whether it has to wait for another's prompt.
  bool waits_for_prompt(const Request& request) const;
  void end_whole(Request& request, WholePrompt whole);
  void close(const StepPlan& plan);

  SchedulerLimits limits_;
  std::map<RequestId, Request> requests_;  // by arrival
  int64_t next_id_ = 0;
  int64_t next_step_ = 0;
  std::optional<StepPlan> open_plan_;
};

}  // namespace weft::engine
