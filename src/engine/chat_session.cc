#include "engine/chat_session.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/narrow.h"
#include "base/out_of_memory.h"
#include "engine/session.h"

namespace weft::engine {
namespace {

using text::Role;

/// Rows run between two commits: what was run before a cancellation is there for the next prompt.
constexpr size_t kPrefillRows = 512;

}  // namespace

Result<std::unique_ptr<ChatSession>> ChatSession::open(Engine& engine) {
  WEFT_ASSIGN_OR_RETURN(text::ChatTemplate chat, engine.chat_template());
  return std::unique_ptr<ChatSession>(new ChatSession(engine, std::move(chat)));
}

Result<ChatAnswer> ChatSession::say(std::string text, const GenerationOptions& options,
                                    const ChatCallbacks& callbacks) {
  turns_.push_back({Role::kUser, std::move(text)});
  const uint64_t n_again = std::exchange(n_again_, 0);
  auto answered = answer(options, callbacks);
  if (!answered.is_ok()) {
    turns_.pop_back();
    n_again_ = n_again;
  }
  return answered;
}

Result<ChatAnswer> ChatSession::regenerate(const GenerationOptions& options,
                                           const ChatCallbacks& callbacks) {
  const size_t user = last_user_turn();
  if (user == turns_.size()) return not_found("there is nothing to answer again");
  std::vector<text::Turn> before = turns_;
  turns_.resize(user + 1);
  only_grew_ = false;
  GenerationOptions again = options;
  again.sampling.seed += ++n_again_;
  auto answered = answer(again, callbacks);
  if (!answered.is_ok()) turns_ = std::move(before);
  return answered;
}

bool ChatSession::undo() {
  const size_t user = last_user_turn();
  if (user == turns_.size()) return false;
  turns_.resize(user);
  only_grew_ = false;
  first_ = 0;  // some that were dropped may fit again
  n_again_ = 0;
  return true;
}

void ChatSession::clear() {
  turns_.clear();
  only_grew_ = false;
  shifted_tokens_ = 0;
  first_ = 0;
  n_again_ = 0;
}

Status ChatSession::set_system(std::optional<std::string> text) {
  if (text) {
    const text::Turn turns[] = {{Role::kSystem, *text}, {Role::kUser, "?"}};
    WEFT_RETURN_IF_ERROR(template_.render(turns, true).status());
  }
  system_ = std::move(text);
  only_grew_ = false;
  return Status::ok();
}

Status ChatSession::set_turns(std::vector<text::Turn> turns) {
  std::optional<std::string> system;
  if (!turns.empty() && turns.front().role == Role::kSystem) {
    system = std::move(turns.front().text);
    turns.erase(turns.begin());
  }
  const auto misplaced =
      std::ranges::find(turns, Role::kSystem, [](const text::Turn& turn) { return turn.role; });
  if (misplaced != turns.end()) {
    return invalid_argument("a system turn after the conversation's beginning");
  }
  if (!turns.empty() && turns.front().role != Role::kUser) {
    return invalid_argument("the conversation begins with an answer; it must be a user's turn");
  }
  WEFT_RETURN_IF_ERROR(set_system(std::move(system)));
  clear();
  turns_ = std::move(turns);
  return Status::ok();
}

Session ChatSession::session() const {
  Session session;
  session.kind = SessionKind::kChat;
  // What a context shift has moved has seen tokens that no file has: it is computed again from the
  // turns, and the next run is one that never shifted.
  session.tokens.assign(held_.begin(), held_.begin() + sequence_.exact_length());
  session.turns = turns();
  session.first_turn = narrow<uint32_t>(first_);
  session.n_again = n_again_;
  return session;
}

// A context that is smaller than the session's takes what it holds: the next prompt is compared
// with it as with any other.
Status ChatSession::resume(const SavedSession& saved) {
  const Session& session = saved.session();
  const int32_t n_slots = std::min(saved.n_slots(), engine_.context_tokens());
  WEFT_ASSIGN_OR_RETURN(kv::OwnedSequence restored, saved.restore(engine_, n_slots));
  if (const Status set = set_turns(session.turns); !set.is_ok()) {
    return {set.code(), fmt::format("{}: {}", saved.path(), set.message())};
  }
  // A prompt begins with a user's turn, and has the last of them.
  const bool is_user_turn =
      session.first_turn < turns_.size() && turns_[session.first_turn].role == Role::kUser;
  if (session.first_turn != 0 && !is_user_turn) {
    const size_t n_turns = turns_.size();
    clear();
    return corrupt(fmt::format("{}: {} turns are dropped of {}, and the next is no user's",
                               saved.path(), session.first_turn, n_turns));
  }
  sequence_ = std::move(restored);
  held_.assign(session.tokens.begin(), session.tokens.begin() + n_slots);
  first_ = session.first_turn;
  n_again_ = session.n_again;
  only_grew_ = true;
  was_resumed_ = true;
  return Status::ok();
}

std::vector<text::Turn> ChatSession::turns() const {
  std::vector<text::Turn> all;
  if (system_) all.push_back({Role::kSystem, *system_});
  all.insert(all.end(), turns_.begin(), turns_.end());
  return all;
}

size_t ChatSession::last_user_turn() const {
  for (size_t i = turns_.size(); i > 0; --i) {
    if (turns_[i - 1].role == Role::kUser) return i - 1;
  }
  return turns_.size();
}

Result<std::vector<int32_t>> ChatSession::prompt_from(size_t first,
                                                      const ChatCallbacks& callbacks) const {
  std::vector<text::Turn> turns;
  if (system_) turns.push_back({Role::kSystem, *system_});
  turns.insert(turns.end(), turns_.begin() + first, turns_.end());
  return encode(turns, callbacks);
}

/// At most about Engine::counted_tokens(), and then not all of them.
Result<std::vector<int32_t>> ChatSession::encode(const std::vector<text::Turn>& turns,
                                                 const ChatCallbacks& callbacks) const {
  WEFT_ASSIGN_OR_RETURN(const std::vector<text::Segment> segments, template_.render(turns, true));
  const auto cancelled = [&] { return callbacks.cancelled && callbacks.cancelled(); };
  const FunctionRef<bool()> stop = cancelled;
  return text::encode_prompt(engine_.tokenizer(), segments, {engine_.counted_tokens(), &stop});
}

Result<ChatSession::FittingPrompt> ChatSession::fitting_prompt(
    const GenerationOptions& options, const ChatCallbacks& callbacks) const {
  const int64_t context = engine_.context_tokens();
  const int64_t room =
      std::min<int64_t>(room_for_answer(options, engine_.context_tokens()), context / 4);
  FittingPrompt out{{}, first_, 0};
  if (was_resumed_ && first_ > 0) {
    // A run with a larger context than the one that dropped turns has them again.
    WEFT_ASSIGN_OR_RETURN(out.tokens, prompt_from(0, callbacks));
    out.first = 0;
    if (std::ssize(out.tokens) + room <= context) return out;
    out.first = first_;
  }
  WEFT_ASSIGN_OR_RETURN(out.tokens, prompt_from(first_, callbacks));
  if (std::ssize(out.tokens) + room > context) {
    std::vector<size_t> starts;  // of the exchanges; the prompt may begin at any of them
    for (size_t i = first_; i < turns_.size(); ++i) {
      if (turns_[i].role == Role::kUser) starts.push_back(i);
    }
    // The fewest to drop, so that there is twice the room and the next turn need not drop again.
    size_t low = 0;
    size_t high = starts.size() - 1;
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      WEFT_ASSIGN_OR_RETURN(out.tokens, prompt_from(starts[middle], callbacks));
      if (std::ssize(out.tokens) + 2 * room > context) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    WEFT_ASSIGN_OR_RETURN(out.tokens, prompt_from(starts[low], callbacks));
    if (std::ssize(out.tokens) >= context) {
      return prompt_too_long(engine_, options, "this turn alone", std::ssize(out.tokens));
    }
    out.first = starts[low];
    out.n_dropped = narrow<int32_t>(low);
  }
  if (out.tokens.empty()) return unsupported("the chat template makes an empty prompt of this");
  return out;
}

/// Which first tokens stay, where nobody said it: the system turn, found as what the prompts of two
/// different questions have in common. BOS is beside those that were asked for.
Result<ContextShift> ChatSession::with_kept(const ContextShift& shift,
                                            const ChatCallbacks& callbacks) const {
  ContextShift kept = shift;
  if (shift.policy != ShiftPolicy::kHalf) return kept;
  std::vector<std::vector<int32_t>> prompts;
  for (const char* text : {"1", "a"}) {
    std::vector<text::Turn> turns;
    if (system_) turns.push_back({Role::kSystem, *system_});
    turns.push_back({Role::kUser, text});
    WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> prompt, encode(turns, callbacks));
    prompts.push_back(std::move(prompt));
  }
  const auto differs = std::ranges::mismatch(prompts[0], prompts[1]).in1 - prompts[0].begin();
  const bool has_bos = differs > 0 && prompts[0][0] == engine_.tokenizer().bos();
  kept.keep_tokens = shift.keep_tokens == kUsualKept
                         ? std::max(narrow<int32_t>(differs), kSinkTokens)
                         : shift.keep_tokens + (has_bos ? 1 : 0);
  return kept;
}

/// What dropped turns leave in the middle goes, and what comes after it is moved instead of
/// computed again.
Status ChatSession::close_gap(std::span<const int32_t> prompt) {
  const auto gap = dropped_between(held_, prompt, engine_.kv_usage().page_tokens);
  if (!gap) return Status::ok();
  WEFT_RETURN_IF_ERROR(engine_.remove_tokens(sequence_, gap->begin, gap->end));
  held_.erase(held_.begin() + gap->begin, held_.begin() + gap->end);
  shifted_tokens_ += gap->size();
  return Status::ok();
}

/// The logits of the prompt's last row. At least that row is run.
Result<std::vector<float>> ChatSession::prefill(const std::vector<int32_t>& prompt, bool may_shift,
                                                const ChatCallbacks& callbacks,
                                                ChatAnswer& answer) {
  const int64_t begin_ns = engine_.env().monotonic_ns();
  // Of a conversation that was cleared or taken back a text that comes again must not be found: its
  // K and V have seen what is gone.
  if (may_shift && only_grew_) WEFT_RETURN_IF_ERROR(close_gap(prompt));
  const auto differs = std::ranges::mismatch(held_, std::span(prompt).first(prompt.size() - 1));
  auto n_same = narrow<int32_t>(differs.in1 - held_.begin());
  // What more groups have turned since would be turned back and rounded again, and each /regen
  // would answer from other keys than the one before.
  const kv::SelfExtend& extend = engine_.self_extend();
  if (n_same < std::ssize(held_) &&
      extend.grouped(n_same) != extend.grouped(narrow<int32_t>(held_.size()) - 1)) {
    n_same = std::min(n_same, sequence_.exact_length());
  }
  held_.resize(n_same);
  // Where a window rolled past what these would see, the conversation is computed from its start.
  held_.resize(sequence_.longest_cut(narrow<int32_t>(held_.size())));
  answer.prompt_tokens = narrow<int32_t>(prompt.size());
  answer.reused_tokens = narrow<int32_t>(held_.size());
  WEFT_RETURN_IF_ERROR(sequence_.truncate(answer.reused_tokens));
  only_grew_ = true;

  const auto cancelled = [&] { return callbacks.cancelled && callbacks.cancelled(); };
  const FunctionRef<bool()> stop = cancelled;
  std::vector<float> logits;
  while (held_.size() < prompt.size()) {
    const auto rows = std::span(prompt).subspan(
        held_.size(), std::min(kPrefillRows, prompt.size() - held_.size()));
    WEFT_ASSIGN_OR_RETURN(logits, engine_.append(sequence_, rows, {.cancelled = &stop}));
    held_.insert(held_.end(), rows.begin(), rows.end());
  }
  answer.prefill_ms = engine_.env().ms_since(begin_ns);
  return logits;
}

/// Answers the conversation's last turn, a user's.
Result<ChatAnswer> ChatSession::answer(const GenerationOptions& options,
                                       const ChatCallbacks& callbacks) {
  const size_t first = first_;
  auto answered = or_out_of_memory("answering", "take a smaller context (-c), or begin anew",
                                   [&] { return run_answer(options, callbacks); });
  if (answered.is_ok()) {
    was_resumed_ = false;
  } else {  // its turn is taken back
    first_ = first;
    only_grew_ = false;
  }
  return answered;
}

Result<ChatAnswer> ChatSession::run_answer(const GenerationOptions& options,
                                           const ChatCallbacks& callbacks) {
  WEFT_RETURN_IF_ERROR(check_options(options));
  ChatAnswer answer;
  // One time for all that is rendered for this answer, so that it is the same prompt.
  template_ = template_.at(engine_.local_time());
  const auto run = [&]() -> Result<Generation> {
    WEFT_ASSIGN_OR_RETURN(const FittingPrompt prompt, fitting_prompt(options, callbacks));
    WEFT_ASSIGN_OR_RETURN(std::vector<float> logits,
                          prefill(prompt.tokens, options.shift.is_on(), callbacks, answer));
    first_ = prompt.first;
    if (prompt.n_dropped > 0 && callbacks.on_dropped) callbacks.on_dropped(prompt.n_dropped);
    const auto on_text = [&](std::string_view piece) {
      return !callbacks.on_text || callbacks.on_text(piece);
    };
    GenerationOptions keeping = options;
    WEFT_ASSIGN_OR_RETURN(keeping.shift, with_kept(options.shift, callbacks));
    return generate(engine_, sequence_, std::move(logits), keeping, on_text, prompt.tokens,
                    {.held = &held_});
  };
  auto generated = run();
  if (generated.is_ok() && generated->stop_reason == StopReason::kCancelled &&
      generated->text.empty()) {
    generated = cancelled("stopped");
  }
  if (!generated.is_ok()) return generated.status();
  shifted_tokens_ += generated->dropped_tokens;
  answer.text = std::move(generated->text);
  answer.stop_reason = generated->stop_reason;
  answer.answer_tokens = narrow<int32_t>(generated->tokens.size());
  answer.decode_ms = generated->decode_ms;
  answer.drafts = generated->drafts;
  turns_.push_back({Role::kAssistant, answer.text});
  return answer;
}

}  // namespace weft::engine
