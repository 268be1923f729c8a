// Pages by their digests, which stand for their keys in a sixteenth of the bytes.
#pragma once

#include <vector>

#include "kernels/page_digest.h"
#include "sparse/page_scorer.h"
#include "tensor/buffer.h"

namespace weft::sparse {

/// How the heads that share a KV head agree.
enum class HeadsAgree {
  kByMaximum,  // of the shares that a softmax over the pages gives each: no head goes without
  kBySum,      // of the scores, and over all KV heads too: one choice for all of them (GSA)
};

class DigestScorer : public PageScorer {
 public:
  DigestScorer(const kv::DigestFormat& format, HeadsAgree heads_agree)
      : format_(format), heads_agree_(heads_agree) {}
  void prepare(const kernels::Context& context, const kv::SelectingLayer& layer,
               std::span<const Candidates> rows) override;
  void score(const kernels::Context& context, const kv::SelectingLayer& layer,
             std::span<const Candidates> rows) override;
  int64_t bytes_read(const kernels::KvLayout& layout, int32_t, int64_t n_pages,
                     int64_t) const override {
    return n_pages * kv::page_digest_bytes(format_, layout);
  }
  int64_t scratch_floats_per_page(int32_t n_heads, int32_t n_parts) const override;
  void count(kernels::Isa isa, const kernels::KvLayout& layout, int32_t n_heads, int64_t n_rows,
             kernels::WorkspaceSize& size) const override;
  /// What prepare() saw to, of its layer.
  const kv::LayerDigests& digests() const { return digests_; }

 private:
  /// A row's pages from its first candidate on, as long as none of its sequence's committed slots
  /// changes and no page moves.
  struct Pages {
    kv::SequenceId sequence{};
    int64_t changes = -1;
    int64_t moves = -1;
    int32_t first = 0;
    bool operator==(const Pages&) const = default;
  };
  /// So many of them are full, committed and have digests.
  struct Made {
    Pages of;
    int64_t n_pages = 0;
  };
  void score_shares(const kernels::Context& context, const kv::SelectingLayer& layer,
                    std::span<const Candidates> rows);
  void score_sums(const kernels::Context& context, const kv::SelectingLayer& layer,
                  std::span<const Candidates> rows);

  kv::DigestFormat format_;
  HeadsAgree heads_agree_;
  std::vector<std::vector<Made>> made_;  // [layers][rows of the last step that scored]
  kv::LayerDigests digests_;             // of the layer at hand
  AlignedBuffer<float> of_heads_;        // of the rows, one after the other
  std::vector<kernels::DigestQuery> queries_;
  std::vector<kernels::GroupQuery> group_queries_;
};

}  // namespace weft::sparse
