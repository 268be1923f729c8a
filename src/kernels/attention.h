// Attention of a step's rows over paged K and V: a blocked online softmax (Milakov and Gimelshein
// 2018; FlashAttention). One kernel for prefill, chunked prefill, decode and fusion: what differs
// is which rows there are and which slots each sees. A slot is where a token's K and V lie;
// positions are RoPE's and the mask's, which the caller makes ranges of slots from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/context.h"
#include "kernels/kernel_class.h"
#include "kernels/paged_kv.h"
#include "tensor/matrix_view.h"

namespace weft::kernels {

/// The rows [row_begin, row_end) of the step that belong to one sequence and take one kernel. Slot
/// s of the sequence lies in page block_table[s / page_tokens], there at s % page_tokens.
struct AttentionSequence {
  const int32_t* block_table = nullptr;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  KernelClass kernel_class = KernelClass::kPrefill;
  std::span<const HeadPages> heads = {};  // [n_kv_heads], of one decode row without a window; none:
                                          // it reads all pages
  /// Or null; of one decode row that reads all pages, without a window: [n_heads][n_pages] for the
  /// pages up to its own, log of the sum of exp(score) over each page's visible keys. Less the log
  /// of the sum over all of them, that is the page's share of the head's attention.
  float* page_log_sums = nullptr;
};

/// q, out: [n_rows, n_heads * head_dim], dense; q rotated, not scaled. slots, first_slots [n_rows],
/// both ascending within a sequence, slots not necessarily consecutive: row r has its K and V in
/// slot slots[r] and sees the slots first_slots[r] … slots[r]. That is the causal mask where
/// positions ascend with the slots, and first_slots is where a sliding window begins (Mistral 7B,
/// Jiang et al. 2023). The score of a key is scale * q.k, with a soft cap softcap * tanh(scale *
/// q.k / softcap) (Gemma 2, 2024). log_sum_exp: empty, or [n_rows, n_heads], log of the sum of
/// exp(score) over the visible keys, each with its entry's weight (HeadPages).
struct AttentionArgs {
  PagedKv kv;
  std::span<const AttentionSequence> sequences;
  std::span<const int32_t> slots;
  std::span<const int32_t> first_slots;  // empty: 0 for all rows
  int32_t n_heads = 0;                   // a multiple of the KV heads
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none
  MatrixView<const float> q;
  MatrixView<float> out;
  MatrixView<float> log_sum_exp;
};

/// Which tasks the attention of a step's rows over these slots consists of. Made once a step, and
/// used by every layer with the same window. Plain data; refers to nothing.
struct AttentionPlan {
  /// Queries [begin, end) of a KV head of a sequence: a prefill task; or row `begin`, split `end`
  /// of one: a decode task, which leaves its result at `partial`.
  struct Task {
    int32_t sequence = 0;
    int32_t kv_head = 0;
    int64_t begin = 0;
    int64_t end = 0;
    int64_t partial = -1;  // floats from the first partial result; -1: a prefill task
    int64_t cost = 0;      // products of a query and a key
  };
  /// A decode row whose partial results are to be joined.
  struct DecodeRow {
    int32_t sequence = 0;
    int64_t row = 0;
    int64_t n_splits = 0;
    int64_t partial = 0;
  };
  std::vector<Task> tasks;
  std::vector<DecodeRow> decode_rows;
  int64_t partial_floats = 0;
  int64_t worker_floats = 0;
};

/// Uses of `args` the sequences' rows, kernel classes and, of page lists, the last slots; slots,
/// first_slots, n_heads and the layout of kv. Neither q nor out nor a block table need be there
/// yet. Aborts where rows are out of order or a page list comes with a window. Any thread.
AttentionPlan plan_attention(Isa isa, const AttentionArgs& args);

/// A row's result does not depend on the step's other rows nor on the thread count. What a key
/// holds that a row may not see does not matter, be it NaN; the slots after a sequence's last row
/// are never read, nor are pages of which no row sees a slot: their entries of the block table are
/// not looked at. A window costs what the keys in it cost; one that covers the context changes no
/// bit. Lists of all pages, or runs, change none, either. `plan` is plan_attention's for these
/// args.
void attention(const Context& context, const AttentionArgs& args, const AttentionPlan& plan);

/// Attention received: received[j] += the sum over the rows and heads of the softmax probability of
/// slot j, for the first received.size() slots of the step's one sequence; `args` as given to
/// attention(), which has filled args.log_sum_exp. Keys that a row may not see add nothing, so that
/// over all slots each row adds n_heads. The query side of `query-attention` (InfoFlow KV, arXiv
/// 2603.05353).
void attention_received(const Context& context, const AttentionArgs& args,
                        std::span<float> received);

/// Stores rows of K and V in their slots, rounded once to the types there, in one parallel region.
/// k, v: [n_rows, n_kv_heads * head_dim], k already rotated; slots and sequences as above, the
/// sequences' rows in order.
void write_kv(const Context& context, const PagedKv& kv,
              std::span<const AttentionSequence> sequences, std::span<const int32_t> slots,
              MatrixView<const float> k, MatrixView<const float> v);

}  // namespace weft::kernels
