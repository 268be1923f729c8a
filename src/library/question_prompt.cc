// Passages come best first, so what does not fit is cut from the end, and no passage is cut in two:
// the KV of a chunk is stored for all of its tokens, and half a passage would be another chunk,
// which no store has. The room for the answer is set aside before passages are counted, since an
// answer that ends in the middle is worse than one passage fewer.
#include "library/question_prompt.h"

#include <fmt/format.h>

namespace weft::library {

Result<fusion::Prompt> question_prompt(const engine::Engine& engine, const Library& library,
                                       const std::string& question,
                                       const engine::GenerationOptions& options,
                                       FoundPassages& found) {
  fusion::Prompt prompt;
  WEFT_ASSIGN_OR_RETURN(prompt.prefix, library.rag().prefix());
  WEFT_ASSIGN_OR_RETURN(prompt.suffix, library.rag().suffix(question));
  const int32_t for_answer = engine::room_for_answer(options, engine.context_tokens());
  const int64_t room = engine.context_tokens() - for_answer;
  // Tokens of prefix and suffix: the question is always there, whatever else is left out.
  int64_t used = prompt.n_tokens();
  const size_t n_found = found.passages.size();
  for (const Passage& passage : found.passages) {
    const std::vector<int32_t>& tokens = passage.hit.chunk.tokens;
    if (used + std::ssize(tokens) > room) break;
    used += std::ssize(tokens);
    prompt.chunks.push_back(tokens);
  }
  const size_t n = prompt.chunks.size();
  // Passages were found, but not one fits: an answer without them would be one from nothing.
  if (n == 0 && n_found > 0) {
    const int64_t tokens = used + std::ssize(found.passages.front().hit.chunk.tokens);
    return resource_exhausted(fmt::format(
        "the question with one passage ({}) and an answer of up to {} (-n) do not fit the "
        "context of {}; {}",
        engine.tokens_text(tokens), for_answer, engine.context_tokens(),
        engine.way_to_hold(engine::context_for(options, tokens))));
  }
  if (n < n_found) {
    found.notes.push_back(fmt::format("{} of {} chunks fit the context of {} tokens", n, n_found,
                                      engine.context_tokens()));
    found.passages.resize(n);
  }
  return prompt;
}

}  // namespace weft::library
