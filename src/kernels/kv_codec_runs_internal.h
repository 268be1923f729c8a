// How decode's two products go through a block of keys: by runs of slots that lie together in a
// page, and by a few heads at a time; page_digest_cpu.cc takes heads likewise. Only for *_cpu.cc.
#pragma once

#include "kernels/kv_codec_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

// Heads taken together: by 4 keys (or 4 registers of V) they are the accumulators; with the
// operands they fit the 32 registers of AVX-512, or 16.
#if defined(__AVX512F__)
constexpr int kHeadBatch = 4;
#else
constexpr int kHeadBatch = 2;
#endif

inline const uint8_t* k_of(const KeyBlock& keys, int64_t slot) {
  const PagedSlot at = find_slot(keys.kv->layout, keys.table, keys.entry_tokens, slot);
  return k_in_page(*keys.kv, at, keys.kv_head);
}
inline const uint8_t* v_of(const KeyBlock& keys, int64_t slot) {
  const PagedSlot at = find_slot(keys.kv->layout, keys.table, keys.entry_tokens, slot);
  return v_in_page(*keys.kv, at, keys.kv_head);
}

/// Calls fn(first slot, keys before it, keys) for the slots of one entry of the table after the
/// other: they lie together.
template <class Fn>
void for_runs(const KeyBlock& keys, const Fn& fn) {
  const int64_t entry_tokens = keys.entry_tokens;
  for (int64_t slot = keys.begin; slot < keys.end;) {
    const int64_t entry_end = (slot & -entry_tokens) + entry_tokens;
    const int64_t run_end = entry_end < keys.end ? entry_end : keys.end;
    fn(slot, slot - keys.begin, run_end - slot);
    slot = run_end;
  }
}

/// Bytes from a run's K at `slot` to that of the run kBlockKeys slots on, which the next block of
/// keys has at the same place of the loop; 0 where the row sees no such slot. V's likewise.
inline int64_t k_ahead(const KeyBlock& keys, int64_t slot, const uint8_t* k) {
  const int64_t next = slot + kBlockKeys;
  return next < keys.ahead_end ? k_of(keys, next) - k : 0;
}
inline int64_t v_ahead(const KeyBlock& keys, int64_t slot, const uint8_t* v) {
  const int64_t next = slot + kBlockKeys;
  return next < keys.ahead_end ? v_of(keys, next) - v : 0;
}

/// Brings n_bytes into the L2. A few at a time, between the work: a whole block's at once fills the
/// buffers that the block's own loads need, and hid nothing.
[[gnu::always_inline]] inline void prefetch(const void* from, int64_t n_bytes) {
  const char* bytes = static_cast<const char*>(from);
#pragma GCC unroll 4
  for (int64_t i = 0; i < n_bytes; i += 64) __builtin_prefetch(bytes + i, 0, 3);
}

/// The lines of kBytes that are part number `part` of kParts, for between instructions: q8_0's
/// decode over 16,384 keys takes 6 % less time so than with nine lines at once, which are more than
/// half of the L1's buffers for misses (Sapphire Rapids).
template <int kBytes, int kParts>
[[gnu::always_inline]] inline void prefetch_part(const void* from, int part) {
  constexpr int kLines = (kBytes + 63) / 64;
#pragma GCC unroll 16
  for (int line = part * kLines / kParts; line < (part + 1) * kLines / kParts; ++line) {
    __builtin_prefetch(static_cast<const char*>(from) + 64 * line, 0, 3);
  }
}

/// Calls fn<heads>(first head) for all heads of the group, kHeadBatch at a time.
template <class Fn>
void for_head_batches(int32_t group, const Fn& fn) {
  int32_t h = 0;
  for (; h + kHeadBatch <= group; h += kHeadBatch) fn.template operator()<kHeadBatch>(h);
  if (h == group) return;
#if defined(__AVX512F__)
  switch (group - h) {
    case 3:
      return fn.template operator()<3>(h);
    case 2:
      return fn.template operator()<2>(h);
  }
#endif
  fn.template operator()<1>(h);
}

}  // namespace
}  // namespace weft::kernels::WEFT_ISA
