// A step's attention as tasks for the workers: what each is, which rows and slots it sees, in which
// order they run. The arithmetic is in attention_cpu.cc (prefill) and attention_decode_cpu.cc.
//
// Prefill tasks are up to kTaskQueries queries of one KV head over all their keys: a query's sums
// never leave the task, so there is nothing to join. A decode row has few queries and thousands of
// keys, so it is the keys that are divided, and a second parallel region joins the parts
// (Flash-Decoding; Dao, Haziza, Massa and Sizov 2023). The divisions lie at multiples of kSplitKeys
// slots, never at a fraction of the row's length or of the number of workers: with those a row's
// sums, and so its bits, would depend on the machine and on what else the step has.
//
// The plan depends on slots alone, so it is made once a step and not once a layer. A layer group
// with another window sees other slots and has a plan of its own.
#include "kernels/attention.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <tuple>

#include "base/check.h"
#include "base/narrow.h"
#include "kernels/attention_internal.h"
#include "kernels/kv_codec_internal.h"

namespace weft::kernels {
namespace {

constexpr int64_t kRowsPerTask = 32;  // write_kv: some 50 KB
constexpr int64_t kSplitsOfOneTask = 8;

/// Null where there are no rows.
template <class T>
T* row_at(const MatrixView<T>& rows, int64_t i) {
  return rows.data == nullptr ? nullptr : rows.data + i * rows.stride;
}

/// The same arguments, shifted so that row 0 is the sequence's first: what a task counts from.
AttentionRows sequence_rows(Isa isa, const AttentionArgs& args, const AttentionSequence& sequence) {
  const int64_t row = sequence.row_begin;
  const KvLayout& kv = args.kv.layout;
  return {.kv = args.kv,
          .k_codec = &kv_codec(isa, kv.k_type),
          .v_codec = &kv_codec(isa, kv.v_type),
          .block_table = sequence.block_table,
          .slots = args.slots.data() + row,
          .first_slots = args.first_slots.empty() ? nullptr : args.first_slots.data() + row,
          .heads = sequence.heads.empty() ? nullptr : sequence.heads.data(),
          .n_heads = args.n_heads,
          .group = args.n_heads / kv.n_kv_heads,
          .scale = args.scale,
          .softcap = args.softcap,
          .q = row_at(args.q, row),
          .out = row_at(args.out, row),
          .log_sum_exp = row_at(args.log_sum_exp, row),
          .page_log_sums = sequence.page_log_sums};
}

/// Aborts unless the shapes of all arguments agree; returns the number of the step's rows.
int64_t check_args(const AttentionArgs& args) {
  const KvLayout& kv = args.kv.layout;
  WEFT_CHECK(args.kv.pages != nullptr && args.n_heads > 0);
  WEFT_CHECK(args.n_heads % kv.n_kv_heads == 0 && args.softcap >= 0);
  WEFT_CHECK(args.q.columns == int64_t{args.n_heads} * kv.head_dim && args.q.is_dense());
  const int64_t n_rows = std::ssize(args.slots);
  WEFT_CHECK(args.q.rows == n_rows);
  WEFT_CHECK(args.first_slots.empty() || std::ssize(args.first_slots) == n_rows);
  const MatrixView<float>& sums = args.log_sum_exp;
  WEFT_CHECK(sums.is_empty() ||
             (sums.rows == n_rows && sums.columns == args.n_heads && sums.is_dense()));
  return n_rows;
}

/// Ascending slots are what makes a range of rows' keys one range of slots: the last row sees the
/// furthest, the first row's window begins first.
void check_slots(const AttentionRows& rows, int64_t n_rows) {
  WEFT_CHECK(n_rows == 0 || rows.slots[0] >= 0);
  WEFT_CHECK(std::is_sorted(rows.slots, rows.slots + n_rows));
  if (rows.first_slots == nullptr || n_rows == 0) return;
  WEFT_CHECK(rows.first_slots[0] >= 0);
  WEFT_CHECK(std::is_sorted(rows.first_slots, rows.first_slots + n_rows));
  for (int64_t row = 0; row < n_rows; ++row) {
    WEFT_CHECK(rows.first_slots[row] <= rows.slots[row]);
  }
}

/// With slots 10, 11, 12 and a window of 2 (first slots 9, 10, 11) each row sees 2.
int64_t visible_count(const AttentionRows& rows, int64_t row) {
  return rows.slots[row] + 1 - first_visible(rows, row);
}

/// The cost is an upper bound, for the order of tasks only: keys that no row of a tile sees are
/// skipped when the task runs.
void plan_prefill(const AttentionRows& rows, int32_t sequence, int64_t n_rows,
                  AttentionPlan& plan) {
  const int64_t n_queries = n_rows * rows.group;
  for (int32_t head = 0; head < rows.kv.layout.n_kv_heads; ++head) {
    for (int64_t begin = 0; begin < n_queries; begin += kTaskQueries) {
      const int64_t end = std::min<int64_t>(n_queries, begin + kTaskQueries);
      const int64_t first_row = begin / rows.group, last_row = (end - 1) / rows.group;
      int64_t keys = rows.slots[last_row] + 1 - first_visible(rows, first_row);
      // Between the rows may be gaps that no window reaches into.
      if (rows.first_slots != nullptr) {
        int64_t most = 0;
        for (int64_t row = first_row; row <= last_row; ++row) most += visible_count(rows, row);
        keys = std::min(keys, most);
      }
      plan.tasks.push_back({.sequence = sequence,
                            .kv_head = head,
                            .begin = begin,
                            .end = end,
                            .cost = keys * (end - begin)});
    }
  }
}

/// A row in slot 1,299 without a window has the splits 0, 1 and 2 of 512, 512 and 276 keys; with a
/// window of 512 (first slot 788) only 1 and 2. Each split of each KV head leaves group * (head_dim
/// + 2) floats, padded: sums of V, the maximum, the sum of the weights.
void plan_decode(const AttentionRows& rows, int32_t sequence, int64_t n_rows,
                 int64_t partial_floats, AttentionPlan& plan) {
  for (int64_t row = 0; row < n_rows; ++row) {
    int64_t n_visible = rows.slots[row] + int64_t{1};
    // With lists of pages, or runs, the most that any head reads; the others' last splits are
    // empty, and an empty split (maximum -inf, sum 0) adds nothing when they are joined.
    if (rows.heads != nullptr) {
      for (const HeadPages& head : std::span(rows.heads, rows.kv.layout.n_kv_heads)) {
        WEFT_CHECK(head.entry_tokens == rows.kv.layout.page_tokens ||
                   head.entry_tokens == kRunTokens);
      }
      const auto most = std::ranges::max_element(std::span(rows.heads, rows.kv.layout.n_kv_heads),
                                                 {}, &HeadPages::last_slot);
      n_visible = most->last_slot + int64_t{1};
    }
    const int64_t first_key = first_visible(rows, row);
    const int64_t first_split = first_key / kSplitKeys;
    const int64_t end_split = (n_visible - 1) / kSplitKeys + 1;
    plan.decode_rows.push_back({.sequence = sequence,
                                .row = row,
                                .n_splits = end_split - first_split,
                                .partial = plan.partial_floats});
    const int64_t n_splits = end_split - first_split;
    if (plan.tasks.empty()) plan.tasks.reserve(n_splits * rows.kv.layout.n_kv_heads);
    // A split's heads one after the other: in a page they are neighbours.
    for (int64_t split = first_split; split < end_split; ++split) {
      const int64_t n_keys =
          std::min(n_visible, (split + 1) * kSplitKeys) - std::max(first_key, split * kSplitKeys);
      for (int32_t head = 0; head < rows.kv.layout.n_kv_heads; ++head) {
        const int64_t place = head * n_splits + split - first_split;
        plan.tasks.push_back({.sequence = sequence,
                              .kv_head = head,
                              .begin = row,
                              .end = split,
                              .partial = plan.partial_floats + place * partial_floats,
                              .cost = n_keys * rows.group});
      }
    }
    plan.partial_floats += rows.kv.layout.n_kv_heads * n_splits * partial_floats;
  }
}

}  // namespace

AttentionPlan plan_attention(Isa isa, const AttentionArgs& args) {
  const KvLayout& kv = args.kv.layout;
  WEFT_CHECK(args.n_heads > 0 && kv.n_kv_heads > 0);
  const AttentionFns& fns = pick_attention_fns(isa);
  const AttentionDecodeFns& decode_fns = pick_attention_decode_fns(isa);
  const int32_t group = args.n_heads / kv.n_kv_heads;
  const int32_t head_dim = kv.head_dim;
  const int64_t partial_floats = decode_fns.partial(group, head_dim);
  AttentionPlan plan;
  plan.worker_floats = std::max(fns.prefill_scratch(head_dim), decode_fns.scratch(group, head_dim));
  for (int32_t i = 0; i < std::ssize(args.sequences); ++i) {
    const AttentionSequence& sequence = args.sequences[i];
    const int64_t n_rows = sequence.row_end - sequence.row_begin;
    WEFT_CHECK(sequence.row_begin >= 0 && n_rows >= 0);
    WEFT_CHECK(sequence.row_end <= std::ssize(args.slots));
    const AttentionRows rows = sequence_rows(isa, args, sequence);
    check_slots(rows, n_rows);
    if (!sequence.heads.empty()) {
      WEFT_CHECK(sequence.kernel_class == KernelClass::kDecode && n_rows == 1);
      WEFT_CHECK(std::ssize(sequence.heads) == kv.n_kv_heads && args.first_slots.empty());
    }
    if (sequence.page_log_sums != nullptr) {
      WEFT_CHECK(sequence.kernel_class == KernelClass::kDecode && n_rows == 1);
      WEFT_CHECK(sequence.heads.empty() && args.first_slots.empty());
    }
    if (sequence.kernel_class == KernelClass::kDecode) {
      plan_decode(rows, i, n_rows, partial_floats, plan);
    } else {
      plan_prefill(rows, i, n_rows, plan);
    }
  }
  // The longest first: no thread is left with a long task at the end. Of equal ones those of the
  // same keys: rows that verify a draft read the same K and V, which are in the cache of the core
  // then, and not a row's whole context apart.
  const auto order = [](const AttentionPlan::Task& task) {
    const bool is_decode = task.partial >= 0;
    return std::tuple(-task.cost, is_decode ? task.end : 0, is_decode ? task.kv_head : 0);
  };
  // One row's tasks are in this order: where pages are chosen there is a plan for each layer.
  if (!std::ranges::is_sorted(plan.tasks, std::less<>(), order)) {
    std::ranges::stable_sort(plan.tasks, std::less<>(), order);
  }
  return plan;
}

namespace {

/// A task is a row, or a KV head of one where that many parts are to be joined that the workers'
/// meeting costs less.
void join_splits(const Context& context, const AttentionArgs& args, const AttentionPlan& plan,
                 const float* partials) {
  const AttentionDecodeFns& fns = pick_attention_decode_fns(context.isa);
  const int64_t n_heads = args.kv.layout.n_kv_heads;
  int64_t most_splits = 0;
  for (const auto& row : plan.decode_rows) most_splits = std::max(most_splits, row.n_splits);
  const int64_t heads = most_splits < kSplitsOfOneTask ? n_heads : 1;  // of a task
  context.pool.run(std::ssize(plan.decode_rows) * (n_heads / heads), [&](int64_t index, int) {
    const AttentionPlan::DecodeRow& row = plan.decode_rows[index * heads / n_heads];
    const AttentionRows rows = sequence_rows(context.isa, args, args.sequences[row.sequence]);
    const int64_t first = index * heads % n_heads;
    for (int64_t head = first; head < first + heads; ++head) {
      fns.merge(rows, row.row, narrow<int32_t>(head), row.n_splits, partials + row.partial);
    }
  });
}

}  // namespace

void attention(const Context& context, const AttentionArgs& args, const AttentionPlan& plan) {
  check_args(args);
  WEFT_CHECK(same_shape(args.out, args.q) && args.out.is_dense());
  const AttentionFns& fns = pick_attention_fns(context.isa);
  const AttentionDecodeFns& decode_fns = pick_attention_decode_fns(context.isa);
  float* const partials = context.workspace->of_op<float>(Use::kPartials, plan.partial_floats);
  const auto decode_task = [&](int64_t index) -> DecodeTask {
    const AttentionPlan::Task& task = plan.tasks[index];
    return {.rows = sequence_rows(context.isa, args, args.sequences[task.sequence]),
            .row = task.begin,
            .kv_head = task.kv_head,
            .split = task.end,
            .is_first = index < context.pool.size()};
  };
  context.pool.run(std::ssize(plan.tasks), [&](int64_t index, int worker) {
    const AttentionPlan::Task& task = plan.tasks[index];
    auto* scratch = context.workspace->of_worker<float>(worker, Use::kScratch, plan.worker_floats);
    if (task.partial < 0) {
      const AttentionRows rows = sequence_rows(context.isa, args, args.sequences[task.sequence]);
      fns.prefill(rows, task.kv_head, task.begin, task.end, scratch);
      return;
    }
    const int64_t after = index + context.pool.size();  // where all are equally fast
    std::optional<DecodeTask> next;
    if (after < std::ssize(plan.tasks) && plan.tasks[after].partial >= 0) {
      next = decode_task(after);
    }
    decode_fns.decode(decode_task(index), next ? &*next : nullptr, scratch,
                      partials + task.partial);
  });
  join_splits(context, args, plan, partials);
}

// A pass of its own over K after attention(), since a probability needs the row's whole sum, which
// is not known while its keys are gone through: p = exp(score - log_sum_exp). Tasks are blocks of
// keys, so that each element of `received` has one writer and its sum one order; the queries of all
// rows and heads are packed once and shared by all blocks.
void attention_received(const Context& context, const AttentionArgs& args,
                        std::span<float> received) {
  check_args(args);
  WEFT_CHECK(args.sequences.size() == 1 && args.log_sum_exp.rows == args.q.rows);
  const AttentionSequence& sequence = args.sequences[0];
  const int64_t n_rows = sequence.row_end - sequence.row_begin;
  if (n_rows == 0) return;
  const AttentionRows rows = sequence_rows(context.isa, args, sequence);
  check_slots(rows, n_rows);
  const int64_t n_visible = std::min(std::ssize(received), rows.slots[n_rows - 1] + int64_t{1});

  const AttentionFns& fns = pick_attention_fns(context.isa);
  const int64_t n_queries = n_rows * rows.group;
  const int64_t n_tiles = (n_queries + fns.tile_queries - 1) / fns.tile_queries;
  const int64_t tile_floats = fns.packed_tile(rows.kv.layout.head_dim);
  float* const packed = context.workspace->of_op<float>(
      Use::kActivations, rows.kv.layout.n_kv_heads * n_tiles * tile_floats);
  context.pool.run(rows.kv.layout.n_kv_heads * n_tiles, [&](int64_t task, int) {
    const auto kv_head = narrow<int32_t>(task / n_tiles);
    fns.pack(rows, n_rows, kv_head, task % n_tiles, packed + task * tile_floats);
  });
  const int64_t worker_floats = fns.received_scratch(rows.kv.layout.head_dim);
  const int64_t first_block = first_visible(rows, 0) / kBlockKeys;
  const int64_t end_block = (n_visible + kBlockKeys - 1) / kBlockKeys;
  context.pool.run(end_block - first_block, [&](int64_t block, int worker) {
    const int64_t begin = (first_block + block) * kBlockKeys;
    fns.received(rows, n_rows, begin, std::min(n_visible, begin + kBlockKeys), packed,
                 context.workspace->of_worker<float>(worker, Use::kScratch, worker_floats),
                 received.data());
  });
}

// Tasks are runs of the step's rows, whichever sequence they belong to: 64 sequences that decode a
// row each are two tasks, not 64. A task finds the sequence of its first row and goes on from
// there.
void write_kv(const Context& context, const PagedKv& kv,
              std::span<const AttentionSequence> sequences, std::span<const int32_t> slots,
              MatrixView<const float> k, MatrixView<const float> v) {
  const KvCodecFns& k_codec = kv_codec(context.isa, kv.layout.k_type);
  const KvCodecFns& v_codec = kv_codec(context.isa, kv.layout.v_type);
  const int64_t n_heads = kv.layout.n_kv_heads, head_dim = kv.layout.head_dim;
  if (sequences.empty()) return;
  const int64_t row_begin = sequences.front().row_begin;
  const int64_t row_end = sequences.back().row_end;
  WEFT_CHECK(same_shape(k, v) && k.columns == n_heads * head_dim);
  WEFT_CHECK(row_end <= k.rows && row_end <= std::ssize(slots));
  const int64_t n_tasks = (row_end - row_begin + kRowsPerTask - 1) / kRowsPerTask;
  context.pool.run(n_tasks, [&](int64_t task, int) {
    const int64_t first = row_begin + task * kRowsPerTask;
    const int64_t end = std::min(row_end, first + kRowsPerTask);
    auto sequence = std::ranges::upper_bound(sequences, first, {}, &AttentionSequence::row_end);
    for (int64_t r = first; r < end; ++r) {
      while (r >= sequence->row_end) ++sequence;
      for (int32_t head = 0; head < n_heads; ++head) {
        const int64_t from = head * head_dim;
        k_codec.store(&k.row(r)[from], head_dim, k_at(kv, sequence->block_table, slots[r], head));
        v_codec.store(&v.row(r)[from], head_dim, v_at(kv, sequence->block_table, slots[r], head));
      }
    }
  });
}

}  // namespace weft::kernels
