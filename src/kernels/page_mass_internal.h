// What page_mass.cc needs from page_mass_cpu.cc: one KV head's keys of some pages, one thread each.
#pragma once

#include <stdint.h>

#include "kernels/isa.h"
#include "kernels/kv_codec_internal.h"
#include "kernels/paged_kv.h"

namespace weft::kernels {

/// Slots of one task: whole pages of every size.
inline constexpr int32_t kMassSlots = 512;

/// The pages, or runs, of a query and KV head as a sequence: slot i * entry_tokens + t is token t
/// of table[i].
struct MassRows {
  PagedKv kv;
  const KvCodecFns* codec;
  const int32_t* table;
  int32_t entry_tokens;
  int64_t n_slots;
  int32_t part_tokens;  // entry_tokens, or of a part of a page
  int32_t group;        // heads that share a KV head
  const float* q;       // [n_heads][head_dim]
  const float* scales;  // [n_heads]
  float* scores;        // [n_heads][stride]
  int64_t stride;
};

/// The slots [begin, begin + kMassSlots) of a KV head's query heads, as far as there are any.
struct MassTask {
  MassRows rows;
  int32_t kv_head;
  int64_t begin;
  bool is_first;  // of its worker: no task before it has asked for its keys
};

struct PageMassFns {
  /// Floats that one worker needs.
  int64_t (*scratch)(int32_t group, int32_t head_dim);
  /// By parts of pages. next: the worker's next task, for whose keys it asks; or null.
  void (*pages)(const MassTask& task, const MassTask* next, float* scratch);
  void (*tokens)(const MassTask& task, const MassTask* next, float* scratch);
};

WEFT_ISA_TABLE(PageMassFns, page_mass_fns)

}  // namespace weft::kernels
