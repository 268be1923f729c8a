#include "fusion/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace weft::fusion {
namespace {

/// As if, of the prefix, what this conversation has put into the index were found and nothing else:
/// what earlier questions left there changes neither the ratio nor whether it is worth it.
ReuseCounts with_usual_prefix(ReuseCounts counts, int32_t history_tokens) {
  const int64_t prefix_tokens = counts.prefix_found + counts.prefix_missing;
  counts.prefix_found = std::min<int64_t>(history_tokens, prefix_tokens);
  counts.prefix_missing = prefix_tokens - counts.prefix_found;
  return counts;
}

/// As if every chunk were stored, too.
ReuseCounts usual(const ReuseCounts& counts, int32_t history_tokens) {
  ReuseCounts stored = with_usual_prefix(counts, history_tokens);
  stored.hit_tokens += std::exchange(stored.missed_tokens, 0);
  return stored;
}

void make_plain(Choice& choice, std::string note) {
  choice.is_plain = true;
  choice.notes.push_back(std::move(note));
}

}  // namespace

Choice choose(const model::ModelConfig& config, const ReuseCounts& counts,
              const FusionOptions& options) {
  Choice choice{.is_plain = false, .options = options, .notes = {}, .predicted = {}};
  if (options.auto_ratio && traits_of(options.mode).recomputes_chunks) {
    const auto ratio =
        auto_ratio(config, usual(counts, options.history_tokens), options, *options.rates);
    if (ratio) {
      choice.options.ratio = *ratio;
    } else {
      const double full_ms =
          predicted_ms(plain_work(config, usual(counts, options.history_tokens)), *options.rates);
      const std::string why = full_ms < kSoonMs ? fmt::format("less than {:.1f} s", kSoonMs / 1000)
                                                : "hardly longer than reuse";
      make_plain(choice,
                 fmt::format("full prefill: predicted to take {} here, and it loses nothing "
                             "(--ratio auto)",
                             why));
    }
  }
  // A question asked twice would be answered from fused KV the second time, the first time exactly:
  // the system turn that it left in the index makes reuse look better, beside a prefill that has
  // the whole prompt there.
  const ReuseCounts weighed =
      options.auto_ratio ? with_usual_prefix(counts, options.history_tokens) : counts;
  const double saving = 1 - operations(config, reuse_work(config, weighed, choice.options)) /
                                operations(config, plain_work(config, weighed));
  if (!choice.is_plain && options.allow_plain && saving < kMinimumSaving) {
    make_plain(
        choice,
        fmt::format("plain prefill: reuse would save less than {:.0f} % here ({} of {} chunk "
                    "tokens are stored)",
                    100 * kMinimumSaving, counts.hit_tokens,
                    counts.hit_tokens + counts.missed_tokens));
  }
  if (options.rates) {
    const double full_ms = predicted_ms(plain_work(config, counts), *options.rates);
    choice.predicted = {full_ms, full_ms};
    if (!choice.is_plain) {
      choice.predicted->ttft_ms =
          predicted_ms(reuse_work(config, counts, choice.options), *options.rates);
    }
  }
  return choice;
}

}  // namespace weft::fusion
