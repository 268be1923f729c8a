#include "cli/draft_flags.h"

#include <fmt/format.h>

#include "cli/local_models.h"
#include "spec/drafter.h"

namespace weft::cli {

Flag add_draft_flags(Command command, ModelFlags& flags) {
  Flag draft =
      command
          .add_option("--draft", flags.draft,
                      "speculative decoding, several tokens a step where guesses are right, and "
                      "the same answer; guesses: ngram, what followed the same words before, in "
                      "prompt or answer; or of a smaller MODEL with the same vocabulary; none "
                      "(default)")
          .value_name("ngram|none|MODEL");
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
  for (const DrafterKind kind : {DrafterKind::kNone, DrafterKind::kNgram}) {
    if (flags.draft == spec::kDrafters.name(kind)) options.kind = kind;
  }
  if (options.kind == DrafterKind::kModel) {
    auto path = resolve_model(app.env, flags.draft, app.models_dir);
    if (!path.is_ok()) {
      return Status(path.status().code(),
                    fmt::format("--draft (ngram, none or a model): {}", path.status().message()));
    }
    options.model_path = *std::move(path);
  }
  if (flags.draft_tokens > 0 && !options.is_on()) {
    return invalid_argument("--draft-tokens goes with --draft");
  }
  if (flags.draft_tokens > 0) options.most_tokens = flags.draft_tokens;
  return options;
}

void add_draft_json(const engine::Engine& engine, Json& json) {
  const spec::DraftOptions& o = engine.draft_options();
  if (!o.is_on()) return;
  const spec::DraftCounters& c = engine.draft_counters();
  const auto share = [](double a, double b) { return b > 0 ? Json(a / b) : Json(); };
  json["speculation"] = {{"draft", spec::kDrafters.name(o.kind)},
                         {"draft_model", engine.draft_engine() != nullptr
                                             ? Json(engine.draft_engine()->model().config().name)
                                             : Json()},
                         {"draft_tokens", o.most_tokens},
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
