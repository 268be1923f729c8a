#include "kv/page_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "kernels/kv_codec.h"

namespace weft::kv {
namespace {

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
    EXPECT_LE(memory->resident_bytes(), written_bytes + written_bytes / 2) << i;
  }
}

// Below a used page's end everything stays; what has gone is zero when it comes again, but for a
// piece that the used page shares.
TEST(PageMemory, WhatIsGivenBackGoesAndTheRestStays) {
  // 9,408 bytes a page and layer: borders of pages are none of the machine's. 9.4 MB a layer.
  const kernels::KvLayout layout = {DType::kQ8_0, DType::kF16, 64, 3, 16};
  const int64_t page_bytes = kernels::kv_token_bytes(layout) * layout.page_tokens;
  constexpr int32_t kPages = 1000;
  auto memory = PageMemory::create({.n_layers = 3, .n_pages = kPages, .layout = layout});
  ASSERT_TRUE(memory.is_ok());
  const auto page = [&](int32_t layer, int32_t i) {
    return memory->layer(layer).pages + i * page_bytes;
  };
  const auto fill = [&](int32_t begin, int32_t end) {
    for (int32_t layer = 0; layer < 3; ++layer) {
      for (int32_t i = begin; i < end; ++i) std::memset(page(layer, i), 1 + i % 200, page_bytes);
    }
  };
  const auto expect_filled = [&](int32_t end) {
    for (int32_t layer = 0; layer < 3; ++layer) {
      for (int32_t i = 0; i < end; ++i) {
        ASSERT_EQ(page(layer, i)[0], 1 + i % 200) << i;
        ASSERT_EQ(std::memcmp(page(layer, i), page(layer, i) + 1, page_bytes - 1), 0) << i;
      }
    }
  };
  fill(0, kPages);
  int32_t end = kPages;
  for (const int32_t begin : {990, 800, 512, 511, 300, 299, 5, 0}) {
    memory->give_back(begin, end);
    end = begin;
    expect_filled(end);
    const bool in_huge = end * page_bytes > 4 << 20;
    const int64_t used_bytes = 3 * end * page_bytes;
    // Layers are next to each other: each border is one page of the machine at most.
    EXPECT_LE(memory->resident_bytes(), used_bytes + 3 * (in_huge ? 2 << 20 : 4096) + 4 * 4096)
        << end;
  }
  for (const int64_t at : {int64_t{4096}, 100 * page_bytes, 600 * page_bytes}) {
    EXPECT_EQ(page(1, 0)[at], 0);
  }
  fill(0, 400);
  expect_filled(400);
}

// In a checked program, too, where a freed page is filled with NaN.
TEST(PageMemory, AFreedPageTakesNoMemoryOnceItWasGivenBack) {
  const kernels::KvLayout layout = {DType::kF32, DType::kF32, 64, 2, 16};  // 16 KB a page
  auto memory = PageMemory::create({.n_layers = 1, .n_pages = 32, .layout = layout});
  ASSERT_TRUE(memory.is_ok());
  PagePool pool(32, *memory);
  for (int i = 0; i < 32; ++i) {
    std::memset(memory->layer(0).pages + pool.allocate().page * 16384, 1, 16384);
  }
  for (int32_t page = 8; page < 32; ++page) pool.release(page);
  EXPECT_EQ(memory->resident_bytes(), 32 * 16384);
  EXPECT_EQ(pool.give_back(10), 10);
  EXPECT_EQ(memory->resident_bytes(), 22 * 16384);
  EXPECT_EQ(pool.give_back(100), 14);
  EXPECT_EQ(pool.give_back(100), 0);
  EXPECT_EQ(memory->resident_bytes(), 8 * 16384);
  EXPECT_EQ(pool.allocate().page, 8);
  EXPECT_EQ(memory->layer(0).pages[8 * 16384], 0);  // as a fresh one
}

}  // namespace
}  // namespace weft::kv
