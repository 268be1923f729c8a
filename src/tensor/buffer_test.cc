#include "tensor/buffer.h"

#include <gtest/gtest.h>

#include <limits>

namespace weft {
namespace {

TEST(AlignedBuffer, ASizeThatNoMemoryHasIsOutOfMemory) {
  constexpr int64_t kTooMany = std::numeric_limits<int64_t>::max();  // bytes overflow
  EXPECT_THROW(AlignedBuffer<float> buffer(kTooMany), OutOfMemory);
  EXPECT_THROW((void)AlignedBuffer<float>::uninitialised(kTooMany), OutOfMemory);
  AlignedBuffer<float> buffer(4);
  buffer[3] = 5;
  EXPECT_THROW(buffer.reserve_discard(kTooMany), OutOfMemory);
  ASSERT_EQ(buffer.size(), 4);  // as it was
  EXPECT_EQ(buffer[3], 5);
}

}  // namespace
}  // namespace weft
