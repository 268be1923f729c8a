// Drafts for one answer: what to run beside its newest token, and what came of it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/self_drafter.h"
#include "spec/draft_length.h"
#include "spec/drafter.h"

namespace weft::engine {

/// Not thread-safe. The engine must outlive it.
class Speculation {
 public:
  /// By the engine's draft options, of a text that begins so.
  Speculation(Engine& engine, std::span<const int32_t> text);

  /// What to run next after the sequence, which holds the text: `newest`, and at most `room` tokens
  /// of a draft after it, in a step of n_rows without any draft.
  Result<std::vector<int32_t>> rows_after(const kv::OwnedSequence& sequence, int32_t newest,
                                          int64_t room, int64_t n_rows = 1);
  /// Of the draft that rows_after() gave last: its first n_accepted tokens are part of the text.
  void accept(int32_t n_accepted);
  /// The step that ran them, of n_rows in all.
  void add_step(int64_t n_rows, double ms);

 private:
  Engine& engine_;
  std::unique_ptr<spec::Drafter> drafter_;  // null: no drafts
  SelfDrafter* self_ = nullptr;             // drafter_, where it is one
  spec::DraftLength length_;
  bool has_drafted_ = false;
  std::vector<int32_t> draft_;
  int32_t evidence_ = 0;
};

}  // namespace weft::engine
