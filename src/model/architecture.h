// The architectures that weft runs, and the blocks that they share. An architecture is one file in
// architectures/ with one function, which says in terms of ModelConfig how the model differs from
// the plain one (pre-norm, rotary attention, SwiGLU), and one line in the table of architecture.cc.
// CONTRIBUTING.md goes through it by an example.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/config.h"
#include "model/key_reader.h"

namespace weft::model {

struct Architecture {
  std::string_view name;  // general.architecture
  /// `config` comes with what all architectures share; layers have no window, and there is no RoPE.
  Status (*configure)(const KeyReader& keys, ModelConfig& config);
};

/// Null for a name that weft does not know.
const Architecture* find_architecture(std::string_view name);
/// "llama", "qwen2", …
std::vector<std::string> architecture_names();

/// Adds the RoPE that the keys describe (rope.*: base, partial rotary, linear, YaRN and longrope
/// scaling; llama-3's divisors come as a tensor) and gives it to all layers.
Status add_rope(const KeyReader& keys, kernels::RopePairing pairing, ModelConfig& config);
/// Adds a RoPE without scaling and returns its index.
int32_t add_plain_rope(kernels::RopePairing pairing, double base, ModelConfig& config);

/// Which layers have the sliding window: of each `period` layers all but the last; with period 0
/// all. A file may say otherwise by attention.sliding_window_pattern, a period or a flag a layer.
struct WindowPattern {
  int32_t default_window_tokens = 0;  // where attention.sliding_window is missing; 0: no window
  int32_t period = 0;
};
Status add_windows(const KeyReader& keys, const WindowPattern& pattern, ModelConfig& config);

/// Reads expert_count and its kin, where the file has experts.
Status add_experts(const KeyReader& keys, ModelConfig& config);

}  // namespace weft::model
