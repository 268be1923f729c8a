// The flags that choose how chunks are reused, shared by ask, bench and eval.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "fusion/prompt.h"

namespace weft::cli {

struct ReuseFlags {
  double ratio = 0.05;
  std::string selector = "query-attention";
  std::string check;  // "1:0.20,8:0.15"
};
void add_reuse_flags(CLI::App& command, ReuseFlags& flags);
Result<fusion::FusionOptions> fusion_options(const ReuseFlags& flags);

/// --prompt chat|fewshot; "" is what the model, or the folder of documents, wants.
void add_prompt_flag(CLI::App& command, std::string& prompt);

/// "none", "prefix", "full", "blend".
Result<fusion::ReuseMode> parse_mode(const std::string& name);
/// A list of them, separated by commas.
Result<std::vector<fusion::ReuseMode>> parse_modes(const std::string& names);

/// The parts of `text` between commas.
std::vector<std::string> split_list(const std::string& text);

}  // namespace weft::cli
