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

inline const uint8_t* k_of(const PagedKv& kv, const KeySlots& keys, int64_t slot) {
  return k_in_page(kv, find_slot(kv.layout, keys.table, keys.entry_tokens, slot), keys.kv_head);
}
inline const uint8_t* v_of(const PagedKv& kv, const KeySlots& keys, int64_t slot) {
  return v_in_page(kv, find_slot(kv.layout, keys.table, keys.entry_tokens, slot), keys.kv_head);
}
inline const uint8_t* k_of(const KeyBlock& keys, int64_t slot) {
  return k_of(*keys.kv, keys, slot);
}
inline const uint8_t* v_of(const KeyBlock& keys, int64_t slot) {
  return v_of(*keys.kv, keys, slot);
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

/// The next block's slot at the same place as `slot` in its own, or -1.
inline int64_t slot_ahead(const KeyBlock& keys, int64_t slot) {
  const int64_t at = keys.next.begin / kBlockKeys * kBlockKeys + slot % kBlockKeys;
  return at >= keys.next.begin && at < keys.next.end ? at : -1;
}
/// Bytes from a run's K at `slot` to that of the next block's run at the same place; 0 where there
/// is none. V's likewise.
inline int64_t k_ahead(const KeyBlock& keys, int64_t slot, const uint8_t* k) {
  const int64_t next = slot_ahead(keys, slot);
  return next < 0 ? 0 : k_of(*keys.kv, keys.next, next) - k;
}
inline int64_t v_ahead(const KeyBlock& keys, int64_t slot, const uint8_t* v) {
  const int64_t next = slot_ahead(keys, slot);
  return next < 0 ? 0 : v_of(*keys.kv, keys.next, next) - v;
}

/// Brings n_bytes into the L2. A few at a time, between the work: a whole block's at once fills the
/// buffers that the block's own loads need, and hid nothing.
[[gnu::always_inline]] inline void prefetch(const void* from, int64_t n_bytes) {
  const char* bytes = static_cast<const char*>(from);
#pragma GCC unroll 4
  for (int64_t i = 0; i < n_bytes; i += 64) __builtin_prefetch(bytes + i, 0, 3);
}

/// K or V of the block of keys after this one, of which a product asks for some while it goes
/// through this block: a key of each of a few parts in turn. The CPU's own prefetcher follows each
/// part, some twenty lines ahead, so of parts that lie apart more is on its way at once than of one
/// after the other: a block of f16 that is read here and there took 2.5 to 2.9 us in order, of
/// which its arithmetic is 1.1, and takes 1.6; a dense layer of 32,768 keys 2.7 ms in place of 3.2
/// (Sapphire Rapids, a 1B model's shape). Of q8_0, with half the bytes and much more arithmetic, 5
/// % were gained with pages of 16 and more lost with larger ones: its products ask in order.
class NextKeys {
 public:
  static NextKeys of_k(const KeyBlock& keys) { return NextKeys(keys, keys.kv->k_bytes, k_of); }
  static NextKeys of_v(const KeyBlock& keys) { return NextKeys(keys, keys.kv->v_bytes, v_of); }

  /// Asks for bytes [begin, begin + n) of the i-th of its keys, i < kBlockKeys, in that order.
  [[gnu::always_inline]] void ask(int32_t i, int64_t begin, int64_t n) const {
    const uint8_t* const part = parts_[i & (n_parts_ - 1)];
    prefetch(part + (i >> log2_parts_) * key_bytes_ + begin, n);
  }

 private:
  // Where the CPU's own prefetcher stops. With two parts to each 4 KB it takes as long as in order.
  static constexpr int64_t kPartBytes = 4096;

  using Place = const uint8_t* (*)(const PagedKv&, const KeySlots&, int64_t);
  NextKeys(const KeyBlock& keys, int64_t key_bytes, Place place) : key_bytes_(key_bytes) {
    const KeySlots& next = keys.next;
    int32_t part_keys = next.entry_tokens < kBlockKeys ? next.entry_tokens : kBlockKeys;
    while (part_keys * key_bytes > kPartBytes && part_keys > kRunTokens) part_keys /= 2;
    n_parts_ = kBlockKeys / part_keys;
    log2_parts_ = __builtin_ctz(n_parts_);
    for (int32_t i = 0; i < n_parts_; ++i) {
      const int64_t slot = next.begin / kBlockKeys * kBlockKeys + i * part_keys;
      const bool is_read = slot + part_keys > next.begin && slot < next.end;
      // What is not has a place that is in the cache already.
      parts_[i] = is_read ? place(*keys.kv, next, slot) : place(*keys.kv, keys, keys.begin);
    }
  }

  const uint8_t* parts_[kBlockKeys / kRunTokens];
  int64_t key_bytes_;
  int32_t n_parts_, log2_parts_;
};

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
