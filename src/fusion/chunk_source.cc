// A chunk's K and V, from a record or just computed, by one call: the fusion pass asks for a layer
// at a time and does not know which of them it is.
#include "fusion/chunk_source.h"

#include "base/narrow.h"

namespace weft::fusion {

const char* origin_name(ChunkOrigin origin) {
  switch (origin) {
    case ChunkOrigin::kMemory:
      return "memory";
    case ChunkOrigin::kDisk:
      return "disk";
    case ChunkOrigin::kComputed:
      return "computed";
  }
  return "unknown";
}

ChunkOrigin ChunkSource::origin() const {
  const auto* handle = std::get_if<store::ChunkStore::Handle>(&from_);
  if (handle == nullptr) return ChunkOrigin::kComputed;
  return handle->tier() == store::Tier::kMemory ? ChunkOrigin::kMemory : ChunkOrigin::kDisk;
}

int32_t ChunkSource::n_tokens() const {
  if (const auto* computed = std::get_if<ChunkKv>(&from_)) return computed->n_tokens;
  return narrow<int32_t>(std::get<store::ChunkStore::Handle>(from_).info().n_tokens);
}

Result<std::span<const std::byte>> ChunkSource::load_layer(int32_t layer,
                                                           store::AlignedBytes& scratch) {
  if (const auto* computed = std::get_if<ChunkKv>(&from_)) {
    return std::span<const std::byte>(computed->layers[layer]);
  }
  auto& handle = std::get<store::ChunkStore::Handle>(from_);
  return handle.load_layer(narrow<uint32_t>(layer), scratch);
}

}  // namespace weft::fusion
