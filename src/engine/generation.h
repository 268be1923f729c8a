// The decode loop: samples a token, hands its text out, runs it, until the model ends its turn, a
// stop text comes, or a limit is reached.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "engine/context_shift.h"
#include "engine/engine.h"
#include "engine/stop_texts.h"
#include "sampling/logprobs.h"
#include "sampling/sampler.h"
#include "text/detokenizer.h"

namespace weft::engine {

inline constexpr int32_t kNoTokenLimit = -1;

struct GenerationOptions {
  sampling::SamplingOptions sampling;
  int32_t max_tokens = 128;        // kNoTokenLimit: until the turn ends or the context is full
  bool ignore_end = false;         // tokens that end a turn are never sampled
  std::vector<std::string> stops;  // texts that end the answer and are not part of it
  int32_t n_logprobs = 0;          // most likely tokens to report for each position
  bool one_line = false;           // end at the first line break after some text
  ContextShift shift;              // where the context is full; only generate() looks at it
};

/// kInvalidArgument names the field, as the command line has it, and its range.
Status check_options(const GenerationOptions& options);

/// kCorrupt where none is finite: nothing can be sampled then.
Status check_logits(std::span<const float> logits);

/// Tokens that a prompt should leave free in a context of that many: as many as may be generated,
/// but for what has no limit a quarter of the context.
int32_t room_for_answer(const GenerationOptions& options, int32_t context_tokens);

/// The least context in which a prompt of so many tokens leaves that room.
int64_t context_for(const GenerationOptions& options, int64_t prompt_tokens);

/// kResourceExhausted: the prompt does not fit the context, with the flags that would hold it and
/// its answer. `what`: as "the prompt". `prompt_tokens` were counted to Engine::counted_tokens().
Status prompt_too_long(const Engine& engine, const GenerationOptions& options,
                       std::string_view what, int64_t prompt_tokens);

enum class StopReason { kEnd, kStopText, kMaxTokens, kContextFull, kCancelled };
/// "end", "stop", "length", "context", "cancelled".
const char* stop_reason_name(StopReason reason);

struct GeneratedToken {
  int32_t id = 0;
  float logprob = 0;  // of the sampled token, before any sampler; only when n_logprobs > 0
  std::vector<sampling::TokenLogprob> top;
};

/// An answer's beginning, which an earlier run made.
struct AnswerSoFar {
  std::span<const int32_t> tokens;  // the sequence has them after its prompt
  uint64_t n_draws = 0;             // Generation::n_draws
  /// May be null: the ids that the sequence holds, kept in step with it, also where an error ends
  /// the text.
  std::vector<int32_t>* held = nullptr;
};

struct Generation {
  std::vector<GeneratedToken> tokens;  // without the one that ended the turn or the stop text
  std::string text;                    // may hold invalid UTF-8: what the tokens' bytes are
  StopReason stop_reason = StopReason::kEnd;
  int32_t dropped_tokens = 0;  // that options.shift took out of the sequence
  uint64_t n_draws = 0;        // the sampler's, for all tokens of the answer
  double decode_ms = 0;
  spec::DraftCounters drafts;  // of it; verify_ms of generate() alone, as a batch shares its steps
};

/// What of a text is shown: up to the end of the first line that holds text, if one is all that is
/// wanted, and up to the first stop text.
class ShownText {
 public:
  explicit ShownText(const GenerationOptions& options);

  struct Shown {
    std::string text;
    std::optional<StopReason> ended;
  };
  Shown push(std::string_view piece);
  std::string finish() { return stops_.finish(); }

 private:
  size_t end_of_line(std::string_view piece);

  bool one_line_;
  bool has_text_ = false;
  StopTexts stops_;
};

/// One answer as it grows: samples from a sequence's logits, hands its text out, says when it ends.
/// It runs no model, so that many may grow in the same steps. Not thread-safe.
class TextGeneration {
 public:
  /// `tokenizer` must outlive it; `prompt` as generate() has it. kInvalidArgument for options.
  static Result<std::unique_ptr<TextGeneration>> create(const text::Tokenizer& tokenizer,
                                                        const GenerationOptions& options,
                                                        std::span<const int32_t> prompt,
                                                        const AnswerSoFar& so_far = {});
  TextGeneration(const text::Tokenizer& tokenizer, GenerationOptions options,
                 sampling::Sampler sampler);

  /// Takes the logits of the last row; returns the token to run next, or nullopt: it has ended.
  /// `has_room`: the sequence can take one more. `on_text` as generate() has it.
  std::optional<int32_t> next(std::span<float> logits, bool has_room,
                              FunctionRef<bool(std::string_view)> on_text);
  /// The same where rows were run for `rows`, the newest token and a draft after it: logits
  /// [rows.size()][n_vocab]. It samples as long as what it samples is what the next row was run
  /// for, so that the answer is that of next() alone. n_kept: rows whose tokens are part of the
  /// text. has_room is asked with the rows kept so far. kCorrupt: check_logits.
  Result<std::optional<int32_t>> next_of(std::span<const int32_t> rows, std::span<float> logits,
                                         FunctionRef<bool(int64_t n_kept)> has_room,
                                         FunctionRef<bool(std::string_view)> on_text,
                                         int32_t& n_kept);
  /// Tokens that may come before max_tokens ends it.
  int64_t tokens_left() const;
  /// What came of it, once; one that has not ended is cancelled. Hands out what text is left.
  Generation finish(FunctionRef<bool(std::string_view)> on_text);

 private:
  bool is_at_limit() const;

  const text::Tokenizer& tokenizer_;
  const GenerationOptions options_;
  sampling::Sampler sampler_;
  text::StreamingDetokenizer detokenizer_;
  ShownText shown_;
  std::vector<int32_t> never_;  // ids that are not to be sampled
  Generation out_;
  bool is_cut_ = false;  // what follows what was shown is no part of the answer
  std::optional<StopReason> ended_;
};

/// Continues a prefilled sequence whose last row gave `logits`. `on_text` gets each piece of text
/// as it becomes certain, never a part of a UTF-8 character, and an empty one for a token that made
/// nothing certain and, between layers, while a draft model reads the text; returning false
/// cancels. What may be the beginning of a stop text is not certain. `prompt`: the tokens that the
/// sequence begins with, which the repeat penalty counts; those that are not given do not count.
/// `so_far`: the answer up to here, of which the rest is generated as the run that made it would
/// have gone on; max_tokens counts the rest alone, and no stop text begins before it.
/// kInvalidArgument for options or logits that are not the model's, kResourceExhausted when memory
/// runs out; the text so far was handed out then.
Result<Generation> generate(Engine& engine, const kv::OwnedSequence& sequence,
                            std::vector<float> logits, const GenerationOptions& options,
                            FunctionRef<bool(std::string_view)> on_text,
                            std::span<const int32_t> prompt = {}, const AnswerSoFar& so_far = {});

/// A prefilled sequence, and the logits of its last row.
struct Continued {
  const kv::OwnedSequence* sequence = nullptr;
  std::vector<float> logits;
  std::span<const int32_t> prompt = {};  // as generate() has it
};
/// Continues each of them as generate() does alone, all in the same steps; in their order, each
/// with the time that all took. `goes_on` is asked before each step: false ends those that have not
/// ended, with what they have and stop reason kCancelled. Errors as generate()'s: one ends all.
Result<std::vector<Generation>> generate_together(Engine& engine, std::vector<Continued> continued,
                                                  const GenerationOptions& options,
                                                  FunctionRef<bool()> goes_on);

}  // namespace weft::engine
