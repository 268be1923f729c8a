#include "base/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

enum class Tea { kBlack, kGreen, kMint };
constexpr Names kTeas({
    Named{Tea::kBlack, "black"},
    Named{Tea::kGreen, "green", "steamed or roasted"},
    Named{Tea::kMint, "mint", "no tea at all"},
});
static_assert(kTeas.find("green") == Tea::kGreen);

TEST(Names, OneTableNamesFindsAndLists) {
  for (const auto& [value, name, help] : kTeas) {
    EXPECT_EQ(kTeas.find(name), value);
    EXPECT_STREQ(kTeas.name(value), name);
  }
  EXPECT_EQ(kTeas.find("Green"), std::nullopt);
  EXPECT_EQ(kTeas.find(""), std::nullopt);
  EXPECT_THAT(kTeas.names(), testing::ElementsAre("black", "green", "mint"));
  EXPECT_EQ(kTeas.listed(), "black, green or mint");
  EXPECT_EQ(kTeas.explained(), "black; green: steamed or roasted; mint: no tea at all");
}

}  // namespace
}  // namespace weft
