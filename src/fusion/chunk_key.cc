#include "fusion/chunk_key.h"

#include <bit>
#include <cstring>

#include "base/narrow.h"

namespace weft::fusion {
namespace {

// Models with one RoPE for all layers keep the identities that they had before there were others.
constexpr uint32_t kOneRope = 1;
constexpr uint32_t kSeveralRopes = 2;  // their number comes before them
constexpr uint32_t kKvTypeF16 = 1;     // of records: what the pages hold is no part of it

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
  out.number(kKvTypeF16);
  out.number(scope.model_fingerprint.high);
  out.number(scope.model_fingerprint.low);
  if (!one_rope) out.number(narrow<uint32_t>(scope.ropes.size()));
  for (const kernels::RopeParams& rope : scope.ropes) {
    out.number(narrow<uint32_t>(to_underlying(rope.pairing)));
    out.number(rope.n_dims);
    out.number(rope.magnitude);
    out.list(std::span<const double>(rope.inverse_frequencies));
  }
  out.number(uint32_t{0});  // adapters
  out.list(std::span<const char>(scope.salt));
  out.list(std::span<const int32_t>(scope.anchor));
  out.list(tokens);
  return out.take();
}

}  // namespace weft::fusion
