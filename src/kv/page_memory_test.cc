#include "kv/page_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/kv_codec.h"

namespace weft::kv {
namespace {

/// Of memory that begins at a memory page.
int64_t resident_bytes(void* address, int64_t size_bytes) {
  const int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> is_resident((size_bytes + page_bytes - 1) / page_bytes);
  EXPECT_EQ(::mincore(address, size_bytes, is_resident.data()), 0);
  return page_bytes * std::ranges::count_if(is_resident, [](unsigned char r) { return r & 1; });
}

// Whatever the system's setting for huge pages is: they come late enough.
TEST(PageMemory, ALayerTakesAtMostAHalfMoreThanWhatIsWritten) {
  const kernels::KvLayout layout = {DType::kF16, DType::kF16, 64, 8, 64};
  const int64_t layer_page_bytes = kernels::kv_token_bytes(layout) * layout.page_tokens;
  constexpr int32_t kPages = 100;  // of 128 KB: 12.5 MB a layer
  auto memory = PageMemory::create({.n_layers = 3, .n_pages = kPages, .layout = layout});
  ASSERT_TRUE(memory.is_ok());
  uint8_t* const middle = memory->layer(1).pages;
  for (int32_t i = 0; i < kPages; ++i) {
    std::memset(middle + i * layer_page_bytes, 1, layer_page_bytes);
    const int64_t written_bytes = (i + 1) * layer_page_bytes;
    EXPECT_LE(resident_bytes(memory->layer(0).pages, 3 * kPages * layer_page_bytes),
              written_bytes + written_bytes / 2)
        << i;
  }
}

}  // namespace
}  // namespace weft::kv
