#include "base/parse_number.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace weft {
namespace {

TEST(ParseNumber, IsOfAllOfTheText) {
  EXPECT_EQ(parse_number<int>("-12"), -12);
  EXPECT_EQ(parse_number<float>("0.5"), 0.5F);
  for (const char* text : {"", " 1", "1 ", "1x", "+1", "0x10", "1,5"}) {
    EXPECT_EQ(parse_number<int>(text), std::nullopt) << text;
    EXPECT_EQ(parse_number<double>(text), std::nullopt) << text;
  }
}

TEST(ParseNumber, WhatTheTypeCannotHoldIsNone) {
  EXPECT_EQ(parse_number<int8_t>("127"), 127);
  EXPECT_EQ(parse_number<int8_t>("128"), std::nullopt);
  EXPECT_EQ(parse_number<uint32_t>("-1"), std::nullopt);
  EXPECT_EQ(parse_number<float>("1e39"), std::nullopt);
  EXPECT_EQ(parse_number<double>("1e39"), 1e39);
  for (const char* text : {"nan", "inf", "-inf", "1e400"}) {
    EXPECT_EQ(parse_number<double>(text), std::nullopt) << text;
  }
}

TEST(ParseNumber, TooSmallForAFloatIsItsZero) { EXPECT_EQ(parse_number<float>("1e-60"), 0.0F); }

TEST(ParseNumber, LeavesAValueWhereThereIsNone) {
  int value = 7;
  EXPECT_FALSE(parse_number("8x", value));
  EXPECT_EQ(value, 7);
  EXPECT_TRUE(parse_number("8", value));
  EXPECT_EQ(value, 8);
}

}  // namespace
}  // namespace weft
