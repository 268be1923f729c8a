// Shapes are checked here; a task is a KV head of a query and kMassSlots of its slots.
#include "kernels/page_mass.h"

#include <algorithm>
#include <optional>

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

/// What one KV head of a query goes through, and by what parts it has scores.
struct Slots {
  const int32_t* table;
  int32_t entry_tokens, part_tokens;
  int64_t n;

  Slots(const KvLayout& layout, const MassQuery& query, int64_t kv_head)
      : table(query.pages.data()),
        entry_tokens(layout.page_tokens),
        part_tokens(part_tokens_of(layout, query)),
        n(slots_of(layout, query)) {
    if (query.heads.empty()) return;
    const HeadPages& head = query.heads[kv_head];
    table = head.table;
    entry_tokens = part_tokens = head.entry_tokens;
    n = head.last_slot + int64_t{1};
  }
  int64_t n_scores() const { return (n + part_tokens - 1) / part_tokens; }
};

/// Runs `fn` over all tasks.
void run_mass(const Context& context, const PagedKv& kv, int32_t n_heads,
              std::span<const MassQuery> queries, int64_t worker_floats,
              void (*fn)(const MassTask&, const MassTask*, float*)) {
  int64_t most_slots = 0;
  for (const MassQuery& query : queries) {
    for (int32_t head = 0; head < kv.layout.n_kv_heads; ++head) {
      most_slots = std::max(most_slots, Slots(kv.layout, query, head).n);
    }
  }
  const int64_t n_parts = (most_slots + kMassSlots - 1) / kMassSlots;
  const int64_t n_tasks = n_parts * kv.layout.n_kv_heads;  // of a query
  const int64_t n_all = std::ssize(queries) * n_tasks;
  const auto task_at = [&](int64_t index) -> MassTask {
    const MassQuery& query = queries[index / n_tasks];
    const auto kv_head = narrow<int32_t>(index % kv.layout.n_kv_heads);
    const Slots slots(kv.layout, query, kv_head);
    return {.rows = {.kv = kv,
                     .codec = &kv_codec(context.isa, kv.layout.k_type),
                     .table = slots.table,
                     .entry_tokens = slots.entry_tokens,
                     .n_slots = slots.n,
                     .part_tokens = slots.part_tokens,
                     .group = n_heads / kv.layout.n_kv_heads,
                     .q = query.q,
                     .scales = query.scales.data(),
                     .scores = query.scores,
                     .stride = query.stride},
            .kv_head = kv_head,
            .begin = index % n_tasks / kv.layout.n_kv_heads * kMassSlots,
            .is_first = index < context.pool.size()};
  };
  context.pool.run(n_all, [&](int64_t index, int worker) {
    const MassTask task = task_at(index);
    if (task.begin >= task.rows.n_slots) return;
    const int64_t after = index + context.pool.size();  // where all are equally fast
    std::optional<MassTask> next;
    if (after < n_all) next = task_at(after);
    fn(task, next && next->begin < next->rows.n_slots ? &*next : nullptr,
       context.workspace->of_worker<float>(worker, Use::kScratch, worker_floats));
  });
}

/// Aborts unless shapes agree.
void check_queries(const PagedKv& kv, int32_t n_heads, std::span<const MassQuery> queries) {
  WEFT_CHECK(n_heads > 0 && n_heads % kv.layout.n_kv_heads == 0);
  for (const MassQuery& query : queries) {
    WEFT_CHECK(std::ssize(query.scales) == n_heads);
    if (query.pages.empty()) continue;
    WEFT_CHECK(query.last_page_tokens > 0 && query.last_page_tokens <= kv.layout.page_tokens);
  }
}

void check_parts(const KvLayout& layout, const MassQuery& query, int32_t kv_head) {
  const Slots slots(layout, query, kv_head);
  WEFT_CHECK(slots.part_tokens == layout.page_tokens || slots.part_tokens == kRunTokens);
  WEFT_CHECK(query.heads.empty() || slots.n % slots.entry_tokens == 0);
  WEFT_CHECK(query.stride >= slots.n_scores());
}

}  // namespace

void page_mass(const Context& context, const PagedKv& kv, int32_t n_heads,
               std::span<const MassQuery> queries) {
  check_queries(kv, n_heads, queries);
  for (const MassQuery& query : queries) {
    WEFT_CHECK(query.heads.empty() || std::ssize(query.heads) == kv.layout.n_kv_heads);
    for (int32_t head = 0; head < kv.layout.n_kv_heads; ++head) {
      check_parts(kv.layout, query, head);
    }
  }
  const PageMassFns& fns = pick_page_mass_fns(context.isa);
  run_mass(context, kv, n_heads, queries,
           fns.scratch(n_heads / kv.layout.n_kv_heads, kv.layout.head_dim), fns.pages);
}

void token_scores(const Context& context, const PagedKv& kv, int32_t n_heads,
                  std::span<const MassQuery> queries) {
  check_queries(kv, n_heads, queries);
  for (const MassQuery& query : queries) {
    WEFT_CHECK(query.heads.empty() && query.stride >= slots_of(kv.layout, query));
  }
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
