// What a stored chunk's KV depends on, as the bytes that identify it. Two chunks share a record
// only when every byte here is equal; the hash only names the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "model/model.h"

namespace weft::fusion {

/// The part of the key that one engine's chunks have in common.
struct KeyScope {
  Hash128 model_fingerprint;
  std::vector<kernels::RopeParams> ropes;  // all of the model's
  std::vector<int32_t> anchor;             // token ids
  std::string salt;                        // of a tenant: nobody else's KV is found; may be empty
};

/// The identity's bytes (docs/formats/chunk.md lists the fields): scope, then the chunk's token
/// ids.
std::vector<std::byte> chunk_identity(const KeyScope& scope, std::span<const int32_t> tokens);

}  // namespace weft::fusion
