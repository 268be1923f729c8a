// What attention, RoPE and kv_codec.cc need of a type of K and V: plain functions over bytes, one
// thread each, one table a type and instruction set.
#pragma once

#include <stdint.h>

#include "kernels/isa.h"
#include "kernels/paged_kv.h"

namespace weft::kernels {

/// Keys are taken in blocks that begin at multiples of this slot, whatever the rows: so a row's
/// sums have one order. At head_dim 64 the scores of a tile are 12 KB and V 16 KB, which L1 holds
/// while both are gone through; with 128 keys it does not (170 against 136 GFLOP/s for that product
/// on Ice Lake), with 32 there are more passes over the output.
inline constexpr int32_t kBlockKeys = 64;

/// One row of a RopeTable: cos, sin [n_dims/2].
struct RopeRow {
  const float* cos;
  const float* sin;
  int32_t n_dims;
  bool neox;  // pairs halves, not neighbours
};

/// The slots [begin, end) of one KV head of a sequence, or of a list, all of one block of keys.
struct KeySlots {
  const int32_t* table;
  int32_t entry_tokens;  // of an entry of the table: page_tokens or kRunTokens
  int32_t kv_head;
  int64_t begin;
  int64_t end;
};
struct KeyBlock : KeySlots {
  const PagedKv* kv;
  KeySlots next;  // read after it, worth a prefetch; none where it ends at its begin
};

/// The heads that share a KV head, of one decode row: q, out [group][stride], zeros after head_dim;
/// scores [group][kBlockKeys], of the block's keys from its `begin` on.
struct GroupRows {
  int32_t group;
  int32_t stride;  // head_dim padded to registers
};

/// What a type must be able to do. Bytes come at any multiple of the type's element; head_dim is a
/// multiple of 8 and may be less than a register or not a whole number of them; n and head_dim are
/// whole numbers of the type's blocks. Rotating and
/// shifting go through f32 and round once at the end.
struct KvCodecFns {
  /// dst [n] f32 = src [n], and back, each value rounded once, to nearest even.
  void (*load)(const uint8_t* src, int64_t n, float* dst);
  void (*store)(const float* src, int64_t n, uint8_t* dst);
  /// dst = src (+ shift [head_dim], where it is not null), rotated, through f32.
  void (*rotate)(const RopeRow& row, const uint8_t* src, const float* shift, uint8_t* dst,
                 int32_t head_dim);
  /// dst = src + shift [head_dim], through f32.
  void (*shift)(const uint8_t* src, const float* shift, uint8_t* dst, int32_t head_dim);
  /// scores = q . K, q as prepare_queries leaves it. May write up to the next multiple of 16
  /// scores after a run of slots: what is there then is overwritten by the next run, or lies past
  /// the block's last key.
  void (*score)(const KeyBlock& keys, const GroupRows& rows, const float* q, float* scores);
  /// out += scores V. A block's scores are weights by now: exp(score - running maximum).
  void (*add_values)(const KeyBlock& keys, const GroupRows& rows, const float* scores, float* out);
  /// Turns q into the form that `score` takes, in its place, once a task; null: floats as they are.
  void (*prepare_queries)(const GroupRows& rows, int32_t head_dim, float* q);
};

#define WEFT_KV_CODEC(fn) WEFT_ISA_TABLE(KvCodecFns, fn)
WEFT_KV_CODEC(kv_codec_f32_fns)
WEFT_KV_CODEC(kv_codec_f16_fns)
WEFT_KV_CODEC(kv_codec_bf16_fns)
WEFT_KV_CODEC(kv_codec_q8_0_fns)
WEFT_KV_CODEC(kv_codec_q4_0_fns)
#undef WEFT_KV_CODEC

/// The type's; aborts for one that is_kv_type does not take.
const KvCodecFns& kv_codec(Isa isa, DType type);

}  // namespace weft::kernels
