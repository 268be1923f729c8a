// Operations of two tenants on one KV cache, driven by the input's bytes: no page of one is ever
// read by the other, and none after it was freed (tests/support/cache_simulation.h).
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "base/check.h"
#include "kv/cache.h"
#include "support/cache_simulation.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMost = 4096;
  if (size < 4 || size > kMost) return 0;
  // Four bytes a number from the start again and again, mixed with how many were taken, so that a
  // short input drives a long walk and a longer one has its say sooner.
  uint64_t n_taken = 0;
  const auto random = [&] {
    uint32_t bytes = 0;
    for (size_t i = 0; i < 4; ++i) bytes = bytes << 8 | data[(4 * n_taken + i) % size];
    uint64_t x = bytes ^ (4 * n_taken / size << 32);
    ++n_taken;
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    return static_cast<uint32_t>(x >> 32);
  };
  weft::test::CacheSimulation simulation(random, 6 + data[0] % 32);
  for (size_t i = 0; i < 20 + size; ++i) {
    if (!simulation.step()) break;
  }
  simulation.finish();
  if (!simulation.error().empty()) std::fprintf(stderr, "%s\n", simulation.error().c_str());
  WEFT_CHECK(simulation.error().empty());
  return 0;
}
