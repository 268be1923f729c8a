// Nothing shows before the end, when it is known which answer is the best: a terminal has a bar
// until then. The best text alone goes to standard output, as an answer that was sampled would, so
// that a pipe needs no change.
#include "cli/generate_beams.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/sparse_flags.h"

namespace weft::cli {
namespace {

Json to_json(const std::vector<engine::BeamChoice>& choices) {
  Json list = Json::array();
  for (const engine::BeamChoice& choice : choices) {
    const engine::Generation& generation = choice.generation;
    Json tokens = Json::array();
    for (const engine::GeneratedToken& token : generation.tokens) tokens.push_back(token.id);
    list.push_back({{"text", generation.text},
                    {"tokens", std::move(tokens)},
                    {"score", choice.score},
                    {"stop_reason", engine::stop_reason_name(generation.stop_reason)}});
  }
  return {{"choices", std::move(list)}};
}

}  // namespace

void exclude_from_beams(Command command, Flag beams) {
  for (const char* name :
       {"--temp", "--top-k", "--top-p", "--min-p", "--repeat-penalty", "--repeat-last-n",
        "--presence-penalty", "--frequency-penalty", "--seed", "--logprobs", "--context-shift",
        "--keep", "--context-sinks", "--parallel", "--batch", "--session"}) {
    beams.excludes(command.get_option(name));
  }
}

Status run_beams(engine::Engine& engine, std::span<const int32_t> prompt, const BeamFlags& flags) {
  const auto n_prompt = std::ssize(prompt);
  const int64_t room = engine.context_tokens() - n_prompt + 1;
  const bool is_limited = flags.search.max_tokens != engine::kNoTokenLimit;
  const int64_t most = is_limited ? std::min<int64_t>(room, flags.search.max_tokens) : room;
  Progress progress("generate");
  const auto goes_on = [&](int32_t n_tokens) {
    if (n_tokens > 0) progress.show(n_tokens, most, "tokens");
    return !interrupted();
  };
  WEFT_ASSIGN_OR_RETURN(const std::vector<engine::BeamChoice> choices,
                        engine::generate_beams(engine, prompt, flags.search, goes_on));
  progress.hide();
  const engine::Generation& best = choices.front().generation;
  if (flags.json) {
    Json json = to_json(choices);
    add_sparse_json(engine, json);
    print_json(json);
  } else {
    std::fwrite(best.text.data(), 1, best.text.size(), stdout);
    fmt::print("\n");
  }
  std::fflush(stdout);
  log_answer(std::ssize(best.tokens), best.decode_ms);
  log_sparse(engine);
  if (!flags.quiet && !flags.json) note_end(engine, best);
  return interrupted() ? cancelled("interrupted: the answers end here") : Status::ok();
}

}  // namespace weft::cli
