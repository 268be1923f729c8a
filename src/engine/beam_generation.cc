// The loop of beam search: the model's scores, the search's choice, a row for each text that goes
// on. Sequences follow the choice: a beam that one text continues keeps its sequence, of which
// nothing is copied; one that several continue is forked, and the cache copies its last page for
// each as they write it.
#include "engine/beam_generation.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/byte_sizes.h"
#include "base/check.h"
#include "base/counts_text.h"
#include "base/narrow.h"
#include "base/out_of_memory.h"
#include "engine/beam_search.h"
#include "engine/stop_texts.h"
#include "text/detokenizer.h"

namespace weft::engine {
namespace {

Status check_options(const BeamOptions& options) {
  if (options.n_beams < 1 || options.n_beams > kMostBeams) {
    return invalid_argument(
        fmt::format("beams {}: must be from 1 to {}", options.n_beams, kMostBeams));
  }
  if (options.max_tokens < 1 && options.max_tokens != kNoTokenLimit) {
    return invalid_argument(
        fmt::format("tokens {}: must be -1 (no limit) or 1 or more", options.max_tokens));
  }
  return check_stop_texts(options.stops);
}

/// How many tokens an answer has at most, and what ends it there. Its last token is not run, so it
/// needs no place in the context.
struct Limit {
  int64_t tokens = 0;
  StopReason reason = StopReason::kMaxTokens;
};

Limit limit_of(int32_t context_tokens, int64_t prompt_tokens, int32_t max_tokens) {
  const int64_t most = context_tokens - prompt_tokens + 1;
  if (max_tokens == kNoTokenLimit || max_tokens > most) return {most, StopReason::kContextFull};
  return {max_tokens, StopReason::kMaxTokens};
}

/// Counted for the context that was asked for, not for one that --kv-limit has made smaller: that
/// one is as long as all pages, so several beams would never fit it, and a limit that was named for
/// it would make it longer again. A single beam ends there as any answer does.
Status check_pages(const Engine& engine, int64_t prompt_tokens, const BeamOptions& options) {
  const kv::Usage usage = engine.kv_usage();
  const int32_t context =
      options.n_beams == 1 ? engine.context_tokens() : engine.asked_context_tokens();
  const Limit limit = limit_of(context, prompt_tokens, options.max_tokens);
  const int64_t needed =
      beam_pages(prompt_tokens, limit.tokens - 1, options.n_beams, usage.page_tokens);
  if (needed <= usage.free + usage.evictable) return Status::ok();
  const std::string way =
      engine.scratch_bytes() > 0
          ? fmt::format("--kv-limit {} holds them",
                        size_flag_for(narrow<uint64_t>(engine.limit_to_hold(needed))))
          : std::string("more contexts at once hold them");
  return resource_exhausted(fmt::format(
      "{} of up to {} after a prompt of {} may need {} of KV cache, it has {}: {}; or take fewer "
      "beams or shorter answers (-n)",
      counted(options.n_beams, "beam"), counted(limit.tokens, "token"), prompt_tokens,
      counted(needed, "page"), usage.free + usage.evictable, way));
}

/// What a text says as its tokens come, for its stop texts.
class BeamText {
 public:
  BeamText(const text::Tokenizer& tokenizer, const std::vector<std::string>& stops)
      : bytes_(tokenizer), stops_(stops) {}
  /// Whether a stop text is complete with this token.
  bool push(int32_t id) { return take(bytes_.push(id)); }
  bool finish() {
    if (take(bytes_.finish())) return true;
    text_ += stops_.finish();
    return false;
  }
  const std::string& text() const { return text_; }

 private:
  bool take(const std::string& piece) {
    StopTexts::Certain certain = stops_.push(piece);
    text_ += certain.text;
    return certain.stopped;
  }

  text::StreamingDetokenizer bytes_;
  StopTexts stops_;
  std::string text_;  // without a stop text and what may be the beginning of one
};

/// As generate() has it: the token that ended the answer is none of it.
Generation generation_of(const Hypothesis& hypothesis, BeamText text) {
  Generation out;
  out.stop_reason = hypothesis.reason;
  const bool ends_by_token = hypothesis.reason == StopReason::kEnd;
  const std::span<const int32_t> tokens = hypothesis.tokens;
  const std::span<const int32_t> said = tokens.first(tokens.size() - (ends_by_token ? 1 : 0));
  bool stopped = false;
  for (const int32_t id : said) {
    WEFT_CHECK(!stopped);  // a text whose stop text is complete does not go on
    stopped = text.push(id);
    if (!stopped) out.tokens.push_back({.id = id, .logprob = 0, .top = {}});
  }
  WEFT_CHECK(stopped == (hypothesis.reason == StopReason::kStopText));
  // Bytes that were no whole character may complete one, too.
  if (!stopped && text.finish()) out.stop_reason = StopReason::kStopText;
  out.text = text.text();
  return out;
}

/// One search: what ends a text, and the sequences and texts of those that go on.
class Run {
 public:
  Run(Engine& engine, const BeamOptions& options, int64_t prompt_tokens)
      : engine_(engine),
        options_(options),
        limit_(limit_of(engine.context_tokens(), prompt_tokens, options.max_tokens)),
        search_(search_options(engine.tokenizer(), options)),
        texts_{BeamText(engine.tokenizer(), options.stops)} {}

  Status run(std::span<const int32_t> prompt, FunctionRef<bool(int32_t)> goes_on) {
    const auto is_cancelled = [&] { return !goes_on(0); };
    const FunctionRef<bool()> cancelled(is_cancelled);
    sequences_.push_back(engine_.create_sequence());
    WEFT_ASSIGN_OR_RETURN(std::vector<float> logits,
                          engine_.append(sequences_.front(), prompt, {.cancelled = &cancelled}));
    const int64_t begin_ns = engine_.env().monotonic_ns();
    for (;;) {
      WEFT_RETURN_IF_ERROR(choose(logits));
      if (search_.is_done() || !goes_on(search_.n_tokens())) break;
      WEFT_ASSIGN_OR_RETURN(logits, append_rows());
    }
    decode_ms_ = engine_.env().ms_since(begin_ns);
    return Status::ok();
  }

  std::vector<BeamChoice> choices() const {
    std::vector<BeamChoice> choices;
    for (const Hypothesis& hypothesis : search_.best()) {
      BeamText text(engine_.tokenizer(), options_.stops);
      choices.push_back({generation_of(hypothesis, std::move(text)), hypothesis.score});
      choices.back().generation.decode_ms = decode_ms_;
    }
    return choices;
  }

 private:
  static BeamSearch::Options search_options(const text::Tokenizer& tokenizer,
                                            const BeamOptions& options) {
    std::vector<int32_t> ends;
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      if (tokenizer.is_end_of_generation(id)) ends.push_back(id);
    }
    const auto n_ends = options.ignore_end ? 0 : narrow<int32_t>(ends.size());
    return {.n_beams = options.n_beams,
            .n_end_tokens = n_ends,
            .never = options.ignore_end ? std::move(ends) : std::vector<int32_t>()};
  }

  std::optional<StopReason> end_of(int32_t beam, int32_t id) const {
    if (engine_.tokenizer().is_end_of_generation(id)) return StopReason::kEnd;
    if (!options_.stops.empty() && BeamText(texts_[beam]).push(id)) return StopReason::kStopText;
    if (search_.n_tokens() == limit_.tokens) return limit_.reason;
    return std::nullopt;
  }

  /// The search's step, over the logits [running, n_vocab], and what it means for sequences and
  /// texts.
  Status choose(std::span<const float> logits) {
    const MatrixView<const float> rows(logits, engine_.model().config().vocab_size);
    for (int64_t i = 0; i < rows.rows; ++i) WEFT_RETURN_IF_ERROR(check_logits(rows.row(i)));
    search_.step(rows, [&](int32_t beam, int32_t id) { return end_of(beam, id); });
    if (search_.is_done()) return check_found();
    std::vector<BeamText> texts;
    for (const Beam& beam : search_.running()) {
      texts.push_back(texts_[beam.parent]);
      texts.back().push(beam.tokens.back());
    }
    texts_ = std::move(texts);
    return follow();
  }

  /// An answer is missing only where every token that may come is impossible.
  Status check_found() const {
    if (!search_.best().empty()) return Status::ok();
    return corrupt(
        "the model gives no chance to any token but those that end an answer, which are not taken "
        "(--ignore-eos)");
  }

  /// The sequences of the beams that go on; those of the others are freed.
  Status follow() {
    std::vector<int32_t> n_left(sequences_.size());  // beams that continue it and have none yet
    for (const Beam& beam : search_.running()) ++n_left[beam.parent];
    std::vector<kv::OwnedSequence> next;
    next.reserve(search_.running().size());
    for (const Beam& beam : search_.running()) {
      kv::OwnedSequence& parent = sequences_[beam.parent];
      if (--n_left[beam.parent] == 0) {
        next.push_back(std::move(parent));
      } else {
        WEFT_ASSIGN_OR_RETURN(kv::OwnedSequence fork, parent.fork());
        next.push_back(std::move(fork));
      }
    }
    sequences_ = std::move(next);
    return Status::ok();
  }

  Result<std::vector<float>> append_rows() {
    std::vector<Appended> rows;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      rows.push_back({&sequences_[i], std::span(search_.running()[i].tokens).last(1)});
    }
    return engine_.append_all(rows, {.kind = model::RowKind::kDecode});
  }

  Engine& engine_;
  const BeamOptions& options_;
  const Limit limit_;
  BeamSearch search_;
  std::vector<kv::OwnedSequence> sequences_;  // of the beams that go on, in their order
  std::vector<BeamText> texts_;               // theirs
  double decode_ms_ = 0;
};

}  // namespace

int64_t beam_pages(int64_t prompt_tokens, int64_t run_tokens, int32_t n_beams,
                   int32_t page_tokens) {
  const int64_t shared = prompt_tokens / page_tokens;
  const int64_t all = (prompt_tokens + run_tokens + page_tokens - 1) / page_tokens;
  // A page that two beams or more share is kept until all of them have written their copies.
  return shared + n_beams * (all - shared) + n_beams / 2;
}

Result<std::vector<BeamChoice>> generate_beams(Engine& engine, std::span<const int32_t> prompt,
                                               const BeamOptions& options,
                                               FunctionRef<bool(int32_t n_tokens)> goes_on) {
  // A fork knows neither what was locked nor which tokens are pending.
  if (engine.has_dense_checkpoints()) return unsupported(std::string(kOneAnswerAtATime));
  WEFT_RETURN_IF_ERROR(check_options(options));
  if (prompt.empty()) return invalid_argument("the prompt is empty");
  if (std::ssize(prompt) > engine.context_tokens()) {
    return resource_exhausted(fmt::format("{} tokens do not fit the context of {}", prompt.size(),
                                          engine.context_tokens()));
  }
  WEFT_RETURN_IF_ERROR(check_pages(engine, std::ssize(prompt), options));
  return or_out_of_memory("generating", "take fewer beams or a smaller context (-c)",
                          [&]() -> Result<std::vector<BeamChoice>> {
                            Run run(engine, options, std::ssize(prompt));
                            WEFT_RETURN_IF_ERROR(run.run(prompt, goes_on));
                            return run.choices();
                          });
}

}  // namespace weft::engine
