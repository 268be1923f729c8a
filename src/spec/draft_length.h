// How many tokens to draft: as many as pay, by how often drafts were right and by what they cost.
#pragma once

#include <array>
#include <cstdint>

#include "spec/drafter.h"

namespace weft::spec {

/// What steps and drafts take, from those that were seen, older ones counting less and less. It
/// reads no clock: times are told. One thread.
class StepCost {
 public:
  /// A step of so many rows.
  void add_step(int64_t n_rows, double ms);
  /// A draft of so many tokens.
  void add_draft(int64_t n_tokens, double ms);
  /// A drafter read so many tokens of a text.
  void add_read(int64_t n_tokens, double ms);
  /// A text was not read, for what reading took last. Of a time that nobody measures again this
  /// makes less and less, so that one that was disturbed does not end drafts for good.
  void doubt_read();

  /// Whether it is known what a draft takes.
  bool knows_drafts() const { return draft_ms_ > 0; }
  bool knows_steps() const { return weight_ > 0; }
  bool knows_reads() const { return read_ms_ > 0; }
  double read_ms(int64_t n_tokens) const { return static_cast<double>(n_tokens) * read_ms_; }
  /// A step of so many rows; 0 where none was seen.
  double step_ms(int64_t n_rows) const;
  /// What a drafted token takes, beside n_rows that a step has in any case, in time in which these
  /// give a token: where several answers grow in a step, a row of one holds up all of them.
  double of_draft(int64_t n_rows) const;

 private:
  double row_ms() const;

  /// Decayed sums for a line through the steps' times, by rows.
  double weight_ = 0, rows_ = 0, ms_ = 0, rows_rows_ = 0, rows_ms_ = 0;
  double draft_ms_ = 0;  // of a token
  double read_ms_ = 0;   // of a token, when some were read last
};

/// Of one text. What it says changes how fast an answer comes and nothing else. One thread.
class DraftLength {
 public:
  explicit DraftLength(int32_t most_tokens);

  /// Tokens to draft now, from 0 to most_tokens, where the drafter has that evidence and a drafted
  /// token costs so much (StepCost::of_draft).
  int32_t choose(int32_t evidence, double cost);
  /// The share of plain decoding's time that drafts save where they are right as often as is
  /// believed before any was checked.
  double saved_share(int32_t evidence, double cost) const;
  /// A draft of that evidence was run, and its first tokens were right.
  void add_outcome(int32_t evidence, int32_t n_drafted, int32_t n_accepted);

 private:
  /// Tokens that were checked, and those that were right, older ones counting less and less.
  struct Record {
    double checked = 2;
    double right = 0;
    int32_t n_unpaid = 0;   // times that no draft seemed to pay since the last try
    int32_t patience = 16;  // so many before one is tried in any case
  };

  int32_t most_tokens_;
  std::array<Record, kMostEvidence> records_;
  int64_t n_steps_ = 0;
  int64_t n_lost_ = 0;    // drafts without a right token, less the others
  int32_t n_drafts_ = 0;  // since a step was without one
};

}  // namespace weft::spec
