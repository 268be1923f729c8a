// Guesses at what comes next, which the model then checks, several in one step.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/names.h"
#include "base/status.h"

namespace weft::spec {

enum class DrafterKind {
  kNone,
  kNgram,
  kSelf,
  kModel,
};

/// A model is named by its file.
inline constexpr Names kDrafters({
    Named{DrafterKind::kNone, "none"},
    Named{DrafterKind::kNgram, "ngram"},
    Named{DrafterKind::kSelf, "self"},
    Named{DrafterKind::kModel, "model"},
});

/// By which attention drafts of the model itself are checked: over all pages, or over those that
/// sparse decoding chooses, and so the answer is that of sparse decoding.
enum class Verify {
  kDense,
  kLocked,
};
inline constexpr Names kVerifies({
    Named{Verify::kDense, "dense"},
    Named{Verify::kLocked, "locked"},
});

inline constexpr int32_t kMostDraftTokens = 64;

struct DraftOptions {
  DrafterKind kind = DrafterKind::kNone;
  int32_t most_tokens = 8;         // of a draft
  std::string model_path;          // of kModel
  Verify verify = Verify::kDense;  // of kSelf
  bool always = false;  // most_tokens each time, whether that pays or not: to measure acceptance

  bool is_on() const { return kind != DrafterKind::kNone; }
};

struct DraftCounters {
  int64_t steps = 0;     // that an answer had a token of, or several
  int64_t drafted = 0;   // tokens
  int64_t accepted = 0;  // of them, part of an answer
  double draft_ms = 0;   // guessing
  double verify_ms = 0;  // running the steps
};

/// A text as it grows, and guesses at what follows it. One thread.
class Drafter {
 public:
  virtual ~Drafter() = default;
  /// What the text goes on with, the newest token included.
  virtual void add(std::span<const int32_t> tokens) = 0;
  /// How good a guess would be now, by a measure of the drafter's own, from 1 on and below
  /// kMostEvidence; 0: there is none.
  virtual int32_t evidence() = 0;
  /// Tokens of the text that are to be read before a draft; 0: none, or so few that draft() does
  /// it.
  virtual int64_t unread() const { return 0; }
  /// Reads the next so many of them. It is not what a draft costs. `cancelled` may be null; true
  /// ends it with kCancelled, and what was read before stays read.
  virtual Status read(int64_t /*n_tokens*/, const FunctionRef<bool()>* /*cancelled*/) {
    return Status::ok();
  }
  /// At most n tokens, perhaps fewer.
  virtual Result<std::vector<int32_t>> draft(int32_t n) = 0;
};

inline constexpr int32_t kMostEvidence = 8;

}  // namespace weft::spec
