// The flags that choose how chunks are reused, shared by ask, bench and eval.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cli/flags.h"
#include "engine/engine.h"
#include "fusion/prompt.h"

namespace weft::cli {

struct ReuseFlags {
  std::string ratio = "auto";
  std::string selector = "query-attention";
  double propagate = fusion::FusionOptions().propagate;
  std::string check;  // "1:0.20,8:0.15"
};
/// Returns them, for a command that takes them only with another flag.
std::vector<Flag> add_reuse_flags(Command command, ReuseFlags& flags);
/// What the flags say; with an automatic ratio, `rates` are still to be set (with_rates).
Result<fusion::FusionOptions> fusion_options(const ReuseFlags& flags);
/// kInvalidArgument also where --check names layers that this model does not have.
Status check_reuse_flags(const ReuseFlags& flags, const engine::Engine& engine);
/// Both, with the machine's rates, which are measured where they are not known.
Result<fusion::FusionOptions> fusion_options(const ReuseFlags& flags, engine::Engine& engine);
/// For prefill in this mode: with the rates where it needs them.
Result<fusion::FusionOptions> fusion_options(const ReuseFlags& flags, fusion::ReuseMode mode,
                                             engine::Engine& engine);

/// --prompt chat|fewshot; "" is what the model, or the folder of documents, wants.
Flag add_prompt_flag(Command command, std::string& prompt);

/// --record-type, one of fusion::kRecordTypes; "": `otherwise` says what then.
Flag add_record_type_flag(Command command, std::string& type, const std::string& otherwise);
/// The type that it says ("": f16); kUnsupported where the model's heads do not take it.
Result<DType> record_type_of(const std::string& type, const engine::Engine& engine);

/// "none", "prefix", "full", "blend".
Result<fusion::ReuseMode> parse_mode(const std::string& name);
/// A list of them, separated by commas.
Result<std::vector<fusion::ReuseMode>> parse_modes(const std::string& names);

/// The parts of `text` between commas.
std::vector<std::string> split_list(const std::string& text);

}  // namespace weft::cli
