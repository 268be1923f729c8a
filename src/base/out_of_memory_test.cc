#include "base/out_of_memory.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(OutOfMemory, BecomesOneLineThatSaysHowMuch) {
  const Status sized = or_out_of_memory("opening m.gguf", "take a smaller model",
                                        []() -> Status { throw OutOfMemory(123456); });
  EXPECT_EQ(sized.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(sized.message(),
            "opening m.gguf: out of memory (123456 bytes more were refused); take a smaller model");
  const Result<int> plain =
      or_out_of_memory("tokenising", "give less", []() -> Result<int> { throw std::bad_alloc(); });
  EXPECT_EQ(plain.status().message(), "tokenising: out of memory; give less");
  const Status no_such_size = or_out_of_memory(
      "tokenising", "give less", []() -> Status { throw std::length_error("vector::reserve"); });
  EXPECT_EQ(no_such_size.message(), "tokenising: out of memory; give less");
}

TEST(OutOfMemory, LeavesAllElseAsItIs) {
  const Result<int> value = or_out_of_memory("a", "b", []() -> Result<int> { return 7; });
  ASSERT_TRUE(value.is_ok());
  EXPECT_EQ(*value, 7);
  EXPECT_EQ(or_out_of_memory("a", "b", [] { return not_found("x"); }).message(), "x");
  EXPECT_THROW((void)or_out_of_memory("a", "b", []() -> Status { throw std::runtime_error("x"); }),
               std::runtime_error);
}

}  // namespace
}  // namespace weft
