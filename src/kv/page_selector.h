// Which pages a decoding row reads, layer by layer: what attention asks before it plans. A policy
// (Quest, a lock that keeps a selection for several steps) implements it; neither the model nor the
// cache knows which.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/paged_kv.h"
#include "kv/cache.h"
#include "tensor/matrix_view.h"

namespace weft::kv {

enum class RowUse {
  kDecode,    // and verification
  kDraft,     // of the model itself, which is verified later
  kReadsAll,  // every page: a dense pass over what was decoded or drafted
};

/// A row of decode or verification. Its K and V are in slot `slot` by now, where it reads the slots
/// [0, slot].
struct SelectingRow {
  SequenceId sequence{};
  int32_t slot = 0;
  const float* q = nullptr;              // [n_heads * head_dim], rotated, not scaled
  std::span<const int32_t> block_table;  // of the layer's group
  RowUse use = RowUse::kDecode;
};

/// The rows of a step that decode, at one layer.
struct SelectingLayer {
  Cache& cache;
  int32_t layer = 0;
  int32_t n_heads = 0;   // query heads
  float scale = 1.0f;    // of scores, as attention has it
  float softcap = 0.0f;  // likewise
  std::span<const SelectingRow> rows;
};

/// What a kReadsAll row attended to at a layer: [n_heads, pages up to its own], log of the sum of
/// exp(score) over each page's tokens; no rows for other rows.
using PageLogSums = MatrixView<const float>;

/// Rows of a sequence that a step may try and not keep, drafts and the token before them: who
/// remembers what rows got (PageSelector::remembers) goes back by so many at most.
inline constexpr int32_t kMostTriedRows = 65;

/// One thread, that of the forward pass.
class PageSelector {
 public:
  virtual ~PageSelector() = default;

  /// Of each row a list for each KV head ([n_kv_heads], pages of the row's block table or their
  /// runs, ascending by slot, the row's own page last), or none where it reads every page: the
  /// dense path, and every kReadsAll row. Called once for each layer that sees all slots, in the
  /// order of the layers. Valid until the next call. Throws std::bad_alloc.
  virtual std::span<const std::span<const kernels::HeadPages>> select(
      const kernels::Context& context, const SelectingLayer& layer) = 0;
  /// Whether attended() is to be told of what kReadsAll rows attended to.
  virtual bool sees_attention() const { return false; }
  /// After the attention of a layer of which select() was asked: of each of its rows. Throws
  /// std::bad_alloc.
  virtual void attended(const kernels::Context&, const SelectingLayer&,
                        std::span<const PageLogSums>) {}
  /// Whether what a row gets depends on what its sequence's rows before it got at the layer. Then
  /// select() is called for every row at every layer, the last one's where nobody wants the row's
  /// output included.
  virtual bool remembers() const { return false; }
  /// A prompt's row wrote its K and V at the layer to this slot, and others to those after it: what
  /// is remembered of rows there, a draft's that were rejected, is void. Called of who remembers.
  virtual void written(SequenceId, int32_t /*slot*/, int32_t /*layer*/) {}
};

}  // namespace weft::kv
