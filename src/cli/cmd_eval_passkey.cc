// weft eval passkey: whether a model finds a key in a long text. What tells whether a way to read
// past a model's context (Self-Extend) keeps what was said far back, where perplexity would not
// show it: most words follow from those just before them.
#include <fmt/format.h>

#include <algorithm>

#include "base/narrow.h"
#include "cli/app.h"
#include "cli/sparse_flags.h"
#include "engine/context_size.h"
#include "eval/passkey.h"

namespace weft::cli {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{16} << 20;

struct PasskeyFlags {
  ModelFlags model;
  eval::PasskeyOptions options;
  std::string file;  // "": generated text
  std::optional<Flag> depth_flag;
  double depth = 0;
  bool json = false;
};

/// Sets the length where none is given, and the context that length and answer need.
Status choose_lengths(App& app, PasskeyFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const engine::ContextSize context, context_of(app, flags.model));
  int32_t& length = flags.options.length_tokens;
  const int32_t answer = eval::passkey_answer_tokens(flags.options.n_needles);
  if (length == 0) length = narrow<int32_t>(int64_t{context.tokens} * 3 / 4);
  if (length > context.most_tokens - answer) {
    return resource_exhausted(fmt::format(
        "--length {}: with {} tokens for the answer the model's context of {} holds {} at most; "
        "--grp-attn-n (Self-Extend) or --beyond-context make it longer",
        length, answer, context.most_tokens, std::max(0, context.most_tokens - answer)));
  }
  if (flags.model.context_tokens == 0) flags.model.context_tokens = length + answer;
  return Status::ok();
}

void print_result(const eval::PasskeyResult& result, int32_t length) {
  fmt::print("depth  correct\n");
  for (const eval::PasskeyAtDepth& one : result.by_depth()) {
    fmt::print("{:<5.2f}  {} of {}\n", one.depth, one.correct, one.trials);
  }
  fmt::print("all    {} of {} ({:.1f} %), prompts of {} tokens\n", result.correct(),
             result.trials.size(), 100.0 * result.correct() / result.trials.size(), length);
}

Json result_json(const eval::PasskeyResult& result) {
  Json by_depth = Json::array();
  for (const eval::PasskeyAtDepth& one : result.by_depth()) {
    by_depth.push_back({{"depth", one.depth}, {"correct", one.correct}, {"trials", one.trials}});
  }
  return {{"trials", result.trials.size()},
          {"correct", result.correct()},
          {"accuracy", 1.0 * result.correct() / result.trials.size()},
          {"by_depth", std::move(by_depth)},
          {"unfinished", result.is_stopped()}};
}

Status run_passkey(App& app, PasskeyFlags flags) {
  if (flags.depth_flag->was_given()) flags.options.depth = flags.depth;
  std::optional<eval::PasskeyText> text;
  if (!flags.file.empty()) {
    text.emplace(flags.file);
    WEFT_ASSIGN_OR_RETURN(text->text, read_file(app.env, flags.file, kMaxTextBytes));
  }
  WEFT_RETURN_IF_ERROR(choose_lengths(app, flags));
  flags.model.sparse.measure_every = flags.json ? kMeasuredEvery : 0;
  flags.model.n_contexts = 2;  // what prompts share, and one that goes on from it
  WEFT_ASSIGN_OR_RETURN(const auto engine, open_engine(app, flags.model));
  WEFT_ASSIGN_OR_RETURN(const auto prompts,
                        eval::PasskeyPrompts::create(*engine, text, flags.options));
  Progress progress("passkey");
  WEFT_ASSIGN_OR_RETURN(const eval::PasskeyResult result,
                        eval::passkey(*engine, prompts, [&](int64_t done, int64_t total) {
                          progress.show(done, total, "trials");
                          return !interrupted();
                        }));
  progress.hide();
  if (flags.json) {
    Json json = result_json(result);
    add_sparse_json(*engine, json);
    print_json(json);
  } else {
    print_result(result, flags.options.length_tokens);
    print_sparse_total(*engine);
  }
  if (!result.is_stopped()) return Status::ok();
  return cancelled(fmt::format("stopped after {} of {} trials: the figures are of these",
                               result.trials.size(), result.n_asked));
}

}  // namespace

void add_eval_passkey_command(Command eval, App& app) {
  auto flags = std::make_shared<PasskeyFlags>();
  Command command =
      eval.add_command("passkey", "Whether a model finds a key that a long text mentions once");
  add_model_flags(command, flags->model);
  add_self_extend_flags(command, flags->model);
  add_sparse_flags(command, flags->model);
  add_beyond_context_flag(command, flags->model);
  command.get_option("--context")
      .describe("context in tokens (default: the prompt's and the answer's)");
  eval::PasskeyOptions& o = flags->options;
  command
      .add_option("--length", o.length_tokens,
                  "tokens of a whole prompt (default: three quarters of the context)")
      .in_range(1, 1 << 30);
  flags->depth_flag =
      command
          .add_option("--depth", flags->depth,
                      "where the key is, from 0 (first) to 1 (last; default: 0.05, 0.15 ... 0.95)")
          .in_range(0, 1);
  command.add_option("--trials", o.n_trials, "prompts (default: 20)").in_range(1, 10'000);
  command
      .add_option("--needles", o.n_needles,
                  "keys in the text: one a number, several UUIDs, of which one is asked for "
                  "(default: 1)")
      .in_range(1, eval::kMostNeedles);
  command.add_option("-f,--file", flags->file, "the text around the key (default: generated)");
  command.add_option("--seed", o.seed, "of keys and places in the text (default: 1)");
  command.add_flag("--json", flags->json, "print the result as JSON");
  command.when_given(
      [flags, &app] { app.run = [flags, &app] { return run_passkey(app, *flags); }; });
}

}  // namespace weft::cli
