// Hashes: XXH3 for keys and checksums inside weft, SHA-256 for what others publish.
// Thread-safe; no state but the objects'.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace weft {

uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed = 0);

/// hash64 over bytes that arrive in pieces, of any sizes.
class Hash64 {
 public:
  explicit Hash64(uint64_t seed = 0);
  ~Hash64();
  Hash64(const Hash64&) = delete;
  Hash64& operator=(const Hash64&) = delete;
  void update(std::span<const std::byte> bytes);
  /// Of what came so far; more may follow.
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const Hash128&) const = default;
  /// 32 lower-case hexadecimal digits, high half first.
  std::string to_hex() const;
};
Hash128 hash128(std::span<const std::byte> bytes);

/// SHA-256 over bytes that arrive in pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(std::span<const std::byte> bytes);
  /// 64 lower-case hexadecimal digits; the object is spent afterwards.
  std::string finish_hex();

 private:
  void* context_;  // EVP_MD_CTX
};

}  // namespace weft
