#include "base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

namespace weft {
namespace {

// XXH3 has a way of its own for up to 16, 128 and 240 bytes, and blocks of 1,024.
TEST(Hash64, BytesInPiecesHaveTheHashOfTheWhole) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(5000);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{0x9e3779b97f4a7c15}}) {
    for (size_t n = 0; n <= bytes.size(); n += n < 300 ? 1 : 97) {
      const auto whole = std::span(bytes).first(n);
      for (const size_t piece : {size_t{1}, size_t{64}, size_t{239}, size_t{1024}, size_t{4999}}) {
        Hash64 hash(seed);
        for (size_t at = 0; at < n; at += piece) {
          hash.update(whole.subspan(at, std::min(piece, n - at)));
        }
        ASSERT_EQ(hash.value(), hash64(whole, seed)) << n << " bytes in pieces of " << piece;
      }
    }
  }
}

}  // namespace
}  // namespace weft
