// Plain and drafting runs take turns, so that a machine that slows down does so for both; of each
// the fastest counts, as what disturbs a run only adds to it.
#include "eval/speculation_eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/narrow.h"
#include "base/spread.h"
#include "engine/generation.h"
#include "engine/rag_prompt.h"
#include "sparse/selector.h"
#include "text/chat_template.h"

namespace weft::eval {
namespace {

std::string prompt_of(const Example& example) {
  std::string text = "Passages:\n\n";
  for (const EvalPassage& passage : example.passages) {
    if (!passage.title.empty()) text += passage.title + "\n";
    text += passage.text + "\n\n";
  }
  return text + "Question: " + example.question +
         "\nCopy the sentences of the passages that answer the question, word for word.";
}

/// As a turn of a chat, or as it is for a model without a template.
Result<std::vector<int32_t>> tokens_of(const engine::Engine& engine, const std::string& prompt) {
  const text::Tokenizer& tokenizer = engine.tokenizer();
  const Result<text::ChatTemplate> chat = engine.chat_template();
  if (chat.status().code() == StatusCode::kNotFound) {
    return tokenizer.encode(prompt, {.add_bos = tokenizer.wants_bos()});
  }
  WEFT_RETURN_IF_ERROR(chat.status());
  const text::Turn turns[] = {{text::Role::kUser, prompt}};
  WEFT_ASSIGN_OR_RETURN(const std::vector<text::Segment> segments, chat->render(turns, true));
  return text::encode_prompt(tokenizer, segments);
}

/// Each two tokens of the answer, with another one after them than the answer has.
std::vector<int32_t> misleading_text(std::span<const int32_t> prompt,
                                     std::span<const int32_t> answer) {
  std::vector<int32_t> text;
  std::vector<int32_t> all{prompt.back()};
  all.insert(all.end(), answer.begin(), answer.end());
  for (size_t i = 1; i < all.size(); ++i) {
    const int32_t next = i + 1 < all.size() ? all[i + 1] : 0;
    text.insert(text.end(), {all[i - 1], all[i], next == 1 ? 2 : 1});
  }
  text.push_back(prompt.back());
  return text;
}

struct Run {
  std::vector<int32_t> tokens;
  double ms = 0;
};

class SpeculationEval {
 public:
  SpeculationEval(engine::Engine& engine, const SpeculationEvalOptions& options)
      : engine_(engine), options_(options), drafts_(engine.draft_options()) {
    // What the model's own drafts are verified by is what it answers by without any.
    if (drafts_.kind != spec::DrafterKind::kSelf) return;
    plain_ = drafts_;
    plain_.most_tokens = 0;
  }
  ~SpeculationEval() { engine_.use_drafts(drafts_); }

  /// None: the answer has less than two tokens. The first comes from the prompt's own logits, so
  /// that there was no step.
  Result<std::optional<SpeculationRow>> run(std::span<const int32_t> prompt,
                                            FunctionRef<bool()> goes_on) {
    const auto is_stopped = [&] { return !goes_on(); };
    const FunctionRef<bool()> stopped(is_stopped);
    const kv::OwnedSequence sequence = engine_.create_sequence();
    WEFT_ASSIGN_OR_RETURN(const std::vector<float> logits,
                          engine_.append(sequence, prompt, {.cancelled = &stopped}));
    SpeculationRow row{.prompt_tokens = narrow<int32_t>(std::ssize(prompt)), .is_same = true};
    row.plain_ms = row.draft_ms = std::numeric_limits<double>::max();
    for (int32_t i = 0; i < options_.repeat; ++i) {
      WEFT_ASSIGN_OR_RETURN(const Run plain, answer(sequence, logits, prompt, plain_, goes_on));
      if (plain.tokens.size() < 2) return std::optional<SpeculationRow>();
      row.answer_tokens = narrow<int32_t>(std::ssize(plain.tokens));
      row.plain_ms = std::min(row.plain_ms, plain.ms);
      WEFT_ASSIGN_OR_RETURN(const Run drafted, answer(sequence, logits, prompt, drafts_, goes_on));
      row.drafts = engine_.draft_counters();
      row.is_same = row.is_same && plain.tokens == drafted.tokens;
      row.draft_ms = std::min(row.draft_ms, drafted.ms);
      if (drafts_.kind != spec::DrafterKind::kNgram) continue;
      const std::vector<int32_t> misleading = misleading_text(prompt, plain.tokens);
      WEFT_ASSIGN_OR_RETURN(const Run misled,
                            answer(sequence, logits, misleading, drafts_, goes_on));
      row.is_same = row.is_same && plain.tokens == misled.tokens;
      const double ms = row.misled ? std::min(row.misled->ms, misled.ms) : misled.ms;
      row.misled = {engine_.draft_counters(), ms};
    }
    if (has_selections()) {
      WEFT_ASSIGN_OR_RETURN(row.selections, selections(sequence, logits, prompt, goes_on));
    }
    return std::optional(row);
  }

 private:
  bool has_selections() const {
    const sparse::SparseOptions& sparse = engine_.sparse_options();
    const bool remembers =
        sparse.policy == sparse::Policy::kH2o || sparse.policy == sparse::Policy::kTova;
    const bool may_change = engine_.scratch_bytes() == 0;  // no --kv-limit
    return drafts_.kind == spec::DrafterKind::kSelf && drafts_.verify == spec::Verify::kLocked &&
           sparse.lock.is_on() && !remembers && may_change;
  }

  Result<SpeculationRow::Selections> selections(const kv::OwnedSequence& sequence,
                                                const std::vector<float>& logits,
                                                std::span<const int32_t> prompt,
                                                FunctionRef<bool()> goes_on) {
    SpeculationRow::Selections out;
    sparse::SparseOptions sparse = engine_.sparse_options();
    spec::DraftOptions always = drafts_;
    always.always = true;
    for (const bool shared : {false, true}) {
      sparse.lock.drafts_share = shared;
      WEFT_RETURN_IF_ERROR(engine_.use_sparse(sparse));
      WEFT_RETURN_IF_ERROR(answer(sequence, logits, prompt, always, goes_on).status());
      (shared ? out.shared : out.separate) = engine_.draft_counters();
      if (shared) continue;
      const sparse::LockCounters& locks = engine_.selector()->counters().locks;
      out.compared = locks.compared_drafts;
      out.inconsistencies = locks.inconsistencies;
    }
    return out;
  }

  Result<Run> answer(const kv::OwnedSequence& prefilled, const std::vector<float>& logits,
                     std::span<const int32_t> prompt, const spec::DraftOptions& drafts,
                     FunctionRef<bool()> goes_on) {
    engine_.use_drafts(drafts);
    WEFT_ASSIGN_OR_RETURN(const kv::OwnedSequence sequence, prefilled.fork());
    WEFT_ASSIGN_OR_RETURN(const engine::Generation generation,
                          engine::generate(
                              engine_, sequence, logits, {.max_tokens = options_.answer_tokens},
                              [&](std::string_view) { return goes_on(); }, prompt));
    if (generation.stop_reason == engine::StopReason::kCancelled) return cancelled("stopped");
    Run run{.ms = generation.decode_ms};
    for (const engine::GeneratedToken& token : generation.tokens) run.tokens.push_back(token.id);
    return run;
  }

  engine::Engine& engine_;
  const SpeculationEvalOptions& options_;
  const spec::DraftOptions drafts_;
  spec::DraftOptions plain_;
};

}  // namespace

double SpeculationRow::acceptance() const {
  return drafts.drafted > 0 ? 1.0 * drafts.accepted / drafts.drafted : 0;
}

namespace {

SpeculationSummary summary_of(const std::vector<double>& speedups) {
  const Spread spread = spread_of(speedups);
  return {.n = std::ssize(speedups), .median = spread.median, .least = spread.min};
}

}  // namespace

SpeculationSummary speedup_of(const std::vector<SpeculationRow>& rows, bool quoting_only) {
  std::vector<double> speedups;
  for (const SpeculationRow& row : rows) {
    if (!quoting_only || row.acceptance() > 0.5) speedups.push_back(row.speedup());
  }
  return summary_of(speedups);
}

SpeculationSummary misled_speedup_of(const std::vector<SpeculationRow>& rows) {
  std::vector<double> speedups;
  for (const SpeculationRow& row : rows) {
    if (row.misled && row.misled->drafts.accepted == 0) speedups.push_back(row.misled_speedup());
  }
  return summary_of(speedups);
}

std::optional<SpeculationRow::Selections> selections_of(const std::vector<SpeculationRow>& rows) {
  std::optional<SpeculationRow::Selections> all;
  for (const SpeculationRow& row : rows) {
    if (!row.selections) continue;
    if (!all) all.emplace();
    for (const auto part :
         {&SpeculationRow::Selections::shared, &SpeculationRow::Selections::separate}) {
      ((*all).*part).drafted += ((*row.selections).*part).drafted;
      ((*all).*part).accepted += ((*row.selections).*part).accepted;
    }
    all->compared += row.selections->compared;
    all->inconsistencies += row.selections->inconsistencies;
  }
  return all;
}

Result<SpeculationResults> speculation_eval(
    engine::Engine& engine, const SpeculationEvalOptions& options,
    FunctionRef<bool(int64_t done, int64_t total)> progress) {
  if (!engine.draft_options().is_on()) return invalid_argument("nothing is drafted: give --draft");
  SpeculationEval eval(engine, options);
  SpeculationResults results;
  const int64_t total = std::ssize(options.examples);
  int64_t done = 0, least_tokens = INT64_MAX;
  const auto goes_on = [&] { return progress(done, total); };
  for (const Example& example : options.examples) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, tokens_of(engine, prompt_of(example)));
    const int64_t n_tokens = std::ssize(prompt) + options.answer_tokens;
    least_tokens = std::min(least_tokens, n_tokens);
    if (n_tokens > engine.context_tokens()) {
      ++results.n_too_long;
      results.longest_tokens = std::max(results.longest_tokens, n_tokens);
    } else {
      auto row = eval.run(prompt, goes_on);
      if (row.status().code() == StatusCode::kCancelled) break;
      WEFT_RETURN_IF_ERROR(row.status());
      if (*row) results.rows.push_back(**row);
      results.n_short += *row ? 0 : 1;
    }
    ++done;
    if (!goes_on()) break;
  }
  results.n_not_asked = total - done;
  if (!results.rows.empty() || total == 0) return results;
  if (results.n_not_asked > 0) return cancelled("stopped");
  if (results.n_short > 0) {
    return not_found(
        fmt::format("nothing to measure: {} of {} answers have less than two tokens, and no step "
                    "that a guess could save (-n says how many they may have)",
                    results.n_short, total));
  }
  return resource_exhausted(fmt::format(
      "no question fits the context of {}: the shortest takes {} tokens with its answer; {}",
      engine.context_tokens(), least_tokens, engine.way_to_hold(least_tokens)));
}

}  // namespace weft::eval
