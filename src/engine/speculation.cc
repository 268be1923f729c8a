#include "engine/speculation.h"

#include <algorithm>
#include <utility>

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
      return std::make_unique<ModelDrafter>(*engine.draft_engine());
  }
  return nullptr;
}

}  // namespace

Speculation::Speculation(Engine& engine, std::span<const int32_t> text)
    : engine_(engine), drafter_(make_drafter(engine)), length_(engine.draft_options().most_tokens) {
  if (drafter_ == nullptr) return;
  drafter_->add(text);
  self_ = dynamic_cast<SelfDrafter*>(drafter_.get());
}

Result<std::vector<int32_t>> Speculation::rows_after(const kv::OwnedSequence& sequence,
                                                     int32_t newest, int64_t room, int64_t n_rows) {
  std::vector<int32_t> rows{newest};
  draft_.clear();
  if (drafter_ == nullptr) return rows;
  spec::DraftCounters& counters = engine_.draft_counters();
  spec::StepCost& cost = engine_.step_cost();
  const int64_t begin_ns = engine_.env().monotonic_ns();
  drafter_->add(rows);
  if (self_ != nullptr) self_->look_at(sequence);
  evidence_ = drafter_->evidence();
  int64_t n = std::min<int64_t>(length_.choose(evidence_, cost.of_draft(n_rows)), room);
  if (n > 0) {
    if (!cost.knows_drafts()) n = 1;
    WEFT_RETURN_IF_ERROR(drafter_->prepare());
    const int64_t draft_ns = engine_.env().monotonic_ns();
    WEFT_ASSIGN_OR_RETURN(draft_, drafter_->draft(narrow<int32_t>(n)));
    // The model's first draft makes what pages are told apart by, once for all.
    const bool tells = self_ == nullptr || std::exchange(has_drafted_, true);
    if (!draft_.empty() && tells) {
      cost.add_draft(std::ssize(draft_), engine_.env().ms_since(draft_ns));
    }
  }
  counters.draft_ms += engine_.env().ms_since(begin_ns);
  counters.drafted += std::ssize(draft_);
  rows.insert(rows.end(), draft_.begin(), draft_.end());
  return rows;
}

void Speculation::add_step(int64_t n_rows, double ms) {
  if (drafter_ == nullptr) return;
  ++engine_.draft_counters().steps;
  engine_.draft_counters().verify_ms += ms;
  engine_.step_cost().add_step(n_rows, ms);
}

void Speculation::accept(int32_t n_accepted) {
  if (draft_.empty()) return;
  length_.add_outcome(evidence_, narrow<int32_t>(std::ssize(draft_)), n_accepted);
  engine_.draft_counters().accepted += n_accepted;
  drafter_->add(std::span(draft_).first(n_accepted));
}

}  // namespace weft::engine
