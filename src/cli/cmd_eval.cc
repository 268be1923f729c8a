// weft eval, weft perplexity: how near the answers are to full prefill's, and to the text.
// eval is the command that decides: what a mode loses against full prefill on real questions is why
// a default is what it is (docs/experiments.md). perplexity is for comparing arithmetic and types
// of weights with other engines, so it keeps to llama.cpp's protocol.
#include <fmt/format.h>

#include "cli/app.h"
#include "cli/output_file.h"
#include "cli/reuse_flags.h"
#include "cli/sparse_flags.h"
#include "eval/evaluate.h"
#include "eval/perplexity.h"

namespace weft::cli {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;

struct EvalFlags {
  ModelFlags model;
  ReuseFlags reuse;
  std::string file;
  std::string modes = "none,full,blend";
  std::string anchor = "neutral";
  std::string prompt;
  std::string record_type;
  // "": none is written
  std::string details_file;
  int64_t limit = 0;
  bool json = false;
};

/// Modes are keys, in the order that was asked for.
Json eval_json(const eval::EvalResult& result) {
  Json modes = Json::object();
  for (const eval::ModeResult& m : result.modes) {
    modes[fusion::kReuseModes.name(m.mode)] = {
        {"kl", m.kl},
        {"agreement", m.agreement},
        {"f1", m.f1},
        {"kept",
         {{"share", m.kept.share}, {"low", m.kept.low}, {"high", m.kept.high}, {"of", m.kept.of}}},
        {"same", {{"share", m.same.share}, {"low", m.same.low}, {"high", m.same.high}}},
        {"fallback_share", m.fallback_share},
        {"recomputed_share", m.recomputed_share},
        {"ttft_ms_median", m.ttft_ms_median}};
  }
  return {{"examples", result.examples},
          {"skipped", result.skipped},
          {"prompt_tokens_mean", result.prompt_tokens_mean},
          {"modes", std::move(modes)},
          {"unfinished", result.is_stopped()}};
}

/// One JSON object a line and example.
/// What tools/f1_beside_server.py reads: the prompt's very token ids, so that another engine is
/// asked the same.
std::string details_lines(const eval::EvalResult& result) {
  std::string lines;
  for (const eval::ExampleResult& e : result.details) {
    Json modes = Json::object();
    for (size_t m = 0; m < e.modes.size(); ++m) {
      modes[fusion::kReuseModes.name(result.modes[m].mode)] = {{"answer", e.modes[m].answer},
                                                               {"right", e.modes[m].is_right},
                                                               {"f1", e.modes[m].f1},
                                                               {"kl", e.modes[m].kl}};
    }
    const Json line = {{"question", e.question},
                       {"answers", e.answers},
                       {"prompt_tokens", e.prompt_tokens},
                       {"modes", std::move(modes)}};
    lines += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  return lines;
}

/// "94.0% (91.0-97.0)"; "-" where full prefill has no answer right, so nothing could be kept.
std::string share_text(const eval::Share& s) {
  if (s.of == 0) return "-";
  return fmt::format("{:.1f}% ({:.1f}-{:.1f})", 100 * s.share, 100 * s.low, 100 * s.high);
}

/// "kept of N" has N in the heading, since it is full prefill's and so the same for every mode.
void print_eval(const eval::EvalResult& result) {
  fmt::print("{} examples of {:.0f} tokens on average; full prefill (none) is the reference\n",
             result.examples, result.prompt_tokens_mean);
  if (result.skipped > 0) fmt::print("{} left out: longer than the context\n", result.skipped);
  fmt::print("{:<7} {:>8} {:>10} {:>7} {:>20} {:>20} {:>11} {:>6} {:>10}\n", "mode", "KL",
             "agreement", "F1",
             fmt::format("kept of {}", result.modes.empty() ? 0 : result.modes.front().kept.of),
             "same answer", "recomputed", "plain", "TTFT ms");
  for (const eval::ModeResult& m : result.modes) {
    fmt::print("{:<7} {:>8.4f} {:>9.1f}% {:>7.3f} {:>20} {:>20} {:>10.1f}% {:>5.0f}% {:>10.1f}\n",
               fusion::kReuseModes.name(m.mode), m.kl, 100 * m.agreement, m.f1, share_text(m.kept),
               share_text(m.same), 100 * m.recomputed_share, 100 * m.fallback_share,
               m.ttft_ms_median);
  }
  fmt::print(
      "kept: right answers of full prefill that stay right; same: answers that are its very words\n"
      "(with 95 % intervals); plain: prompts that were prefilled in full instead\n");
}

/// The details' file is begun before the evaluation, which takes long, and gets its name at the
/// end. Its inputs are those that must not be written over: the model, the questions, and the
/// anchor, which may be a file.
Status run_eval(App& app, EvalFlags flags) {
  flags.model.n_contexts = 2;  // a prompt's modes, and a few prompts, are held beside each other
  eval::EvalOptions options;
  WEFT_RETURN_IF_ERROR(fusion_options(flags.reuse).status());
  WEFT_ASSIGN_OR_RETURN(options.modes, parse_modes(flags.modes));
  WEFT_ASSIGN_OR_RETURN(options.anchor, engine::AnchorSpec::parse(app.env, flags.anchor));
  WEFT_ASSIGN_OR_RETURN(options.prompt, engine::parse_prompt_form(flags.prompt));
  WEFT_ASSIGN_OR_RETURN(const std::vector<eval::Example> examples,
                        eval::read_dataset(app.env, flags.file, flags.limit));
  flags.model.steps = eval::steps_of(options);
  flags.model.sparse.measure_every = flags.json ? kMeasuredEvery : 0;
  WEFT_ASSIGN_OR_RETURN(const auto engine, open_engine(app, flags.model));
  WEFT_ASSIGN_OR_RETURN(options.record_type, record_type_of(flags.record_type, *engine));
  WEFT_ASSIGN_OR_RETURN(options.fusion, fusion_options(flags.reuse, *engine));
  std::optional<AtomicFile> details;
  if (!flags.details_file.empty()) {
    std::vector<std::string> inputs = model_files(*engine);
    inputs.insert(inputs.end(), {flags.file, flags.anchor});
    WEFT_ASSIGN_OR_RETURN(AtomicFile file, create_output(app.env, flags.details_file, inputs));
    details.emplace(std::move(file));
  }
  auto progress = std::make_unique<Progress>("eval");
  WEFT_ASSIGN_OR_RETURN(
      const eval::EvalResult result,
      eval::evaluate(*engine, examples, options, [&](int64_t done, int64_t total) {
        progress->show(done, total, "examples");
        return !interrupted();
      }));
  progress.reset();
  if (flags.json) {
    Json json = eval_json(result);
    add_sparse_json(*engine, json);
    print_json(json);
  } else {
    print_eval(result);
    print_sparse_total(*engine);
  }
  if (details) {
    const std::string lines = details_lines(result);
    WEFT_RETURN_IF_ERROR(details->append(std::as_bytes(std::span(lines))));
    WEFT_RETURN_IF_ERROR(details->commit());
  }
  if (!result.is_stopped()) return Status::ok();
  return cancelled(fmt::format("stopped after {} of {} examples: the figures are of these",
                               result.examples + result.skipped, result.n_asked));
}

struct PerplexityFlags {
  ModelFlags model;
  std::string file;
  std::string endless;  // a policy's name
  int32_t keep_tokens = -1;
  int64_t limit = 0;
  bool json = false;
};

/// The whole text in one context of -c tokens.
Status run_endless(App& app, const PerplexityFlags& flags, std::string_view text) {
  eval::EndlessOptions options{.limit_tokens = flags.limit};
  options.shift.policy =
      flags.endless == "sinks" ? engine::ShiftPolicy::kSinks : engine::ShiftPolicy::kHalf;
  options.shift.keep_tokens = flags.keep_tokens < 0 ? engine::kSinkTokens : flags.keep_tokens;
  WEFT_ASSIGN_OR_RETURN(const auto engine, open_engine(app, flags.model));
  if (engine->context_tokens() < flags.model.context_tokens) {
    return eval::window_does_not_fit(*engine, flags.model.context_tokens);
  }
  Progress progress("perplexity");
  WEFT_ASSIGN_OR_RETURN(
      const eval::EndlessResult result,
      eval::endless_perplexity(*engine, text, options, [&](int64_t done, int64_t total) {
        progress.show(done, total, "tokens");
        return !interrupted();
      }));
  progress.hide();
  if (flags.json) {
    print_json({{"tokens", result.tokens},
                {"perplexity", result.perplexity},
                {"dropped_tokens", result.dropped_tokens},
                {"context", engine->context_tokens()}});
  } else {
    fmt::print("perplexity {:.4f} over the last {} tokens, {} dropped from a context of {}\n",
               result.perplexity, result.tokens, result.dropped_tokens, engine->context_tokens());
  }
  return Status::ok();
}

/// -c is the window here, as with llama.cpp's tool, not a limit.
Status run_perplexity(App& app, PerplexityFlags flags) {
  eval::PerplexityOptions options;
  if (flags.model.context_tokens > 0) options.window_tokens = flags.model.context_tokens;
  // The context is the window: some models' RoPE depends on it.
  flags.model.context_tokens = options.window_tokens;
  flags.model.n_contexts = eval::windows_at_once(options.window_tokens);
  flags.model.steps = eval::perplexity_steps(options.window_tokens);
  options.limit_tokens = flags.limit;
  flags.model.sparse.measure_every = flags.json ? kMeasuredEvery : 0;
  WEFT_ASSIGN_OR_RETURN(const std::string text, read_file(app.env, flags.file, kMaxTextBytes));
  if (!flags.endless.empty()) {
    if (asks_for_sparse(flags.model)) {
      return invalid_argument("sparse decoding and --endless do not go together: give one");
    }
    return run_endless(app, flags, text);
  }
  if (flags.keep_tokens >= 0) return invalid_argument("--keep goes with --endless");
  WEFT_ASSIGN_OR_RETURN(const auto engine, open_engine(app, flags.model));
  auto progress = std::make_unique<Progress>("perplexity");
  WEFT_ASSIGN_OR_RETURN(const eval::PerplexityResult result,
                        eval::perplexity(*engine, text, options, [&](int64_t done, int64_t total) {
                          progress->show(done, total, "windows");
                          return !interrupted();
                        }));
  progress.reset();
  if (flags.json) {
    Json json = {
        {"tokens", result.tokens}, {"perplexity", result.perplexity}, {"windows", result.windows}};
    add_sparse_json(*engine, json);
    print_json(json);
  } else {
    fmt::print("perplexity {:.4f} over {} tokens, windows of {}\n", result.perplexity,
               result.tokens, options.window_tokens);
    print_sparse_total(*engine);
  }
  if (!result.is_stopped()) return Status::ok();
  return cancelled(fmt::format("stopped after {} of {} windows: the figure is of these",
                               result.windows, result.windows_in_text));
}

}  // namespace

void add_eval_command(Command root, App& app) {
  auto flags = std::make_shared<EvalFlags>();
  Command command = root.add_command("eval", "Compare the reuse modes with full prefill");
  add_model_flags(command, flags->model);
  add_reuse_flags(command, flags->reuse);
  add_sparse_flags(command, flags->model);
  command.add_option("-f,--file", flags->file, "questions with passages, as JSON").required();
  command.add_option(
      "--modes", flags->modes,
      fmt::format("of {}, with commas (default: {})", fusion::kReuseModes.listed(), flags->modes));
  command.add_option("--anchor", flags->anchor,
                     "what chunks are computed after: " + engine::AnchorSpec::choices());
  add_prompt_flag(command, flags->prompt);
  add_record_type_flag(command, flags->record_type, "f16");
  command.add_option(
      "--details", flags->details_file,
      "write each example's prompt tokens and answers to this file, a JSON line each");
  command.add_option("--limit", flags->limit, "examples at most").in_range(1, 1 << 30);
  command.add_flag("--json", flags->json, "print the report as JSON");
  command.when_given([flags, &app] { app.run = [flags, &app] { return run_eval(app, *flags); }; });
  add_eval_passkey_command(command, app);
  add_eval_sparse_command(command, app);
  add_eval_speculation_command(command, app);
}

void add_perplexity_command(Command root, App& app) {
  auto flags = std::make_shared<PerplexityFlags>();
  Command command = root.add_command("perplexity", "Perplexity of a text file");
  add_model_flags(command, flags->model);
  add_self_extend_flags(command, flags->model);
  add_sparse_flags(command, flags->model);
  add_beyond_context_flag(command, flags->model);
  command
      .add_flag(
          "--grp-attn-only", [flags] { flags->model.neighbour_tokens = 0; },
          "--grp-attn-n: also the newest tokens share positions, for comparison")
      .excludes(command.get_option("--grp-attn-w"));
  command.get_option("--context")
      .describe(
          fmt::format("tokens of a window (default: {})", eval::PerplexityOptions().window_tokens));
  command.add_option("-f,--file", flags->file, "the text").required();
  command
      .add_option("--endless", flags->endless,
                  "read the text in one context of -c tokens that is kept from being full: drop "
                  "half of it at a time, or the oldest page after the first tokens")
      .one_of({"shift", "sinks"});
  command
      .add_option(
          "--keep", flags->keep_tokens,
          fmt::format("--endless: first tokens that stay (default: {})", engine::kSinkTokens))
      .in_range(0, 1 << 24);
  command.add_option("--limit", flags->limit, "tokens of the text at most").in_range(1, 1 << 30);
  command.add_flag("--json", flags->json, "print the result as JSON");
  command.when_given(
      [flags, &app] { app.run = [flags, &app] { return run_perplexity(app, *flags); }; });
}

}  // namespace weft::cli
