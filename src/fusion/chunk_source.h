// Where a chunk's KV comes from when it is fused: a pinned record of the store, or what was just
// computed. Both go through the bytes that a record holds, so a miss gives the tokens that a
// hit gives.
#pragma once

#include <memory>
#include <span>
#include <variant>

#include "fusion/chunk_computer.h"
#include "store/chunk_store.h"

namespace weft::fusion {

enum class ChunkOrigin { kMemory, kDisk, kComputed };
/// "memory", "disk", "computed".
const char* origin_name(ChunkOrigin origin);

/// Movable. Thread-safe for load_layer with a scratch per thread.
class ChunkSource {
 public:
  /// A record whose K and V are of `type`.
  ChunkSource(store::ChunkStore::Handle handle, DType type)
      : from_(std::move(handle)), type_(type) {}
  explicit ChunkSource(ChunkKv computed) : from_(std::move(computed)) {
    type_ = std::get<ChunkKv>(from_).type;
  }

  ChunkOrigin origin() const;
  int32_t n_tokens() const;
  DType type() const { return type_; }
  /// One layer as ChunkKv has it; valid while this and `scratch` live and until scratch's next use.
  Result<std::span<const std::byte>> load_layer(int32_t layer, store::AlignedBytes& scratch);

 private:
  std::variant<store::ChunkStore::Handle, ChunkKv> from_;
  DType type_ = kUsualRecordType;
};

}  // namespace weft::fusion
