// The loop that makes text: sample, show what is certain, run the token as a decode row, again. A
// token that ends the text is not run: nothing follows it here.
#include "engine/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "base/narrow.h"
#include "base/out_of_memory.h"
#include "engine/speculation.h"

namespace weft::engine {

const char* stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kEnd:
      return "end";
    case StopReason::kStopText:
      return "stop";
    case StopReason::kMaxTokens:
      return "length";
    case StopReason::kContextFull:
      return "context";
    case StopReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

namespace {

/// With what --logprobs wants of it; without that no distribution is computed.
GeneratedToken describe(int32_t id, std::span<const float> logits, int32_t n_logprobs) {
  if (n_logprobs == 0) return {id, 0, {}};
  return {id, sampling::token_logprob(logits, id), sampling::top_logprobs(logits, n_logprobs)};
}

/// All ids that end a generation in this vocabulary: models have several (end of turn, end of
/// text).
std::vector<int32_t> end_tokens(const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_end_of_generation(id)) ids.push_back(id);
  }
  return ids;
}

/// The next token, with `never` impossible.
int32_t sample_without(std::span<const int32_t> never, sampling::Sampler& sampler,
                       std::span<float> logits) {
  std::vector<float> kept;
  kept.reserve(never.size());
  for (const int32_t id : never) {
    kept.push_back(std::exchange(logits[id], -std::numeric_limits<float>::infinity()));
  }
  const int32_t sampled = sampler.sample(logits);
  for (size_t i = 0; i < never.size(); ++i) logits[never[i]] = kept[i];
  return sampled;
}

constexpr auto kNoText = [](std::string_view) { return true; };

Status check_continued(const Engine& engine, std::span<const float> logits) {
  const int64_t n_vocab = engine.model().config().vocab_size;
  if (std::ssize(logits) == n_vocab) return Status::ok();
  return invalid_argument(
      fmt::format("{} logits to begin with: the model's last row has {}", logits.size(), n_vocab));
}

/// Until every text has ended: a row for each that goes on, in the same steps.
Status run_steps(Engine& engine, std::span<Continued> continued,
                 std::span<const std::unique_ptr<TextGeneration>> texts,
                 FunctionRef<bool()> goes_on) {
  const int64_t n_vocab = engine.model().config().vocab_size;
  std::vector<size_t> growing(continued.size());
  std::iota(growing.begin(), growing.end(), size_t{0});
  for (;;) {
    if (!goes_on()) return Status::ok();
    std::vector<size_t> still;
    std::vector<int32_t> tokens;
    for (const size_t i : growing) {
      Continued& one = continued[i];
      WEFT_RETURN_IF_ERROR(check_logits(one.logits));
      const bool has_room = one.sequence->length() < engine.context_tokens();
      const auto id = texts[i]->next(one.logits, has_room, kNoText);
      if (!id) continue;
      tokens.push_back(*id);
      still.push_back(i);
    }
    if (still.empty()) return Status::ok();
    std::vector<Appended> rows;
    for (size_t k = 0; k < still.size(); ++k) {
      rows.push_back({continued[still[k]].sequence, std::span(tokens).subspan(k, 1)});
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<float> logits,
                          engine.append_all(rows, {.kind = model::RowKind::kDecode}));
    auto row = logits.begin();
    for (const size_t i : still) {
      continued[i].logits.assign(row, row + n_vocab);
      row += n_vocab;
    }
    growing = std::move(still);
  }
}

}  // namespace

Status check_options(const GenerationOptions& options) {
  WEFT_RETURN_IF_ERROR(sampling::check_options(options.sampling));
  if (options.max_tokens < kNoTokenLimit) {
    return invalid_argument(
        fmt::format("tokens {}: must be -1 (no limit) or more", options.max_tokens));
  }
  if (options.shift.keep_tokens < kUsualKept) {
    return invalid_argument(
        fmt::format("keep {}: must be 0 or more tokens", options.shift.keep_tokens));
  }
  return check_stop_texts(options.stops);
}

Status check_logits(std::span<const float> logits) {
  if (std::ranges::any_of(logits, [](float x) { return std::isfinite(x); })) return Status::ok();
  return corrupt(
      "the model's scores are no numbers: its file, or the stored KV that was reused, is damaged "
      "(weft cache verify tells of records)");
}

int32_t room_for_answer(const GenerationOptions& options, int32_t context_tokens) {
  return options.max_tokens == kNoTokenLimit ? context_tokens / 4 : options.max_tokens;
}

int64_t context_for(const GenerationOptions& options, int64_t prompt_tokens) {
  const bool is_limited = options.max_tokens != kNoTokenLimit;
  return is_limited ? prompt_tokens + options.max_tokens : (4 * prompt_tokens + 2) / 3;
}

Status prompt_too_long(const Engine& engine, const GenerationOptions& options,
                       std::string_view what, int64_t prompt_tokens) {
  const int32_t most = engine.longest_context();
  // An answer may end at the end of the context, the prompt may not.
  const int64_t wanted = std::min<int64_t>(context_for(options, prompt_tokens), most);
  const std::string flags = engine.flags_to_hold(std::max(wanted, prompt_tokens));
  const std::string way =
      prompt_tokens > most || flags.empty() ? fmt::format("the model holds {} at most", most)
      : prompt_tokens > engine.counted_tokens()
          ? fmt::format("or give it a context (-c) of more than {}", engine.counted_tokens())
          : fmt::format("or give {}, which holds it and its answer", flags);
  return resource_exhausted(
      fmt::format("{} ({}) does not fit the context of {} tokens: shorten it, {}", what,
                  engine.tokens_text(prompt_tokens), engine.context_tokens(), way));
}

ShownText::ShownText(const GenerationOptions& options)
    : one_line_(options.one_line), stops_(options.stops) {}

ShownText::Shown ShownText::push(std::string_view piece) {
  const size_t line_end = one_line_ ? end_of_line(piece) : std::string_view::npos;
  StopTexts::Certain certain = stops_.push(piece.substr(0, line_end));
  if (certain.stopped) return {std::move(certain.text), StopReason::kStopText};
  if (line_end == std::string_view::npos) return {std::move(certain.text), std::nullopt};
  return {certain.text + stops_.finish(), StopReason::kEnd};
}

size_t ShownText::end_of_line(std::string_view piece) {
  size_t from = 0;
  if (!has_text_) {
    from = piece.find_first_not_of(" \t\r\n");
    has_text_ = from != std::string_view::npos;
  }
  return piece.find('\n', from);
}

TextGeneration::TextGeneration(const text::Tokenizer& tokenizer, GenerationOptions options,
                               sampling::Sampler sampler)
    : tokenizer_(tokenizer),
      options_(std::move(options)),
      sampler_(std::move(sampler)),
      detokenizer_(tokenizer),
      shown_(options_) {
  out_.n_draws = sampler_.n_draws();
  if (options_.ignore_end) never_ = end_tokens(tokenizer);
  if (is_at_limit()) ended_ = StopReason::kMaxTokens;
}

Result<std::unique_ptr<TextGeneration>> TextGeneration::create(const text::Tokenizer& tokenizer,
                                                               const GenerationOptions& options,
                                                               std::span<const int32_t> prompt,
                                                               const AnswerSoFar& so_far) {
  WEFT_RETURN_IF_ERROR(check_options(options));
  WEFT_ASSIGN_OR_RETURN(sampling::Sampler sampler, sampling::Sampler::create(options.sampling));
  sampler.add_prompt(prompt);
  sampler.resume(so_far.tokens, so_far.n_draws);
  return std::make_unique<TextGeneration>(tokenizer, options, std::move(sampler));
}

bool TextGeneration::is_at_limit() const {
  return options_.max_tokens != kNoTokenLimit &&
         std::cmp_greater_equal(out_.tokens.size(), options_.max_tokens);
}

Result<std::optional<int32_t>> TextGeneration::next_of(std::span<const int32_t> rows,
                                                       std::span<float> logits,
                                                       FunctionRef<bool(int64_t n_kept)> has_room,
                                                       FunctionRef<bool(std::string_view)> on_text,
                                                       int32_t& n_kept) {
  const int64_t n_vocab = std::ssize(logits) / std::ssize(rows);
  std::optional<int32_t> token;
  for (n_kept = 0; n_kept < std::ssize(rows);) {
    const std::span<float> row = logits.subspan(n_kept * n_vocab, n_vocab);
    WEFT_RETURN_IF_ERROR(check_logits(row));
    token = next(row, has_room(++n_kept), on_text);
    if (!token || n_kept == std::ssize(rows) || rows[n_kept] != *token) break;
  }
  return token;
}

int64_t TextGeneration::tokens_left() const {
  return options_.max_tokens == kNoTokenLimit ? INT32_MAX
                                              : options_.max_tokens - std::ssize(out_.tokens);
}

std::optional<int32_t> TextGeneration::next(std::span<float> logits, bool has_room,
                                            FunctionRef<bool(std::string_view)> on_text) {
  if (ended_) return std::nullopt;
  const int32_t id = sample_without(never_, sampler_, logits);
  if (!options_.ignore_end && tokenizer_.is_end_of_generation(id)) {
    ended_ = StopReason::kEnd;
    return std::nullopt;
  }
  const ShownText::Shown piece = shown_.push(detokenizer_.push(id));
  ended_ = piece.ended;
  is_cut_ = ended_.has_value();
  if (!is_cut_) {
    out_.tokens.push_back(describe(id, logits, options_.n_logprobs));
    // Not of a token that ended the answer: who goes on from here draws that one again.
    out_.n_draws = sampler_.n_draws();
  }
  out_.text += piece.text;
  const bool goes_on = on_text(piece.text);
  if (is_cut_) return std::nullopt;
  if (!goes_on) {
    ended_ = StopReason::kCancelled;
  } else if (is_at_limit()) {
    ended_ = StopReason::kMaxTokens;
  } else if (!has_room) {
    ended_ = StopReason::kContextFull;
  }
  return ended_ ? std::nullopt : std::optional(id);
}

Generation TextGeneration::finish(FunctionRef<bool(std::string_view)> on_text) {
  if (!ended_) ended_ = StopReason::kCancelled;
  if (!is_cut_) {
    ShownText::Shown rest = shown_.push(detokenizer_.finish());
    if (rest.ended == StopReason::kStopText) ended_ = rest.ended;
    if (!rest.ended) rest.text += shown_.finish();
    out_.text += rest.text;
    if (!rest.text.empty()) on_text(rest.text);
  }
  out_.stop_reason = *ended_;
  return std::move(out_);
}

namespace {

/// The text's tokens that the drafter may quote.
std::vector<int32_t> joined(std::span<const int32_t> prompt, std::span<const int32_t> answer) {
  std::vector<int32_t> tokens(prompt.begin(), prompt.end());
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  return tokens;
}

/// What the sequence and the answer have room for after the newest token.
DraftRoom draft_room(const Engine& engine, const kv::OwnedSequence& sequence, bool shifts,
                     int64_t n_wanted) {
  const int64_t n_free = engine.context_tokens() - sequence.length();
  return {.tokens = std::min(engine.tried_rows(sequence), n_wanted) - 1,
          .answer_tokens = shifts ? n_wanted : std::min(n_wanted, n_free)};
}

}  // namespace

Result<Generation> generate(Engine& engine, const kv::OwnedSequence& sequence,
                            std::vector<float> logits, const GenerationOptions& options,
                            FunctionRef<bool(std::string_view)> on_text,
                            std::span<const int32_t> prompt, const AnswerSoFar& so_far) {
  WEFT_RETURN_IF_ERROR(check_options(options));
  WEFT_RETURN_IF_ERROR(check_continued(engine, logits));
  return or_out_of_memory("generating", "take a smaller context (-c)", [&]() -> Result<Generation> {
    WEFT_ASSIGN_OR_RETURN(const auto text,
                          TextGeneration::create(engine.tokenizer(), options, prompt, so_far));
    Speculation speculation(engine, joined(prompt, so_far.tokens));
    const int64_t begin_ns = engine.env().monotonic_ns();
    int32_t dropped_tokens = 0;
    const auto has_room = [&](int64_t n_rows) {
      return options.shift.is_on() || sequence.length() + n_rows < engine.context_tokens();
    };
    const auto is_stopped = [&] { return !on_text(""); };
    const FunctionRef<bool()> cancelled(is_stopped);
    WEFT_RETURN_IF_ERROR(check_logits(logits));
    std::optional<int32_t> next = text->next(logits, has_room(0), on_text);
    while (next) {
      WEFT_ASSIGN_OR_RETURN(const int32_t n_dropped,
                            make_room(engine, sequence, options.shift, so_far.held));
      dropped_tokens += n_dropped;
      const DraftRoom room =
          draft_room(engine, sequence, options.shift.is_on(), text->tokens_left());
      auto drafted = speculation.rows_after(sequence, *next, room, &cancelled);
      if (drafted.status().code() == StatusCode::kCancelled) break;
      WEFT_ASSIGN_OR_RETURN(const std::vector<int32_t> rows, std::move(drafted));
      const int64_t step_ns = engine.env().monotonic_ns();
      const Appended appended[] = {{&sequence, rows}};
      WEFT_ASSIGN_OR_RETURN(TriedRows tried, engine.try_rows(appended));
      speculation.add_step(std::ssize(rows), engine.env().ms_since(step_ns));
      int32_t n_kept = 0;
      WEFT_ASSIGN_OR_RETURN(next, text->next_of(rows, tried.logits, has_room, on_text, n_kept));
      speculation.accept(n_kept - 1);
      engine.accept(std::move(tried), {&n_kept, 1});
      if (so_far.held != nullptr) {
        so_far.held->insert(so_far.held->end(), rows.begin(), rows.begin() + n_kept);
      }
    }
    Generation out = text->finish(on_text);
    out.dropped_tokens = dropped_tokens;
    out.drafts = speculation.counters();
    out.decode_ms = engine.env().ms_since(begin_ns);
    return out;
  });
}

Result<std::vector<Generation>> generate_together(Engine& engine, std::vector<Continued> continued,
                                                  const GenerationOptions& options,
                                                  FunctionRef<bool()> goes_on) {
  WEFT_RETURN_IF_ERROR(check_options(options));
  for (const Continued& one : continued) {
    WEFT_RETURN_IF_ERROR(check_continued(engine, one.logits));
  }
  return or_out_of_memory(
      "generating", "take a smaller context (-c)", [&]() -> Result<std::vector<Generation>> {
        std::vector<std::unique_ptr<TextGeneration>> texts;
        for (const Continued& one : continued) {
          WEFT_ASSIGN_OR_RETURN(auto text,
                                TextGeneration::create(engine.tokenizer(), options, one.prompt));
          texts.push_back(std::move(text));
        }
        const int64_t begin_ns = engine.env().monotonic_ns();
        WEFT_RETURN_IF_ERROR(run_steps(engine, continued, texts, goes_on));
        std::vector<Generation> out;
        for (const auto& text : texts) {
          out.push_back(text->finish(kNoText));
          out.back().decode_ms = engine.env().ms_since(begin_ns);
        }
        return out;
      });
}

}  // namespace weft::engine
