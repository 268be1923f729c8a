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

struct Hash64::State {
  XXH3_state_t xxh3;
};

Hash64::Hash64(uint64_t seed) : state_(std::make_unique<State>()) {
  WEFT_CHECK(XXH3_64bits_reset_withSeed(&state_->xxh3, seed) == XXH_OK);
}

Hash64::~Hash64() = default;

void Hash64::update(std::span<const std::byte> bytes) {
  WEFT_CHECK(XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size()) == XXH_OK);
}

uint64_t Hash64::value() const { return XXH3_64bits_digest(&state_->xxh3); }

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
