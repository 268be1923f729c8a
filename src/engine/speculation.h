// Drafts for one answer: what to run beside its newest token, and what came of it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/self_drafter.h"
#include "spec/draft_length.h"
#include "spec/drafter.h"

namespace weft::engine {

/// Where a draft is to go.
struct DraftRoom {
  int64_t tokens = 0;         // of the draft, at most
  int64_t answer_tokens = 0;  // that may still come
  int64_t n_rows = 1;         // of the step, without any draft
};

/// Not thread-safe. The engine must outlive it.
class Speculation {
 public:
  /// By the engine's draft options, of a text that begins so.
  Speculation(Engine& engine, std::span<const int32_t> text);

  /// The text is this now; of what is new nothing was drafted.
  void catch_up(std::span<const int32_t> text);
  /// What to run next after the sequence, which holds the text: `newest`, and at most room.tokens
  /// of a draft after it. Called again before accept(), as its step was not run, it is about the
  /// same token. `cancelled` may be null; it is asked while a draft model reads the text, and true
  /// ends with kCancelled.
  Result<std::vector<int32_t>> rows_after(const kv::OwnedSequence& sequence, int32_t newest,
                                          const DraftRoom& room,
                                          const FunctionRef<bool()>* cancelled = nullptr);
  /// Of the draft that rows_after() gave last: its first n_accepted tokens are part of the text.
  void accept(int32_t n_accepted);
  /// The step that ran them, of n_rows in all.
  void add_step(int64_t n_rows, double ms);
  /// Of this text; the engine has those of all. Without drafts all are 0.
  const spec::DraftCounters& counters() const { return counters_; }

 private:
  void add(std::span<const int32_t> tokens);
  /// Whether the drafter has read the text; it does now where that can be won back.
  Result<bool> read_text(const DraftRoom& room, const FunctionRef<bool()>* cancelled);
  bool reading_pays(const DraftRoom& room) const;
  /// Tokens to draft.
  Result<int32_t> choose(const DraftRoom& room, const FunctionRef<bool()>* cancelled);
  /// Fills draft_.
  Status guess(const DraftRoom& room, const FunctionRef<bool()>* cancelled);

  Engine& engine_;
  std::unique_ptr<spec::Drafter> drafter_;  // null: no drafts
  SelfDrafter* self_ = nullptr;             // drafter_, where it is one
  spec::DraftLength length_;
  bool has_drafted_ = false;
  spec::DraftCounters counters_;
  std::vector<int32_t> draft_;
  int32_t evidence_ = 0;
  int64_t n_text_ = 0;         // tokens that the drafter knows
  bool is_open_ = false;       // they end with the newest of rows_after(), which was not accepted
  bool doubted_read_ = false;  // once a text is enough
};

}  // namespace weft::engine
