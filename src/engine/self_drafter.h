// The model drafts for itself, over the pages that its selector chooses, and then verifies over all
// of them (KVStar; Sun et al. 2024, TriForce): that pays where reading K and V takes longer than
// reading the weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "spec/drafter.h"

namespace weft::engine {

/// Of one text. The engine must outlive it.
class SelfDrafter : public spec::Drafter {
 public:
  explicit SelfDrafter(Engine& engine) : engine_(engine) {}

  /// The sequence that the next draft goes on with: it holds the text but for the newest token.
  /// `cancelled` as AppendOptions has it.
  void look_at(const kv::OwnedSequence& sequence, const FunctionRef<bool()>* cancelled) {
    sequence_ = &sequence;
    cancelled_ = cancelled;
  }

  void add(std::span<const int32_t> tokens) override {
    if (!tokens.empty()) newest_ = tokens.back();
  }
  /// Always the same, and not the least, as most of these guesses are right.
  int32_t evidence() override { return 2; }
  Result<std::vector<int32_t>> draft(int32_t n) override {
    return engine_.draft_rows(*sequence_, newest_, n, cancelled_);
  }

 private:
  Engine& engine_;
  const kv::OwnedSequence* sequence_ = nullptr;
  const FunctionRef<bool()>* cancelled_ = nullptr;
  int32_t newest_ = 0;
};

}  // namespace weft::engine
