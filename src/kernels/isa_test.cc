// The list of instruction sets, and what is said of it elsewhere.
#include "kernels/isa.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <string>

#include "support/files.h"
#include "support/instruction_sets.h"

namespace weft::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Isa, NamesAreReadAsTheyAreShown) {
  EXPECT_THAT(isa_names(), ElementsAre("baseline", "avx2", "avx512", "avx512bf16"));
  for (const Isa isa : kIsas) {
    const auto parsed = parse_isa(isa_name(isa));
    if (cpu_has(isa)) {
      ASSERT_TRUE(parsed.is_ok());
      EXPECT_EQ(*parsed, isa);
    } else {
      EXPECT_EQ(parsed.status().code(), StatusCode::kUnsupported);
      EXPECT_EQ(parsed.status().message(), std::string("this CPU has no ") + isa_name(isa));
    }
  }
}

TEST(Isa, AnUnknownNameIsAnErrorThatListsAll) {
  for (const char* name : {"", "AVX2", "avx", "sse2"}) {
    const Status status = parse_isa(name).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("baseline, avx2, avx512, avx512bf16"));
  }
}

// Each set has what the ones before it have, so the largest that a CPU has is its best.
TEST(Isa, ThoseOfACpuAreTheFirstOnes) {
  const std::vector<Isa> have = test::machine_isas();
  ASSERT_FALSE(have.empty());
  for (size_t i = 0; i < std::size(kIsas); ++i) EXPECT_EQ(cpu_has(kIsas[i]), i < have.size());
  EXPECT_EQ(best_isa(), have.back());
}

TEST(Isa, TheManualNamesThem) {
  EXPECT_THAT(test::read_text(WEFT_SOURCE_DIR "/docs/cli.md"),
              HasSubstr(fmt::format("`--isa {}`", fmt::join(isa_names(), "\\|"))));
}

}  // namespace
}  // namespace weft::kernels
