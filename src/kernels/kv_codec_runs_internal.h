// How decode's two products go through a block of keys: by runs of slots that lie together in a
// page, and by a few heads at a time. Only for kv_codec_*_cpu.cc.
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

/// Calls fn(first slot, keys before it, keys) for the runs of slots that lie together in a page.
template <class Fn>
void for_runs(const KeyBlock& keys, const Fn& fn) {
  const int64_t page_tokens = keys.kv->layout.page_tokens;
  for (int64_t slot = keys.begin; slot < keys.end;) {
    const int64_t page_end = (slot / page_tokens + 1) * page_tokens;
    const int64_t run_end = page_end < keys.end ? page_end : keys.end;
    fn(slot, slot - keys.begin, run_end - slot);
    slot = run_end;
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
