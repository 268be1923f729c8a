// The rules one by one with tiny numbers; scheduler_property_test.cc tries them at random.
#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/plan_text.h"

namespace weft::engine {
namespace {

using test::draw;
using test::number;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int32_t kNone = -1;

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

TEST_F(SchedulerTest, AWholePromptHasTheRowsThatAreLeftUntilItIsComputed) {
  make(kRoomy);
  submit(2, 50);
  const RequestId whole =
      scheduler_->submit({.prompt_tokens = 30, .max_new_tokens = 30, .is_whole = true}, 0).value();
  submit(4, 50);
  const RequestId second =
      scheduler_->submit({.prompt_tokens = 3, .max_new_tokens = 20, .is_whole = true}, 0).value();
  const auto step = [&](WholePrompt outcome) {
    const StepPlan plan = scheduler_->plan(80, 0, [](RequestId) { return 0; });
    EXPECT_THAT(scheduler_->violations(), IsEmpty());
    scheduler_->commit(plan, {}, outcome);
    EXPECT_THAT(scheduler_->violations(), IsEmpty());
    return draw(plan);
  };
  EXPECT_EQ(step(WholePrompt::kGoesOn), "+0 +1 0:P0-1* 1:W6*");
  EXPECT_EQ(describe(1), "running: 0 of 30 prompt tokens");
  EXPECT_EQ(step(WholePrompt::kGoesOn), "0:D2* 1:W7*");  // nobody is admitted beside it
  EXPECT_EQ(step(WholePrompt::kComputed), "0:D3* 1:W7*");
  EXPECT_EQ(scheduler_->state(whole).computed_tokens, 30);
  EXPECT_EQ(scheduler_->state(whole).generated_tokens, 1);
  EXPECT_EQ(step(WholePrompt::kGoesOn), "+2 +3 0:D4* 1:D30* 2:P0-3* 3:W2*");
  // Postponed it waits until fewer run beside it than the three that did.
  EXPECT_EQ(step(WholePrompt::kPostponed), "0:D5* 1:D31* 2:D4* 3:W5*");
  EXPECT_EQ(scheduler_->state(second).phase, RequestState::Phase::kWaiting);
  scheduler_->abort(RequestId{0});
  EXPECT_EQ(step(WholePrompt::kComputed), "+3 1:D32* 2:D5* 3:W6*");
}

TEST_F(SchedulerTest, AWholePromptNeedsPagesForItsWorkOnlyBesideOthers) {
  make(kRoomy);
  const auto submit_whole = [&] {
    return scheduler_
        ->submit({.prompt_tokens = 8, .max_new_tokens = 9, .is_whole = true, .work_pages = 5}, 0)
        .value();
  };
  const auto step = [&](int32_t free_pages) {
    const StepPlan plan = scheduler_->plan(free_pages, 0, [](RequestId) { return 0; });
    scheduler_->commit(plan, {}, WholePrompt::kComputed);
    return draw(plan);
  };
  submit_whole();
  submit_whole();
  EXPECT_EQ(step(2), "+0 0:W8*");  // alone: what the prompt takes
  EXPECT_EQ(step(8), "0:D8*");     // 2 + 5, and one for the next token of each
  EXPECT_EQ(describe(1), "waits: 7 pages needed, 5 free");
  EXPECT_EQ(step(9), "+1 0:D9* 1:W7*");
}

TEST_F(SchedulerTest, AWholePromptThatIsPreemptedIsComputedAgainAndThenWhatItGenerated) {
  make(kRoomy);
  submit(3, 20);
  ASSERT_TRUE(
      scheduler_->submit({.prompt_tokens = 5, .max_new_tokens = 9, .is_whole = true}, 0).is_ok());
  const auto step = [&](int32_t free_pages, WholePrompt outcome = WholePrompt::kComputed) {
    const StepPlan plan = scheduler_->plan(free_pages, 0, [](RequestId) { return 0; });
    EXPECT_THAT(scheduler_->violations(), IsEmpty());
    scheduler_->commit(plan, {}, outcome);
    return draw(plan);
  };
  EXPECT_EQ(step(50), "+0 +1 0:P0-2* 1:W5*");
  EXPECT_EQ(step(50), "0:D3* 1:D5*");
  EXPECT_EQ(step(0), "-1 0:D4*");  // the page after the prompt's full one cannot be shared
  EXPECT_EQ(describe(1), "preempted: 6 tokens to compute again");
  EXPECT_EQ(step(9, WholePrompt::kGoesOn), "+1 0:D5* 1:W7");
  EXPECT_EQ(step(9), "0:D6* 1:W7");
  EXPECT_EQ(step(9), "0:D7* 1:R5-6*");
  EXPECT_EQ(step(9), "0:D8* 1:D7*");
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

}  // namespace
}  // namespace weft::engine
