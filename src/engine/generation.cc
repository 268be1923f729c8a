#include "engine/generation.h"

#include <fmt/format.h>

#include "base/out_of_memory.h"
#include "text/detokenizer.h"

namespace weft::engine {

const char* stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kEnd:
      return "end";
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

/// Where in `piece` the first line that holds text ends, `before` standing in front of it.
size_t end_of_line(const std::string& before, const std::string& piece) {
  constexpr const char* kSpace = " \t\r\n";
  const bool has_text = before.find_first_not_of(kSpace) != std::string::npos;
  return piece.find('\n', has_text ? 0 : piece.find_first_not_of(kSpace));
}

Result<Generation> decode(Engine& engine, kv::SequenceId sequence, std::vector<float> logits,
                          const GenerationOptions& options, sampling::Sampler sampler,
                          FunctionRef<bool(std::string_view)> on_text) {
  text::StreamingDetokenizer detokenizer(engine.tokenizer());
  Generation out;
  out.stop_reason = StopReason::kMaxTokens;
  const int64_t begin_ns = engine.env().monotonic_ns();
  const auto emit = [&](const std::string& piece) {
    out.text += piece;
    return on_text(piece);
  };
  while (static_cast<int32_t>(out.tokens.size()) < options.max_tokens) {
    const int32_t id = sampler.sample(logits);
    if (engine.tokenizer().is_end_of_generation(id)) {
      out.stop_reason = StopReason::kEnd;
      break;
    }
    const std::string piece = detokenizer.push(id);
    const size_t line_end = options.one_line ? end_of_line(out.text, piece) : std::string::npos;
    if (line_end != std::string::npos) {
      emit(piece.substr(0, line_end));
      out.stop_reason = StopReason::kEnd;
      break;
    }
    out.tokens.push_back(describe(id, logits, options.n_logprobs));
    if (!emit(piece)) {
      out.stop_reason = StopReason::kCancelled;
      break;
    }
    if (static_cast<int32_t>(out.tokens.size()) == options.max_tokens) break;
    if (engine.cache().length(sequence) >= engine.context_tokens()) {
      out.stop_reason = StopReason::kContextFull;
      break;
    }
    const int32_t next[] = {id};
    WEFT_ASSIGN_OR_RETURN(logits, engine.append(sequence, next));
  }
  if (const std::string rest = detokenizer.finish(); !rest.empty()) emit(rest);
  out.decode_ms = static_cast<double>(engine.env().monotonic_ns() - begin_ns) * 1e-6;
  return out;
}

}  // namespace

Result<Generation> generate(Engine& engine, kv::SequenceId sequence, std::vector<float> logits,
                            const GenerationOptions& options,
                            FunctionRef<bool(std::string_view)> on_text) {
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
    return decode(engine, sequence, std::move(logits), options, std::move(sampler), on_text);
  });
}

}  // namespace weft::engine
