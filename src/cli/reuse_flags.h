// The flags that choose how chunks are reused, shared by ask, bench and eval.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/status.h"
#include "cli/flags.h"
#include "fusion/prompt.h"

namespace weft::cli {

struct ReuseFlags {
  double ratio = 0.05;
  std::string selector = "query-attention";
  std::string check;  // "1:0.20,8:0.15"
};
void add_reuse_flags(Command command, ReuseFlags& flags);
Result<fusion::FusionOptions> fusion_options(const ReuseFlags& flags);

/// --prompt chat|fewshot; "" is what the model, or the folder of documents, wants.
void add_prompt_flag(Command command, std::string& prompt);

/// "none", "prefix", "full", "blend".
Result<fusion::ReuseMode> parse_mode(const std::string& name);
/// A list of them, separated by commas.
Result<std::vector<fusion::ReuseMode>> parse_modes(const std::string& names);

/// Whether all of `text` is a number; `value` is it then.
template <class T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// The parts of `text` between commas.
std::vector<std::string> split_list(const std::string& text);

}  // namespace weft::cli
