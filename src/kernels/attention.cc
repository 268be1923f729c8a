#include "kernels/attention.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/attention_internal.h"
#include "tensor/buffer.h"

namespace weft::kernels {
namespace {

constexpr int64_t kRowsPerTask = 32;  // write_kv: some 50 KB

/// Queries [begin, end) of a KV head of a sequence: a prefill task; or row `begin`, split `end` of
/// one: a decode task, which leaves its result at `partial`.
struct Task {
  const AttentionRows* rows = nullptr;
  int32_t kv_head = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t partial = -1;  // floats from the first partial result; -1: a prefill task
  int64_t cost = 0;      // products of a query and a key
};

/// A decode row whose partial results are to be joined.
struct DecodeRow {
  const AttentionRows* rows = nullptr;
  int64_t row = 0;
  int64_t n_splits = 0;
  int64_t partial = 0;
};

struct Plan {
  std::vector<AttentionRows> sequences;
  std::vector<Task> tasks;
  std::vector<DecodeRow> decode_rows;
  int64_t partial_floats = 0;
};

AttentionRows sequence_rows(const AttentionArgs& args, const AttentionSequence& sequence) {
  const int64_t row = sequence.row_begin;
  const int64_t heads = args.n_heads;
  const int64_t head_dim = args.kv.head_dim;
  return {.kv = args.kv,
          .block_table = sequence.block_table,
          .positions = args.positions + row,
          .n_heads = args.n_heads,
          .group = args.n_heads / args.kv.n_kv_heads,
          .scale = args.scale,
          .softcap = args.softcap,
          .window_tokens = args.window_tokens,
          .q = args.q + row * heads * head_dim,
          .out = args.out == nullptr ? nullptr : args.out + row * heads * head_dim,
          .log_sum_exp = args.log_sum_exp == nullptr ? nullptr : args.log_sum_exp + row * heads};
}

void check_args(const AttentionArgs& args) {
  WEFT_CHECK(is_valid(args.kv) && args.n_heads > 0 && args.n_heads % args.kv.n_kv_heads == 0);
  WEFT_CHECK(args.softcap >= 0 && args.window_tokens >= 0);
}

void check_positions(const int32_t* positions, int64_t n_rows) {
  WEFT_CHECK(n_rows == 0 || positions[0] >= 0);
  WEFT_CHECK(std::is_sorted(positions, positions + n_rows));
}

void plan_prefill(const AttentionRows& rows, int64_t n_rows, Plan& plan) {
  const int64_t n_queries = n_rows * rows.group;
  for (int32_t head = 0; head < rows.kv.n_kv_heads; ++head) {
    for (int64_t begin = 0; begin < n_queries; begin += kTaskQueries) {
      const int64_t end = std::min<int64_t>(n_queries, begin + kTaskQueries);
      const int64_t first_row = begin / rows.group, last_row = (end - 1) / rows.group;
      int64_t keys = rows.positions[last_row] + 1 - first_visible(rows, rows.positions[first_row]);
      if (rows.window_tokens > 0) {  // positions may have gaps wider than the window
        keys = std::min(keys, (last_row - first_row + 1) * rows.window_tokens);
      }
      plan.tasks.push_back({.rows = &rows,
                            .kv_head = head,
                            .begin = begin,
                            .end = end,
                            .cost = keys * (end - begin)});
    }
  }
}

void plan_decode(const AttentionRows& rows, int64_t n_rows, int64_t partial_floats, Plan& plan) {
  for (int64_t row = 0; row < n_rows; ++row) {
    const int64_t n_visible = rows.positions[row] + int64_t{1};
    const int64_t first_key = first_visible(rows, rows.positions[row]);
    const int64_t first_split = first_key / kSplitKeys;
    const int64_t end_split = (n_visible - 1) / kSplitKeys + 1;
    plan.decode_rows.push_back({.rows = &rows,
                                .row = row,
                                .n_splits = end_split - first_split,
                                .partial = plan.partial_floats});
    for (int32_t head = 0; head < rows.kv.n_kv_heads; ++head) {
      for (int64_t split = first_split; split < end_split; ++split) {
        const int64_t n_keys =
            std::min(n_visible, (split + 1) * kSplitKeys) - std::max(first_key, split * kSplitKeys);
        plan.tasks.push_back({.rows = &rows,
                              .kv_head = head,
                              .begin = row,
                              .end = split,
                              .partial = plan.partial_floats,
                              .cost = n_keys * rows.group});
        plan.partial_floats += partial_floats;
      }
    }
  }
}

Plan make_plan(const AttentionArgs& args, const AttentionDecodeFns& decode_fns) {
  const int32_t group = args.n_heads / args.kv.n_kv_heads;
  const int64_t partial_floats = decode_fns.partial(group, args.kv.head_dim);
  Plan plan;
  plan.sequences.reserve(args.sequences.size());  // tasks point to them
  for (const AttentionSequence& sequence : args.sequences) {
    const int64_t n_rows = sequence.row_end - sequence.row_begin;
    WEFT_CHECK(sequence.row_begin >= 0 && n_rows >= 0);
    const AttentionRows& rows = plan.sequences.emplace_back(sequence_rows(args, sequence));
    check_positions(rows.positions, n_rows);
    if (n_rows <= kDecodeAttentionRows && !args.is_prompt) {
      plan_decode(rows, n_rows, partial_floats, plan);
    } else {
      plan_prefill(rows, n_rows, plan);
    }
  }
  // The longest first: no thread is left with a long task at the end.
  std::stable_sort(plan.tasks.begin(), plan.tasks.end(),
                   [](const Task& a, const Task& b) { return a.cost > b.cost; });
  return plan;
}

}  // namespace

void attention(const Context& context, const AttentionArgs& args) {
  check_args(args);
  const AttentionFns& fns = pick_attention_fns(context.isa);
  const AttentionDecodeFns& decode_fns = pick_attention_decode_fns(context.isa);
  const Plan plan = make_plan(args, decode_fns);
  const int32_t group = args.n_heads / args.kv.n_kv_heads;
  const int64_t worker_floats = (std::max(fns.prefill_scratch(args.kv.head_dim),
                                          decode_fns.scratch(group, args.kv.head_dim)) +
                                 15) /
                                16 * 16;
  AlignedBuffer<float> scratch(static_cast<size_t>(worker_floats * context.pool.size()));
  AlignedBuffer<float> partials(static_cast<size_t>(plan.partial_floats));
  context.pool.run(static_cast<int>(plan.tasks.size()), [&](int index, int worker) {
    const Task& task = plan.tasks[static_cast<size_t>(index)];
    float* memory = scratch.data() + worker * worker_floats;
    if (task.partial < 0) {
      fns.prefill(*task.rows, task.kv_head, task.begin, task.end, memory);
    } else {
      decode_fns.decode(*task.rows, task.begin, task.kv_head, task.end, memory,
                        partials.data() + task.partial);
    }
  });
  context.pool.run(static_cast<int>(plan.decode_rows.size()), [&](int index, int) {
    const DecodeRow& row = plan.decode_rows[static_cast<size_t>(index)];
    decode_fns.merge(*row.rows, row.row, row.n_splits, partials.data() + row.partial);
  });
}

void attention_mass(const Context& context, const AttentionArgs& args, int64_t n_keys,
                    float* mass) {
  check_args(args);
  WEFT_CHECK(args.sequences.size() == 1 && args.log_sum_exp != nullptr);
  const AttentionSequence& sequence = args.sequences[0];
  const int64_t n_rows = sequence.row_end - sequence.row_begin;
  if (n_rows == 0) return;
  const AttentionRows rows = sequence_rows(args, sequence);
  check_positions(rows.positions, n_rows);
  const int64_t n_visible = std::min(n_keys, rows.positions[n_rows - 1] + int64_t{1});

  const AttentionFns& fns = pick_attention_fns(context.isa);
  const int64_t n_queries = n_rows * rows.group;
  const int64_t n_tiles = (n_queries + fns.tile_queries - 1) / fns.tile_queries;
  const int64_t tile_floats = fns.packed_tile(rows.kv.head_dim);
  AlignedBuffer<float> packed(static_cast<size_t>(rows.kv.n_kv_heads * n_tiles * tile_floats));
  context.pool.run(static_cast<int>(rows.kv.n_kv_heads * n_tiles), [&](int task, int) {
    fns.pack(rows, n_rows, static_cast<int32_t>(task / n_tiles), task % n_tiles,
             packed.data() + task * tile_floats);
  });
  const int64_t worker_floats = (fns.mass_scratch(rows.kv.head_dim) + 15) / 16 * 16;
  AlignedBuffer<float> scratch(static_cast<size_t>(worker_floats * context.pool.size()));
  const int64_t first_block = first_visible(rows, rows.positions[0]) / kBlockKeys;
  const int64_t end_block = (n_visible + kBlockKeys - 1) / kBlockKeys;
  const auto n_blocks = static_cast<int>(std::max<int64_t>(0, end_block - first_block));
  context.pool.run(n_blocks, [&](int block, int worker) {
    const int64_t begin = (first_block + block) * kBlockKeys;
    fns.mass(rows, n_rows, begin, std::min(n_visible, begin + kBlockKeys), packed.data(),
             scratch.data() + worker * worker_floats, mass);
  });
}

void write_kv(const Context& context, const PagedKv& kv,
              std::span<const AttentionSequence> sequences, const int32_t* positions,
              const float* k, const float* v) {
  WEFT_CHECK(is_valid(kv));
  const AttentionFns& fns = pick_attention_fns(context.isa);
  const int64_t row_floats = static_cast<int64_t>(kv.n_kv_heads) * kv.head_dim;
  for (const AttentionSequence& sequence : sequences) {
    const int64_t n_rows = sequence.row_end - sequence.row_begin;
    WEFT_CHECK(sequence.row_begin >= 0 && n_rows >= 0);
    const auto n_tasks = static_cast<int>((n_rows + kRowsPerTask - 1) / kRowsPerTask);
    context.pool.run(n_tasks, [&](int task, int) {
      const int64_t first = sequence.row_begin + task * kRowsPerTask;
      const int64_t end = std::min(sequence.row_end, first + kRowsPerTask);
      for (int64_t r = first; r < end; ++r) {
        fns.write_kv(kv, sequence.block_table, positions[r], k + r * row_floats,
                     v + r * row_floats);
      }
    });
  }
}

}  // namespace weft::kernels
