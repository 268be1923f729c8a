// A conversation with a model, without a terminal: its turns, the prompt that the model's chat
// template makes of them, and one cache sequence whose KV is reused from answer to answer. Every
// prompt is rendered whole and its tokens are compared with those that the sequence holds; only
// what differs is run, so that a template may rewrite earlier turns as it likes. What people typed
// is encoded as text and never becomes a control token. It reads and prints nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/narrow.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/generation.h"
#include "text/chat_template.h"

namespace weft::engine {

class SavedSession;
struct Session;

struct ChatAnswer {
  std::string text;
  StopReason stop_reason = StopReason::kEnd;
  int32_t prompt_tokens = 0;
  int32_t reused_tokens = 0;  // of the prompt: their KV was there from earlier turns
  int32_t answer_tokens = 0;
  double prefill_ms = 0;
  double decode_ms = 0;
  spec::DraftCounters drafts;  // Generation's
};

/// Null members are not called.
struct ChatCallbacks {
  /// Each piece of the answer as it becomes certain; false ends it, and what was said stays.
  std::function<bool(std::string_view)> on_text;
  /// The context was full: this many exchanges (a user turn and its answer), the oldest, are from
  /// now on not part of the prompt.
  std::function<void(int32_t)> on_dropped;
  /// Asked between layers while the prompt is run; true gives the answer up.
  std::function<bool()> cancelled;
};

/// Not thread-safe. Whatever fails leaves the conversation as it was.
class ChatSession {
 public:
  /// The engine must outlive it. Errors as Engine::chat_template.
  static Result<std::unique_ptr<ChatSession>> open(Engine& engine);
  ChatSession(const ChatSession&) = delete;
  ChatSession& operator=(const ChatSession&) = delete;

  /// Adds a user turn and the model's answer to it. Where the prompt would leave no room for an
  /// answer (max_tokens, at most a quarter of the context), the oldest exchanges are dropped from
  /// it until there is twice that room, never the system turn. kResourceExhausted: not even this
  /// turn alone fits; kUnsupported: the template refuses the conversation; kCancelled: stopped
  /// before anything was said.
  Result<ChatAnswer> say(std::string text, const GenerationOptions& options,
                         const ChatCallbacks& callbacks);
  /// Answers the last user turn again, with another seed each time. kNotFound without one.
  Result<ChatAnswer> regenerate(const GenerationOptions& options, const ChatCallbacks& callbacks);
  /// Takes the last user turn and its answer back; false when there is none.
  bool undo();
  /// Forgets all but the system turn.
  void clear();
  /// For the conversation from its beginning; none: the template's own default. kUnsupported for a
  /// template that takes no such turn.
  Status set_system(std::optional<std::string> text);
  /// Another conversation in place of this one: at most one system turn, the first.
  /// kInvalidArgument for anything else.
  Status set_turns(std::vector<text::Turn> turns);

  /// What a session's file keeps of it, but for how answers are sampled; its KV is sequence()'s.
  Session session() const;
  const kv::OwnedSequence& sequence() const { return sequence_; }
  /// In place of this conversation, with its KV: it goes on as if it had never stopped. `saved` is
  /// a chat's of this engine (SavedSession::check_engine). Errors as set_turns' and
  /// SavedSession::restore's.
  Status resume(const SavedSession& saved);

  /// All of it, dropped turns too: the system turn where there is one, then users and answers.
  std::vector<text::Turn> turns() const;
  const std::optional<std::string>& system() const { return system_; }
  /// Turns that are too far back to be part of the prompt.
  int32_t dropped_turns() const { return narrow<int32_t>(first_); }
  /// The tokens whose KV the sequence holds.
  std::span<const int32_t> held_tokens() const { return held_; }
  /// Tokens that GenerationOptions::shift took out of it since the conversation began. What came
  /// after them still depends on them.
  int64_t shifted_tokens() const { return shifted_tokens_; }

 private:
  ChatSession(Engine& engine, text::ChatTemplate chat_template)
      : engine_(engine), template_(std::move(chat_template)), sequence_(engine.create_sequence()) {}

  Result<std::vector<int32_t>> prompt_from(size_t first, const ChatCallbacks& callbacks) const;
  struct FittingPrompt {
    std::vector<int32_t> tokens;
    size_t first = 0;       // turn that it begins with, after the system turn
    int32_t n_dropped = 0;  // exchanges left out that the prompt before still had
  };
  Result<FittingPrompt> fitting_prompt(const GenerationOptions& options,
                                       const ChatCallbacks& callbacks) const;
  Result<std::vector<int32_t>> encode(const std::vector<text::Turn>& turns,
                                      const ChatCallbacks& callbacks) const;
  Result<ContextShift> with_kept(const ContextShift& shift, const ChatCallbacks& callbacks) const;
  Status close_gap(std::span<const int32_t> prompt);
  Result<std::vector<float>> prefill(const std::vector<int32_t>& prompt, bool may_shift,
                                     const ChatCallbacks& callbacks, ChatAnswer& answer);
  Result<ChatAnswer> run_answer(const GenerationOptions& options, const ChatCallbacks& callbacks);
  Result<ChatAnswer> answer(const GenerationOptions& options, const ChatCallbacks& callbacks);
  size_t last_user_turn() const;

  Engine& engine_;
  text::ChatTemplate template_;
  kv::OwnedSequence sequence_;
  std::vector<int32_t> held_;  // as long as the sequence
  int64_t shifted_tokens_ = 0;
  std::optional<std::string> system_;
  std::vector<text::Turn> turns_;  // without the system turn
  size_t first_ = 0;               // the first of them that is part of the prompt
  uint64_t n_again_ = 0;           // how often the last turn was answered again
  bool was_resumed_ = false;       // and has answered nothing since
  bool only_grew_ = true;          // since the last prompt: no turn of it was taken back or changed
};

}  // namespace weft::engine
