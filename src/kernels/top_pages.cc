// Shapes are checked here; a task is one KV head of a row, whose scores are a few thousand floats.
#include "kernels/top_pages.h"

#include "base/check.h"
#include "base/narrow.h"
#include "kernels/top_pages_internal.h"

namespace weft::kernels {

namespace {

void join_heads(const Context& context, std::span<const PageScores> rows,
                decltype(TopPagesFns::group) fn) {
  if (rows.empty()) return;
  const int64_t n_kv_heads = rows[0].of_groups.rows;
  for (const PageScores& row : rows) {
    WEFT_CHECK(n_kv_heads > 0 && row.of_groups.rows == n_kv_heads);
    WEFT_CHECK(row.of_heads.rows > 0 && row.of_heads.rows % n_kv_heads == 0);
    WEFT_CHECK(row.of_heads.columns == row.of_groups.columns);
  }
  context.pool.run(std::ssize(rows) * n_kv_heads, [&](int64_t task, int) {
    const PageScores& row = rows[task / n_kv_heads];
    const int64_t kv_head = task % n_kv_heads, group = row.of_heads.rows / n_kv_heads;
    fn(row.of_heads.row(kv_head * group).data(), row.of_heads.stride, narrow<int32_t>(group),
       row.of_heads.columns, row.of_groups.row(kv_head).data());
  });
}

}  // namespace

void group_scores(const Context& context, std::span<const PageScores> rows) {
  join_heads(context, rows, pick_top_pages_fns(context.isa).group);
}

void sum_shares(const Context& context, std::span<const PageScores> rows) {
  join_heads(context, rows, pick_top_pages_fns(context.isa).sum_shares);
}

void top_pages(const Context& context, std::span<const PageChoice> choices) {
  for (const PageChoice& choice : choices) {
    WEFT_CHECK(std::ssize(choice.chosen) <= std::ssize(choice.scores));
  }
  const TopPagesFns& fns = pick_top_pages_fns(context.isa);
  context.pool.run(std::ssize(choices), [&](int64_t i, int worker) {
    const PageChoice& choice = choices[i];
    const int64_t n_pages = std::ssize(choice.scores);
    auto* const keys =
        context.workspace->of_worker<int32_t>(worker, Use::kScratch, padded_keys(n_pages));
    fns.choose(choice.scores.data(), n_pages, keys, choice.chosen.data(),
               std::ssize(choice.chosen));
  });
}

void count_top_pages(int64_t n_pages, WorkspaceSize& size) {
  size.of_worker(Use::kScratch, padded_keys(n_pages) * int64_t{sizeof(int32_t)});
}

}  // namespace weft::kernels
