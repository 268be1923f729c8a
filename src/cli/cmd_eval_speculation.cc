// weft eval speculation: whether drafts pay, on answers that quote what they are asked about.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/counts_text.h"
#include "cli/app.h"
#include "cli/bench_json.h"
#include "cli/draft_flags.h"
#include "cli/sparse_flags.h"
#include "eval/dataset.h"
#include "eval/speculation_eval.h"

namespace weft::cli {
namespace {

struct EvalSpeculationFlags {
  ModelFlags model;
  std::string file;
  int32_t n_trials = 30;
  eval::SpeculationEvalOptions options;
  bool json = false;
};

Json summary_json(const eval::SpeculationSummary& s) {
  if (s.n == 0) return {{"answers", 0}, {"speedup", Json()}, {"least", Json()}};
  return {{"answers", s.n}, {"speedup", s.median}, {"least", s.least}};
}

Json row_json(const eval::SpeculationRow& r) {
  const auto misled = [&](auto value) { return r.misled ? Json(value()) : Json(); };
  return {{"prompt_tokens", r.prompt_tokens},
          {"answer_tokens", r.answer_tokens},
          {"same", r.is_same},
          {"steps", r.drafts.steps},
          {"drafted", r.drafts.drafted},
          {"accepted", r.drafts.accepted},
          {"plain_ms", r.plain_ms},
          {"draft_ms", r.draft_ms},
          {"speedup", r.speedup()},
          {"wrong_drafted", misled([&] { return r.misled->drafts.drafted; })},
          {"wrong_accepted", misled([&] { return r.misled->drafts.accepted; })},
          {"wrong_speedup", misled([&] { return r.misled_speedup(); })}};
}

/// Of drafts by the model itself: how many were right over the pages of the rows that verify them,
/// and over pages of their own.
Json selections_json(const std::vector<eval::SpeculationRow>& rows) {
  const auto all = eval::selections_of(rows);
  if (!all) return {};
  const auto share = [](double a, double b) { return b > 0 ? Json(a / b) : Json(); };
  return {{"shared_acceptance", share(all->shared.accepted, all->shared.drafted)},
          {"separate_acceptance", share(all->separate.accepted, all->separate.drafted)},
          {"separate_inconsistent", share(all->inconsistencies, all->compared)}};
}

struct Summaries {
  eval::SpeculationSummary all, quoting, misled;
  int64_t n_other = 0;
};

Summaries summaries_of(const std::vector<eval::SpeculationRow>& rows) {
  return {.all = eval::speedup_of(rows, false),
          .quoting = eval::speedup_of(rows, true),
          .misled = eval::misled_speedup_of(rows),
          .n_other = std::ranges::count(rows, false, &eval::SpeculationRow::is_same)};
}

void print_results_json(const engine::Engine& engine, const eval::SpeculationResults& results) {
  const Summaries s = summaries_of(results.rows);
  Json rows = Json::array();
  for (const eval::SpeculationRow& row : results.rows) rows.push_back(row_json(row));
  print_json({{"engine", engine_json(engine)},
              {"draft", spec::kDrafters.name(engine.draft_options().kind)},
              {"results", std::move(rows)},
              {"all", summary_json(s.all)},
              {"over_half_accepted", summary_json(s.quoting)},
              {"all_wrong", summary_json(s.misled)},
              {"selections", selections_json(results.rows)},
              {"other_answers", s.n_other},
              {"left_out",
               {{"short_answers", results.n_short},
                {"long_questions", results.n_too_long},
                {"not_asked", results.n_not_asked}}},
              {"unfinished", results.n_not_asked > 0}});
}

void print_summary(const char* of, const eval::SpeculationSummary& s) {
  if (s.n == 0) return;
  fmt::print("{:<28} {:>3} answers  {:.2f} times as fast, {:.2f} at least\n", of, s.n, s.median,
             s.least);
}

void print_results(const engine::Engine& engine, const eval::SpeculationResults& results) {
  const Summaries s = summaries_of(results.rows);
  print_summary("all", s.all);
  print_summary("over half of drafts right", s.quoting);
  print_summary("every draft wrong", s.misled);
  if (const auto all = eval::selections_of(results.rows); all && all->shared.drafted > 0) {
    fmt::print(
        "right of all guesses: {:.1f} % where drafts read the pages of what verifies them, "
        "{:.1f} % where they choose their own, {:.1f} % of which are others\n",
        100.0 * all->shared.accepted / all->shared.drafted,
        100.0 * all->separate.accepted / std::max<int64_t>(1, all->separate.drafted),
        100.0 * all->inconsistencies / std::max<int64_t>(1, all->compared));
  }
  if (s.n_other > 0) fmt::print("{} answers are other ones than without drafts\n", s.n_other);
  if (results.n_short > 0) {
    fmt::print("left out: {} of less than two tokens, without a step that a guess could save\n",
               counted(results.n_short, "answer"));
  }
  if (results.n_too_long > 0) {
    fmt::print("left out: {} of up to {} tokens with an answer, in a context of {}; {}\n",
               counted(results.n_too_long, "question"), results.longest_tokens,
               engine.context_tokens(), engine.way_to_hold(results.longest_tokens));
  }
  if (results.n_not_asked > 0) {
    fmt::print("unfinished: {} not asked\n", counted(results.n_not_asked, "question"));
  }
}

Status run_eval_speculation(App& app, EvalSpeculationFlags flags) {
  WEFT_ASSIGN_OR_RETURN(flags.options.examples,
                        eval::read_dataset(app.env, flags.file, flags.n_trials));
  flags.model.n_contexts = 2;  // the prompt, and an answer to it
  WEFT_ASSIGN_OR_RETURN(const auto engine, open_engine(app, flags.model));
  Progress progress("speculation");
  WEFT_ASSIGN_OR_RETURN(
      const eval::SpeculationResults results,
      eval::speculation_eval(*engine, flags.options, [&](int64_t done, int64_t total) {
        progress.show(done, total, "answers");
        return !interrupted();
      }));
  progress.hide();
  if (flags.json) {
    print_results_json(*engine, results);
  } else {
    print_results(*engine, results);
  }
  if (results.n_not_asked == 0) return Status::ok();
  WEFT_RETURN_IF_ERROR(output_written());
  return cancelled("interrupted: the results are those of the questions that were answered");
}

}  // namespace

void add_eval_speculation_command(Command eval, App& app) {
  auto flags = std::make_shared<EvalSpeculationFlags>();
  flags->model.draft = "ngram";
  Command command = eval.add_command("speculation", "Whether drafts (--draft) pay");
  add_model_flags(command, flags->model);
  add_sparse_flags(command, flags->model);
  add_draft_flags(command, flags->model).describe("what drafts (default: ngram)");
  command.add_option("-f,--file", flags->file, "questions over passages, as JSON").required();
  command.add_option("--trials", flags->n_trials, "questions (default: 30)").in_range(1, 10'000);
  command
      .add_option(
          "-n,--tokens", flags->options.answer_tokens,
          fmt::format("tokens of an answer, at most (default: {})", flags->options.answer_tokens))
      .in_range(1, 1 << 20);
  command
      .add_option("--repeat", flags->options.repeat,
                  fmt::format("runs of each answer, with drafts and without (default: {})",
                              flags->options.repeat))
      .in_range(1, 1000);
  command.add_flag("--json", flags->json, "print the results as JSON");
  command.when_given(
      [flags, &app] { app.run = [flags, &app] { return run_eval_speculation(app, *flags); }; });
}

}  // namespace weft::cli
