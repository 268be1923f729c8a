// The models that the simulation asks: two that are as small as they can be and differ in their
// weights, opened once for all seeds, and what they answer without any store.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "fusion/prompt.h"

namespace weft::sim {

constexpr int kModels = 2;

/// engine() is thread-safe; an engine is one thread's.
class Engines {
 public:
  /// Writes the models into `dir`.
  static Result<std::unique_ptr<Engines>> create(const std::string& dir);

  /// Each thread (0 or 1) has engines of its own.
  engine::Engine& engine(int model, int thread) {
    return *engines_[static_cast<size_t>(model)][static_cast<size_t>(thread)];
  }

  /// The first token's logits as an engine without a store computes them; remembered.
  Result<std::vector<float>> reference(int model, const fusion::Prompt& prompt,
                                       const std::vector<int32_t>& anchor,
                                       const fusion::FusionOptions& options);

 private:
  Engines() = default;

  std::unique_ptr<engine::Engine> engines_[kModels][2];
  std::unique_ptr<engine::Engine> references_[kModels];
  std::mutex mutex_;
  std::map<std::vector<int64_t>, std::vector<float>> known_;
};

}  // namespace weft::sim
