#include "tensor/half.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

TEST(Half, EveryValueSurvivesARoundTrip) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const uint16_t half = h;
    const float wide = f32_from_f16(half);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(f32_from_f16(f16_from_f32(wide))));
    } else {
      EXPECT_EQ(f16_from_f32(wide), half);
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  for (uint32_t h = 0; h < 0x7bff; ++h) {  // between each pair of neighbouring finite values
    const float low = f32_from_f16(h);
    const float high = f32_from_f16(h + 1);
    const float middle = low + (high - low) / 2;
    EXPECT_EQ(f16_from_f32(middle), (h & 1) != 0 ? h + 1 : h);
    EXPECT_EQ(f16_from_f32(std::nextafterf(middle, 0.0f)), h);
    EXPECT_EQ(f16_from_f32(std::nextafterf(middle, 1e9f)), h + 1);
  }
  EXPECT_EQ(f16_from_f32(65520.0f), 0x7c00);
  EXPECT_EQ(f16_from_f32(-1e30f), 0xfc00);
}

TEST(Half, Bfloat16RoundsToNearestEven) {
  EXPECT_EQ(bf16_from_f32(1.0f), 0x3f80);
  EXPECT_EQ(bf16_from_f32(f32_from_bf16(0x3f80) + 0x1p-8f), 0x3f80);  // tie to even
  EXPECT_EQ(bf16_from_f32(f32_from_bf16(0x3f81) + 0x1p-8f), 0x3f82);
  EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(NAN))));
}

}  // namespace
}  // namespace weft
