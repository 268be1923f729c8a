// For each example: full prefill answers greedily (the reference); every mode prefills the same
// prompt and answers, too; and then every mode is fed the reference's answer token by token
// (teacher forcing), which gives two distributions over the same continuation to compare. KL over
// free-running answers would compare different texts from the first differing token on.
#include "eval/evaluate.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "base/narrow.h"
#include "base/spread.h"
#include "engine/generation.h"
#include "eval/metrics.h"

namespace weft::eval {
namespace {

using fusion::ReuseMode;

// The data sets' answers have one to five words; what is compared beyond them is how the model
// rambles.
constexpr int32_t kAnswerTokens = 16;
/// Examples that are answered in the same steps at most: what is held of one is its sequences, and
/// a row of logits of each.
constexpr size_t kExamplesAtOnce = 8;

/// What one mode gave, example by example.
struct Samples {
  std::vector<double> kl, agreement, f1, share, ttft_ms, fallback;
  std::vector<bool> kept;  // of full prefill's right ones
  std::vector<bool> same;
};

/// A base model answers and goes on with a question of its own in the next line.
std::string first_line(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \n\t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find('\n', begin) - begin);
}

class Evaluator {
 public:
  /// `goes_on` is asked now and then; `on_result` gets the examples in order, their figures being
  /// among `samples`, and says whether to go on.
  Evaluator(engine::Engine& engine, const EvalOptions& options, engine::RagPrompt rag,
            std::vector<int32_t> anchor, std::vector<Samples>& samples, FunctionRef<bool()> goes_on,
            FunctionRef<bool(ExampleResult)> on_result)
      : engine_(engine),
        options_(options),
        rag_(std::move(rag)),
        n_anchor_tokens_(std::ssize(anchor)),
        fusor_(engine.make_fusor(nullptr, std::move(anchor), options.record_type)),
        samples_(samples),
        goes_on_(goes_on),
        on_result_(on_result) {}

  /// The prompt that `weft ask` would make of these passages, a chunk each.
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

  /// Prefills the prompt: in full first, then in every mode of the options. Answers what is held
  /// where there is no room for more.
  Status add(const Example& example, const fusion::Prompt& prompt) {
    if (held_.size() >= kExamplesAtOnce) WEFT_RETURN_IF_ERROR(answer_all());
    held_.emplace_back();
    held_.back().example = &example;
    held_.back().result = {example.question, example.answers, prompt.tokens(), {}};
    WEFT_RETURN_IF_ERROR(prefill(prompt, ReuseMode::kNone, nullptr));
    std::vector<fusion::ChunkSource> sources;
    for (const ReuseMode mode : options_.modes) {
      if (mode == ReuseMode::kNone) continue;
      if (!goes_on_()) return stopped();
      const bool reuses = fusion::reuses_chunks(mode);
      if (reuses && sources.empty()) {
        WEFT_RETURN_IF_ERROR(make_room_for(prompt));
        WEFT_ASSIGN_OR_RETURN(sources, fusor_->gather(prompt));
      }
      WEFT_RETURN_IF_ERROR(prefill(prompt, mode, reuses ? &sources : nullptr));
    }
    held_.back().is_complete = true;
    return Status::ok();
  }

  /// Answers all that is held, in the same steps, and gives its pages back. Examples that have all
  /// their answers are done.
  Status answer_all() {
    WEFT_RETURN_IF_ERROR(generate());
    while (!held_.empty()) {
      WEFT_RETURN_IF_ERROR(follow_reference(held_.front()));
      if (!held_.front().is_complete) break;  // the last one
      ExampleResult result = result_of(held_.front());
      held_.pop_front();
      if (!on_result_(std::move(result))) return stopped();
    }
    return Status::ok();
  }

  static Status stopped() { return cancelled("the evaluation was stopped"); }

 private:
  /// What one mode makes of one example.
  struct Answer {
    std::vector<int32_t> token_ids;  // greedy
    std::string text;
    std::vector<std::vector<float>> logits;  // along the reference's answer
    double ttft_ms = 0;
    double recomputed_share = 0;
    bool is_fallback = false;
    std::optional<kv::OwnedSequence> sequence;  // until it is answered
    int32_t prompt_tokens = 0;
  };

  /// An example under way: the reference's answer first, then that of each mode but none.
  struct Held {
    const Example* example = nullptr;
    ExampleResult result;
    std::vector<Answer> answers;
    bool is_complete = false;  // every mode was prefilled

    std::vector<Answer*> open() {
      std::vector<Answer*> open;
      for (Answer& answer : answers) {
        if (answer.sequence) open.push_back(&answer);
      }
      return open;
    }
  };

  std::vector<Answer*> open_answers() {
    std::vector<Answer*> all;
    for (Held& held : held_) std::ranges::copy(held.open(), std::back_inserter(all));
    return all;
  }

  /// For one sequence more: nothing is to be dropped for it that it would find alone.
  Status make_room_for(const fusion::Prompt& prompt) {
    const kv::Usage kv = engine_.kv_usage();
    const auto pages = [&](int64_t n_tokens) {
      return (n_tokens + kv.page_tokens - 1) / kv.page_tokens + 1;
    };
    int64_t largest = 0;  // of the chunks, which are computed before it
    for (const std::vector<int32_t>& chunk : prompt.chunks) {
      largest = std::max(largest, std::ssize(chunk));
    }
    const int64_t needed =
        pages(prompt.n_tokens() + kAnswerTokens) + 2 * pages(n_anchor_tokens_) + pages(largest);
    const int64_t n_open = std::ssize(open_answers());
    if (n_open == 0 || needed + n_open * pages(kAnswerTokens) <= kv.free) {
      return Status::ok();
    }
    return answer_all();
  }

  /// Begins an answer of the last example that is held.
  Status prefill(const fusion::Prompt& prompt, ReuseMode mode,
                 std::vector<fusion::ChunkSource>* sources) {
    WEFT_RETURN_IF_ERROR(make_room_for(prompt));
    fusion::FusionOptions fusion_options = options_.fusion;
    fusion_options.mode = mode;
    const int64_t begin_ns = engine_.env().monotonic_ns();
    auto prefilled = sources != nullptr ? fusor_->prefill_from(prompt, fusion_options, *sources)
                                        : fusor_->prefill(prompt, fusion_options);
    if (!prefilled.is_ok()) return prefilled.status();
    Answer& out = held_.back().answers.emplace_back();
    out.ttft_ms = engine_.env().ms_since(begin_ns);
    out.prompt_tokens = prefilled->sequence.length();
    out.sequence.emplace(std::move(prefilled->sequence));
    const fusion::Report& report = prefilled->report;
    out.is_fallback = report.mode != mode;
    const bool is_full = mode == ReuseMode::kNone || out.is_fallback;
    out.recomputed_share = is_full ? 1.0 : report.recomputed_share;
    out.logits.push_back(std::move(prefilled->logits));
    return Status::ok();
  }

  /// The greedy answers of all that are open.
  Status generate() {
    engine::GenerationOptions greedy;
    greedy.max_tokens = kAnswerTokens;
    greedy.sampling.temperature = 0;
    greedy.one_line = rag_.form() == engine::PromptForm::kFewShot;
    const std::vector<Answer*> answers = open_answers();
    std::vector<engine::Continued> continued;
    for (const Answer* answer : answers) {
      continued.push_back({.sequence = &*answer->sequence, .logits = answer->logits.front()});
    }
    WEFT_ASSIGN_OR_RETURN(
        const std::vector<engine::Generation> generations,
        engine::generate_together(engine_, std::move(continued), greedy, goes_on_));
    if (std::ranges::count(generations, engine::StopReason::kCancelled,
                           &engine::Generation::stop_reason) > 0) {
      return stopped();
    }
    for (size_t i = 0; i < answers.size(); ++i) {
      for (const engine::GeneratedToken& token : generations[i].tokens) {
        answers[i]->token_ids.push_back(token.id);
      }
      answers[i]->text = generations[i].text;
      WEFT_RETURN_IF_ERROR(answers[i]->sequence->truncate(answers[i]->prompt_tokens));
    }
    return Status::ok();
  }

  /// Gives the open answers their logits along the reference's, which is the last they need their
  /// sequences for.
  Status follow_reference(Held& held) {
    const std::vector<Answer*> open = held.open();
    if (open.empty()) return Status::ok();
    const std::vector<int32_t>& path = held.answers.front().token_ids;
    if (path.size() > 1) {
      const auto tokens = std::span(path).first(path.size() - 1);
      // What decode chooses is part of what is compared; a prompt's rows read everything.
      const size_t n_at_once = engine_.selector() != nullptr ? 1 : tokens.size();
      for (size_t i = 0; i < tokens.size(); i += n_at_once) {
        WEFT_RETURN_IF_ERROR(follow(tokens.subspan(i, n_at_once), open));
      }
    }
    for (Answer* const answer : open) answer->sequence.reset();
    return Status::ok();
  }

  /// In one step.
  Status follow(std::span<const int32_t> tokens, std::span<Answer* const> answers) {
    std::vector<engine::Appended> rows;
    for (const Answer* answer : answers) rows.push_back({&*answer->sequence, tokens});
    const bool is_prompt = engine_.selector() == nullptr;
    const engine::AppendOptions options{
        .kind = is_prompt ? model::RowKind::kPrompt : model::RowKind::kDecode, .every_row = true};
    WEFT_ASSIGN_OR_RETURN(const std::vector<float> logits, engine_.append_all(rows, options));
    const int64_t n_vocab = engine_.model().config().vocab_size;
    auto row = logits.begin();
    for (Answer* const answer : answers) {
      for (size_t i = 0; i < tokens.size(); ++i, row += n_vocab) {
        answer->logits.emplace_back(row, row + n_vocab);
      }
    }
    return Status::ok();
  }

  ExampleResult result_of(Held& held) {
    const Answer& reference = held.answers.front();
    size_t next = 1;
    for (size_t m = 0; m < options_.modes.size(); ++m) {
      const Answer& own = options_.modes[m] == ReuseMode::kNone ? reference : held.answers[next++];
      add_sample(*held.example, reference, own, samples_[m]);
      const std::string text = first_line(own.text);
      held.result.modes.push_back({text, contains_answer(text, held.example->answers),
                                   samples_[m].f1.back(), samples_[m].kl.back()});
    }
    return std::move(held.result);
  }

  /// Compares `own` with the reference, over as many tokens as both have.
  static void add_sample(const Example& example, const Answer& reference, const Answer& own,
                         Samples& samples) {
    double kl = 0;
    double agreed = 0;
    const size_t n = std::min(reference.logits.size(), own.logits.size());
    for (size_t i = 0; i < n; ++i) {
      kl += kl_divergence(reference.logits[i], own.logits[i]);
      agreed += argmax(reference.logits[i]) == argmax(own.logits[i]) ? 1 : 0;
    }
    samples.kl.push_back(kl / n);
    samples.agreement.push_back(agreed / n);
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
  int64_t n_anchor_tokens_;
  std::unique_ptr<fusion::Fusor> fusor_;
  std::vector<Samples>& samples_;
  FunctionRef<bool()> goes_on_;
  FunctionRef<bool(ExampleResult)> on_result_;
  std::deque<Held> held_;  // of which only the last may be incomplete
};

}  // namespace

engine::StepNeeds steps_of(const EvalOptions& options) {
  const auto n_modes = narrow<int32_t>(std::ssize(options.modes) + 1);  // the reference, too
  const int32_t n_sequences = narrow<int32_t>(kExamplesAtOnce) * n_modes;
  return {.n_sequences = n_sequences,
          .makes_chunks = true,
          .fuses = true,
          .logit_rows = std::max(2 * n_sequences, (kAnswerTokens - 1) * n_modes)};
}

Result<EvalResult> evaluate(engine::Engine& engine, const std::vector<Example>& examples,
                            const EvalOptions& options,
                            FunctionRef<bool(int64_t, int64_t)> progress) {
  WEFT_ASSIGN_OR_RETURN(const engine::RagPrompt rag,
                        engine::RagPrompt::for_engine(engine, options.prompt));
  WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> anchor, rag.anchor(options.anchor));

  std::vector<Samples> samples(options.modes.size());
  std::vector<double> prompt_tokens;
  EvalResult result;
  result.n_asked = std::ssize(examples);
  const auto goes_on = [&] { return progress(result.examples + result.skipped, result.n_asked); };
  const auto on_result = [&](ExampleResult details) {
    prompt_tokens.push_back(details.prompt_tokens.size());
    result.details.push_back(std::move(details));
    ++result.examples;
    return goes_on();
  };
  Evaluator evaluator(engine, options, rag, std::move(anchor), samples, goes_on, on_result);
  const auto run = [&]() -> Status {
    for (const Example& example : examples) {
      WEFT_ASSIGN_OR_RETURN(const fusion::Prompt prompt, evaluator.prompt_of(example));
      if (prompt.n_tokens() + kAnswerTokens > engine.context_tokens()) {
        ++result.skipped;
      } else {
        WEFT_RETURN_IF_ERROR(evaluator.add(example, prompt));
      }
      if (!goes_on()) return Evaluator::stopped();
    }
    return evaluator.answer_all();  // what was still held
  };
  const Status done = run();
  if (!done.is_ok() && (done.code() != StatusCode::kCancelled || result.examples == 0)) return done;
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
