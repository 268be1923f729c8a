#include "cli/kv_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Of 40 pages of 16 slots, 1,000 bytes each.
engine::GroupUse group(int32_t held, int64_t tokens, int32_t cached = 0) {
  return {.pages = {.page_tokens = 16,
                    .pages = 40,
                    .free = 40 - held - cached,
                    .cached = cached,
                    .held = held,
                    .shared = 2,
                    .tokens = tokens},
          .n_layers = 3,
          .page_bytes = 1000};
}

TEST(KvReport, HasALineForEachGroupOfLayers) {
  EXPECT_THAT(kv_lines({group(10, 150)}),
              ElementsAre("KV cache  10 of 40 pages used (10 KB), 2 shared by several, 30 free; 10 "
                          "of 160 slots without a token (6.2 %)"));
  engine::GroupUse window = group(4, 64, 3);
  window.window_tokens = 512;
  window.n_layers = 1;
  EXPECT_THAT(kv_lines({group(10, 160), window}),
              ElementsAre("KV cache  3 layers that see all: 10 of 40 pages used (10 KB), 2 shared "
                          "by several, 30 free; 0 of 160 slots without a token (0.0 %)",
                          "KV cache  1 layer with a window of 512: 7 of 40 pages used (7.0 KB; 3 "
                          "kept for later prompts), 2 shared by several, 33 free; 0 of 64 slots "
                          "without a token (0.0 %)"));
}

TEST(KvReport, TheFullestMomentIsKept) {
  FullestKv fullest;
  EXPECT_THAT(kv_lines(fullest.groups()), IsEmpty());
  const auto held = [&] { return fullest.groups().front().pages.held; };
  fullest.see({group(3, 40)});
  fullest.see({group(5, 70)});
  fullest.see({group(4, 64)});
  EXPECT_EQ(held(), 5);
  fullest.see({group(5, 75)});
  EXPECT_EQ(fullest.groups().front().pages.tokens, 75);
  fullest.see({group(4, 64, 2)});
  EXPECT_EQ(held(), 4);
}

}  // namespace
}  // namespace weft::cli
