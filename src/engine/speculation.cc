#include "engine/speculation.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/narrow.h"
#include "engine/model_drafter.h"
#include "kv/page_selector.h"
#include "spec/ngram_drafter.h"

namespace weft::engine {
namespace {

static_assert(spec::kMostDraftTokens < kv::kMostTriedRows);

std::unique_ptr<spec::Drafter> make_drafter(Engine& engine) {
  switch (engine.draft_options().kind) {
    case spec::DrafterKind::kNone:
      return nullptr;
    case spec::DrafterKind::kNgram:
      return std::make_unique<spec::NgramDrafter>();
    case spec::DrafterKind::kSelf:
      return std::make_unique<SelfDrafter>(engine);
    case spec::DrafterKind::kModel:
      return std::make_unique<ModelDrafter>(*engine.draft_engine(),
                                            engine.model().config().vocab_size);
  }
  return nullptr;
}

}  // namespace

Speculation::Speculation(Engine& engine, std::span<const int32_t> text)
    : engine_(engine), drafter_(make_drafter(engine)), length_(engine.draft_options().most_tokens) {
  if (drafter_ == nullptr) return;
  add(text);
  self_ = dynamic_cast<SelfDrafter*>(drafter_.get());
  const bool is_model = engine.draft_options().kind == spec::DrafterKind::kModel;
  if (is_model && drafter_->evidence() == 0) engine.warn_of_draft_context(n_text_);
}

void Speculation::add(std::span<const int32_t> tokens) {
  drafter_->add(tokens);
  n_text_ += std::ssize(tokens);
}

void Speculation::catch_up(std::span<const int32_t> text) {
  if (drafter_ != nullptr && std::ssize(text) > n_text_) add(text.subspan(n_text_));
}

// In the time that n_rows rows take one token of this answer comes, and one of each of the others,
// which wait for the reading, too.
bool Speculation::reading_pays(const DraftRoom& room) const {
  const spec::StepCost& cost = engine_.step_cost();
  const double token_ms = cost.step_ms(room.n_rows) / static_cast<double>(room.n_rows);
  const double saved_ms = static_cast<double>(room.answer_tokens) * token_ms *
                          length_.saved_share(evidence_, cost.of_draft(room.n_rows));
  return cost.read_ms(drafter_->unread()) < saved_ms;
}

// The first tokens are not measured, as the model's file may come from the disk with them.
Result<bool> Speculation::read_text(const DraftRoom& room, const FunctionRef<bool()>* cancelled) {
  constexpr int64_t kFirstTokens = 16, kMeasuredTokens = 64;
  spec::StepCost& cost = engine_.step_cost();
  for (bool is_first = !cost.knows_reads();; is_first = false) {
    const int64_t n_unread = drafter_->unread();
    if (n_unread == 0) return true;
    if (!cost.knows_steps()) return false;
    if (!reading_pays(room)) {
      if (!std::exchange(doubted_read_, true)) cost.doubt_read();
      return false;
    }
    const int64_t most = cost.knows_reads() ? n_unread : is_first ? kFirstTokens : kMeasuredTokens;
    const int64_t n_tokens = std::min(n_unread, most);
    const int64_t begin_ns = engine_.env().monotonic_ns();
    WEFT_RETURN_IF_ERROR(drafter_->read(n_tokens, cancelled));
    if (!is_first) cost.add_read(n_tokens, engine_.env().ms_since(begin_ns));
  }
}

Result<int32_t> Speculation::choose(const DraftRoom& room, const FunctionRef<bool()>* cancelled) {
  const spec::StepCost& cost = engine_.step_cost();
  evidence_ = drafter_->evidence();
  const spec::DraftOptions& options = engine_.draft_options();
  const bool always = options.always && evidence_ > 0;
  const int64_t n = std::min<int64_t>(
      always ? options.most_tokens : length_.choose(evidence_, cost.of_draft(room.n_rows)),
      room.tokens);
  if (n <= 0) return 0;
  if (always && drafter_->unread() == 0) return narrow<int32_t>(n);
  WEFT_ASSIGN_OR_RETURN(const bool has_read, read_text(room, cancelled));
  if (!has_read) return 0;
  return cost.knows_drafts() ? narrow<int32_t>(n) : 1;
}

Status Speculation::guess(const DraftRoom& room, const FunctionRef<bool()>* cancelled) {
  WEFT_ASSIGN_OR_RETURN(const int32_t n, choose(room, cancelled));
  if (n == 0) return Status::ok();
  const int64_t draft_ns = engine_.env().monotonic_ns();
  WEFT_ASSIGN_OR_RETURN(draft_, drafter_->draft(n));
  // The model's own first draft makes what pages are told apart by, once for all.
  const bool tells = self_ == nullptr || std::exchange(has_drafted_, true);
  if (!draft_.empty() && tells) {
    engine_.step_cost().add_draft(std::ssize(draft_), engine_.env().ms_since(draft_ns));
  }
  return Status::ok();
}

// Requests that wait again after a preemption keep their text in the draft model's cache. Where
// that has no page left, the rest of the answer goes without guesses, and what the drafter holds is
// the others'.
Result<std::vector<int32_t>> Speculation::rows_after(const kv::OwnedSequence& sequence,
                                                     int32_t newest, const DraftRoom& room,
                                                     const FunctionRef<bool()>* cancelled) {
  std::vector<int32_t> rows{newest};
  draft_.clear();
  if (drafter_ == nullptr) return rows;
  const int64_t begin_ns = engine_.env().monotonic_ns();
  if (!std::exchange(is_open_, true)) add(rows);
  if (self_ != nullptr) self_->look_at(sequence, cancelled);
  const Status guessed = guess(room, cancelled);
  if (!guessed.is_ok()) {
    if (guessed.code() != StatusCode::kResourceExhausted) return guessed;
    if (logs_info()) log_info("an answer goes on without guesses: " + guessed.message());
    self_ = nullptr;
    drafter_ = nullptr;
  }
  const double ms = engine_.env().ms_since(begin_ns);
  for (spec::DraftCounters* counters : {&counters_, &engine_.draft_counters()}) {
    counters->draft_ms += ms;
    counters->drafted += std::ssize(draft_);
  }
  rows.insert(rows.end(), draft_.begin(), draft_.end());
  return rows;
}

void Speculation::add_step(int64_t n_rows, double ms) {
  if (drafter_ == nullptr) return;
  ++engine_.draft_counters().steps;
  for (spec::DraftCounters* counters : {&counters_, &engine_.draft_counters()}) {
    counters->verify_ms += ms;
  }
  engine_.step_cost().add_step(n_rows, ms);
}

void Speculation::accept(int32_t n_accepted) {
  if (drafter_ == nullptr) return;
  is_open_ = false;
  ++counters_.steps;
  if (draft_.empty()) return;
  length_.add_outcome(evidence_, narrow<int32_t>(std::ssize(draft_)), n_accepted);
  for (spec::DraftCounters* counters : {&counters_, &engine_.draft_counters()}) {
    counters->accepted += n_accepted;
  }
  add(std::span(draft_).first(n_accepted));
}

}  // namespace weft::engine
