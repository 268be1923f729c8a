#include "sparse/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/narrow.h"

namespace weft::sparse {

namespace {

/// Whether scores are logs of shares of attention.
bool estimates_mass(Policy policy) {
  return policy == Policy::kQuest || policy == Policy::kCuboid || policy == Policy::kLabels ||
         policy == Policy::kLabelsSample || policy == Policy::kDoubleSparsity ||
         policy == Policy::kSparq || policy == Policy::kOracle;
}

}  // namespace

Status SparseOptions::check(int32_t page_tokens) const {
  if (!is_on()) return Status::ok();
  const int32_t least = kLeastPages * page_tokens;
  if ((budget_tokens != 0) + (ratio != 0) + (retain != 0) != 1) {
    return invalid_argument(fmt::format(
        "--sparse {} needs one of --budget (tokens), --sparse-ratio (share of the pages) and "
        "--retain (share of the attention)",
        kPolicies.name(policy)));
  }
  if (budget_tokens != 0 && budget_tokens < least) {
    return invalid_argument(fmt::format(
        "--budget {}: at least {} tokens are needed, the page that is being filled and one more "
        "of {}",
        budget_tokens, least, page_tokens));
  }
  const auto is_share = [](double x) { return x > 0 && x <= 1; };
  if (retain != 0 && !is_share(retain)) {
    return invalid_argument(
        fmt::format("--retain {}: a share of the attention is more than 0 and at most 1", retain));
  }
  if (retain != 0 && !estimates_mass(policy)) {
    return invalid_argument(fmt::format(
        "--retain needs a policy that estimates what attention pages get, as quest: {} does not",
        kPolicies.name(policy)));
  }
  if (digest_type != kernels::DigestType::kInt8 && !has_digest_types(policy)) {
    return invalid_argument(fmt::format("--digest-type {}: of quest, cuboid and gsa, not of {}",
                                        kDigestTypes.name(digest_type), kPolicies.name(policy)));
  }
  if (ratio != 0 && !is_share(ratio)) {
    return invalid_argument(
        fmt::format("--sparse-ratio {}: a share of the pages is more than 0 and at most 1", ratio));
  }
  if (lock.interval_tokens < 0 || lock.duration_tokens < 1 || lock.update_threshold < 0) {
    return invalid_argument(fmt::format(
        "--lock-interval {}, --lock-duration {}, --update-threshold {}: the first and the last are "
        "0 or more, a lock lasts 1 token or more",
        lock.interval_tokens, lock.duration_tokens, lock.update_threshold));
  }
  if (policy == Policy::kLabelsSample && (retain != 0 || lock.is_on())) {
    return invalid_argument(fmt::format(
        "{}: what a page stands for is drawn for one query and one budget, so there is no share of "
        "the attention to retain and no lock of it; labels has both",
        kPolicies.name(policy)));
  }
  if (!lock.drafts_share && (policy == Policy::kH2o || policy == Policy::kTova)) {
    return invalid_argument(fmt::format(
        "{}: what it chooses depends on what was read before, so drafts cannot choose for "
        "themselves",
        kPolicies.name(policy)));
  }
  if (lock.checkpoint == Checkpoint::kDense && lock.interval_tokens > kMostRewritten) {
    return invalid_argument(
        fmt::format("a dense checkpoint runs the tokens of a lock's interval in one step: {} of "
                    "them, {} at most",
                    lock.interval_tokens, kMostRewritten));
  }
  if (lock.is_on() && lock.duration_tokens <= lock.interval_tokens) {
    return invalid_argument(
        fmt::format("a lock that lasts {} tokens (--lock-duration) is never compared after {} "
                    "(--lock-interval): let it last longer, or compare sooner",
                    lock.duration_tokens, lock.interval_tokens));
  }
  if (dense_layers.value_or(0) < 0) {
    return invalid_argument(
        fmt::format("--dense-layers {}: 0 or more layers are needed", *dense_layers));
  }
  return Status::ok();
}

std::string SparseOptions::amount_text() const {
  if (budget_tokens > 0) return fmt::format("{} tokens of each KV head at most", budget_tokens);
  if (retain > 0) return fmt::format("pages with {:g} % of the attention", 100 * retain);
  return fmt::format("{:g} % of the pages", 100 * ratio);
}

std::optional<kernels::LabelKind> labels_of(Policy policy) {
  const std::optional<kv::DigestFormat> format = digest_format({.policy = policy});
  return format ? format->labels : std::nullopt;
}

std::optional<kv::DigestFormat> digest_format(const SparseOptions& options) {
  using kernels::DigestKind;
  const auto of = [&](DigestKind kind) {
    return kv::DigestFormat{.kind = kind, .type = options.digest_type};
  };
  switch (options.policy) {
    case Policy::kQuest:
      return of(DigestKind::kMinMax);
    case Policy::kCuboid:
      return of(DigestKind::kCuboidMean);
    case Policy::kLabels:
    case Policy::kLabelsSample:
      return kv::DigestFormat{.kind = DigestKind::kCuboidMean,
                              .type = kernels::DigestType::kInt8,
                              .labels = kernels::LabelKind::kSides,
                              .channels = options.channels};
    case Policy::kDoubleSparsity:
      return kv::DigestFormat{.kind = DigestKind::kCuboidMean,
                              .type = kernels::DigestType::kInt8,
                              .labels = kernels::LabelKind::kChannels,
                              .channels = options.channels};
    case Policy::kGsa:
      return of(DigestKind::kMean);
    case Policy::kDense:
    case Policy::kStreaming:
    case Policy::kH2o:
    case Policy::kTova:
    case Policy::kSparq:
    case Policy::kOracle:
      return std::nullopt;
  }
  return std::nullopt;
}

std::vector<bool> selecting_layers(const SparseOptions& options,
                                   std::span<const int32_t> window_tokens) {
  const auto n_full = narrow<int32_t>(std::ranges::count(window_tokens, 0));
  const bool has_windows = n_full < std::ssize(window_tokens);
  const int32_t usual = has_windows ? std::min(kUsualDenseLayers, n_full / 3) : kUsualDenseLayers;
  int32_t dense = options.dense_layers.value_or(usual);
  std::vector<bool> selects(window_tokens.size(), false);
  for (size_t layer = 0; layer < window_tokens.size() && options.is_on(); ++layer) {
    if (window_tokens[layer] == 0 && dense-- <= 0) selects[layer] = true;
  }
  return selects;
}

}  // namespace weft::sparse
