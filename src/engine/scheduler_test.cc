// The rules one by one with tiny numbers, then random operations against a naive cache that has
// real pages, holders and a prefix index, in which every page that a plan counts on must be there.
#include "engine/scheduler.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace weft::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int32_t kNone = -1;

int64_t number(RequestId id) { return static_cast<int64_t>(id); }

/// A plan as a line: -2 preempted, +3 admitted, +3@4 with 4 tokens reused, then the slices: 0:D8
/// the decode row of request 0 at position 8, 1:P0-5 rows of its prompt, 1:R6-7 tokens computed
/// again. A slice that samples ends in *.
std::string draw(const StepPlan& plan) {
  std::vector<std::string> parts;
  for (const Preemption& p : plan.preempted) parts.push_back(fmt::format("-{}", number(p.id)));
  for (const Admission& a : plan.admitted) {
    parts.push_back(a.reused_tokens == 0 ? fmt::format("+{}", number(a.id))
                                         : fmt::format("+{}@{}", number(a.id), a.reused_tokens));
  }
  for (const Slice& s : plan.slices) {
    const char kind = s.kind == SliceKind::kPrompt      ? 'P'
                      : s.kind == SliceKind::kRecompute ? 'R'
                                                        : 'D';
    std::string part = fmt::format("{}:{}{}", number(s.id), kind, s.begin);
    if (s.kind != SliceKind::kDecode) part += fmt::format("-{}", s.begin + s.n - 1);
    parts.push_back(part + (s.samples ? "*" : ""));
  }
  return fmt::format("{}", fmt::join(parts, " "));
}

/// A scheduler and a cache that holds only its sequences, none of whose pages are shared.
class SchedulerTest : public ::testing::Test {
 protected:
  void make(const SchedulerLimits& limits) {
    limits_ = limits;
    scheduler_.emplace(Scheduler::create(limits).value());
  }

  RequestId submit(int32_t prompt_tokens, int32_t max_new_tokens, int after = kNone) {
    RequestShape shape{prompt_tokens, max_new_tokens, std::nullopt};
    if (after != kNone) shape.after = RequestId{after};
    const RequestId id = scheduler_->submit(shape, now_ms_).value();
    left_[id] = max_new_tokens;
    return id;
  }

  int32_t free_pages() const {
    int32_t n_pages = limits_.total_pages - held_elsewhere_;
    for (const auto& [id, left] : left_) {
      const int32_t n_tokens = scheduler_->state(id).computed_tokens;
      n_pages -= (n_tokens + limits_.page_tokens - 1) / limits_.page_tokens;
    }
    return n_pages;
  }

  StepPlan plan() {
    const StepPlan plan = scheduler_->plan(
        free_pages(), now_ms_, [&](RequestId id) { return ++asked_[id], reusable_tokens_; });
    EXPECT_THAT(scheduler_->violations(), IsEmpty());
    return plan;
  }

  void commit(const StepPlan& plan, std::vector<RequestId> finished = {}) {
    for (const Slice& slice : plan.slices) {
      if (slice.samples && --left_[slice.id] == 0) finished.push_back(slice.id);
    }
    scheduler_->commit(plan, finished);
    EXPECT_THAT(scheduler_->violations(), IsEmpty());
    for (const RequestId id : finished) left_.erase(id);
  }

  /// Runs a step, and draws it. Requests leave when they have all their tokens.
  std::string step() {
    const StepPlan done = plan();
    commit(done);
    return draw(done);
  }
  void steps(int n) {
    for (int i = 0; i < n; ++i) step();
  }
  void abort(RequestId id) {
    scheduler_->abort(id);
    left_.erase(id);
  }
  std::string describe(int id) const { return scheduler_->state(RequestId{id}).describe(); }

  SchedulerLimits limits_;
  std::optional<Scheduler> scheduler_;
  std::map<RequestId, int32_t> left_;  // tokens to generate
  std::map<RequestId, int> asked_;     // how often reusable_tokens was
  int64_t now_ms_ = 0;
  int32_t held_elsewhere_ = 0;
  int32_t reusable_tokens_ = 0;
};

constexpr SchedulerLimits kRoomy{
    .total_pages = 100, .page_tokens = 4, .context_tokens = 100, .step_rows = 8, .max_running = 4};

TEST(SchedulerCreate, LimitsThatCannotWorkAreRefusedByName) {
  const auto message = [](auto change) {
    SchedulerLimits limits = kRoomy;
    change(limits);
    const auto scheduler = Scheduler::create(limits);
    EXPECT_EQ(scheduler.status().code(), StatusCode::kInvalidArgument);
    return scheduler.status().message();
  };
  using L = SchedulerLimits;
  EXPECT_THAT(message([](L& l) { l.total_pages = 0; }), HasSubstr("total_pages is 0"));
  EXPECT_THAT(message([](L& l) { l.page_tokens = -1; }), HasSubstr("page_tokens is -1"));
  EXPECT_THAT(message([](L& l) { l.context_tokens = 0; }), HasSubstr("context_tokens is 0"));
  EXPECT_THAT(message([](L& l) { l.step_rows = 0; }), HasSubstr("step_rows is 0"));
  EXPECT_THAT(message([](L& l) { l.max_running = 0; }), HasSubstr("max_running is 0"));
  EXPECT_THAT(message([](L& l) { l.max_running = 9; }),
              HasSubstr("9 requests may run at once, but a step has 8 rows"));
}

TEST_F(SchedulerTest, WhatCannotEverRunIsRefusedWithItsNumbers) {
  make(
      {.total_pages = 5, .page_tokens = 4, .context_tokens = 24, .step_rows = 8, .max_running = 4});
  const auto refusal = [&](RequestShape shape) { return scheduler_->submit(shape, 0).status(); };
  EXPECT_EQ(refusal({0, 1, {}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal({-7, 1, {}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal({1, 0, {}}).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refusal({1, 1, RequestId{0}}).message(), HasSubstr("after request 0"));
  EXPECT_THAT(refusal({1, 1, RequestId{-1}}).message(), HasSubstr("after request -1"));

  const Status too_long = refusal({20, 6, {}});
  EXPECT_EQ(too_long.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(
      too_long.message(),
      "request: 20 tokens of prompt and 6 to generate need a context of 25 tokens, it has 24; "
      "shorten the prompt or generate fewer (-n)");
  const Status too_large = refusal({20, 2, {}});
  EXPECT_EQ(too_large.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(too_large.message(),
            "request: 20 tokens of prompt and 2 to generate need 6 pages of 4 tokens in the KV "
            "cache, it has 5; raise --kv-limit, shorten the prompt or generate fewer (-n)");
  EXPECT_EQ(refusal({INT32_MAX, INT32_MAX, {}}).code(), StatusCode::kResourceExhausted);

  EXPECT_EQ(number(submit(20, 1)), 0);  // the last token generated needs no page
  EXPECT_EQ(number(submit(1, 20)), 1);
  EXPECT_EQ(scheduler_->n_requests(), 2);
}

TEST_F(SchedulerTest, APromptIsChunkedThenEachStepDecodesOneToken) {
  make(kRoomy);
  submit(11, 3);
  EXPECT_EQ(step(), "+0 0:P0-7");
  EXPECT_EQ(step(), "0:P8-10*");
  EXPECT_EQ(step(), "0:D11*");
  EXPECT_EQ(step(), "0:D12*");
  EXPECT_EQ(step(), "");
  EXPECT_EQ(describe(0), "done");
  EXPECT_EQ(scheduler_->n_requests(), 0);
}

TEST_F(SchedulerTest, DecodeRowsComeFirstAndPromptsShareTheRestByArrival) {
  make(kRoomy);
  submit(3, 9);
  EXPECT_EQ(step(), "+0 0:P0-2*");
  submit(9, 9);
  submit(4, 9);
  EXPECT_EQ(step(), "+1 0:D3* 1:P0-6");
  EXPECT_EQ(step(), "+2 0:D4* 1:P7-8* 2:P0-3*");
  EXPECT_EQ(step(), "0:D5* 1:D9* 2:D4*");
}

TEST_F(SchedulerTest, APromptThatHasBegunGoesBeforeALaterOne) {
  make(kRoomy);
  submit(18, 1);
  submit(2, 1);
  EXPECT_EQ(step(), "+0 0:P0-7");
  EXPECT_EQ(step(), "0:P8-15");
  EXPECT_EQ(step(), "+1 0:P16-17* 1:P0-1*");
}

TEST_F(SchedulerTest, DecodesLeaveARowForAPromptWhereOneMayRun) {
  make({.total_pages = 50,
        .page_tokens = 4,
        .context_tokens = 100,
        .step_rows = 3,
        .max_running = 3});
  submit(1, 20);
  submit(1, 20);
  submit(4, 20);
  submit(1, 20);
  EXPECT_EQ(step(), "+0 +1 +2 0:P0-0* 1:P0-0* 2:P0-0");
  EXPECT_EQ(step(), "0:D1* 1:D1* 2:P1-1");
  EXPECT_EQ(step(), "0:D2* 1:D2* 2:P2-2");
  EXPECT_EQ(step(), "0:D3* 1:D3* 2:P3-3*");
  EXPECT_EQ(step(), "0:D4* 1:D4* 2:D4*");
  EXPECT_EQ(describe(3), "waits: 3 requests running, the most at once");
  abort(RequestId{1});
  EXPECT_EQ(step(), "+3 0:D5* 2:D5* 3:P0-0*");
}

TEST_F(SchedulerTest, WhoWaitsForPagesIsNotOvertakenByASmallerOne) {
  make({.total_pages = 8,
        .page_tokens = 4,
        .context_tokens = 32,
        .step_rows = 16,
        .max_running = 4});
  submit(12, 3);
  EXPECT_EQ(step(), "+0 0:P0-11*");
  submit(16, 1);  // 4 pages, and 2 for the watermark: 0 has 3 of 8, and takes one more now
  submit(1, 1);
  EXPECT_EQ(step(), "0:D12*");
  EXPECT_EQ(describe(1), "waits: 4 pages needed, 2 free");
  EXPECT_EQ(describe(2), "waits: 1 request before it");
  EXPECT_EQ(step(), "0:D13*");
  EXPECT_EQ(step(), "+1 1:P0-15*");
  EXPECT_EQ(step(), "+2 2:P0-0*");
}

TEST_F(SchedulerTest, ANewcomerNeedsPagesForAllItsTokensBeyondTheWatermark) {
  make(
      {.total_pages = 9, .page_tokens = 2, .context_tokens = 18, .step_rows = 8, .max_running = 3});
  submit(5, 3);
  submit(6, 2);  // 3 pages, and one for the next token of each of the two
  held_elsewhere_ = 2;
  EXPECT_EQ(step(), "+0 0:P0-4*");  // 3 pages of 7
  EXPECT_EQ(describe(1), "waits: 3 pages needed, 2 free");
  held_elsewhere_ = 1;
  EXPECT_EQ(step(), "+1 0:D5* 1:P0-5*");
}

TEST_F(SchedulerTest, APromptOnItsWayLeavesTheWatermarkButTheOldestNeedNot) {
  make({.total_pages = 12,
        .page_tokens = 2,
        .context_tokens = 20,
        .step_rows = 4,
        .max_running = 2});
  submit(2, 12);
  submit(8, 5);
  EXPECT_EQ(step(), "+0 +1 0:P0-1* 1:P0-1");
  held_elsewhere_ = 7;  // 3 free: 0 takes one, 2 stay
  EXPECT_EQ(step(), "0:D2*");
  held_elsewhere_ = 6;  // 3 free: 0 needs none
  EXPECT_EQ(step(), "0:D3* 1:P2-3");
  EXPECT_EQ(describe(1), "running: 4 of 8 prompt tokens");
  abort(RequestId{0});
  held_elsewhere_ = 9;
  EXPECT_EQ(step(), "1:P4-5");
}

TEST_F(SchedulerTest, TheYoungestIsPreemptedAndComputesAllAgain) {
  make(
      {.total_pages = 6, .page_tokens = 2, .context_tokens = 12, .step_rows = 8, .max_running = 2});
  submit(2, 9);
  submit(2, 7);
  EXPECT_EQ(step(), "+0 +1 0:P0-1* 1:P0-1*");
  steps(4);  // 0: [..][..][..]  1: [..][..][..]  no page is left
  EXPECT_EQ(describe(1), "running: 5 tokens generated");
  EXPECT_EQ(step(), "-1 0:D6*");
  EXPECT_EQ(describe(1), "preempted: 6 tokens to compute again");
  EXPECT_EQ(step(), "0:D7*");
  steps(1);
  EXPECT_EQ(step(), "0:D9*");  // 0 leaves
  EXPECT_EQ(step(), "+1 1:P0-1 1:R2-6*");
  EXPECT_EQ(scheduler_->state(RequestId{1}).n_preemptions, 1);
  EXPECT_EQ(step(), "1:D7*");
  EXPECT_EQ(describe(1), "done");
}

TEST_F(SchedulerTest, TokensComputedAgainAreChunkedAndTheLastMayBeADecodeRow) {
  make(
      {.total_pages = 6, .page_tokens = 2, .context_tokens = 12, .step_rows = 3, .max_running = 2});
  submit(1, 9);
  submit(2, 7);
  EXPECT_EQ(step(), "+0 +1 0:P0-0* 1:P0-1*");
  steps(4);
  EXPECT_EQ(step(), "-1 0:D5*");  // who held 5 tokens on 3 pages, and has room for this one
  abort(RequestId{0});
  EXPECT_EQ(step(), "+1 1:P0-1 1:R2-2");
  EXPECT_EQ(describe(1), "running: 3 of 7 tokens computed again");
  EXPECT_EQ(step(), "1:R3-5");
  EXPECT_EQ(step(), "1:D6*");
}

TEST_F(SchedulerTest, TheOldestIsNeverPreemptedAndWaitsForPagesHeldElsewhere) {
  make({.total_pages = 4, .page_tokens = 2, .context_tokens = 8, .step_rows = 4, .max_running = 2});
  submit(2, 5);
  EXPECT_EQ(step(), "+0 0:P0-1*");
  held_elsewhere_ = 3;
  EXPECT_EQ(step(), "");
  EXPECT_EQ(describe(0), "running: 1 token generated");
  held_elsewhere_ = 2;
  EXPECT_EQ(step(), "0:D2*");
}

TEST_F(SchedulerTest, AnOldestPromptThatHasNoPageLeftPreemptsTheYoungest) {
  make({.total_pages = 16,
        .page_tokens = 2,
        .context_tokens = 24,
        .step_rows = 6,
        .max_running = 3});
  submit(8, 3);
  submit(8, 3, 0);  // 2 overtakes it
  submit(2, 9);
  EXPECT_EQ(step(), "+0 0:P0-5");
  EXPECT_EQ(step(), "+2 0:P6-7* 2:P0-1*");
  EXPECT_EQ(step(), "+1 0:D8* 2:D2* 1:P0-3");
  abort(RequestId{0});
  held_elsewhere_ = 12;  // 1 and 2 hold the other 4
  EXPECT_EQ(step(), "-2 1:P4-7*");
}

TEST_F(SchedulerTest, AnOlderOneMayBeAdmittedInAStepThatPreemptsTheYoungest) {
  make({.total_pages = 10,
        .page_tokens = 1,
        .context_tokens = 10,
        .step_rows = 8,
        .max_running = 3});
  submit(2, 5);
  submit(2, 4, 0);
  submit(4, 4);
  EXPECT_EQ(step(), "+0 +2 0:P0-1* 2:P0-3*");
  held_elsewhere_ = 3;  // 1 free and 2 needed; then 4 come back
  EXPECT_EQ(step(), "-2 +1 0:D2* 1:P0-1*");
}

TEST_F(SchedulerTest, FollowersWaitForThePromptAndAreOvertakenMeanwhile) {
  make(kRoomy);
  submit(12, 3);
  submit(12, 3, 0);
  submit(1, 1);
  EXPECT_EQ(step(), "+0 0:P0-7");
  EXPECT_EQ(describe(1), "waits for request 0's prompt");
  EXPECT_EQ(describe(2), "waits for the next step");
  EXPECT_EQ(step(), "+2 0:P8-11* 2:P0-0*");
  reusable_tokens_ = 12;
  EXPECT_EQ(step(), "+1@8 0:D12* 1:P8-11*");  // the last token is computed for its logits
}

TEST_F(SchedulerTest, AFollowerRunsWhenItsLeaderLeft) {
  make(kRoomy);
  submit(20, 3);
  submit(20, 3, 0);
  EXPECT_EQ(step(), "+0 0:P0-7");
  abort(RequestId{0});
  EXPECT_EQ(step(), "+1 1:P0-7");
  submit(20, 3, 0);  // long gone
  EXPECT_EQ(describe(2), "waits for the next step");
}

TEST_F(SchedulerTest, ReusableTokensAreAskedOnceAnAdmissionAndCutToFullPages) {
  make(kRoomy);
  submit(11, 2);
  reusable_tokens_ = 7;
  EXPECT_EQ(step(), "+0@4 0:P4-10*");
  EXPECT_EQ(step(), "0:D11*");
  EXPECT_EQ(asked_[RequestId{0}], 1);
  EXPECT_EQ(scheduler_->n_requests(), 0);
}

TEST_F(SchedulerTest, APreemptedRequestMayReuseItsWholePrompt) {
  make(
      {.total_pages = 6, .page_tokens = 2, .context_tokens = 12, .step_rows = 8, .max_running = 2});
  submit(2, 9);
  submit(4, 5);
  EXPECT_EQ(step(), "+0 +1 0:P0-1* 1:P0-3*");
  steps(1);
  held_elsewhere_ = 1;
  steps(1);
  EXPECT_EQ(step(), "-1 0:D4*");
  abort(RequestId{0});
  held_elsewhere_ = 0;
  reusable_tokens_ = 4;
  EXPECT_EQ(step(), "+1@4 1:R4-6*");
  EXPECT_EQ(asked_[RequestId{1}], 2);
}

TEST_F(SchedulerTest, PreemptionCountsOnlyPagesThatNobodyCanShare) {
  make(
      {.total_pages = 9, .page_tokens = 2, .context_tokens = 18, .step_rows = 8, .max_running = 3});
  const auto run = [&](int32_t free_pages, int32_t reusable) {
    const StepPlan plan = scheduler_->plan(
        free_pages, 0, [&](RequestId id) { return number(id) == 1 ? reusable : 0; });
    commit(plan);
    return draw(plan);
  };
  submit(7, 9);
  submit(7, 9, 0);
  EXPECT_EQ(run(9, 0), "+0 0:P0-6*");          // [..][..][..][. ]
  EXPECT_EQ(run(9, 4), "+1@4 0:D7* 1:P4-6*");  // two pages of 0, then [..][. ]
  // 0 needs a page, 1 doesn't. 1's own two are certain: its other two stay with 0.
  EXPECT_EQ(run(0, 0), "-1 0:D8*");
  EXPECT_EQ(describe(1), "preempted: 7 tokens to compute again");
}

TEST_F(SchedulerTest, GivenPagesThatOnlyTheCacheCanCountThenThePlanIsMadeAgain) {
  make(
      {.total_pages = 9, .page_tokens = 2, .context_tokens = 18, .step_rows = 8, .max_running = 3});
  const auto run = [&](int32_t free_pages, int32_t reusable) {
    const StepPlan plan = scheduler_->plan(
        free_pages, 0, [&](RequestId id) { return number(id) == 1 ? reusable : 0; });
    EXPECT_EQ(plan.plan_again(), draw(plan) == "-2");
    commit(plan);
    return draw(plan);
  };
  submit(6, 9);
  EXPECT_EQ(run(9, 0), "+0 0:P0-5*");
  submit(6, 9, 0);
  submit(2, 9);
  EXPECT_EQ(run(9, 4), "+1@4 +2 0:D6* 1:P4-5* 2:P0-1*");
  // 1 may have attached 2's page, for all that the scheduler knows.
  EXPECT_EQ(run(0, 0), "-2");
  EXPECT_EQ(run(1, 0), "0:D7* 1:D6*");
}

TEST_F(SchedulerTest, PagesThatThePreemptedOneAttachedNeedNotComeBack) {
  make({.total_pages = 20,
        .page_tokens = 2,
        .context_tokens = 18,
        .step_rows = 9,
        .max_running = 3});
  const auto run = [&](int32_t free_pages) {
    const StepPlan plan =
        scheduler_->plan(free_pages, 0, [&](RequestId id) { return number(id) == 2 ? 4 : 0; });
    commit(plan);
    return draw(plan);
  };
  submit(4, 9);
  submit(4, 9);
  submit(5, 9);
  EXPECT_EQ(run(20), "+0 +1 +2@4 0:P0-3* 1:P0-3* 2:P4-4*");
  // 0 and 1 need a page each. Of the 3 that 2 holds one is certain: another may have the first two.
  EXPECT_EQ(run(0), "-2");
  EXPECT_EQ(run(2), "0:D4* 1:D4*");
}

TEST_F(SchedulerTest, ReusedPagesAreCountedAsIfTheyWereTakenFromTheFreeOnes) {
  make(
      {.total_pages = 9, .page_tokens = 2, .context_tokens = 18, .step_rows = 9, .max_running = 3});
  submit(6, 3);
  submit(6, 3);
  held_elsewhere_ = 2;
  reusable_tokens_ = 4;
  EXPECT_EQ(step(), "+0@4 0:P4-5*");
  EXPECT_EQ(describe(1), "waits: 3 pages needed, 2 free");  // 7, less 2, 1, and 2 for the watermark
}

TEST_F(SchedulerTest, WhoRunsAloneMayHaveEveryPage) {
  make({.total_pages = 3, .page_tokens = 2, .context_tokens = 6, .step_rows = 4, .max_running = 2});
  submit(6, 1);
  EXPECT_EQ(step(), "+0 0:P0-3");
  EXPECT_EQ(step(), "0:P4-5*");
}

TEST_F(SchedulerTest, AStepThatFailedMovesNothingButAdmissionsAndPreemptionsHold) {
  make(
      {.total_pages = 6, .page_tokens = 2, .context_tokens = 12, .step_rows = 8, .max_running = 2});
  submit(4, 3);
  reusable_tokens_ = 2;
  StepPlan failed = plan();
  EXPECT_EQ(draw(failed), "+0@2 0:P2-3*");
  scheduler_->roll_back(failed);
  EXPECT_EQ(describe(0), "running: 2 of 4 prompt tokens");
  EXPECT_EQ(step(), "0:P2-3*");
  failed = plan();
  EXPECT_EQ(draw(failed), "0:D4*");
  scheduler_->roll_back(failed);
  EXPECT_EQ(describe(0), "running: 1 token generated");
  EXPECT_EQ(step(), "0:D4*");
}

TEST_F(SchedulerTest, FinishedAndAbortedRequestsLeaveAndMakeRoom) {
  make({.total_pages = 50,
        .page_tokens = 4,
        .context_tokens = 100,
        .step_rows = 8,
        .max_running = 2});
  submit(1, 20);
  submit(1, 20);
  submit(1, 20);
  submit(1, 20);
  commit(plan(), {RequestId{0}});
  EXPECT_EQ(step(), "+2 1:D1* 2:P0-0*");
  abort(RequestId{1});
  abort(RequestId{0});  // left before: nothing
  EXPECT_EQ(step(), "+3 2:D1* 3:P0-0*");
  abort(RequestId{2});
  abort(RequestId{3});
  EXPECT_EQ(step(), "");
}

TEST_F(SchedulerTest, StatesTellWhenARequestCameAndWasAdmitted) {
  make(kRoomy);
  now_ms_ = 5;
  submit(9, 2);
  submit(9, 2);
  now_ms_ = 17;
  step();
  EXPECT_EQ(scheduler_->state(RequestId{0}).submitted_ms, 5);
  EXPECT_EQ(scheduler_->state(RequestId{0}).admitted_ms, 17);
  EXPECT_EQ(scheduler_->state(RequestId{1}).admitted_ms, std::nullopt);
  EXPECT_EQ(describe(0), "running: 8 of 9 prompt tokens");
  EXPECT_EQ(describe(1), "waits for the next step");
}

TEST_F(SchedulerTest, ViolationsTellThatTheCacheSaidItHadMorePagesThanItHas) {
  make({.total_pages = 8, .page_tokens = 1, .context_tokens = 8, .step_rows = 8, .max_running = 2});
  for (int i = 0; i < 2; ++i) {
    scheduler_->submit({4, 3, {}}, 0).value();
    const StepPlan plan = scheduler_->plan(8, 0, [](RequestId) { return 0; });
    scheduler_->commit(plan, {});
  }
  EXPECT_THAT(scheduler_->violations(),
              ::testing::ElementsAre("running requests hold 9 pages of 8"));
}

/// A KV cache with nothing in it: who holds which page, and which are in the prefix index. A prompt
/// is the start of one of a few texts, so two prompts of a text share what the shorter one has.
class NaiveCache {
 public:
  static constexpr int kMaxTexts = 3;

  NaiveCache(int32_t total_pages, int32_t page_tokens)
      : page_tokens_(page_tokens),
        holders_(static_cast<size_t>(total_pages), 0),
        indexed_(static_cast<size_t>(total_pages), false) {}

  int32_t pages_for(int32_t n_tokens) const { return (n_tokens + page_tokens_ - 1) / page_tokens_; }
  int32_t available() const {
    return static_cast<int32_t>(std::count(holders_.begin(), holders_.end(), 0));
  }
  /// Of the first n_tokens of the text.
  int32_t reusable_tokens(int text, int32_t n_tokens) const {
    const auto n_indexed = static_cast<int32_t>(index_[text].size());
    return std::min(n_indexed, n_tokens / page_tokens_) * page_tokens_;
  }
  std::vector<int> attach(int text, int32_t n_tokens) {
    const auto first = index_[text].begin();
    const std::vector<int> pages(first, first + n_tokens / page_tokens_);
    for (const int page : pages) ++holders_[static_cast<size_t>(page)];
    return pages;
  }
  /// A page for the caller, kNone when there is none.
  int allocate() {
    for (const bool evict : {false, true}) {
      for (size_t page = 0; page < holders_.size(); ++page) {
        if (holders_[page] > 0 || indexed_[page] != evict) continue;
        if (evict) forget(static_cast<int>(page));
        holders_[page] = 1;
        return static_cast<int>(page);
      }
    }
    return kNone;
  }
  void release(int page) { --holders_[static_cast<size_t>(page)]; }
  /// Enters the pages of the text's start; those that it knows already it keeps.
  void publish(int text, const std::vector<int>& pages, int32_t n_tokens) {
    for (size_t i = index_[text].size(); i < static_cast<size_t>(n_tokens / page_tokens_); ++i) {
      if (indexed_[static_cast<size_t>(pages[i])]) return;
      index_[text].push_back(pages[i]);
      indexed_[static_cast<size_t>(pages[i])] = true;
    }
  }

 private:
  /// The page leaves the index with all after it, which could not be found without it.
  void forget(int page) {
    for (std::vector<int>& run : index_) {
      const auto from = std::find(run.begin(), run.end(), page);
      for (auto it = from; it != run.end(); ++it) indexed_[static_cast<size_t>(*it)] = false;
      run.erase(from, run.end());
    }
  }

  int32_t page_tokens_;
  std::vector<int> holders_;  // [pages] sequences and others, without the index
  std::vector<bool> indexed_;
  std::vector<int> index_[kMaxTexts];  // the pages of its start
};

struct Walk {
  int preempted = 0;      // requests
  int planned_again = 0;  // plans that were not sure of the pages
  int reused = 0;         // tokens
  int followed = 0;       // admissions of followers whose leader still ran
  int starved = 0;        // plans for which there were too few pages even for the oldest
  int failed = 0;         // steps
  int recomputed = 0;     // rows
  int finished = 0;       // requests
  int passed_over = 0;    // requests that were admitted while a follower before them waited
};

/// Random limits, requests, shortages and failures, with all that a plan must be looked at from
/// outside: what the cache has, what each request ran, and who was there before.
class Simulation {
 public:
  Simulation(uint32_t seed, Walk& walk) : random_(seed), limits_(draw_limits()), walk_(walk) {
    scheduler_.emplace(Scheduler::create(limits_).value());
    cache_.emplace(limits_.total_pages, limits_.page_tokens);
  }

  void run(int n_operations) {
    for (int i = 0; i < n_operations && !::testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE(i);
      do_one();
    }
    while (!held_elsewhere_.empty()) give_back();
    // Each step that fits moves the oldest that runs on by a row, and it is preempted never; what
    // it waits for is that those that run end.
    int n_steps = 0, bound = 10;
    for (const auto& [id, r] : requests_) bound += 3 * (r.shape.prompt_tokens + r.target);
    bound *= static_cast<int>(requests_.size()) + 1;
    while (!requests_.empty() && !::testing::Test::HasFailure()) {
      ASSERT_LT(++n_steps, bound) << requests_.size() << " requests never end";
      step(false);
    }
    ASSERT_EQ(scheduler_->n_requests(), 0);
    ASSERT_EQ(cache_->available(), limits_.total_pages);
  }

 private:
  struct Row {
    SliceKind kind;
    int32_t position;
  };
  struct Request {
    RequestShape shape;
    int text = 0;
    int32_t target = 0;  // tokens that it generates, then it ends
    bool running = false;
    int32_t length = 0;  // of its sequence
    int32_t generated = 0;
    int32_t generated_before = 0;  // when it was admitted
    int32_t reused = 0;
    std::vector<int> pages;
    std::vector<Row> rows;  // since it was admitted
    bool decodes() const {
      return running && generated > 0 && length + 1 == shape.prompt_tokens + generated;
    }
  };

  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  int between(int low, int high) { return low + pick(high - low + 1); }

  SchedulerLimits draw_limits() {
    SchedulerLimits limits;
    limits.page_tokens = 1 << std::max(0, pick(5) - 1);
    limits.total_pages = between(1, 40);
    limits.context_tokens = between(1, 80);
    limits.step_rows = between(1, 20);
    limits.max_running = between(1, std::min(limits.step_rows, 7));
    return limits;
  }

  void do_one() {
    switch (pick(16)) {
      case 0:
      case 1:
      case 2:
        return requests_.size() < 12 ? submit() : step(true);
      case 3:
        return pick(8) == 0 ? abort_one() : step(true);
      case 4:
        return pick(2) == 0 ? take_elsewhere() : step(true);
      case 5:
        return held_elsewhere_.empty() ? step(true) : give_back();
      default:
        return step(true);
    }
  }

  void submit() {
    Request r;
    r.text = pick(n_texts_);
    r.shape.prompt_tokens = between(1, pick(4) == 0 ? limits_.context_tokens : 12);
    r.shape.max_new_tokens = between(1, pick(4) == 0 ? 40 : 12);
    r.target = pick(4) == 0 ? between(1, r.shape.max_new_tokens) : r.shape.max_new_tokens;
    if (next_id_ > 0 && pick(3) == 0) {
      const int leader = std::max(0, next_id_ - 1 - pick(4));
      r.shape.after = RequestId{leader};
      const auto it = requests_.find(RequestId{leader});
      if (it != requests_.end() && pick(2) == 0) {  // else it waits, and shares nothing with it
        r.text = it->second.text;
        r.shape.prompt_tokens = it->second.shape.prompt_tokens;
      }
    }
    const int32_t n_tokens = r.shape.prompt_tokens + r.shape.max_new_tokens - 1;
    const bool possible =
        n_tokens <= limits_.context_tokens && cache_->pages_for(n_tokens) <= limits_.total_pages;
    const auto id = scheduler_->submit(r.shape, 0);
    ASSERT_EQ(id.is_ok(), possible) << id.status().message();
    if (!possible) return;
    ASSERT_EQ(number(*id), next_id_++);
    requests_[*id] = r;
  }

  void abort_one() {
    if (next_id_ == 0) return;
    const RequestId id{std::max(0, next_id_ - 1 - pick(12))};
    scheduler_->abort(id);
    leave(id);
  }

  void leave(RequestId id) {
    const auto it = requests_.find(id);
    if (it == requests_.end()) return;
    for (const int page : it->second.pages) cache_->release(page);
    requests_.erase(it);
  }

  void take_elsewhere() {
    for (int n = between(1, 1 + limits_.total_pages / 3); n > 0 && cache_->available() > 0; --n) {
      held_elsewhere_.push_back(cache_->allocate());
    }
  }
  void give_back() {
    for (int n = between(1, limits_.total_pages); n > 0 && !held_elsewhere_.empty(); --n) {
      cache_->release(held_elsewhere_.back());
      held_elsewhere_.pop_back();
    }
  }

  bool prompt_is_computed(RequestId id) const {
    const auto it = requests_.find(id);
    return it == requests_.end() || it->second.length >= it->second.shape.prompt_tokens;
  }
  bool may_be_admitted(const Request& r) const {
    return !r.running && (!r.shape.after || prompt_is_computed(*r.shape.after));
  }

  /// Pages that the rows of every step need: decode rows, and one row of the oldest; of those
  /// before `youngest`.
  int32_t needed_pages(RequestId youngest = RequestId{INT64_MAX}) const {
    int32_t n_pages = 0;
    bool oldest = true;
    for (const auto& [id, r] : requests_) {
      if (!r.running || id >= youngest) continue;
      if (oldest || r.decodes()) {
        n_pages += cache_->pages_for(r.length + 1) - cache_->pages_for(r.length);
      }
      oldest = false;
    }
    return n_pages;
  }

  void step(bool may_fail) {
    const int32_t available = cache_->available();
    const StepPlan plan = scheduler_->plan(available, 0, [&](RequestId id) {
      const Request& r = requests_.at(id);
      return cache_->reusable_tokens(r.text, r.shape.prompt_tokens);
    });
    ASSERT_THAT(scheduler_->violations(), IsEmpty());
    check_whether_idle(plan, available);
    ASSERT_NO_FATAL_FAILURE(preempt(plan, available));
    ASSERT_NO_FATAL_FAILURE(admit(plan));
    check_rows(plan);
    std::map<RequestId, size_t> n_pages_before;
    for (const Slice& slice : plan.slices) {
      n_pages_before.emplace(slice.id, requests_.at(slice.id).pages.size());
    }
    ASSERT_NO_FATAL_FAILURE(take_pages(plan));
    if (may_fail && pick(8) == 0) {
      for (const auto& [id, n_pages] : n_pages_before) {
        for (std::vector<int>& pages = requests_.at(id).pages; pages.size() > n_pages;) {
          cache_->release(pages.back());
          pages.pop_back();
        }
      }
      scheduler_->roll_back(plan);
      ++walk_.failed;
    } else {
      ASSERT_NO_FATAL_FAILURE(commit(plan));
    }
    ASSERT_THAT(scheduler_->violations(), IsEmpty());
  }

  /// A plan without rows is one that has to be made again, or nothing fits.
  void check_whether_idle(const StepPlan& plan, int32_t available) {
    if (!plan.slices.empty()) return;
    if (plan.plan_again()) {
      ++walk_.planned_again;
      return;
    }
    const auto n_running = std::count_if(requests_.begin(), requests_.end(),
                                         [](const auto& r) { return r.second.running; });
    EXPECT_LE(n_running, 1);
    if (n_running == 1) {
      EXPECT_EQ(available, 0);
      EXPECT_EQ(needed_pages(), 1);
    } else if (!requests_.empty()) {
      const Request& oldest = requests_.begin()->second;
      EXPECT_GT(cache_->pages_for(oldest.shape.prompt_tokens + oldest.generated), available);
    }
    if (!requests_.empty()) ++walk_.starved;
  }

  /// Youngest first, never the oldest, and nobody whose pages were not needed.
  void preempt(const StepPlan& plan, int32_t available) {
    int32_t may_be_free = available;
    for (const Preemption& preemption : plan.preempted) {
      EXPECT_GT(needed_pages(), may_be_free) << "request " << number(preemption.id);
      Request& r = requests_.at(preemption.id);
      const auto runs = [](const auto& entry) { return entry.second.running; };
      const auto oldest = std::find_if(requests_.begin(), requests_.end(), runs);
      const auto youngest = std::find_if(requests_.rbegin(), requests_.rend(), runs);
      ASSERT_EQ(youngest->first, preemption.id);
      ASSERT_NE(oldest->first, preemption.id);
      ASSERT_EQ(r.length, preemption.dropped_tokens);
      may_be_free += static_cast<int32_t>(r.pages.size());
      for (const int page : r.pages) cache_->release(page);
      r.pages.clear();
      r.running = false;
      r.length = 0;
      ++walk_.preempted;
    }
  }

  /// First come, first admitted: of those whose leader's prompt is computed, nobody waits on when
  /// one that came later is admitted, however small that is.
  void admit(const StepPlan& plan) {
    std::set<RequestId> admitted;
    for (const Admission& admission : plan.admitted) admitted.insert(admission.id);
    for (const auto& [id, r] : requests_) {
      if (admitted.empty() || id > *admitted.rbegin()) break;
      if (r.running || admitted.contains(id)) continue;
      ASSERT_FALSE(may_be_admitted(r)) << "request " << number(id) << " was overtaken";
      ++walk_.passed_over;
    }
    for (const Admission& admission : plan.admitted) {
      Request& r = requests_.at(admission.id);
      ASSERT_TRUE(may_be_admitted(r));
      ASSERT_LE(admission.reused_tokens, cache_->reusable_tokens(r.text, r.shape.prompt_tokens));
      ASSERT_LT(admission.reused_tokens, r.shape.prompt_tokens + r.generated);
      r.running = true;
      r.pages = cache_->attach(r.text, admission.reused_tokens);
      r.length = r.reused = admission.reused_tokens;
      r.generated_before = r.generated;
      r.rows.clear();
      walk_.reused += admission.reused_tokens;
      walk_.followed += r.shape.after && requests_.contains(*r.shape.after);
    }
  }

  void check_rows(const StepPlan& plan) {
    int32_t n_rows = 0;
    std::set<RequestId> admitted;
    for (const Admission& admission : plan.admitted) admitted.insert(admission.id);
    std::map<RequestId, const Slice*> first;
    for (const Slice& slice : plan.slices) {
      n_rows += slice.n;
      first.emplace(slice.id, &slice);
    }
    EXPECT_LE(n_rows, limits_.step_rows);
    if (plan.slices.empty()) return;
    bool rows_for_others = false;
    int32_t n_decodes = 0;
    for (const auto& [id, r] : requests_) {
      if (!r.decodes() || admitted.contains(id)) {
        rows_for_others |= first.contains(id);
        continue;
      }
      ++n_decodes;
      ASSERT_TRUE(first.contains(id)) << "request " << number(id) << " has no decode row";
      EXPECT_EQ(first[id]->kind, SliceKind::kDecode);
    }
    // What is left over goes to the oldest prompt, unless it is of use to nobody.
    const auto oldest = std::find_if(requests_.begin(), requests_.end(),
                                     [](const auto& entry) { return entry.second.running; });
    if (oldest != requests_.end() && !oldest->second.decodes()) {
      EXPECT_TRUE(first.contains(oldest->first));
      EXPECT_LT(n_decodes, limits_.step_rows);
    }
    EXPECT_EQ(rows_for_others, n_rows > n_decodes);
  }

  /// What a reservation does: each page that the plan counted on must be there, and the watermark
  /// after the prompts of all but the oldest.
  void take_pages(const StepPlan& plan) {
    bool keeps_watermark = false;
    RequestId oldest{};
    int32_t n_running = 0;
    for (const auto& [id, r] : requests_) {
      if (r.running && n_running++ == 0) oldest = id;
    }
    for (const Slice& slice : plan.slices) {
      Request& r = requests_.at(slice.id);
      while (static_cast<int32_t>(r.pages.size()) < cache_->pages_for(slice.begin + slice.n)) {
        const int page = cache_->allocate();
        ASSERT_NE(page, kNone) << "request " << number(slice.id) << " has no page: " << draw(plan);
        r.pages.push_back(page);
        keeps_watermark |= slice.kind != SliceKind::kDecode && slice.id != oldest;
      }
    }
    if (keeps_watermark) {
      EXPECT_GE(cache_->available(), n_running) << draw(plan);
    }
  }

  void commit(const StepPlan& plan) {
    std::vector<RequestId> finished;
    for (const Slice& slice : plan.slices) {
      Request& r = requests_.at(slice.id);
      ASSERT_EQ(slice.begin, r.length);
      for (int32_t i = 0; i < slice.n; ++i) r.rows.push_back({slice.kind, slice.begin + i});
      r.length += slice.n;
      if (r.length >= r.shape.prompt_tokens) {
        cache_->publish(r.text, r.pages, r.shape.prompt_tokens);
      } else if (pick(2) == 0) {
        cache_->publish(r.text, r.pages, r.length);
      }
      const bool samples = r.length == r.shape.prompt_tokens + r.generated;
      ASSERT_EQ(slice.samples, samples);
      if (samples && ++r.generated == r.target) finished.push_back(slice.id);
    }
    scheduler_->commit(plan, finished);
    for (const RequestId id : finished) {
      check_attempt(requests_.at(id));
      leave(id);
      ++walk_.finished;
    }
  }

  /// Since its last admission it ran each token but the last once, in order: the prompt as such,
  /// then what it had generated before (of which the newest may be a decode row), then the rest.
  void check_attempt(const Request& r) {
    int32_t position = r.reused;
    for (const Row& row : r.rows) {
      ASSERT_EQ(row.position, position++);
      if (row.position < r.shape.prompt_tokens) {
        ASSERT_EQ(row.kind, SliceKind::kPrompt);
        continue;
      }
      const int32_t newest_before = r.shape.prompt_tokens + r.generated_before - 1;
      if (row.position != newest_before) {
        const bool generated_before = row.position < newest_before;
        ASSERT_EQ(row.kind, generated_before ? SliceKind::kRecompute : SliceKind::kDecode);
      }
      walk_.recomputed += row.kind == SliceKind::kRecompute;
    }
    ASSERT_EQ(position, r.shape.prompt_tokens + r.generated - 1);
  }

  std::mt19937 random_;
  SchedulerLimits limits_;
  int n_texts_ = between(1, NaiveCache::kMaxTexts);
  Walk& walk_;
  std::optional<Scheduler> scheduler_;
  std::optional<NaiveCache> cache_;
  std::map<RequestId, Request> requests_;  // that have not left
  std::vector<int> held_elsewhere_;        // pages
  int next_id_ = 0;
};

TEST(SchedulerProperty, EveryRequestEndsAndEveryPagePlannedIsThere) {
  Walk walk;
  for (uint32_t seed = 1; seed <= 1000 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation(seed, walk).run(1000);
  }
  // The walk went where it should: each of these paths was taken many times.
  EXPECT_GT(walk.preempted, 3000);
  EXPECT_GT(walk.planned_again, 100);
  EXPECT_GT(walk.reused, 100000);
  EXPECT_GT(walk.followed, 3000);
  EXPECT_GT(walk.starved, 10000);
  EXPECT_GT(walk.failed, 30000);
  EXPECT_GT(walk.recomputed, 10000);
  EXPECT_GT(walk.finished, 50000);
  EXPECT_GT(walk.passed_over, 500);
}

}  // namespace
}  // namespace weft::engine
