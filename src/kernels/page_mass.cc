// Shapes are checked here; a task is a KV head of a query and kMassSlots of its slots.
#include "kernels/page_mass.h"

#include <algorithm>

#include "base/check.h"
#include "base/narrow.h"
#include "kernels/page_mass_internal.h"

namespace weft::kernels {
namespace {

int64_t slots_of(const KvLayout& layout, const MassQuery& query) {
  if (query.pages.empty()) return 0;
  return (std::ssize(query.pages) - 1) * layout.page_tokens + query.last_page_tokens;
}

int32_t part_tokens_of(const KvLayout& layout, const MassQuery& query) {
  return query.part_tokens == 0 ? layout.page_tokens : query.part_tokens;
}

/// Runs `fn` over all tasks.
void run_mass(const Context& context, const PagedKv& kv, int32_t n_heads,
              std::span<const MassQuery> queries, int64_t worker_floats,
              void (*fn)(const MassRows&, int32_t, int64_t, float*)) {
  int64_t most_slots = 0;
  for (const MassQuery& query : queries) {
    most_slots = std::max(most_slots, slots_of(kv.layout, query));
  }
  const int64_t n_parts = (most_slots + kMassSlots - 1) / kMassSlots;
  const int64_t n_tasks = n_parts * kv.layout.n_kv_heads;  // of a query
  context.pool.run(std::ssize(queries) * n_tasks, [&](int64_t task, int worker) {
    const MassQuery& query = queries[task / n_tasks];
    const MassRows rows = {.kv = kv,
                           .codec = &kv_codec(context.isa, kv.layout.k_type),
                           .pages = query.pages.data(),
                           .n_slots = slots_of(kv.layout, query),
                           .part_tokens = part_tokens_of(kv.layout, query),
                           .group = n_heads / kv.layout.n_kv_heads,
                           .q = query.q,
                           .scales = query.scales.data(),
                           .scores = query.scores,
                           .stride = query.stride};
    const int64_t begin = task % n_tasks / kv.layout.n_kv_heads * kMassSlots;
    if (begin >= rows.n_slots) return;
    fn(rows, narrow<int32_t>(task % kv.layout.n_kv_heads), begin,
       context.workspace->of_worker<float>(worker, Use::kScratch, worker_floats));
  });
}

/// Aborts unless shapes agree; n_scores: what a head's row of scores has to have room for.
void check_queries(const PagedKv& kv, int32_t n_heads, std::span<const MassQuery> queries,
                   int64_t (*n_scores)(const KvLayout&, const MassQuery&)) {
  WEFT_CHECK(n_heads > 0 && n_heads % kv.layout.n_kv_heads == 0);
  for (const MassQuery& query : queries) {
    WEFT_CHECK(std::ssize(query.scales) == n_heads);
    WEFT_CHECK(query.stride >= n_scores(kv.layout, query));
    if (query.pages.empty()) continue;
    WEFT_CHECK(query.last_page_tokens > 0 && query.last_page_tokens <= kv.layout.page_tokens);
  }
}

}  // namespace

void page_mass(const Context& context, const PagedKv& kv, int32_t n_heads,
               std::span<const MassQuery> queries) {
  check_queries(kv, n_heads, queries, [](const KvLayout& layout, const MassQuery& query) {
    const int64_t part_tokens = part_tokens_of(layout, query);
    WEFT_CHECK(part_tokens == layout.page_tokens || part_tokens == kRunTokens);
    return (slots_of(layout, query) + part_tokens - 1) / part_tokens;
  });
  const PageMassFns& fns = pick_page_mass_fns(context.isa);
  run_mass(context, kv, n_heads, queries,
           fns.scratch(n_heads / kv.layout.n_kv_heads, kv.layout.head_dim), fns.pages);
}

void token_scores(const Context& context, const PagedKv& kv, int32_t n_heads,
                  std::span<const MassQuery> queries) {
  check_queries(kv, n_heads, queries, slots_of);
  const PageMassFns& fns = pick_page_mass_fns(context.isa);
  run_mass(context, kv, n_heads, queries,
           fns.scratch(n_heads / kv.layout.n_kv_heads, kv.layout.head_dim), fns.tokens);
}

void count_page_mass(Isa isa, const KvLayout& layout, int32_t n_heads, WorkspaceSize& size) {
  const int64_t n_floats =
      pick_page_mass_fns(isa).scratch(n_heads / layout.n_kv_heads, layout.head_dim);
  size.of_worker(Use::kScratch, n_floats * int64_t{sizeof(float)});
}

}  // namespace weft::kernels
