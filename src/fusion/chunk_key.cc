// What a chunk's KV depends on, as bytes: the record's name is their hash, and the record holds
// them whole, so that equal names with other contents are found out (docs/formats/chunk.md). Lists
// carry their lengths, or {1, 2} after {3} and {2} after {3, 1} would be one key.
#include "fusion/chunk_key.h"

#include <bit>
#include <cstring>

#include "base/narrow.h"

namespace weft::fusion {
namespace {

// Models with one RoPE for all layers keep the identities that they had before there were others.
constexpr uint32_t kOneRope = 1;
constexpr uint32_t kSeveralRopes = 2;  // their number comes before them

/// Little-endian, each list after its length: no two different keys give the same bytes.
class IdentityWriter {
 public:
  template <class T>
  void number(T value) {
    static_assert(std::endian::native == std::endian::little);
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  template <class T>
  void list(std::span<const T> values) {
    number(uint64_t{values.size()});
    const auto bytes = std::as_bytes(values);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

std::vector<std::byte> chunk_identity(const KeyScope& scope, std::span<const int32_t> tokens) {
  IdentityWriter out;
  const bool one_rope = scope.ropes.size() == 1;
  out.number(one_rope ? kOneRope : kSeveralRopes);
  out.number(to_underlying(scope.record_type));  // GGML's id: f16 is 1, as it always was here
  out.number(scope.model_fingerprint.high);
  out.number(scope.model_fingerprint.low);
  if (!one_rope) out.number(narrow<uint32_t>(scope.ropes.size()));
  for (const kernels::RopeParams& rope : scope.ropes) {
    out.number(narrow<uint32_t>(to_underlying(rope.pairing)));
    out.number(rope.n_dims);
    out.number(rope.magnitude);
    out.list(std::span<const double>(rope.inverse_frequencies));
  }
  // None yet; its place is kept, so that the first one changes no existing key.
  out.number(uint32_t{0});  // adapters
  out.list(std::span<const char>(scope.salt));
  out.list(std::span<const int32_t>(scope.anchor));
  out.list(tokens);
  return out.take();
}

std::optional<uint32_t> record_type_id(std::span<const std::byte> identity) {
  uint32_t head[2];  // which RoPEs there are, and the type
  if (identity.size() < sizeof head) return std::nullopt;
  std::memcpy(head, identity.data(), sizeof head);
  return head[1];
}

}  // namespace weft::fusion
