#include "fusion/chunk_key.h"

#include <bit>
#include <cstring>

namespace weft::fusion {
namespace {

constexpr uint32_t kIdentityVersion = 1;
constexpr uint32_t kKvTypeF16 = 1;

/// Little-endian, each list behind its length: no two different keys give the same bytes.
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
    number(static_cast<uint64_t>(values.size()));
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
  out.number(kIdentityVersion);
  out.number(kKvTypeF16);
  out.number(scope.model_fingerprint.high);
  out.number(scope.model_fingerprint.low);
  out.number(static_cast<uint32_t>(scope.rope.pairing));
  out.number(scope.rope.n_dims);
  out.number(scope.rope.magnitude);
  out.list(std::span<const double>(scope.rope.inverse_frequencies));
  out.number(uint32_t{0});  // adapters
  out.list(std::span<const char>(scope.salt));
  out.list(std::span<const int32_t>(scope.anchor));
  out.list(tokens);
  return out.take();
}

}  // namespace weft::fusion
