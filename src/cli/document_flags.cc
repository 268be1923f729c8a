// `weft ask` and `weft chat --store` answer the same question in the same way, so they have their
// flags from here: a flag that is added to one of them is in both. --store itself is each command's
// own, since ask needs it and chat does not.
#include "cli/document_flags.h"

#include <fmt/format.h>

namespace weft::cli {

std::vector<Flag> add_document_flags(Command command, DocumentFlags& flags) {
  std::vector<Flag> all = add_reuse_flags(command, flags.reuse);
  all.push_back(add_prompt_flag(command, flags.library.prompt));
  all.push_back(command
                    .add_option("--reuse", flags.mode,
                                fmt::format("which stored KV is used: {} (default: blend)",
                                            fusion::kReuseModes.explained()))
                    .one_of(fusion::kReuseModes.names()));
  all.push_back(
      command.add_option("--chunks", flags.n_chunks, "passages in the prompt at most (default: 4)")
          .in_range(1, 1024));
  all.push_back(command
                    .add_option("--min-score", flags.min_score,
                                "leave out passages with less than this share of the best one's "
                                "score (default: 0.5; 0 fills the prompt)")
                    .in_range(0, 1));
  all.push_back(
      command.add_flag("--answer-anyway", flags.answer_anyway,
                       "ask the model also when the documents have nothing on the question"));
  all.push_back(command.add_flag(
      "--stats", flags.stats,
      "also a table: tokens of the prompt whose KV was reused, recomputed (of those) or "
      "computed; the tier they came from; TTFT, the time to the first token, and its "
      "parts: lookup of the records, miss (computing those that were missing), load "
      "wait (for the disk), rotate (keys to their places), select (tokens to "
      "recompute), recompute, prefill"));
  all.push_back(
      command.add_flag("--paragraphs", flags.paragraphs,
                       "let the answer go on after its first line, where it ends otherwise"));
  all.push_back(command.add_bytes("--memory-limit", flags.library.memory_limit_bytes,
                                  "bytes of KV kept in memory, as 512MB (default: 1GB)"));
  all.push_back(command.add_flag("--json", flags.json, "print the answer and its report as JSON"));
  return all;
}

retrieval::PassageOptions passage_options(const DocumentFlags& flags) {
  return {.n_passages = flags.n_chunks,
          .least_share_of_best = flags.min_score,
          .anyway = flags.answer_anyway};
}

/// Without an engine: what only a model can tell is check_reuse_flags'.
Status check_document_flags(const DocumentFlags& flags) {
  WEFT_RETURN_IF_ERROR(parse_mode(flags.mode).status());
  return fusion_options(flags.reuse).status();
}

}  // namespace weft::cli
