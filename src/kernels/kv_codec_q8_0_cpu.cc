// GGUF's Q8_0: a scale in f16 and 32 int8, value = scale * byte; scale = largest magnitude / 127.
// 0.53 of f16's bytes.
//
// With VNNI decode's scores are products of integers: a query is quantised per block of 32 in the
// same way, with a scale in f32, once a task, and vpdpbusd multiplies it with K as it lies there.
// That takes an unsigned operand, so K's bytes have 128 added (by xor) and 128 times the sum of the
// query's is subtracted at the start. Two blocks of a key are a register; four keys' registers are
// added across lanes as integers, so that converting and scaling are once for four keys.
#include "kernels/kv_codec_blocks_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

/// dst [32] = src / scale, rounded to nearest even; returns the scale. What is not finite makes the
/// scale so, and with it the block.
inline float quantise_block(const float* src, int8_t* dst) {
  float most = 0;
  for (int i = 0; i < kBlock; ++i) {
    const float magnitude = fabsf(src[i]);
    if (magnitude > most || magnitude != magnitude) most = magnitude;
  }
  const float scale = most / 127;
  const F32 inverse = set1(most > 0 ? 1.0f / scale : 0.0f);
  float q[kBlock];
  for (int i = 0; i < kBlock; i += kLanes) {
    store(q + i, round_to_even(mul(load(src + i), inverse)));
  }
  for (int i = 0; i < kBlock; ++i) dst[i] = fabsf(q[i]) <= 127 ? q[i] : 127.0f;
  return scale;
}

struct Q8_0Codec {
  static constexpr int kBytes = 34;
  static F32 load(const uint8_t* block, int d) {
    const uint8_t* bytes = block + 2 + d;
#if defined(__AVX512F__)
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes))));
#elif defined(__AVX2__)
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes))));
#else
    int8_t q[kLanes];
    memcpy(q, bytes, sizeof(q));
    float x[kLanes];
    for (int i = 0; i < kLanes; ++i) x[i] = q[i];
    return WEFT_ISA::load(x);
#endif
  }
  static void store(const float* src, uint8_t* block) {
    int8_t q[kBlock];
    store_scale(quantise_block(src, q), block);
    memcpy(block + 2, q, sizeof(q));
  }
};

using Kv = BlockKv<Q8_0Codec>;

#if defined(__AVX512VNNI__)

/// Two blocks of a query; of an odd number the last one's second is zeros. A head's lie in the
/// place of its floats: 80 bytes of the 128 of one block.
struct QueryPair {
  int8_t q[2 * kBlock];
  float scales[2];
  int32_t biases[2];  // -128 times the sum of q
};

void prepare_queries(const GroupRows& rows, int32_t head_dim, float* q) {
  for (int32_t h = 0; h < rows.group; ++h) {
    QueryPair pairs[kMaxHeadDim / (2 * kBlock)] = {};
    const int32_t n_pairs = (head_dim / kBlock + 1) / 2;
    for (int32_t b = 0; b < head_dim / kBlock; ++b) {
      QueryPair& pair = pairs[b / 2];
      int8_t* const block = pair.q + b % 2 * kBlock;
      pair.scales[b % 2] = quantise_block(q + h * rows.stride + b * kBlock, block);
      int32_t sum = 0;
      for (int i = 0; i < kBlock; ++i) sum += block[i];
      pair.biases[b % 2] = -128 * sum;
    }
    memcpy(q + h * rows.stride, pairs, n_pairs * sizeof(QueryPair));
  }
}

/// The bytes of two blocks, plus 128; with one block 128s follow, which zeros of the query meet.
inline __m512i load_pair(const uint8_t* block, bool has_two) {
  const auto* low = reinterpret_cast<const __m256i*>(block + 2);
  const auto* high = reinterpret_cast<const __m256i*>(block + Q8_0Codec::kBytes + 2);
  const __m256i first = _mm256_loadu_si256(low);
  const __m256i second = has_two ? _mm256_loadu_si256(high) : _mm256_setzero_si256();
  return _mm512_xor_si512(_mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1),
                          _mm512_set1_epi8(-128));
}

/// Scales of four keys' two blocks: [first, first, second, second][key].
inline F32 load_scales(const uint8_t* const (&blocks)[4], bool has_two) {
  uint16_t halves[8] = {};
  for (int i = 0; i < 4; ++i) {
    memcpy(halves + i, blocks[i], sizeof(uint16_t));
    if (has_two) memcpy(halves + 4 + i, blocks[i] + Q8_0Codec::kBytes, sizeof(uint16_t));
  }
  const __m128i packed = _mm_set_epi16(halves[7], halves[6], halves[5], halves[4], halves[3],
                                       halves[2], halves[1], halves[0]);
  const __m512 both = _mm512_castps256_ps512(_mm256_cvtph_ps(packed));
  return _mm512_shuffle_f32x4(both, both, 0x50);
}

/// [4][key]: of each 128 bits the sums of the four keys' lanes there.
inline __m512i add_across(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/// As BlockKv's, of queries that prepare_queries has made integers.
template <int kHeads>
[[gnu::always_inline]] inline void score_run(const uint8_t* k, const PagedKv& kv, int32_t n,
                                             int32_t stride, const float* q, float* scores) {
  const int32_t n_blocks = kv.layout.head_dim / kBlock;
  for (int32_t j = 0; j < n; j += 4) {
    F32 acc[kHeads];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) acc[h] = set1(0.0f);
    for (int32_t b = 0; b < n_blocks; b += 2) {
      const bool has_two = b + 1 < n_blocks;
      const uint8_t* blocks[4];
      __m512i keys[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        blocks[i] = k + int64_t{j + i < n ? j + i : n - 1} * kv.k_bytes + b * Q8_0Codec::kBytes;
        keys[i] = load_pair(blocks[i], has_two);
      }
      const F32 key_scales = load_scales(blocks, has_two);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        const auto* bytes = reinterpret_cast<const uint8_t*>(q + h * stride);
        QueryPair pair;
        memcpy(&pair, bytes + b / 2 * sizeof(pair), sizeof(pair));
        const __m512i query = _mm512_loadu_si512(bytes + b / 2 * sizeof(pair));
        const F32 query_scales =
            _mm512_mask_blend_ps(0xff00, set1(pair.scales[0]), set1(pair.scales[1]));
        const __m512i bias = _mm512_mask_set1_epi32(_mm512_maskz_set1_epi32(1, pair.biases[0]),
                                                    1 << 8, pair.biases[1]);
        __m512i sums[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) sums[i] = _mm512_dpbusd_epi32(bias, keys[i], query);
        const F32 dots = _mm512_cvtepi32_ps(add_across(sums[0], sums[1], sums[2], sums[3]));
        acc[h] = fmadd(dots, mul(key_scales, query_scales), acc[h]);
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const __m256 half =
          _mm256_add_ps(_mm512_castps512_ps256(acc[h]), _mm512_extractf32x8_ps(acc[h], 1));
      _mm_storeu_ps(scores + h * kBlockKeys + j,
                    _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
    }
  }
}

void score(const KeyBlock& keys, const GroupRows& rows, const float* q, float* scores) {
  for_runs(keys, [&](int64_t slot, int32_t first, int32_t n) {
    const uint8_t* k = k_at(*keys.kv, keys.block_table, slot, keys.kv_head);
    for_head_batches(rows.group, [&]<int kHeads>(int32_t h) {
      score_run<kHeads>(k, *keys.kv, n, rows.stride, q + h * rows.stride,
                        scores + h * kBlockKeys + first);
    });
  });
}

#else
constexpr auto score = Kv::score;
constexpr void (*prepare_queries)(const GroupRows&, int32_t, float*) = nullptr;
#endif

}  // namespace

const KvCodecFns& kv_codec_q8_0_fns() {
  static constexpr KvCodecFns kFns = {Kv::load_array, Kv::store_array, Kv::rotate,     Kv::shift,
                                      score,          Kv::add_values,  prepare_queries};
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
