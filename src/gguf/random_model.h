// Writes GGUF files of the llama architecture with random weights: any shape, any of weft's types,
// for tests and for measuring speed without anybody's weights. Weights are normal with variance
// 1 / fan-in, so activations keep their size through the layers; the text they produce means
// nothing. The tokenizer is a small real one (byte-level BPE), padded to the vocabulary's size.
// It is no converter: nothing is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"

namespace weft::gguf {

struct RandomLlamaOptions {
  int64_t n_layers = 2;
  int64_t n_embd = 64;
  int64_t n_ff = 128;
  int64_t n_heads = 4;  // a multiple of n_kv_heads
  int64_t n_kv_heads = 2;
  int64_t head_dim = 16;  // even; need not be n_embd / n_heads
  int64_t vocab = 512;    // at least 270
  bool tied = true;       // false: a separate output.weight
  int64_t context_length = 2048;
  float rope_base = 10000.0f;
  float rope_linear_factor = 1.0f;  // above 1: rope.scaling.type = linear with this factor
  std::vector<float> rope_freqs;    // rope_freqs.weight, head_dim / 2 divisors; empty: none
  /// Types of the matrices, mixed as llama.cpp's quantiser mixes them: F32, F16, BF16, Q8_0, Q4_0,
  /// Q4_1, Q5_0, Q5_1, Q4_K_M, Q5_K_M, Q6_K (output and tied embeddings in Q6_K or Q8_0; a row
  /// that is no whole number of blocks falls back to a type it fits).
  std::string recipe = "F32";
  uint64_t seed = 1;
};

/// kInvalidArgument names the option that is out of bounds. Streams: memory stays at a few MB.
/// The same options give the same bytes on one machine's maths library.
Status write_random_llama(Env& env, const std::string& path, const RandomLlamaOptions& options);

}  // namespace weft::gguf
