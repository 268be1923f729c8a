#include "model/model.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace weft::model {
namespace {

constexpr size_t kSampleBytes = 4096;  // of each tensor, at its start, its middle and its end

void append(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

/// A header (metadata and tensor table) is everything in front of the first tensor's data.
Hash128 fingerprint_of(const gguf::File& file) {
  std::vector<std::byte> material;
  for (const gguf::FilePart& part : file.parts()) append(material, part.header);
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    const size_t size = tensor.size_bytes;
    const size_t n = std::min(size, kSampleBytes);
    append(material, {tensor.data, n});
    append(material, {tensor.data + (size - n) / 2, n});
    append(material, {tensor.data + (size - n), n});
  }
  return hash128(material);
}

}  // namespace

Result<std::shared_ptr<const Model>> Model::open(std::shared_ptr<const gguf::File> file,
                                                 int32_t context_tokens) {
  std::shared_ptr<Model> model(new Model());
  WEFT_ASSIGN_OR_RETURN(model->config_, read_config(*file, context_tokens));
  WEFT_ASSIGN_OR_RETURN(model->weights_, read_weights(*file, model->config_));
  model->fingerprint_ = fingerprint_of(*file);
  model->file_ = std::move(file);
  return std::shared_ptr<const Model>(std::move(model));
}

}  // namespace weft::model
