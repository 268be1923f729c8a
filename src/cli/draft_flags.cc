#include "cli/draft_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/parse_number.h"
#include "cli/local_models.h"
#include "cli/sparse_flags.h"
#include "cli/suggestion.h"
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

namespace {

/// What no model has as its name may be a number of tokens, as llama.cpp's --draft has it, or
/// "ngram" with a letter wrong.
Result<std::string> path_of_drafter(const App& app, const std::string& draft) {
  auto path = resolve_model(app.env, draft, app.models_dir);
  if (path.is_ok()) return path;
  if (path.status().code() != StatusCode::kNotFound) {
    return Status(path.status().code(), "--draft: " + path.status().message());
  }
  int64_t n_tokens = 0;
  if (parse_number(draft, n_tokens)) {
    return invalid_argument(
        fmt::format("--draft {}: weft's --draft says what guesses, ngram, self or a model; how "
                    "many tokens at once at most is --draft-tokens {}",
                    draft, std::clamp<int64_t>(n_tokens, 1, spec::kMostDraftTokens)));
  }
  const std::string meant = did_you_mean(draft, {spec::kDrafters.name(spec::DrafterKind::kNgram),
                                                 spec::kDrafters.name(spec::DrafterKind::kSelf),
                                                 spec::kDrafters.name(spec::DrafterKind::kNone)});
  if (!meant.empty()) return invalid_argument(fmt::format("--draft {}{}", draft, meant));
  return not_found(
      fmt::format("--draft (ngram, self, none or a model): {}", path.status().message()));
}

}  // namespace

Result<spec::DraftOptions> draft_options(const App& app, const ModelFlags& flags) {
  using spec::DrafterKind;
  spec::DraftOptions options{.kind = DrafterKind::kModel};
  for (const DrafterKind kind : {DrafterKind::kNone, DrafterKind::kNgram, DrafterKind::kSelf}) {
    if (flags.draft == spec::kDrafters.name(kind)) options.kind = kind;
  }
  if (flags.draft_tokens > 0 && !options.is_on()) {
    return invalid_argument(
        "--draft-tokens goes with a --draft that drafts: ngram, self, or a model's name or file");
  }
  if (options.kind == DrafterKind::kModel) {
    WEFT_ASSIGN_OR_RETURN(options.model_path, path_of_drafter(app, flags.draft));
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
  const engine::Engine* const draft = engine.draft_engine();
  const bool has_model = draft != nullptr;
  json["speculation"] = {
      {"draft", spec::kDrafters.name(o.kind)},
      {"draft_model", has_model ? Json(draft->model().config().name) : Json()},
      {"draft_model_path", has_model ? Json(draft->model().file().path()) : Json()},
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

std::string drafts_text(const spec::DraftCounters& drafts) {
  if (drafts.steps == 0) return "";
  if (drafts.drafted == 0) return "no token was guessed";
  return fmt::format("{} of {} guessed tokens were right, {:.2f} tokens a step", drafts.accepted,
                     drafts.drafted, 1.0 * (drafts.steps + drafts.accepted) / drafts.steps);
}

void print_drafts(std::span<const engine::Generation* const> answers) {
  spec::DraftCounters all;
  for (const engine::Generation* answer : answers) {
    all.steps += answer->drafts.steps;
    all.drafted += answer->drafts.drafted;
    all.accepted += answer->drafts.accepted;
  }
  const std::string text = drafts_text(all);
  if (!text.empty()) fmt::print("drafts: {}\n", text);
}

}  // namespace weft::cli
