// The prompts of a group differ from their needle on, and needles come later and later in them. So
// one sequence grows over what they share, and each prompt goes on from a fork of it: ten depths
// then cost some 6 prompts' prefill and not 10. What a row gives depends on what its sequence holds
// alone (Engine::append), so a fork answers to the bit what the whole prompt by itself does.
#include "eval/passkey.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "base/log.h"
#include "engine/generation.h"

namespace weft::eval {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Whether the number or UUID goes on with `next`: its characters after an end of it, outwards.
bool goes_on(std::string_view value, char first, char second) {
  if (value.find('-') == std::string_view::npos) {
    return is_digit(first) || ((first == '.' || first == ',') && is_digit(second));
  }
  return is_digit(first) || first == '-' || (first >= 'a' && first <= 'z') ||
         (first >= 'A' && first <= 'Z');
}

class Run {
 public:
  Run(engine::Engine& engine, const PasskeyPrompts& prompts,
      FunctionRef<bool(int64_t, int64_t)> progress)
      : engine_(engine), prompts_(prompts), progress_(progress) {
    generation_.max_tokens = passkey_answer_tokens(prompts.options().n_needles);
  }

  Result<PasskeyResult> run() {
    WEFT_RETURN_IF_ERROR(check_fits());
    result_.n_asked = prompts_.options().n_trials;
    const Status done = run_trials();
    if (!done.is_ok() && (done.code() != StatusCode::kCancelled || result_.trials.empty())) {
      return done;
    }
    return std::move(result_);
  }

 private:
  Status run_trials() {
    for (int64_t g = 0; g < prompts_.n_groups(); ++g) {
      // In a cache that has no room for both there is no base, and each prompt is run by itself.
      const bool shares = holds_two();
      kv::OwnedSequence base = engine_.create_sequence();
      for (const PasskeyPrompt& prompt : prompts_.group(g)) {
        const std::span<const int32_t> tokens = prompt.tokens;
        const int32_t n_shared = shares ? prompt.needle_begin : 0;
        if (n_shared > base.length()) {
          const auto more = tokens.subspan(base.length(), n_shared - base.length());
          WEFT_RETURN_IF_ERROR(append(base, more).status());
        }
        WEFT_ASSIGN_OR_RETURN(const kv::OwnedSequence fork, base.fork());
        WEFT_RETURN_IF_ERROR(answer(fork, prompt));
        if (!goes_on()) return stopped();
      }
    }
    return Status::ok();
  }

  static Status stopped() { return cancelled("the evaluation was stopped"); }
  bool goes_on() { return progress_(std::ssize(result_.trials), prompts_.options().n_trials); }
  int64_t needed_tokens() const {
    return int64_t{prompts_.options().length_tokens} + generation_.max_tokens;
  }

  Status check_fits() const {
    if (needed_tokens() <= engine_.context_tokens()) return Status::ok();
    return resource_exhausted(fmt::format(
        "--length {}: with {} tokens for the answer it does not fit the context of {}; {}",
        prompts_.options().length_tokens, generation_.max_tokens, engine_.context_tokens(),
        engine_.way_to_hold(needed_tokens())));
  }

  /// Positions that change (Self-Extend) make the fork copy what it shared.
  bool holds_two() const {
    const kv::Usage usage = engine_.kv_usage();
    const int64_t pages = (needed_tokens() + usage.page_tokens - 1) / usage.page_tokens;
    const int64_t needed = engine_.self_extend().is_on() ? 2 * pages : pages + 1;
    return usage.free + usage.evictable >= needed;
  }

  Result<std::vector<float>> append(const kv::OwnedSequence& sequence,
                                    std::span<const int32_t> tokens) {
    const auto is_cancelled = [&] { return !goes_on(); };
    const FunctionRef<bool()> cancelled(is_cancelled);
    auto logits = engine_.append(sequence, tokens, {.cancelled = &cancelled});
    if (logits.status().code() == StatusCode::kCancelled) return stopped();
    return logits;
  }

  /// Where decode reads a part of the pages (--sparse) the question comes token by token, as what
  /// is generated does: prefill, which reads all of them, would have found the answer already.
  Result<std::vector<float>> read_prompt(const kv::OwnedSequence& sequence,
                                         const PasskeyPrompt& prompt) {
    const std::span<const int32_t> rest = std::span(prompt.tokens).subspan(sequence.length());
    if (engine_.selector() == nullptr) return append(sequence, rest);
    const int64_t n_text = prompt.question_begin - sequence.length();
    WEFT_ASSIGN_OR_RETURN(std::vector<float> logits, append(sequence, rest.first(n_text)));
    for (int64_t i = n_text; i < std::ssize(rest); ++i) {
      if (!goes_on()) return stopped();
      WEFT_ASSIGN_OR_RETURN(
          logits, engine_.append(sequence, rest.subspan(i, 1), {.kind = model::RowKind::kDecode}));
    }
    return logits;
  }

  Status answer(const kv::OwnedSequence& sequence, const PasskeyPrompt& prompt) {
    WEFT_ASSIGN_OR_RETURN(std::vector<float> logits, read_prompt(sequence, prompt));
    WEFT_ASSIGN_OR_RETURN(engine::Generation generation,
                          engine::generate(engine_, sequence, std::move(logits), generation_,
                                           [&](std::string_view) { return goes_on(); }));
    if (generation.stop_reason == engine::StopReason::kCancelled) return stopped();
    PasskeyTrial& trial = result_.trials.emplace_back();
    trial.depth = prompt.depth;
    trial.value = prompt.value;
    trial.is_correct = holds_value(generation.text, prompt.value);
    for (const engine::GeneratedToken& token : generation.tokens) {
      trial.answer_tokens.push_back(token.id);
    }
    trial.answer = std::move(generation.text);
    if (logs_info()) {
      log_info(fmt::format("depth {:.2f}: {}, the answer is \"{}\": {}", trial.depth, trial.value,
                           trial.answer, trial.is_correct ? "right" : "wrong"));
    }
    return Status::ok();
  }

  engine::Engine& engine_;
  const PasskeyPrompts& prompts_;
  FunctionRef<bool(int64_t, int64_t)> progress_;
  engine::GenerationOptions generation_;  // greedy
  PasskeyResult result_;
};

}  // namespace

bool holds_value(std::string_view answer, std::string_view value) {
  const auto at = [&](size_t i) { return i < answer.size() ? answer[i] : '\0'; };
  for (size_t begin = answer.find(value); begin != std::string_view::npos;
       begin = answer.find(value, begin + 1)) {
    const size_t end = begin + value.size();
    if (!goes_on(value, at(begin - 1), at(begin - 2)) && !goes_on(value, at(end), at(end + 1))) {
      return true;
    }
  }
  return false;
}

int64_t PasskeyResult::correct() const {
  return std::ranges::count_if(trials, &PasskeyTrial::is_correct);
}

std::vector<PasskeyAtDepth> PasskeyResult::by_depth() const {
  std::map<double, PasskeyAtDepth> depths;
  for (const PasskeyTrial& trial : trials) {
    PasskeyAtDepth& one = depths[trial.depth];
    one.depth = trial.depth;
    ++one.trials;
    one.correct += trial.is_correct ? 1 : 0;
  }
  std::vector<PasskeyAtDepth> out;
  for (const auto& [depth, one] : depths) out.push_back(one);
  return out;
}

Result<PasskeyResult> passkey(engine::Engine& engine, const PasskeyPrompts& prompts,
                              FunctionRef<bool(int64_t, int64_t)> progress) {
  return Run(engine, prompts, progress).run();
}

}  // namespace weft::eval
