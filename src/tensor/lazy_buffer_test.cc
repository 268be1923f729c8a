#include "tensor/lazy_buffer.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace weft {
namespace {

TEST(LazyBuffer, IsZeroAlignedAndKeepsItsAddressWhenMoved) {
  auto created = LazyBuffer<float>::create(5000, "test");
  ASSERT_TRUE(created.is_ok());
  float* const data = created->data();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
  for (size_t i = 0; i < 5000; ++i) EXPECT_EQ(data[i], 0.0f);
  data[4999] = 3.0f;
  LazyBuffer<float> moved = std::move(*created);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(moved.size(), 5000u);
  EXPECT_EQ(moved.data()[4999], 3.0f);
}

TEST(LazyBuffer, RefusesWhatTheMachineLacksInOneLine) {
  for (const size_t n : {size_t{0}, SIZE_MAX / 4, SIZE_MAX}) {
    const auto created = LazyBuffer<uint64_t>::create(n, "KV cache");
    EXPECT_EQ(created.status().code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(created.status().message().rfind("KV cache: ", 0), 0u);
  }
}

}  // namespace
}  // namespace weft
