// What `weft ask` shows of an answer: its sources, the line about time, the table of --stats,
// and the same as JSON. It opens nothing and asks nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/app.h"
#include "engine/generation.h"
#include "fusion/fusor.h"
#include "library/found_passages.h"

namespace weft::cli {

/// One answer in one mode.
struct Answer {
  // report.mode is what was done in its place.
  fusion::ReuseMode asked = fusion::ReuseMode::kBlend;
  engine::Generation generation;
  fusion::Report report;
  // Of the prefill: the search and loading the model are not in it.
  double ttft_ms = 0;
};

/// Passages of one document that follow each other are one source.
struct Source {
  std::string path;  // as people named it
  std::string title;
  uint64_t line_begin = 0;  // 0: not known
  uint64_t line_end = 0;
  double score = 0;      // the best passage's
  std::string sentence;  // the best passage's
  library::FileState file = library::FileState::kSame;
  size_t newer = 0;  // the number, from 1, of the source that has its newer version; 0: none
  // Documents left out for it, as people named them: of the same content, and others.
  std::vector<std::string> same;
  std::vector<std::string> nearly_same;
};
/// In the order of `passages`; `newer` counts from 1, as the sources are shown.
std::vector<Source> sources_of(std::span<const library::Passage> passages);

/// "[1] notes/meeting.md:12-18  Title  (7.3)", and whether its file is not what was ingested
/// or "older version of [2]".
std::string source_line(const Source& source, size_t number);

/// "the same as backup/meeting.md; nearly the same: notes/old/meeting.md, …": the documents left
/// out for it, three of each by name; "": none.
std::string left_out_line(const Source& source);

/// "0.52 s to the first token (predicted for a quiet machine: 0.50 s, and 4.3 s for full prefill);
/// 3,400 of 3,964 tokens reused (--stats)", or why full prefill was done. What is in
/// brackets only where it was predicted, the hint where `stats_shown` is false.
std::string timing_line(const Answer& answer, bool stats_shown);

/// Tokens and times of each answer, with a line of headings; docs/cli.md explains the columns.
/// One line for each, in their order.
std::string stats_table(std::span<const Answer> answers);

/// "the first token: full 13.3 times as soon as none, blend 4.3 times": the later answers by the
/// first; "blend (done as prefix)" where that was done.
std::string saved_line(std::span<const Answer> answers);

/// "blend: 0.52 s to the first token; predicted for a quiet machine: 0.50 s, and 4.3 s for full
/// prefill"; "" where nothing was predicted.
std::string predicted_line(const Answer& answer);

/// In one line, without white space at the beginning.
std::string in_one_line(std::string text);

/// Times have two decimals, scores three significant digits.
Json answer_json(const Answer& answer);
Json passage_json(const library::Passage& passage);

/// What to say where the first token came far earlier than predicted: the rates were measured on
/// a busy machine, and `rates_file` keeps them. "": nothing.
std::string note_on_rates(const Answer& answer, const std::string& rates_file);

/// What to say of an answer that is empty; "": nothing.
std::string note_on_empty(const engine::Generation& generation);
/// The same of one that was cut; JSON has its stop_reason for that. `context_flag`:
/// Engine::context_flag.
std::string note_on_cut(const engine::Generation& generation, int32_t max_tokens,
                        std::string_view context_flag);

}  // namespace weft::cli
