#include "engine/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/out_of_memory.h"
#include "engine/stop_texts.h"
#include "text/detokenizer.h"

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

GeneratedToken describe(int32_t id, std::span<const float> logits, int32_t n_logprobs) {
  if (n_logprobs == 0) return {id, 0, {}};
  return {id, sampling::token_logprob(logits, id), sampling::top_logprobs(logits, n_logprobs)};
}

/// What of the text is shown: up to the end of the first line that holds text, if one is all that
/// is wanted, and up to the first stop text.
class ShownText {
 public:
  explicit ShownText(const GenerationOptions& options)
      : one_line_(options.one_line), stops_(options.stops) {}

  struct Shown {
    std::string text;
    std::optional<StopReason> ended;
  };
  Shown push(std::string_view piece) {
    const size_t line_end = one_line_ ? end_of_line(piece) : std::string_view::npos;
    StopTexts::Certain certain = stops_.push(piece.substr(0, line_end));
    if (certain.stopped) return {std::move(certain.text), StopReason::kStopText};
    if (line_end == std::string_view::npos) return {std::move(certain.text), std::nullopt};
    return {certain.text + stops_.finish(), StopReason::kEnd};
  }
  std::string finish() { return stops_.finish(); }

 private:
  size_t end_of_line(std::string_view piece) {
    size_t from = 0;
    if (!has_text_) {
      from = piece.find_first_not_of(" \t\r\n");
      has_text_ = from != std::string_view::npos;
    }
    return piece.find('\n', from);
  }

  bool one_line_;
  bool has_text_ = false;
  StopTexts stops_;
};

std::vector<int32_t> end_tokens(const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_end_of_generation(id)) ids.push_back(id);
  }
  return ids;
}

/// The next token, with `never` impossible.
int32_t sample_without(std::span<const int32_t> never, sampling::Sampler& sampler,
                       std::vector<float>& logits) {
  std::vector<float> kept;
  kept.reserve(never.size());
  for (const int32_t id : never) {
    kept.push_back(
        std::exchange(logits[static_cast<size_t>(id)], -std::numeric_limits<float>::infinity()));
  }
  const int32_t sampled = sampler.sample(logits);
  for (size_t i = 0; i < never.size(); ++i) logits[static_cast<size_t>(never[i])] = kept[i];
  return sampled;
}

Result<Generation> decode(Engine& engine, kv::SequenceId sequence, std::vector<float> logits,
                          const GenerationOptions& options, sampling::Sampler sampler,
                          FunctionRef<bool(std::string_view)> on_text) {
  const text::Tokenizer& tokenizer = engine.tokenizer();
  text::StreamingDetokenizer detokenizer(tokenizer);
  ShownText shown(options);
  std::vector<int32_t> never;
  if (options.ignore_end) never = end_tokens(tokenizer);
  std::erase_if(never, [&](int32_t id) { return std::cmp_greater_equal(id, logits.size()); });
  Generation out;
  const int64_t begin_ns = engine.env().monotonic_ns();
  const auto emit = [&](const std::string& piece) {
    out.text += piece;
    return on_text(piece);
  };
  const auto at_limit = [&] {
    return options.max_tokens != kNoTokenLimit &&
           std::cmp_greater_equal(out.tokens.size(), options.max_tokens);
  };
  bool cut = false;  // what follows what was shown is no part of the answer
  std::optional<StopReason> ended;
  if (at_limit()) ended = StopReason::kMaxTokens;
  while (!ended) {
    const int32_t id = sample_without(never, sampler, logits);
    if (!options.ignore_end && tokenizer.is_end_of_generation(id)) {
      ended = StopReason::kEnd;
      break;
    }
    ShownText::Shown piece = shown.push(detokenizer.push(id));
    ended = piece.ended;
    if (ended) {
      emit(piece.text);
      cut = true;
      break;
    }
    out.tokens.push_back(describe(id, logits, options.n_logprobs));
    if (!emit(piece.text)) {
      ended = StopReason::kCancelled;
    } else if (at_limit()) {
      ended = StopReason::kMaxTokens;
    } else if (engine.cache().length(sequence) >= engine.context_tokens()) {
      ended = StopReason::kContextFull;
    } else {
      const int32_t next[] = {id};
      WEFT_ASSIGN_OR_RETURN(logits,
                            engine.append(sequence, next, {.kind = model::RowKind::kDecode}));
    }
  }
  if (!cut) {
    ShownText::Shown rest = shown.push(detokenizer.finish());
    if (rest.ended == StopReason::kStopText) ended = rest.ended;
    if (!rest.ended) rest.text += shown.finish();
    if (!rest.text.empty()) emit(rest.text);
  }
  out.stop_reason = *ended;
  out.decode_ms = static_cast<double>(engine.env().monotonic_ns() - begin_ns) * 1e-6;
  return out;
}

}  // namespace

Status check_options(const GenerationOptions& options) {
  WEFT_RETURN_IF_ERROR(sampling::check_options(options.sampling));
  if (options.max_tokens < kNoTokenLimit) {
    return invalid_argument(
        fmt::format("tokens {}: must be -1 (no limit) or more", options.max_tokens));
  }
  return check_stop_texts(options.stops);
}

int32_t room_for_answer(const GenerationOptions& options, int32_t context_tokens) {
  return options.max_tokens == kNoTokenLimit ? context_tokens / 4 : options.max_tokens;
}

Result<Generation> generate(Engine& engine, kv::SequenceId sequence, std::vector<float> logits,
                            const GenerationOptions& options,
                            FunctionRef<bool(std::string_view)> on_text,
                            std::span<const int32_t> prompt) {
  WEFT_RETURN_IF_ERROR(check_options(options));
  WEFT_ASSIGN_OR_RETURN(sampling::Sampler sampler, sampling::Sampler::create(options.sampling));
  if (!engine.cache().contains(sequence)) {
    return invalid_argument(
        fmt::format("there is no sequence {} in the cache", static_cast<int64_t>(sequence)));
  }
  const auto n_vocab = static_cast<size_t>(engine.model().config().vocab_size);
  if (logits.size() != n_vocab) {
    return invalid_argument(fmt::format("{} logits to begin with: the model's last row has {}",
                                        logits.size(), n_vocab));
  }
  return or_out_of_memory("generating", "take a smaller context (-c)", [&] {
    sampler.add_prompt(prompt);
    return decode(engine, sequence, std::move(logits), options, std::move(sampler), on_text);
  });
}

}  // namespace weft::engine
