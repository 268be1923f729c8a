// Decode's two products over blocks of GGUF as products of integers, for sets with VNNI. Only for
// kv_codec_*_cpu.cc. A Codec has besides what kv_codec_blocks_internal.h asks of it
//   static constexpr int kOffset = …;            of key_step: value = scale * (byte - kOffset)
//   static constexpr bool kSignedWeights = …;    whether V's scales may be negative
//   template <int kStep> static void key_step(const KeyRows& blocks, __m512i (&columns)[8]);
//     one of kKeySteps steps that load 16 keys' blocks and bring them to columns: after the last,
//     lane i of column c has the bytes of elements 4 c … 4 c + 3 of key i
//   static void value_columns(const FourRows& blocks, __m512i (&columns)[2]);
//     of four keys' blocks: lane i of column c has the bytes of element 16 c + i of keys 0 … 3;
//     with kSignedWeights plus kOffset, as key_step, else signed
//
// Both products are vpdpbusd, 64 multiply-adds an instruction, with lanes in which nothing has to
// be added up: of K a lane is a key, of V a dimension. Getting the bytes there takes shuffles, but
// once for all heads that share them. One operand of vpdpbusd is unsigned: that is K, with kOffset
// added, and kOffset times the sum of the query is subtracted; of V's product the weights, but for
// q4_0, whose scales have signs: there it is V as K.
//
// K: a query is quantised per block of 32 with a scale in f32, once a task. V: the weights of a
// block of keys, each times the scale of its key's block of V, are rounded to 16 bits as a share of
// the largest weight times the largest scale, and their two bytes multiplied one after the other.
// That is by 2^-17 at most of what the largest weight's key would give with the largest V, where V
// itself is by 2^-8: less than V's own rounding unless a key whose V is hundreds of times larger
// than the others' has next to no weight. The sums of 64 keys are exact in 32 bits.
//
// What made it faster, and what did not (Sapphire Rapids, a 1B model's shape, one thread, 512 keys
// in the L2, where a layer of q8_0 took 30.0 us, takes 25.3, and f16 44.7). Most steps wait for the
// one before, and the CPU looks ahead over a hundred instructions or so; hence what waits has to
// lie among what does not. K's shuffles between the products of the keys before: 0.7 us. Queries
// quantised four blocks at a time: 0.9. V's scales compared as integers, one shuffle that parts the
// bytes of weights, the largest weights of four heads together: 1.2. Lines asked for one at a time
// (prefetch_part): 0.8, and at 16,384 keys 60 of 960. The softmax of four heads together: 1.0.
//
// V's shuffles are after its scales are asked for and before its weights are rounded: before the
// scales they take 1.5 us more, between V's products 0.4. The products of each block of V as soon
// as it has its weights: 0.6 more. The scales by vpgatherdd: 0.2 less, of q4_0 0.4, but that is
// slow on other CPUs, by microcode or by the mitigation of Downfall. Weights of one byte would save
// half of V's products, but where one key has most of the weight they would be further off than V.
#pragma once

#include "kernels/kv_codec_integer_keys_internal.h"
#include "kernels/kv_codec_integer_values_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

/// The table of a type in blocks: decode's products over integers where the set has them.
template <class Codec>
const KvCodecFns& block_kv_fns() {
  using Kv = BlockKv<Codec>;
#if defined(__AVX512VNNI__)
  using Keys = IntegerKeys<Codec>;
  using Values = IntegerValues<Codec>;
  static constexpr auto kPrepareQueries = Keys::prepare_queries;
#else
  using Keys = Kv;
  using Values = Kv;
  static constexpr void (*kPrepareQueries)(const GroupRows&, int32_t, float*) = nullptr;
#endif
  static constexpr KvCodecFns kFns = {Kv::load_array, Kv::store_array,    Kv::rotate,     Kv::shift,
                                      Keys::score,    Values::add_values, kPrepareQueries};
  return kFns;
}

}  // namespace
}  // namespace weft::kernels::WEFT_ISA
