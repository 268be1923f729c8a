// What a stored chunk's KV depends on, as the bytes that identify it. Two chunks share a record
// only when every byte here is equal; the hash only names the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "fusion/record_type.h"
#include "model/model.h"

namespace weft::fusion {

/// The part of the key that one engine's chunks have in common.
struct KeyScope {
  Hash128 model_fingerprint;
  std::vector<kernels::RopeParams> ropes;  // all of the model's
  std::vector<int32_t> anchor;             // token ids
  std::string salt;                        // of a tenant: nobody else's KV is found; may be empty
  /// Of the records: one that check_record_type takes. What the pages hold is no part of a key.
  DType record_type = kUsualRecordType;
};

/// The identity's bytes (docs/formats/chunk.md lists the fields): scope, then the chunk's token
/// ids.
std::vector<std::byte> chunk_identity(const KeyScope& scope, std::span<const int32_t> tokens);

/// The number of the records' type in an identity (GGML's id), whatever it is; nothing where the
/// bytes end before it.
std::optional<uint32_t> record_type_id(std::span<const std::byte> identity);

}  // namespace weft::fusion
