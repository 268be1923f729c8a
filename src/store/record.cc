// The head carries everything needed to know how long the file must be, and its checksum. A reader
// compares the file's real size with that before it allocates anything by a length from the file,
// so that a few forged bytes cannot make it ask for gigabytes.
//
// Each layer has a checksum of its own instead of one for the file: a layer can be loaded, checked
// and used while the others have not been read yet. Layers begin at multiples of 4096, at the price
// of some padding, so that a layer is one aligned read into one aligned block. Integers are put and
// taken byte by byte, which gives the same file on every machine.
#include "store/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/narrow.h"

namespace weft::store {
namespace {

// Offsets in the head (docs/formats/chunk.md). All integers are little-endian. The magic ends with
// \r\n because a transfer as text changes these bytes, and the file is then refused at once.
constexpr std::array<char, 8> kMagic = {'W', 'E', 'F', 'T', 'K', 'V', '\r', '\n'};
constexpr size_t kChecksumAt = 8;  // u64, over everything from kVersionAt to the payload
constexpr size_t kVersionAt = 16;
constexpr size_t kLayersAt = 20;
constexpr size_t kLayerBytesAt = 24;
constexpr size_t kTokensAt = 32;
constexpr size_t kIdentityBytesAt = 36;
constexpr size_t kCreatedAt = 40;
constexpr size_t kIdentityAt = 48;

constexpr std::string_view kFileSuffix = ".chunk";

template <class T>
void put_le(std::span<std::byte> bytes, size_t at, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
}

template <class T>
T get_le(std::span<const std::byte> bytes, size_t at) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(bytes[at + i]) << (8 * i);
  return value;
}

constexpr uint64_t round_up(uint64_t n) {
  return (n + kRecordAlignment - 1) / kRecordAlignment * kRecordAlignment;
}

/// Where the table of the layers' checksums begins: after the identity, at a multiple of 8.
uint64_t table_offset(uint64_t identity_bytes) {
  return (kIdentityAt + identity_bytes + 7) / 8 * 8;
}

uint64_t payload_offset(uint64_t identity_bytes, uint64_t n_layers) {
  return round_up(table_offset(identity_bytes) + 8 * n_layers);
}

/// The limits that both writer and reader keep; `what` names the record in the message, and `code`
/// is the error's (a caller's mistake when writing, damage when reading).
Status check_limits(std::string_view what, uint64_t n_layers, uint64_t layer_bytes,
                    uint64_t n_tokens, uint64_t identity_bytes, StatusCode code) {
  const auto bad = [&](const char* field, uint64_t value, uint64_t low, uint64_t high) {
    return Status(code,
                  fmt::format("{}: {} is {}, must be {} to {}", what, field, value, low, high));
  };
  if (n_layers < 1 || n_layers > kMaxLayers) return bad("n_layers", n_layers, 1, kMaxLayers);
  if (layer_bytes < 1 || layer_bytes > kMaxLayerBytes) {
    return bad("layer_bytes", layer_bytes, 1, kMaxLayerBytes);
  }
  if (n_tokens < 1 || n_tokens > kMaxTokens) return bad("n_tokens", n_tokens, 1, kMaxTokens);
  if (identity_bytes < 1 || identity_bytes > kMaxIdentityBytes) {
    return bad("identity_bytes", identity_bytes, 1, kMaxIdentityBytes);
  }
  return Status::ok();
}

}  // namespace

uint64_t RecordInfo::file_bytes(uint64_t identity_bytes) const {
  return payload_offset(identity_bytes, n_layers) + n_layers * round_up(layer_bytes);
}

Result<std::vector<std::byte>> encode_head(std::span<const std::byte> identity, uint32_t n_tokens,
                                           int64_t created_unix_ms,
                                           std::span<const std::span<const std::byte>> layers) {
  const uint64_t layer_bytes = layers.empty() ? 0 : layers[0].size();
  WEFT_RETURN_IF_ERROR(check_limits("chunk record to write", layers.size(), layer_bytes, n_tokens,
                                    identity.size(), StatusCode::kInvalidArgument));
  std::vector<std::byte> head(payload_offset(identity.size(), layers.size()));
  std::memcpy(head.data(), kMagic.data(), kMagic.size());
  put_le<uint32_t>(head, kVersionAt, kRecordVersion);
  put_le<uint32_t>(head, kLayersAt, narrow<uint32_t>(layers.size()));
  put_le<uint64_t>(head, kLayerBytesAt, layer_bytes);
  put_le<uint32_t>(head, kTokensAt, n_tokens);
  put_le<uint32_t>(head, kIdentityBytesAt, narrow<uint32_t>(identity.size()));
  put_le<uint64_t>(head, kCreatedAt, created_unix_ms);
  std::memcpy(head.data() + kIdentityAt, identity.data(), identity.size());
  const uint64_t table = table_offset(identity.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].size() != layer_bytes) {
      return invalid_argument(
          fmt::format("chunk record to write: layer {} has {} bytes, layer 0 {}", i,
                      layers[i].size(), layer_bytes));
    }
    put_le<uint64_t>(head, table + 8 * i, hash64(layers[i]));
  }
  put_le<uint64_t>(head, kChecksumAt, hash64(std::span(head).subspan(kVersionAt)));
  return head;
}

Status write_record(WriteFile& file, std::span<const std::byte> head,
                    std::span<const std::span<const std::byte>> layers) {
  WEFT_RETURN_IF_ERROR(file.append(head));
  const std::vector<std::byte> padding(round_up(layers[0].size()) - layers[0].size());
  for (const auto& layer : layers) {
    WEFT_RETURN_IF_ERROR(file.append(layer));
    if (!padding.empty()) WEFT_RETURN_IF_ERROR(file.append(padding));
  }
  return Status::ok();
}

Result<RecordHead> read_head(const ReadFile& file, std::string_view name) {
  const uint64_t size = file.size_bytes();
  if (size < 2 * kRecordAlignment) {
    return corrupt(fmt::format("{}: {} bytes, a chunk record has at least {}: truncated", name,
                               size, 2 * kRecordAlignment));
  }
  // The first block holds all fixed fields; how much more of the head there is follows from them.
  std::vector<std::byte> head(kRecordAlignment);
  WEFT_RETURN_IF_ERROR(file.read_at(0, head));
  if (std::memcmp(head.data(), kMagic.data(), kMagic.size()) != 0) {
    return corrupt(fmt::format("{}: not a chunk record (magic differs)", name));
  }
  if (const auto version = get_le<uint32_t>(head, kVersionAt); version != kRecordVersion) {
    return unsupported(fmt::format("{}: chunk record of version {}, this weft reads version {}",
                                   name, version, kRecordVersion));
  }
  RecordHead result;
  result.info = {.n_layers = get_le<uint32_t>(head, kLayersAt),
                 .layer_bytes = get_le<uint64_t>(head, kLayerBytesAt),
                 .n_tokens = get_le<uint32_t>(head, kTokensAt),
                 .created_unix_ms = static_cast<int64_t>(get_le<uint64_t>(head, kCreatedAt))};
  const RecordInfo& info = result.info;
  const uint64_t identity_bytes = get_le<uint32_t>(head, kIdentityBytesAt);
  WEFT_RETURN_IF_ERROR(check_limits(name, info.n_layers, info.layer_bytes, info.n_tokens,
                                    identity_bytes, StatusCode::kCorrupt));
  // The limits bound all three sums far below 2^64.
  result.payload_offset = payload_offset(identity_bytes, info.n_layers);
  result.layer_stride = round_up(info.layer_bytes);
  if (const uint64_t expected = info.file_bytes(identity_bytes); size != expected) {
    return corrupt(fmt::format("{}: file has {} bytes, its header says {}", name, size, expected));
  }
  head.resize(result.payload_offset);
  if (head.size() > kRecordAlignment) {
    WEFT_RETURN_IF_ERROR(file.read_at(kRecordAlignment, std::span(head).subspan(kRecordAlignment)));
  }
  if (get_le<uint64_t>(head, kChecksumAt) != hash64(std::span(head).subspan(kVersionAt))) {
    return corrupt(fmt::format("{}: header checksum differs: damaged", name));
  }
  const auto identity = std::span(head).subspan(kIdentityAt, identity_bytes);
  result.identity.assign(identity.begin(), identity.end());
  const uint64_t table = table_offset(identity_bytes);
  result.layer_checksums.resize(info.n_layers);
  for (size_t i = 0; i < info.n_layers; ++i) {
    result.layer_checksums[i] = get_le<uint64_t>(head, table + 8 * i);
  }
  return result;
}

Status read_layer(const ReadFile& file, const RecordHead& head, uint32_t layer,
                  std::span<std::byte> out, std::string_view name) {
  WEFT_CHECK(layer < head.info.n_layers && out.size() == head.info.layer_bytes);
  WEFT_RETURN_IF_ERROR(file.read_at(head.payload_offset + layer * head.layer_stride, out));
  if (hash64(out) != head.layer_checksums[layer]) {
    return corrupt(fmt::format("{}: checksum of layer {} differs: damaged", name, layer));
  }
  return Status::ok();
}

std::string record_file_name(const Hash128& hash) {
  return hash.to_hex() + std::string(kFileSuffix);
}

std::optional<Hash128> parse_record_file_name(std::string_view name) {
  if (!name.ends_with(kFileSuffix)) return std::nullopt;
  return parse_hash(name.substr(0, name.size() - kFileSuffix.size()));
}

std::optional<Hash128> parse_hash(std::string_view hex) {
  if (hex.size() != 32) return std::nullopt;
  std::array<uint64_t, 2> halves{};
  for (size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    uint64_t digit = 0;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else {
      return std::nullopt;
    }
    halves[i / 16] = halves[i / 16] << 4 | digit;
  }
  return Hash128{.high = halves[0], .low = halves[1]};
}

}  // namespace weft::store
