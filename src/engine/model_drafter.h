// A smaller model of the same vocabulary guesses (Leviathan et al. 2023). It has a KV cache of its
// own, in which it keeps the text as far as it was guessed right.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "spec/drafter.h"

namespace weft::engine {

/// Of one text. Several may share the engine, which must outlive them.
class ModelDrafter : public spec::Drafter {
 public:
  /// vocab_size: of the model that it drafts for, as it has logits. Files of one vocabulary may pad
  /// their matrices to other sizes: a token that this model has not, or the other one, is no guess.
  ModelDrafter(Engine& engine, int32_t vocab_size);

  void add(std::span<const int32_t> tokens) override;
  /// Always the same, until the text has filled the model's context or has a token that the model
  /// cannot read.
  int32_t evidence() override;
  /// Not the newest token, which draft() runs.
  int64_t unread() const override;
  Status read(int64_t n_tokens, const FunctionRef<bool()>* cancelled) override;
  /// What it would say, greedily: the likeliest token is the one that is accepted most often.
  Result<std::vector<int32_t>> draft(int32_t n) override;

 private:
  /// The sequence holds the text's first n tokens then, and nothing else; the last one's logits.
  Result<std::vector<float>> hold(int32_t n_tokens, const FunctionRef<bool()>* cancelled = nullptr);

  Engine& engine_;
  int32_t n_common_tokens_;
  bool can_read_ = true;
  kv::OwnedSequence sequence_;
  std::vector<int32_t> text_;
  std::vector<int32_t> held_;  // what the sequence holds
};

/// kInvalidArgument, naming both and the first difference, unless the two say the same by the same
/// ids.
Status check_same_vocabulary(const Engine& target, const Engine& draft);

}  // namespace weft::engine
