// The flags are read in two stages, since a wrong one should be said before a model is opened: what
// can be told from the text alone (fusion_options of the flags), then what needs the model, as the
// layers that --check names, and the machine, whose rates --ratio auto predicts by. Measuring these
// takes time, so it is done only where a mode needs them, and kept.
#include "cli/reuse_flags.h"

#include <fmt/format.h>

#include "base/parse_number.h"
#include "cli/app.h"
#include "cli/suggestion.h"
#include "engine/rag_prompt.h"
#include "fusion/record_type.h"
#include "fusion/selection.h"

namespace weft::cli {
namespace {

using fusion::ReuseMode;
using fusion::SelectorKind;

}  // namespace

std::vector<Flag> add_reuse_flags(Command command, ReuseFlags& flags) {
  std::vector<Flag> all;
  all.push_back(command.add_option(
      "--ratio", flags.ratio,
      "share of the passages' tokens that blend recomputes, 0 to 1, or auto: by what "
      "this machine saves, and full prefill where that is quick (default: auto)"));
  all.push_back(
      command
          .add_option("--propagate", flags.propagate,
                      fmt::format("how much of their mean change blend gives a chunk's other "
                                  "tokens (default: {})",
                                  fusion::FusionOptions().propagate))
          .in_range(0, 1));
  all.push_back(
      command
          .add_option("--selector", flags.selector,
                      "how blend chooses the tokens that it recomputes (default: query-attention)")
          .one_of(fusion::kSelectors.names()));
  all.push_back(
      command.add_option("--check", flags.check,
                         "v-deviation: check layers with their ratios, as 1:0.20,8:0.15,16:0.10; "
                         "they count in place of --ratio"));
  return all;
}

/// The ratio is a text, as "auto" is one of its values; so in_range cannot check it. Comparisons
/// are written so that NaN fails them.
Result<fusion::FusionOptions> fusion_options(const ReuseFlags& flags) {
  fusion::FusionOptions options;
  options.cancelled = interrupted;
  options.auto_ratio = flags.ratio == "auto" && flags.check.empty();
  if (flags.ratio != "auto" &&
      (!parse_number(flags.ratio, options.ratio) || !(options.ratio >= 0 && options.ratio <= 1))) {
    return invalid_argument(
        fmt::format("--ratio {}: must be a number from 0 to 1, or auto", flags.ratio));
  }
  options.propagate = flags.propagate;
  if (!(flags.propagate >= 0 && flags.propagate <= 1)) {
    return invalid_argument(
        fmt::format("--propagate {}: must be a number from 0 to 1", flags.propagate));
  }
  const auto selector = fusion::kSelectors.find(flags.selector);
  if (!selector) {
    return invalid_argument(
        fmt::format("--selector {}: must be {}", flags.selector, fusion::kSelectors.listed()));
  }
  options.selector = *selector;
  if (flags.check.empty()) return options;
  if (options.selector != SelectorKind::kVDeviation) {
    return invalid_argument("--check goes with --selector v-deviation");
  }
  for (const std::string& item : split_list(flags.check)) {
    const size_t colon = item.find(':');
    fusion::CheckLayer check;
    if (colon == std::string::npos ||
        !parse_number(std::string_view(item).substr(0, colon), check.layer) ||
        !parse_number(std::string_view(item).substr(colon + 1), check.ratio)) {
      return invalid_argument(fmt::format("--check {}: must be LAYER:RATIO, as 1:0.20", item));
    }
    options.checks.push_back(check);
  }
  return options;
}

/// Also for a mode that does not use them: a layer that the model lacks is a mistake under `--reuse
/// none`, too.
Status check_reuse_flags(const ReuseFlags& flags, const engine::Engine& engine) {
  WEFT_ASSIGN_OR_RETURN(const fusion::FusionOptions options, fusion_options(flags));
  if (options.checks.empty()) return Status::ok();
  const Status status = fusion::check_layers(options, engine.model().config().n_layers).status();
  return status.is_ok() ? status : Status(status.code(), "--check: " + status.message());
}

Result<fusion::FusionOptions> fusion_options(const ReuseFlags& flags, engine::Engine& engine) {
  WEFT_RETURN_IF_ERROR(check_reuse_flags(flags, engine));
  WEFT_ASSIGN_OR_RETURN(fusion::FusionOptions options, fusion_options(flags));
  Progress progress("");
  WEFT_ASSIGN_OR_RETURN(options.rates, engine.prefill_rates([&] {
    progress.show_line("measuring once how fast this machine prefills with this model");
  }));
  return options;
}

Result<fusion::FusionOptions> fusion_options(const ReuseFlags& flags, ReuseMode mode,
                                             engine::Engine& engine) {
  WEFT_ASSIGN_OR_RETURN(fusion::FusionOptions options, fusion::reuses_chunks(mode)
                                                           ? fusion_options(flags, engine)
                                                           : fusion_options(flags));
  options.mode = mode;
  return options;
}

Flag add_prompt_flag(Command command, std::string& prompt) {
  return command
      .add_option(
          "--prompt", prompt,
          "form of the prompt; fewshot is for base models (default: chat if the model has a "
          "template)")
      .one_of(engine::kPromptForms.names());
}

Flag add_record_type_flag(Command command, std::string& type, const std::string& otherwise) {
  return command
      .add_option("--record-type", type,
                  fmt::format("type of the chunks' K and V, whatever the cache's is; q8_0 takes "
                              "0.53 of f16's bytes (default: {})",
                              otherwise))
      .one_of(fusion::kRecordTypes.names());
}

Result<DType> record_type_of(const std::string& type, const engine::Engine& engine) {
  if (type.empty()) return fusion::kUsualRecordType;
  WEFT_ASSIGN_OR_RETURN(const DType parsed, fusion::parse_record_type(type));
  WEFT_RETURN_IF_ERROR(fusion::check_record_type(engine.model().config(), parsed));
  return parsed;
}

/// Of --modes' list; --reuse has one_of, whose error comes before this.
Result<ReuseMode> parse_mode(const std::string& name) {
  if (const auto mode = fusion::kReuseModes.find(name)) return *mode;
  const std::optional<std::string> meant = closest(name, fusion::kReuseModes.names());
  return invalid_argument(fmt::format("--modes {}: must be {}{}", name,
                                      fusion::kReuseModes.listed(),
                                      meant ? fmt::format("; did you mean {}?", *meant) : ""));
}

Result<std::vector<ReuseMode>> parse_modes(const std::string& names) {
  std::vector<ReuseMode> modes;
  for (const std::string& name : split_list(names)) {
    WEFT_ASSIGN_OR_RETURN(const ReuseMode mode, parse_mode(name));
    modes.push_back(mode);
  }
  return modes;
}

/// "a,,b" has an empty part in the middle, which no list takes.
std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> items;
  size_t begin = 0;
  for (;;) {
    const size_t comma = text.find(',', begin);
    items.push_back(text.substr(begin, comma - begin));
    if (comma == std::string::npos) return items;
    begin = comma + 1;
  }
}

}  // namespace weft::cli
