#include "cli/draft_flags.h"

#include <fmt/format.h>

#include "cli/local_models.h"
#include "cli/sparse_flags.h"
#include "spec/drafter.h"

namespace weft::cli {

Flag add_draft_flags(Command command, ModelFlags& flags) {
  Flag draft =
      command
          .add_option("--draft", flags.draft,
                      "speculative decoding, several tokens a step where guesses are right, and "
                      "the same answer; guesses: ngram, what followed the same words before, in "
                      "prompt or answer; self, of the model itself over the pages that --sparse or "
                      "--budget choose; or of a smaller MODEL with the same vocabulary; none "
                      "(default)")
          .value_name("ngram|self|none|MODEL");
  command
      .add_option("--verify", flags.verify,
                  "with --draft self: its guesses are checked over all pages, and the answer is "
                  "that of dense decoding (dense, the default), or over the chosen pages, and the "
                  "answer is that of sparse decoding (locked)")
      .one_of({"dense", "locked"});
  command
      .add_option("--draft-tokens", flags.draft_tokens,
                  fmt::format("with --draft: tokens that are guessed at once, at most; fewer where "
                              "guesses are wrong (default: {})",
                              spec::DraftOptions().most_tokens))
      .in_range(1, spec::kMostDraftTokens);
  return draft;
}

Result<spec::DraftOptions> draft_options(const App& app, const ModelFlags& flags) {
  using spec::DrafterKind;
  spec::DraftOptions options{.kind = DrafterKind::kModel};
  for (const DrafterKind kind : {DrafterKind::kNone, DrafterKind::kNgram, DrafterKind::kSelf}) {
    if (flags.draft == spec::kDrafters.name(kind)) options.kind = kind;
  }
  if (options.kind == DrafterKind::kModel) {
    auto path = resolve_model(app.env, flags.draft, app.models_dir);
    if (!path.is_ok()) {
      return Status(path.status().code(), fmt::format("--draft (ngram, self, none or a model): {}",
                                                      path.status().message()));
    }
    options.model_path = *std::move(path);
  }
  if (flags.draft_tokens > 0 && !options.is_on()) {
    return invalid_argument("--draft-tokens goes with --draft");
  }
  if (flags.draft_tokens > 0) options.most_tokens = flags.draft_tokens;
  if (!flags.verify.empty() && options.kind != DrafterKind::kSelf) {
    return invalid_argument("--verify goes with --draft self");
  }
  if (flags.verify == spec::kVerifies.name(spec::Verify::kLocked)) {
    options.verify = spec::Verify::kLocked;
  }
  if (options.kind == DrafterKind::kSelf && !asks_for_sparse(flags)) {
    return invalid_argument(
        "--draft self guesses over a part of the pages: say how many, as --budget 1024, or "
        "--sparse-ratio 0.1");
  }
  return options;
}

void add_draft_json(const engine::Engine& engine, Json& json) {
  const spec::DraftOptions& o = engine.draft_options();
  if (!o.is_on()) return;
  const spec::DraftCounters& c = engine.draft_counters();
  const auto share = [](double a, double b) { return b > 0 ? Json(a / b) : Json(); };
  json["speculation"] = {
      {"draft", spec::kDrafters.name(o.kind)},
      {"draft_model", engine.draft_engine() != nullptr
                          ? Json(engine.draft_engine()->model().config().name)
                          : Json()},
      {"draft_tokens", o.most_tokens},
      {"verify",
       o.kind == spec::DrafterKind::kSelf ? Json(spec::kVerifies.name(o.verify)) : Json()},
      {"steps", c.steps},
      {"drafted", c.drafted},
      {"accepted", c.accepted},
      {"acceptance", share(c.accepted, c.drafted)},
      {"tokens_per_step", share(c.steps + c.accepted, c.steps)},
      {"draft_ms", c.draft_ms},
      {"verify_ms", c.verify_ms}};
}

void print_drafts(const engine::Engine& engine) {
  const spec::DraftCounters& c = engine.draft_counters();
  if (!engine.draft_options().is_on() || c.steps == 0) return;
  fmt::print("drafts: {} of {} guessed tokens were right, {:.2f} tokens a step\n", c.accepted,
             c.drafted, 1.0 * (c.steps + c.accepted) / c.steps);
}

}  // namespace weft::cli
