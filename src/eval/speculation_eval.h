// Whether drafts pay: the same answers with and without, which must be the same, and their times.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "engine/engine.h"
#include "eval/dataset.h"
#include "spec/drafter.h"

namespace weft::eval {

struct SpeculationEvalOptions {
  std::vector<Example> examples;  // dialogues are none
  int32_t answer_tokens = 96;     // at most
  int32_t repeat = 2;             // each answer, with drafts and without, in turn
};

/// One answer.
struct SpeculationRow {
  int32_t prompt_tokens = 0;
  int32_t answer_tokens = 0;
  bool is_same = false;        // with drafts and without
  spec::DraftCounters drafts;  // of one run
  double plain_ms = 0;         // decoding, the least of the runs
  double draft_ms = 0;
  /// After a text by which each guess of n-grams is wrong, but for those that an answer which says
  /// something twice makes from itself; none for other drafters, which are not misled by it.
  struct Misled {
    spec::DraftCounters drafts;
    double ms = 0;
  };
  std::optional<Misled> misled;
  /// Of drafts by the model itself that are verified over locked pages: as many tokens as may be at
  /// each step, over the pages that the rows that verify them read, and over others of the draft's
  /// own.
  struct Selections {
    spec::DraftCounters shared, separate;
    int64_t compared = 0;         // selections of a layer and KV head, of separate ones
    int64_t inconsistencies = 0;  // of them
  };
  std::optional<Selections> selections;

  double acceptance() const;  // 0 where nothing was drafted
  double speedup() const { return draft_ms > 0 ? plain_ms / draft_ms : 1; }
  /// 1 where it was not misled.
  double misled_speedup() const { return misled && misled->ms > 0 ? plain_ms / misled->ms : 1; }
};

struct SpeculationResults {
  std::vector<SpeculationRow> rows;
  // Questions without a row.
  int64_t n_short = 0;      // whose answer has less than two tokens: no step could have been saved
  int64_t n_too_long = 0;   // that do not fit the context with an answer
  int64_t n_not_asked = 0;  // as it was stopped; the one that was being answered is one of them
  int64_t longest_tokens = 0;  // of those that do not fit, with an answer
};

/// What most rows of a kind have.
struct SpeculationSummary {
  int64_t n = 0;
  double median = 0;
  double least = 0;
};
/// Speedups of all rows, or of those of whose drafts more than half were right.
SpeculationSummary speedup_of(const std::vector<SpeculationRow>& rows, bool quoting_only);
/// Of the rows that were misled and of which no guess was right.
SpeculationSummary misled_speedup_of(const std::vector<SpeculationRow>& rows);

/// Over all rows; none where no row has them.
std::optional<SpeculationRow::Selections> selections_of(const std::vector<SpeculationRow>& rows);

/// Each example's passages and a question that asks for a quotation, answered greedily with the
/// engine's drafts and without. kResourceExhausted where none fits the context, kNotFound where all
/// answers are too short to say anything. kInvalidArgument where the engine drafts nothing;
/// `progress` false ends with the rows so far, or kCancelled where there is none.
Result<SpeculationResults> speculation_eval(
    engine::Engine& engine, const SpeculationEvalOptions& options,
    FunctionRef<bool(int64_t done, int64_t total)> progress);

}  // namespace weft::eval
