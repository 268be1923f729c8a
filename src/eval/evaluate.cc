#include "eval/evaluate.h"

#include <fmt/format.h>

#include "engine/generation.h"
#include "eval/metrics.h"

namespace weft::eval {
namespace {

using fusion::ReuseMode;

constexpr int32_t kAnswerTokens = 16;

/// What one mode gave, example by example.
struct Samples {
  std::vector<double> kl, agreement, f1, share, ttft_ms, fallback;
  std::vector<bool> kept;  // of full prefill's right ones
  std::vector<bool> same;
};

std::string first_line(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \n\t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find('\n', begin) - begin);
}

class Evaluator {
 public:
  Evaluator(engine::Engine& engine, const EvalOptions& options, engine::RagPrompt rag,
            std::unique_ptr<fusion::Fusor> fusor)
      : engine_(engine), options_(options), rag_(std::move(rag)), fusor_(std::move(fusor)) {}

  Result<fusion::Prompt> prompt_of(const Example& example) const {
    fusion::Prompt prompt;
    WEFT_ASSIGN_OR_RETURN(prompt.prefix, rag_.prefix());
    for (const EvalPassage& passage : example.passages) {
      WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> chunk, rag_.chunk(passage.title, passage.text));
      prompt.chunks.push_back(std::move(chunk));
    }
    WEFT_ASSIGN_OR_RETURN(prompt.suffix, rag_.suffix(example.question));
    return prompt;
  }

  /// Full prefill first, then every mode of the options on the same prompt.
  Result<ExampleResult> run(const Example& example, const fusion::Prompt& prompt,
                            std::vector<Samples>& samples) {
    ExampleResult result{example.question, example.answers, prompt.tokens(), {}};
    WEFT_ASSIGN_OR_RETURN(const Answer reference, answer(prompt, ReuseMode::kNone, nullptr, {}));
    std::vector<fusion::ChunkSource> sources;
    for (size_t m = 0; m < options_.modes.size(); ++m) {
      const ReuseMode mode = options_.modes[m];
      const bool reuses = mode == ReuseMode::kFull || mode == ReuseMode::kBlend;
      if (reuses && sources.empty()) {
        WEFT_ASSIGN_OR_RETURN(sources, fusor_->gather(prompt));
      }
      Answer own = reference;
      if (mode != ReuseMode::kNone) {
        WEFT_ASSIGN_OR_RETURN(
            own, answer(prompt, mode, reuses ? &sources : nullptr, reference.token_ids));
      }
      add_sample(example, reference, own, samples[m]);
      const std::string text = first_line(own.text);
      result.modes.push_back({text, contains_answer(text, example.answers), samples[m].f1.back(),
                              samples[m].kl.back()});
    }
    return result;
  }

 private:
  struct Answer {
    std::vector<int32_t> token_ids;  // greedy
    std::string text;
    std::vector<std::vector<float>> logits;  // along the reference's answer
    double ttft_ms = 0;
    double recomputed_share = 0;
    bool is_fallback = false;
  };

  /// Prefills, generates, and gives the logits along `forced` (empty: along its own answer).
  Result<Answer> answer(const fusion::Prompt& prompt, ReuseMode mode,
                        std::vector<fusion::ChunkSource>* sources,
                        const std::vector<int32_t>& forced) {
    fusion::FusionOptions fusion_options = options_.fusion;
    fusion_options.mode = mode;
    const int64_t begin_ns = engine_.env().monotonic_ns();
    auto prefilled = sources != nullptr ? fusor_->prefill_from(prompt, fusion_options, *sources)
                                        : fusor_->prefill(prompt, fusion_options);
    if (!prefilled.is_ok()) return prefilled.status();
    Answer out;
    out.ttft_ms = static_cast<double>(engine_.env().monotonic_ns() - begin_ns) * 1e-6;
    const fusion::Report& report = prefilled->report;
    out.is_fallback = report.mode != mode;
    const bool is_full = mode == ReuseMode::kNone || out.is_fallback;
    out.recomputed_share = is_full ? 1.0 : report.recomputed_share;

    const Status done = continue_answer(*prefilled, forced, out);
    engine_.cache().free_sequence(prefilled->sequence);
    WEFT_RETURN_IF_ERROR(done);
    return out;
  }

  Status continue_answer(fusion::Prefilled& prefilled, const std::vector<int32_t>& forced,
                         Answer& out) {
    engine::GenerationOptions greedy;
    greedy.max_tokens = kAnswerTokens;
    greedy.sampling.temperature = 0;
    greedy.one_line = rag_.form() == engine::PromptForm::kFewShot;
    const int32_t prompt_tokens = engine_.cache().length(prefilled.sequence);
    WEFT_ASSIGN_OR_RETURN(const engine::Generation generation,
                          engine::generate(engine_, prefilled.sequence, prefilled.logits, greedy,
                                           [](std::string_view) { return true; }));
    for (const engine::GeneratedToken& token : generation.tokens) out.token_ids.push_back(token.id);
    out.text = generation.text;
    WEFT_RETURN_IF_ERROR(engine_.cache().truncate(prefilled.sequence, prompt_tokens));

    const std::vector<int32_t>& path = forced.empty() ? out.token_ids : forced;
    out.logits.push_back(prefilled.logits);
    if (path.size() < 2) return Status::ok();
    const auto steps = std::span(path).first(path.size() - 1);
    WEFT_ASSIGN_OR_RETURN(const std::vector<float> rows,
                          engine_.append(prefilled.sequence, steps, {.every_row = true}));
    const size_t n_vocab = prefilled.logits.size();
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto row = rows.begin() + static_cast<std::ptrdiff_t>(i * n_vocab);
      out.logits.emplace_back(row, row + static_cast<std::ptrdiff_t>(n_vocab));
    }
    return Status::ok();
  }

  static void add_sample(const Example& example, const Answer& reference, const Answer& own,
                         Samples& samples) {
    double kl = 0;
    double agreed = 0;
    const size_t n = std::min(reference.logits.size(), own.logits.size());
    for (size_t i = 0; i < n; ++i) {
      kl += kl_divergence(reference.logits[i], own.logits[i]);
      agreed += argmax(reference.logits[i]) == argmax(own.logits[i]) ? 1 : 0;
    }
    samples.kl.push_back(kl / static_cast<double>(n));
    samples.agreement.push_back(agreed / static_cast<double>(n));
    samples.f1.push_back(answer_f1(first_line(own.text), example.answers));
    const std::string text = first_line(own.text);
    const std::string reference_text = first_line(reference.text);
    if (contains_answer(reference_text, example.answers)) {
      samples.kept.push_back(contains_answer(text, example.answers));
    }
    samples.same.push_back(text == reference_text);
    samples.fallback.push_back(own.is_fallback ? 1 : 0);
    samples.share.push_back(own.recomputed_share);
    samples.ttft_ms.push_back(own.ttft_ms);
  }

  engine::Engine& engine_;
  const EvalOptions& options_;
  engine::RagPrompt rag_;
  std::unique_ptr<fusion::Fusor> fusor_;
};

}  // namespace

Result<EvalResult> evaluate(engine::Engine& engine, const std::vector<Example>& examples,
                            const EvalOptions& options,
                            FunctionRef<bool(int64_t, int64_t)> progress) {
  WEFT_ASSIGN_OR_RETURN(const engine::RagPrompt rag,
                        engine::RagPrompt::for_engine(engine, options.prompt));
  WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> anchor, rag.anchor(options.anchor));
  Evaluator evaluator(engine, options, rag, engine.make_fusor(nullptr, std::move(anchor)));

  std::vector<Samples> samples(options.modes.size());
  std::vector<double> prompt_tokens;
  EvalResult result;
  for (size_t i = 0; i < examples.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const fusion::Prompt prompt, evaluator.prompt_of(examples[i]));
    if (prompt.n_tokens() + kAnswerTokens > engine.context_tokens()) {
      ++result.skipped;
    } else {
      WEFT_ASSIGN_OR_RETURN(ExampleResult details, evaluator.run(examples[i], prompt, samples));
      result.details.push_back(std::move(details));
      prompt_tokens.push_back(prompt.n_tokens());
      ++result.examples;
    }
    if (!progress(static_cast<int64_t>(i + 1), static_cast<int64_t>(examples.size()))) {
      return cancelled("the evaluation was stopped");
    }
  }
  result.prompt_tokens_mean = mean_of(prompt_tokens);
  for (size_t m = 0; m < samples.size(); ++m) {
    const Samples& s = samples[m];
    result.modes.push_back({.mode = options.modes[m],
                            .kl = mean_of(s.kl),
                            .agreement = mean_of(s.agreement),
                            .f1 = mean_of(s.f1),
                            .kept = share_of(s.kept),
                            .same = share_of(s.same),
                            .fallback_share = mean_of(s.fallback),
                            .recomputed_share = mean_of(s.share),
                            .ttft_ms_median = spread_of(s.ttft_ms).median});
  }
  return result;
}

}  // namespace weft::eval
