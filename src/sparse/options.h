// What a user asks of sparse decoding: which policy chooses a row's pages, and how many it may.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/names.h"
#include "base/status.h"
#include "kernels/page_digest_layout.h"
#include "kv/cache.h"
#include "sparse/lock_options.h"

namespace weft::sparse {

/// How pages are chosen. All but the first read a part of them, in layers that see all slots.
enum class Policy {
  kDense,
  kQuest,
  kCuboid,
  kLabels,
  kLabelsSample,
  kDoubleSparsity,
  kGsa,
  kStreaming,
  kH2o,
  kTova,
  kSparq,
  kOracle,
};

inline constexpr Names kPolicies({
    Named{Policy::kDense, "dense", "all pages, as without --sparse"},
    Named{Policy::kQuest, "quest",
          "those whose K may lie nearest to the query, by least and greatest (Quest)"},
    Named{Policy::kCuboid, "cuboid", "the same by mean and mean deviation (ArkVale)"},
    Named{
        Policy::kLabels, "labels",
        "runs of eight tokens with the keys nearest to the query, by two to three bits a dimension "
        "of each key, in the first layers by the best of these keys themselves, and past a "
        "sixteenth of all pages a sample"},
    Named{Policy::kLabelsSample, "labels-sample", "a sample by these bits that stands for all"},
    Named{Policy::kDoubleSparsity, "double-sparsity",
          "pages by 16 dimensions of each key (Double Sparsity)"},
    Named{Policy::kGsa, "gsa", "those whose mean K does, for all heads together (UCM's GSA)"},
    Named{Policy::kStreaming, "streaming", "the first and the newest (StreamingLLM)"},
    Named{Policy::kH2o, "h2o", "those that got most attention so far, and the newest (H2O)"},
    Named{Policy::kTova, "tova", "those that get most attention of what was read before (TOVA)"},
    Named{Policy::kSparq, "sparq", "by the largest components of the query alone (SparQ)"},
    Named{Policy::kOracle, "oracle",
          "the runs that get most attention, by reading all K: a yardstick"},
});

/// Where a user says how much is read and not how it is chosen: docs/sparse.md has the reasons.
inline constexpr Policy kUsualPolicy = Policy::kLabels;

/// Of the digests of `quest`, `cuboid` and `gsa`.
inline constexpr Names kDigestTypes({
    Named{kernels::DigestType::kInt8, "int8", "bounds rounded outwards, half the bytes"},
    Named{kernels::DigestType::kF16, "f16", "for comparison"},
});

/// The first layers read everything: their attention is spread over all pages (Quest, section 3.2).
inline constexpr int32_t kUsualDenseLayers = 2;

/// Whether its digests may be of either type: of labels they are in bytes.
constexpr bool has_digest_types(Policy policy) {
  return policy == Policy::kQuest || policy == Policy::kCuboid || policy == Policy::kGsa;
}

struct SparseOptions {
  Policy policy = Policy::kDense;
  // One of these three, unless the policy is kDense:
  int32_t budget_tokens = 0;  // that a KV head of a row reads at most, in whole pages
  double ratio = 0;           // of a row's pages
  double retain = 0;          // of the attention that pages are estimated to get: as many pages as
                              // that takes, of each KV head (Twilight, Lin et al. 2025)
  /// Of the layers that see all slots, so many of the first read all pages; none: the usual number,
  /// and where other layers have windows at most a third of those without.
  std::optional<int32_t> dense_layers;
  kernels::DigestType digest_type = kernels::DigestType::kInt8;

  LockOptions lock;  // how long what was chosen is kept

  /// One read of so many is measured against all of K: what share of the attention it kept. That
  /// takes time. A prime, so that it meets every layer; 0: none is.
  int32_t measure_every = 0;

  /// Of policies with labels, the engine's to find (channel_meter.h): kv::DigestFormat's.
  std::vector<uint8_t> channels;

  bool is_on() const { return policy != Policy::kDense; }
  /// Whether pages are drawn, each with a weight (kernels/sample_pages.h): of kLabels those past
  /// kLookedUpDivisor. What is drawn is one query's, and as many as a budget says.
  bool samples() const {
    return policy == Policy::kLabelsSample ||
           (policy == Policy::kLabels && retain == 0 && !lock.is_on());
  }
  /// Whether runs of tokens are chosen and not whole pages: of labels, and of the oracle that they
  /// are measured by. A lock keeps pages, as passes over all of them tell what pages get, and
  /// `retain` counts them.
  bool chooses_runs() const {
    return (policy == Policy::kLabels || policy == Policy::kLabelsSample ||
            policy == Policy::kOracle) &&
           retain == 0 && !lock.is_on();
  }
  /// "12.5 % of the pages": what a token reads.
  std::string amount_text() const;
  /// kInvalidArgument for numbers that no choice can follow, and what cannot go together: pages
  /// hold page_tokens.
  Status check(int32_t page_tokens) const;
};

/// The share of a row's pages that kLabels takes by their scores before it draws: a sixteenth,
/// rounded up (docs/sparse.md has what other shares cost).
inline constexpr int32_t kLookedUpDivisor = 16;

/// What `retain` keeps at least, and at most as a share of the pages.
inline constexpr int32_t kLeastRetainedPages = 8;
inline constexpr int32_t kMostRetainedDivisor = 2;

/// A budget has at least the row's own page, which is partly filled, and one that is chosen.
inline constexpr int32_t kLeastPages = 2;

/// Which labels the policy looks pages up by, if any.
std::optional<kernels::LabelKind> labels_of(Policy policy);

/// What the policy looks pages up by; none: it needs none.
std::optional<kv::DigestFormat> digest_format(const SparseOptions& options);

/// Of each layer whether it may read less than all: not where it sees a window, nor where it is
/// one of the dense first ones. window_tokens: of each layer, 0 for none.
std::vector<bool> selecting_layers(const SparseOptions& options,
                                   std::span<const int32_t> window_tokens);

}  // namespace weft::sparse
