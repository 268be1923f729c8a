// The chunk record: one file, one chunk's KV, layer after layer (docs/formats/chunk.md). Reads and
// writes the format through Env's files; knows neither folders nor tiers, and never what the bytes
// of a layer mean. A file is hostile until its head's checksum and every length were checked.
// Thread-safe: free functions over their arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/hash.h"
#include "base/status.h"

namespace weft::store {

constexpr uint32_t kRecordVersion = 1;
constexpr uint64_t kRecordAlignment = 4096;  // of the payload and of every layer in it
/// Limits of every record, written or read.
constexpr uint32_t kMaxIdentityBytes = 16u << 20;
constexpr uint32_t kMaxLayers = 4096;
constexpr uint64_t kMaxLayerBytes = 1ull << 30;
constexpr uint32_t kMaxTokens = 1u << 24;

/// What a chunk is: the whole key material as fusion serialised it, and its hash, the file's name.
struct Key {
  Hash128 hash;                         // hash128(identity)
  std::span<const std::byte> identity;  // borrowed; compared on every hit

  static Key of(std::span<const std::byte> identity) { return {hash128(identity), identity}; }
};

/// A record's shape and age.
struct RecordInfo {
  uint32_t n_layers = 0;
  uint64_t layer_bytes = 0;  // the same for every layer
  uint32_t n_tokens = 0;
  int64_t created_unix_ms = 0;

  /// The file's size: head, then the layers, each padded to kRecordAlignment.
  uint64_t file_bytes(uint64_t identity_bytes) const;
};

/// All that comes before the payload in the file.
struct RecordHead {
  RecordInfo info;
  std::vector<std::byte> identity;
  std::vector<uint64_t> layer_checksums;  // XXH3-64 of each layer's bytes, padding left out
  uint64_t payload_offset = 0;
  uint64_t layer_stride = 0;  // layer_bytes rounded up to kRecordAlignment
};

/// The head of a new record, checksums of all layers included. kInvalidArgument: layers of unequal
/// sizes, or a field over its limit.
Result<std::vector<std::byte>> encode_head(std::span<const std::byte> identity, uint32_t n_tokens,
                                           int64_t created_unix_ms,
                                           std::span<const std::span<const std::byte>> layers);
/// Writes head and layers to a fresh file; neither syncs nor closes it.
Status write_record(WriteFile& file, std::span<const std::byte> head,
                    std::span<const std::span<const std::byte>> layers);

/// Reads and checks everything but the layers. kCorrupt for a damaged or truncated file,
/// kUnsupported for another version; `name` is put before the message.
Result<RecordHead> read_head(const ReadFile& file, std::string_view name);

/// One layer in one read into `out` (exactly layer_bytes long), checked against its checksum.
Status read_layer(const ReadFile& file, const RecordHead& head, uint32_t layer,
                  std::span<std::byte> out, std::string_view name);

/// "<32 hex digits>.chunk".
std::string record_file_name(const Hash128& hash);
/// The hash of such a name; nothing for any other name.
std::optional<Hash128> parse_record_file_name(std::string_view name);
/// 32 lower-case hexadecimal digits, as Hash128::to_hex writes them.
std::optional<Hash128> parse_hash(std::string_view hex);

}  // namespace weft::store
