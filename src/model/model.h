// A model that is ready to run: hyper-parameters, weights and a fingerprint over one open GGUF.
// Immutable after open(); shared between threads and engines.
#pragma once

#include <memory>
#include <string>

#include "base/hash.h"
#include "base/status.h"
#include "gguf/gguf.h"
#include "model/config.h"
#include "model/weights.h"

namespace weft::model {

class Model {
 public:
  /// Opens what `file` holds for sequences of up to context_tokens (0: as read_config says); the
  /// file stays mapped as long as the model lives.
  static Result<std::shared_ptr<const Model>> open(std::shared_ptr<const gguf::File> file,
                                                   int32_t context_tokens = 0);

  const ModelConfig& config() const { return config_; }
  const Weights& weights() const { return weights_; }
  const gguf::File& file() const { return *file_; }

  /// Covers the metadata, the tensor table and a sample of every tensor, so that opening stays
  /// quick; part of every chunk's key.
  const Hash128& fingerprint() const { return fingerprint_; }

 private:
  Model() = default;

  std::shared_ptr<const gguf::File> file_;
  ModelConfig config_;
  Weights weights_;
  Hash128 fingerprint_;
};

}  // namespace weft::model
