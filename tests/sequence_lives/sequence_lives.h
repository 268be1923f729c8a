// Random lives of sequences that share an engine: prompts, decoded tokens, drafts that are accepted
// in part, forks, shifts, cuts, pages that move and sequences that go. What a sequence is worth is
// its next token's logits, and these must follow from its own history alone: after a life they are
// compared, to the bit, with those of the same history replayed by itself, a token a step, in an
// engine of its own. With every policy of sparse decoding, with locks and without, and with dense
// checkpoints.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"

namespace weft::lives {

struct Totals {
  int64_t actions = 0;
  int64_t compared = 0;  // sequences
  int64_t drafted = 0;   // rows that were tried, and those of them that were kept
  int64_t accepted = 0;
  int64_t locks = 0;
  int64_t dense_passes = 0;
  int64_t drafted_itself = 0;  // times that the model did
};

class SequenceLives {
 public:
  /// Models go into the folder.
  static Result<std::unique_ptr<SequenceLives>> create(const std::string& folder);
  ~SequenceLives();

  /// Lives by that seed; what was found, or none.
  std::optional<std::string> run(uint64_t seed);
  const Totals& totals() const { return totals_; }

 private:
  explicit SequenceLives(std::string folder) : folder_(std::move(folder)) {}

  std::string folder_;
  Totals totals_;
};

}  // namespace weft::lives
