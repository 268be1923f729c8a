#include "base/hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <new>

#include "base/check.h"

namespace weft {
namespace {

EVP_MD_CTX* as_context(void* context) { return static_cast<EVP_MD_CTX*>(context); }

}  // namespace

uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Hash128 hash128(std::span<const std::byte> bytes) {
  const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
  return {h.high64, h.low64};
}

std::string Hash128::to_hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (context_ == nullptr) throw std::bad_alloc();
  if (EVP_DigestInit_ex(as_context(context_), EVP_sha256(), nullptr) != 1) {
    EVP_MD_CTX_free(as_context(context_));
    throw std::bad_alloc();  // what else may fail in it is not ours to choose
  }
}

Sha256::~Sha256() { EVP_MD_CTX_free(as_context(context_)); }

void Sha256::update(std::span<const std::byte> bytes) {
  WEFT_CHECK(EVP_DigestUpdate(as_context(context_), bytes.data(), bytes.size()) == 1);
}

std::string Sha256::finish_hex() {
  std::array<unsigned char, 32> digest{};
  WEFT_CHECK(EVP_DigestFinal_ex(as_context(context_), digest.data(), nullptr) == 1);
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace weft
