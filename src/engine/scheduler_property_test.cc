// Random operations against a naive cache that has real pages, holders and a prefix index, in which
// every page that a plan counts on must be there.
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

#include "base/narrow.h"
#include "engine/scheduler.h"
#include "support/plan_text.h"

namespace weft::engine {
namespace {

using test::draw;
using test::number;
using ::testing::IsEmpty;

constexpr int32_t kNone = -1;

/// A KV cache with nothing in it: who holds which page, and which are in the prefix index. A prompt
/// is the start of one of a few texts, so two prompts of a text share what the shorter one has.
class NaiveCache {
 public:
  static constexpr int kMaxTexts = 3;

  NaiveCache(int32_t total_pages, int32_t page_tokens)
      : page_tokens_(page_tokens), holders_(total_pages, 0), indexed_(total_pages, false) {}

  int32_t pages_for(int32_t n_tokens) const { return (n_tokens + page_tokens_ - 1) / page_tokens_; }
  int32_t available() const {
    return narrow<int32_t>(std::count(holders_.begin(), holders_.end(), 0));
  }
  /// Of the first n_tokens of the text.
  int32_t reusable_tokens(int text, int32_t n_tokens) const {
    const int32_t n_indexed = index_[text].size();
    return std::min(n_indexed, n_tokens / page_tokens_) * page_tokens_;
  }
  std::vector<int> attach(int text, int32_t n_tokens) {
    const auto first = index_[text].begin();
    const std::vector<int> pages(first, first + n_tokens / page_tokens_);
    for (const int page : pages) ++holders_[page];
    return pages;
  }
  /// A page for the caller, kNone when there is none.
  int allocate() {
    for (const bool evict : {false, true}) {
      for (size_t page = 0; page < holders_.size(); ++page) {
        if (holders_[page] > 0 || indexed_[page] != evict) continue;
        if (evict) forget(narrow<int>(page));
        holders_[page] = 1;
        return narrow<int>(page);
      }
    }
    return kNone;
  }
  void release(int page) { --holders_[page]; }
  /// Enters the pages of the text's start; those that it knows already it keeps.
  void publish(int text, const std::vector<int>& pages, int32_t n_tokens) {
    for (int64_t i = std::ssize(index_[text]); i < n_tokens / page_tokens_; ++i) {
      if (indexed_[pages[i]]) return;
      index_[text].push_back(pages[i]);
      indexed_[pages[i]] = true;
    }
  }

 private:
  /// The page leaves the index with all after it, which could not be found without it.
  void forget(int page) {
    for (std::vector<int>& run : index_) {
      const auto from = std::find(run.begin(), run.end(), page);
      for (auto it = from; it != run.end(); ++it) indexed_[*it] = false;
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
  int wholes = 0;         // whole prompts computed
  int wholes_cut = 0;     // preempted before that
  int postponed = 0;      // for want of pages
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
    bound *= narrow<int>(requests_.size()) + 1;
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
    int n_rests = 0;        // steps in which its whole prompt was under way
    bool is_under_way() const { return running && shape.is_whole && length == 0; }
    bool decodes() const {
      return running && generated > 0 && length + 1 == shape.prompt_tokens + generated;
    }
  };

  int pick(int n) { return random_() % narrow<uint32_t>(n); }
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
    r.shape.is_whole = pick(4) == 0;
    if (r.shape.is_whole) r.shape.work_pages = pick(4);
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
      if (r.is_under_way()) {
        oldest = false;
        continue;
      }
      if (oldest || r.decodes()) {
        n_pages += cache_->pages_for(r.length + 1) - cache_->pages_for(r.length);
      }
      oldest = false;
    }
    return n_pages;
  }

  void step(bool may_fail) {
    int32_t set_aside = 0;
    for (const auto& [id, r] : requests_) {
      if (!r.is_under_way()) continue;
      set_aside += cache_->pages_for(r.shape.prompt_tokens) - narrow<int32_t>(r.pages.size());
    }
    const int32_t available = std::max(cache_->available() - set_aside, 0);
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
      if (slice.kind == SliceKind::kWhole) continue;  // keeps what it has
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
      walk_.wholes_cut += r.is_under_way();
      may_be_free += r.is_under_way() ? cache_->pages_for(r.shape.prompt_tokens)
                                      : narrow<int32_t>(r.pages.size());
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
      r.n_rests = 0;
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
      if (slice.kind == SliceKind::kWhole) continue;
      while (std::ssize(r.pages) < cache_->pages_for(slice.begin + slice.n)) {
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
    WholePrompt whole = WholePrompt::kGoesOn;
    for (const Slice& slice : plan.slices) {
      Request& r = requests_.at(slice.id);
      ASSERT_EQ(slice.begin, r.length);
      if (slice.kind == SliceKind::kWhole) {
        whole = work_on(r);
        ASSERT_EQ(slice.samples, r.generated == 0);
        if (whole != WholePrompt::kComputed) continue;
        if (slice.samples && ++r.generated == r.target) finished.push_back(slice.id);
        continue;
      }
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
    scheduler_->commit(plan, finished, whole);
    for (const RequestId id : finished) {
      check_attempt(requests_.at(id));
      leave(id);
      ++walk_.finished;
    }
  }

  /// A step of the work for a whole prompt, which takes all of its pages at some time, some of them
  /// from the prefix index. Where those that were set aside went elsewhere, and sometimes besides,
  /// it fails.
  WholePrompt work_on(Request& r) {
    const bool is_last = r.n_rests++ > 2;
    if (r.pages.empty() && (is_last || pick(2) == 0)) {
      const int32_t wanted = cache_->pages_for(r.shape.prompt_tokens);
      r.pages =
          cache_->attach(r.text, cache_->reusable_tokens(r.text, pick(r.shape.prompt_tokens)));
      while (std::ssize(r.pages) < wanted) {
        const int page = cache_->allocate();
        if (page != kNone) {
          r.pages.push_back(page);
          continue;
        }
        return postpone(r);
      }
    }
    if (pick(16) == 0) return postpone(r);  // memory ran out
    if (r.pages.empty() || !(is_last || pick(2) == 0)) return WholePrompt::kGoesOn;
    r.length = r.shape.prompt_tokens;
    for (int32_t i = 0; i < r.length; ++i) r.rows.push_back({SliceKind::kWhole, i});
    cache_->publish(r.text, r.pages, pick(r.length + 1));
    ++walk_.wholes;
    return WholePrompt::kComputed;
  }

  WholePrompt postpone(Request& r) {
    for (const int page : r.pages) cache_->release(page);
    r.pages.clear();
    const auto n_running = std::count_if(requests_.begin(), requests_.end(),
                                         [](const auto& entry) { return entry.second.running; });
    if (n_running == 1) return WholePrompt::kGoesOn;
    r.running = false;
    ++walk_.postponed;
    return WholePrompt::kPostponed;
  }

  /// Since its last admission it ran each token but the last once, in order: the prompt as such,
  /// then what it had generated before (of which the newest may be a decode row), then the rest.
  void check_attempt(const Request& r) {
    int32_t position = r.reused;
    for (const Row& row : r.rows) {
      ASSERT_EQ(row.position, position++);
      if (row.position < r.shape.prompt_tokens) {
        ASSERT_EQ(row.kind, r.shape.is_whole ? SliceKind::kWhole : SliceKind::kPrompt);
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
  EXPECT_GT(walk.wholes, 10000);
  EXPECT_GT(walk.wholes_cut, 50);
  EXPECT_GT(walk.postponed, 100);
}

}  // namespace
}  // namespace weft::engine
