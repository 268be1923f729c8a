// Pure functions of an answer and its report, so that tests (ask_report_test.cc) can say each line
// whole. The lines answer what people asked of weft in trials: where the answer is from and whether
// that text is still the file's; why it took so long; why nothing of the store was used although
// documents were ingested for just that.
#include "cli/ask_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/counts_text.h"
#include "base/terminal_text.h"
#include "fusion/work.h"
#include "retrieval/scan.h"

namespace weft::cli {
namespace {

double milliseconds(double value) { return std::round(value * 100) / 100; }

/// 7.3456789 as 7.35, 0.0012345 as 0.00123, 12345 as 12300. JSON would else have all seventeen
/// digits of a double.
double three_digits(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double unit = std::pow(10, std::floor(std::log10(std::abs(value))) - 2);
  // By division where the unit is below 1: 10^-n has no exact double.
  return unit < 1 ? std::round(value / unit) / std::round(1 / unit)
                  : std::round(value / unit) * unit;
}

/// "0.52 s", "4.3 s"
/// Two decimals below a second, one from there on: more would not come again in a second run.
std::string seconds(double ms) {
  return ms < 1000 ? fmt::format("{:.2f} s", ms / 1000) : fmt::format("{:.1f} s", ms / 1000);
}

const char* file_state_name(library::FileState state) {
  switch (state) {
    case library::FileState::kSame:
      return "same";
    case library::FileState::kChanged:
      return "changed";
    case library::FileState::kGone:
      return "gone";
  }
  return "unknown";
}

/// Where the chunks' tokens came from.
/// "memory+disk" where chunks of both were in the prompt; "-" without any chunk.
std::string tiers(const fusion::Report& report) {
  std::map<fusion::ChunkOrigin, int64_t> tokens;
  for (const fusion::ChunkReport& chunk : report.chunks) tokens[chunk.origin] += chunk.n_tokens;
  std::string text;
  for (const auto origin :
       {fusion::ChunkOrigin::kMemory, fusion::ChunkOrigin::kDisk, fusion::ChunkOrigin::kComputed}) {
    if (tokens[origin] == 0) continue;
    text += fmt::format("{}{}", text.empty() ? "" : "+", fusion::origin_name(origin));
  }
  return text.empty() ? "-" : text;
}

/// "blend", or "blend (done as prefix)" where that was plainer.
std::string mode_done(const Answer& answer) {
  const std::string asked = fusion::kReuseModes.name(answer.asked);
  if (answer.report.mode == answer.asked) return asked;
  return fmt::format("{} (done as {})", asked, fusion::kReuseModes.name(answer.report.mode));
}

}  // namespace

/// Passages come best first, and those of one document that follow each other are together, so a
/// run is found by looking at the one before. A source shows its best passage's score and sentence:
/// a long run would else be judged by its weakest piece. Which source has the newer version is
/// filled in at the end, as that one may come later in the list.
std::vector<Source> sources_of(std::span<const library::Passage> passages) {
  std::vector<Source> sources;
  std::map<std::string, size_t> numbers;  // the first source of each document, from 1
  std::vector<std::string> newer;         // of each source: the document that has its newer version
  const retrieval::Chunk* last = nullptr;
  for (const library::Passage& passage : passages) {
    const retrieval::Hit& hit = passage.hit;
    // By ordinals and not by lines: two chunks of one line (a long paragraph) do follow each other.
    const bool goes_on = last != nullptr && last->document_id == hit.chunk.document_id &&
                         last->ordinal + 1 == hit.chunk.ordinal;
    if (!goes_on) {
      sources.push_back({.path = retrieval::path_from_root(hit.path, hit.root),
                         .title = hit.title,
                         .line_begin = hit.chunk.line_begin,
                         .score = hit.score,
                         .sentence = passage.sentence,
                         .file = passage.file});
      // A document's first source: "older version of [1]" names where it shows first.
      numbers.try_emplace(hit.path, sources.size());
      newer.emplace_back();
    }
    Source& source = sources.back();
    if (newer.back().empty()) newer.back() = hit.older_version_of;
    for (const retrieval::Hit& other : hit.nearly_same) {
      const std::string path = retrieval::path_from_root(other.path, other.root);
      // A hash that is not known is equal to no other.
      const bool is_copy = !hit.content_hash.empty() && other.content_hash == hit.content_hash;
      if (path == source.path) continue;  // rows of one table that are alike in several chunks
      std::vector<std::string>& paths = is_copy ? source.same : source.nearly_same;
      if (std::ranges::find(paths, path) == paths.end()) paths.push_back(path);
    }
    source.line_end = hit.chunk.line_end;
    if (hit.score > source.score) {
      source.score = hit.score;
      source.sentence = passage.sentence;
    }
    last = &hit.chunk;
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto found = numbers.find(newer[i]);
    if (found != numbers.end()) sources[i].newer = found->second;
  }
  return sources;
}

/// Without lines (a store of an older weft) the path alone; with one line ":12", else ":12-18".
/// Paths and titles come from files, so they are made one line: a newline in a name would let a
/// file write a source of its own.
std::string source_line(const Source& source, size_t number) {
  std::string lines;
  if (source.line_begin > 0) lines = fmt::format(":{}", source.line_begin);
  if (source.line_begin > 0 && source.line_end > source.line_begin) {
    lines += fmt::format("-{}", source.line_end);
  }
  const char* state = source.file == library::FileState::kChanged
                          ? "  changed since it was ingested"
                      : source.file == library::FileState::kGone ? "  gone since it was ingested"
                                                                 : "";
  const std::string version =
      source.newer == 0 ? "" : fmt::format("  older version of [{}]", source.newer);
  return fmt::format("[{}] {}{}  {}  ({:.3g}){}{}", number, one_line(source.path), lines,
                     one_line(source.title), source.score, version, state);
}

std::string left_out_line(const Source& source) {
  const auto named = [](const std::vector<std::string>& paths) {
    constexpr size_t kNamed = 3;
    std::string line;
    for (size_t i = 0; i < std::min(paths.size(), kNamed); ++i) {
      line += (i == 0 ? "" : ", ") + one_line(paths[i]);
    }
    return paths.size() > kNamed ? fmt::format("{} and {} more", line, paths.size() - kNamed)
                                 : line;
  };
  std::string line = source.same.empty() ? "" : "the same as " + named(source.same);
  if (!source.nearly_same.empty()) {
    line += (line.empty() ? "" : "; ") + ("nearly the same: " + named(source.nearly_same));
  }
  return line;
}

std::string timing_line(const Answer& answer, bool stats_shown) {
  const auto& predicted = answer.report.predicted;
  // Done in place of the mode that was asked for, after a prediction.
  const bool is_full_prefill = predicted && answer.report.mode != answer.asked;
  const char* const hint = stats_shown ? "" : " (--stats)";
  if (is_full_prefill) {
    // Why nothing of the store was used, and not "0 of N tokens reused", as if it did not work.
    // Said as "the stored KV was left unused" it was still read as a failure.
    constexpr std::string_view kGate = "plain prefill: ";
    const std::vector<std::string>& notes = answer.report.notes;
    const auto gate = std::ranges::find_if(
        notes, [&](const std::string& note) { return note.starts_with(kGate); });
    const std::string why =
        gate != notes.end() ? gate->substr(kGate.size())
        : predicted->full_prefill_ms < fusion::kSoonMs
            ? fmt::format("the prompt is short (predicted: {} on a quiet machine)",
                          seconds(predicted->full_prefill_ms))
            : fmt::format("reuse would be hardly faster (predicted: {} on a quiet machine)",
                          seconds(predicted->full_prefill_ms));
    const std::string found = answer.report.reused_tokens == 0
                                  ? ""
                                  : fmt::format("; {} of {} tokens came from the prefix cache",
                                                grouped_digits(answer.report.reused_tokens),
                                                grouped_digits(answer.report.prompt_tokens));
    return fmt::format("{} to the first token by full prefill: {}{}{}", seconds(answer.ttft_ms),
                       why, found, hint);
  }
  const std::string expected =
      !predicted ? ""
                 : fmt::format(" (predicted for a quiet machine: {}, and {} for full prefill)",
                               seconds(predicted->ttft_ms), seconds(predicted->full_prefill_ms));
  return fmt::format("{} to the first token{}; {} of {} tokens reused{}", seconds(answer.ttft_ms),
                     expected, grouped_digits(answer.report.reused_tokens),
                     grouped_digits(answer.report.prompt_tokens), hint);
}

/// One line a mode, so that --compare can be read down a column. The parts of the TTFT add up to
/// it, as the "=" says; what overlaps (reading layers while others are computed) is shown as the
/// wait that is left.
std::string stats_table(std::span<const Answer> answers) {
  std::string table = fmt::format(
      "{:<7} {:>7} {:>10} {:>8} {:<8} | {:>8} = {:>6} {:>7} {:>9} {:>6} {:>7} {:>9} {:>8}\n",
      "mode", "reused", "recomputed", "computed", "tier", "TTFT ms", "lookup", "miss", "load wait",
      "rotate", "select", "recompute", "prefill");
  for (const Answer& a : answers) {
    const fusion::Timings& t = a.report.timings;
    table += fmt::format(
        "{:<7} {:>7} {:>10} {:>8} {:<8} | {:>8.1f} = {:>6.1f} {:>7.1f} {:>9.1f} {:>6.1f} {:>7.1f} "
        "{:>9.1f} {:>8.1f}{}\n",
        fusion::kReuseModes.name(a.asked), a.report.reused_tokens, a.report.recomputed_tokens,
        a.report.computed_tokens, tiers(a.report), a.ttft_ms, t.lookup_ms, t.miss_ms,
        t.load_wait_ms, t.rotate_ms, t.select_ms, t.recompute_ms, t.prefill_ms,
        a.report.mode == a.asked
            ? ""
            : fmt::format("  done as {}", fusion::kReuseModes.name(a.report.mode)));
  }
  return table;
}

/// Times the first answer's, which is `none` under --compare: "2 times as soon" is half the time.
std::string saved_line(std::span<const Answer> answers) {
  std::string line = "the first token:";
  for (size_t i = 1; i < answers.size(); ++i) {
    const double times = answers[i].ttft_ms > 0 ? answers.front().ttft_ms / answers[i].ttft_ms : 1;
    line += fmt::format("{} {} {:.1f} times", i == 1 ? "" : ",", mode_done(answers[i]), times);
    if (i == 1)
      line += fmt::format(" as soon as {}", fusion::kReuseModes.name(answers.front().asked));
  }
  return line;
}

std::string predicted_line(const Answer& answer) {
  const auto& predicted = answer.report.predicted;
  if (!predicted) return "";
  return fmt::format(
      "{}: {} to the first token; predicted for a quiet machine: {}, and {} for full prefill",
      mode_done(answer), seconds(answer.ttft_ms), seconds(predicted->ttft_ms),
      seconds(predicted->full_prefill_ms));
}

/// For an answer in a list of modes, and in JSON: a model's answer often begins with a space, as it
/// goes on after "Answer:".
std::string in_one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  const size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin);
}

/// The field names are a promise (docs/cli.md): programs read them. "mode" is what was asked,
/// "done" what was done, which is plainer where reuse would not have paid.
Json answer_json(const Answer& a) {
  const fusion::Timings& t = a.report.timings;
  Json predicted;  // null where nothing was
  if (a.report.predicted) {
    predicted = {{"full_prefill", milliseconds(a.report.predicted->full_prefill_ms)},
                 {"ttft", milliseconds(a.report.predicted->ttft_ms)}};
  }
  return {{"mode", fusion::kReuseModes.name(a.asked)},
          {"done", fusion::kReuseModes.name(a.report.mode)},
          {"answer", in_one_line(a.generation.text)},
          {"stop_reason", engine::stop_reason_name(a.generation.stop_reason)},
          {"prompt_tokens", a.report.prompt_tokens},
          {"reused_tokens", a.report.reused_tokens},
          {"recomputed_tokens", a.report.recomputed_tokens},
          {"computed_tokens", a.report.computed_tokens},
          {"tier", tiers(a.report)},
          {"ratio", std::round(a.report.ratio * 1e4) / 1e4},
          {"ttft_ms", milliseconds(a.ttft_ms)},
          {"predicted_ms", std::move(predicted)},
          {"timings_ms",
           {{"lookup", milliseconds(t.lookup_ms)},
            {"miss", milliseconds(t.miss_ms)},
            {"load_wait", milliseconds(t.load_wait_ms)},
            {"rotate", milliseconds(t.rotate_ms)},
            {"select", milliseconds(t.select_ms)},
            {"recompute", milliseconds(t.recompute_ms)},
            {"prefill", milliseconds(t.prefill_ms)}}},
          {"notes", a.report.notes}};
}

/// "path" is from the root and always tells two documents apart; "relative_path" is what people
/// see.
Json passage_json(const library::Passage& passage) {
  const retrieval::Hit& hit = passage.hit;
  Json nearly_same = Json::array();
  for (const retrieval::Hit& other : hit.nearly_same) {
    if (other.path != hit.path) nearly_same.push_back(other.path);
  }
  Json older_version_of;  // null: of none
  if (!hit.older_version_of.empty()) older_version_of = hit.older_version_of;
  return {{"path", hit.path},
          {"relative_path", retrieval::path_from_root(hit.path, hit.root)},
          {"title", hit.title},
          {"line_begin", hit.chunk.line_begin},
          {"line_end", hit.chunk.line_end},
          {"byte_begin", hit.chunk.byte_begin},
          {"byte_end", hit.chunk.byte_end},
          {"tokens", hit.chunk.tokens.size()},
          {"score", three_digits(hit.score)},
          {"file", file_state_name(passage.file)},
          {"nearly_same", std::move(nearly_same)},
          {"older_version_of", std::move(older_version_of)},
          {"sentence", passage.sentence},
          {"text", hit.chunk.text}};
}

/// The other way round, an answer that is later than predicted, says nothing: the machine may be
/// busy now. But a machine faster than its own measurement was busy then, and until the file is
/// removed --ratio auto goes on to choose by it. Below 0.2 s it changes no choice worth a note, and
/// three times as fast is more than noise between two runs.
std::string note_on_rates(const Answer& answer, const std::string& rates_file) {
  constexpr double kFarOff = 3;
  constexpr double kMattersMs = 200;
  const auto& predicted = answer.report.predicted;
  // Full prefill is predicted as if no question before had left these passages in the prefix cache.
  const bool was_asked_before =
      answer.report.mode != answer.asked && answer.report.reused_tokens > 0;
  if (!predicted || was_asked_before || predicted->ttft_ms < kMattersMs ||
      predicted->ttft_ms < kFarOff * answer.ttft_ms) {
    return "";
  }
  return fmt::format(
      "the first token came {:.0f} times as fast as predicted: this machine was busy when it was "
      "measured; without {} it is measured again",
      predicted->ttft_ms / answer.ttft_ms, rates_file);
}

std::string note_on_empty(const engine::Generation& generation) {
  const bool is_empty = generation.text.find_first_not_of(" \t\r\n") == std::string::npos;
  return is_empty && generation.stop_reason != engine::StopReason::kCancelled
             ? "the model gave an empty answer"
             : "";
}

/// "the answer was cut at 128 tokens (-n; -n -1 goes on to the end)": what to change is in the
/// line.
std::string note_on_cut(const engine::Generation& generation, int32_t max_tokens,
                        std::string_view context_flag) {
  if (generation.stop_reason == engine::StopReason::kMaxTokens) {
    return fmt::format("the answer was cut at {} token{} (-n; -n -1 goes on to the end)",
                       max_tokens, max_tokens == 1 ? "" : "s");
  }
  return generation.stop_reason == engine::StopReason::kContextFull
             ? fmt::format("the answer was cut at the end of the context ({})", context_flag)
             : "";
}

}  // namespace weft::cli
