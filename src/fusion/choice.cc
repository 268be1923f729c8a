#include "fusion/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace weft::fusion {
namespace {

/// As if every chunk were stored and, of the prefix, what this conversation has put there were
/// found.
ReuseCounts usual(ReuseCounts counts, int32_t history_tokens) {
  counts.hit_tokens += std::exchange(counts.missed_tokens, 0);
  const int64_t prefix_tokens = counts.prefix_found + counts.prefix_missing;
  counts.prefix_found = std::min<int64_t>(history_tokens, prefix_tokens);
  counts.prefix_missing = prefix_tokens - counts.prefix_found;
  return counts;
}

void make_plain(Choice& choice, std::string note) {
  choice.is_plain = true;
  choice.notes.push_back(std::move(note));
}

}  // namespace

Choice choose(const model::ModelConfig& config, const ReuseCounts& counts,
              const FusionOptions& options) {
  Choice choice{.is_plain = false, .options = options, .notes = {}, .predicted = {}};
  if (options.auto_ratio && options.mode == ReuseMode::kBlend) {
    const auto ratio =
        auto_ratio(config, usual(counts, options.history_tokens), options, *options.rates);
    if (ratio) {
      choice.options.ratio = *ratio;
    } else {
      make_plain(choice,
                 fmt::format("full prefill: predicted to take less than {:.1f} s here, or "
                             "hardly longer than reuse, and it loses nothing (--ratio auto)",
                             kSoonMs / 1000));
    }
  }
  const Work plain = plain_work(config, counts);
  const Work reuse = reuse_work(config, counts, choice.options);
  const double saving = 1 - operations(config, reuse) / operations(config, plain);
  if (!choice.is_plain && options.allow_plain && saving < kMinimumSaving) {
    make_plain(
        choice,
        fmt::format("plain prefill: reuse would save less than {:.0f} % here ({} of {} chunk "
                    "tokens are stored)",
                    100 * kMinimumSaving, counts.hit_tokens,
                    counts.hit_tokens + counts.missed_tokens));
  }
  if (options.rates) {
    const double full_ms = predicted_ms(plain, *options.rates);
    choice.predicted = {full_ms, choice.is_plain ? full_ms : predicted_ms(reuse, *options.rates)};
  }
  return choice;
}

}  // namespace weft::fusion
