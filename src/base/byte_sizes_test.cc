#include "base/byte_sizes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace weft {
namespace {

uint64_t bytes_of(std::string_view text) {
  const auto size = parse_byte_size(text);
  EXPECT_TRUE(size.has_value()) << text;
  return size ? size->bytes : 0;
}

TEST(ByteSizes, AnIMakesAPowerOf1024AndABareLetterIsGnus) {
  EXPECT_EQ(bytes_of("2MB"), 2'000'000u);
  EXPECT_EQ(bytes_of("2MiB"), 2u << 20);
  EXPECT_EQ(bytes_of("2M"), 2u << 20);
  EXPECT_EQ(bytes_of("2mi"), 2u << 20);
  EXPECT_EQ(bytes_of("7 gb"), 7'000'000'000u);
  EXPECT_EQ(bytes_of("2  GiB"), uint64_t{2} << 30);
  EXPECT_EQ(bytes_of("1EB"), 1'000'000'000'000'000'000u);
  EXPECT_EQ(bytes_of("1EiB"), uint64_t{1} << 60);
  EXPECT_EQ(bytes_of("4096"), 4096u);
  EXPECT_EQ(bytes_of("4096B"), 4096u);
  EXPECT_TRUE(parse_byte_size("4096B")->has_unit);
  EXPECT_FALSE(parse_byte_size("4096")->has_unit);
}

TEST(ByteSizes, FractionsAreWholeBytes) {
  EXPECT_EQ(bytes_of("1.5GB"), 1'500'000'000u);
  EXPECT_EQ(bytes_of("2.3MB"), 2'300'000u);  // not 2,299,999, as the nearest double is less
  EXPECT_EQ(bytes_of("0.25GiB"), 1u << 28);
  EXPECT_EQ(bytes_of("1.0001KB"), 1000u);
}

TEST(ByteSizes, WhatIsNoneOrTooLargeIsRefused) {
  for (const char* text : {"",
                           "GB",
                           "1.5",
                           ".5GB",
                           "1.GB",
                           "1..5GB",
                           "5XB",
                           "12i",
                           "1MBB",
                           "-1MB",
                           "1e3MB",
                           "19EB",
                           "2 G B",
                           "2G B",
                           "2GB ",
                           "2 ",
                           " 2GB",
                           "16EiB",
                           "18446744073709551616",
                           "18.5EB"}) {
    EXPECT_FALSE(parse_byte_size(text).has_value()) << text;
  }
  EXPECT_EQ(bytes_of("18446744073709551615"), UINT64_MAX);
}

TEST(ByteSizes, PeopleReadTwoOrThreeDigits) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(999), "999 B");
  EXPECT_EQ(size_text(1500), "1.5 KB");
  EXPECT_EQ(size_text(999'700), "1.0 MB");
  EXPECT_EQ(size_text(120'400'000), "120 MB");
  EXPECT_EQ(size_text(UINT64_MAX), "18446744 TB");
}

TEST(ByteSizes, WhatIsPrintedIsReadBackAsTheSameNumber) {
  EXPECT_EQ(size_flag(200'000), "200KB");
  EXPECT_EQ(size_flag(200 << 10), "200KiB");
  EXPECT_EQ(size_flag(uint64_t{3} << 30), "3GiB");
  EXPECT_EQ(size_flag(1001), "1001B");
  std::vector<uint64_t> sizes{0, 1, 999, 1000, 1024, 1'024'000, UINT64_MAX};
  for (uint64_t n = 1; n < UINT64_MAX / 7; n *= 7) sizes.insert(sizes.end(), {n, n * 5, n + 1});
  for (const uint64_t bytes : sizes) {
    EXPECT_EQ(bytes_of(size_flag(bytes)), bytes);
    // Every number of two digits, too.
    const uint64_t shown = bytes_of(size_text(bytes));
    EXPECT_EQ(size_text(shown), size_text(bytes)) << bytes;
  }
}

TEST(ByteSizes, WhatIsNeededIsRoundedUp) {
  EXPECT_EQ(size_flag_for(12'345'678), "12.4MB");
  EXPECT_EQ(size_flag_for(12'400'000), "12.4MB");
  EXPECT_EQ(size_flag_for(12'400'001), "12.5MB");
  EXPECT_EQ(size_flag_for(999'999), "1MB");
  EXPECT_EQ(size_flag_for(999), "999B");
  EXPECT_EQ(size_flag_for(123'456'789'000), "124GB");
  for (uint64_t n = 1; n < (uint64_t{1} << 62); n = n * 3 + 1) {
    EXPECT_GE(bytes_of(size_flag_for(n)), n);
    EXPECT_LE(static_cast<double>(bytes_of(size_flag_for(n))), static_cast<double>(n) * 1.01 + 1);
  }
}

}  // namespace
}  // namespace weft
