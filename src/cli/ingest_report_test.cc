#include "cli/ingest_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/counts_text.h"

namespace weft::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(IngestReport, NumbersAreGroupedAndDurationsInUnits) {
  EXPECT_EQ(grouped_digits(0), "0");
  EXPECT_EQ(grouped_digits(999), "999");
  EXPECT_EQ(grouped_digits(5210), "5,210");
  EXPECT_EQ(grouped_digits(-1234567), "-1,234,567");
  EXPECT_EQ(counted(1, "document"), "1 document");
  EXPECT_EQ(counted(0, "document"), "0 documents");
  EXPECT_EQ(duration_text(8.4), "8 s");
  EXPECT_EQ(duration_text(125), "2 min 5 s");
  EXPECT_EQ(duration_text(12000), "3 h 20 min");
  EXPECT_EQ(duration_text(-1), "0 s");
}

TEST(IngestReport, PlanLineNamesADocumentOfMoreThanHalf) {
  library::IngestPlan plan{.documents = 1,
                           .chunks = 1,
                           .tokens = 5210,
                           .new_chunks = 1,
                           .new_tokens = 5210,
                           .new_bytes = 120'000'000,
                           .free_bytes = 31'000'000'000,
                           .largest_path = "/d/big.log",
                           .largest_bytes = 100'000'000};
  EXPECT_EQ(plan_line(plan),
            "ingesting 1 document, 1 chunk, 5,210 tokens: 120 MB of KV (31 GB free)");
  plan.documents = 14;
  plan.new_bytes = 4'000'000'000;
  plan.largest_bytes = 3'000'000'000;
  EXPECT_THAT(plan_line(plan), EndsWith("; 3.0 GB of it for /d/big.log"));
  plan.largest_path = "/d/a\nweft: b\r";
  EXPECT_THAT(plan_line(plan), EndsWith("for /d/a\uFFFDweft: b\uFFFD"));
  plan.largest_path = "/d/big.log";
  plan.largest_bytes = 2'000'000'000;
  EXPECT_THAT(plan_line(plan), Not(HasSubstr("big.log")));
}

TEST(IngestReport, PlanLineCountsWhatIsComputed) {
  library::IngestPlan plan{.documents = 1,
                           .chunks = 14,
                           .tokens = 6000,
                           .new_chunks = 2,
                           .new_tokens = 840,
                           .new_bytes = 19'000'000,
                           .free_bytes = 31'000'000'000};
  EXPECT_EQ(plan_line(plan),
            "ingesting 1 document, 2 new chunks, 840 tokens: 19 MB of KV (31 GB free); 12 more "
            "chunks repeat these or are stored already");
  plan.chunks = 3;
  EXPECT_THAT(plan_line(plan), EndsWith("; 1 more chunk repeats these or is stored already"));
  plan.new_chunks = plan.new_tokens = 0;
  plan.new_bytes = 0;
  EXPECT_EQ(plan_line(plan), "ingesting 1 document, 3 chunks: no new KV (31 GB free)");
}

TEST(IngestReport, ProgressLineKeepsToTheWidth) {
  const std::string path = "/home/a/notes/\u00fcber \u4e2d\u6587/a long name.md";
  const ShownProgress progress{{3234, 9210, 620, path}, 2000, 2.0};
  EXPECT_EQ(progress_line(progress, 200),
            "ingest  31 %  620/2,000 tokens  310 tokens/s  4 s left  " + path);
  EXPECT_THAT(progress_line(progress, 79), HasSubstr("left  \u2026"));
  EXPECT_THAT(progress_line(progress, 79), EndsWith("a long name.md"));
  EXPECT_EQ(progress_line(progress, 40), "ingest  31 %  620/2,000 tokens");
  EXPECT_EQ(progress_line(progress, 1), "ingest  31 %");
  for (int width = 20; width < 200; ++width) {
    const std::string line = progress_line(progress, width);
    int columns = 0;
    for (size_t i = 0; i < line.size(); ++i) {
      const auto byte = static_cast<unsigned char>(line[i]);
      columns += (byte & 0xC0) == 0x80 ? 0 : byte == 0xE4 || byte == 0xE6 ? 2 : 1;
    }
    EXPECT_LE(columns, width);
  }
}

TEST(IngestReport, RateAndTimeComeWithTheFirstComputedChunk) {
  const ShownProgress found{{100, 200, 0, "a.md"}, 0, 0.5};
  EXPECT_EQ(progress_line(found, 79), "ingest  50 %  100/200 tokens  a.md");
}

TEST(IngestReport, PathsAreMadeHarmless) {
  const ShownProgress progress{{1, 2, 0, "a\x1b[2J\nb\xff"}, 1, 0};
  const std::string line = progress_line(progress, 79);
  EXPECT_THAT(line, Not(HasSubstr("\x1b")));
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  EXPECT_THAT(line, Not(HasSubstr("\xff")));
}

TEST(IngestReport, GroupsNameThreeAtMost) {
  NameGroups groups;
  EXPECT_TRUE(groups.is_empty());
  for (const char* name : {"a", "b", "c", "d"}) groups.add("image", name);
  groups.add("PDF", "x.pdf");
  groups.add("PDF", "y.pdf");
  groups.add("hidden", ".git");
  groups.add("broken link", "l");
  EXPECT_EQ(groups.line(),
            "1 hidden, 2 PDF (x.pdf, y.pdf), 1 broken link (l), 4 images (a, b, c, \u2026)");
}

TEST(IngestReport, OneDocumentIsSingular) {
  EXPECT_EQ(counts_line({.added = 2, .unchanged = 1}),
            "2 new, 0 changed, 0 completed, 0 deleted, 1 unchanged document; 0 skipped");
  EXPECT_EQ(counts_line({.deleted = 3, .skipped_now = 2, .skipped = 4}),
            "0 new, 0 changed, 0 completed, 3 deleted (2 of them skipped now), 0 unchanged "
            "documents; 4 skipped");
  EXPECT_EQ(counts_line({.moved = 2, .deleted = 1}),
            "0 new, 0 changed, 0 completed, 2 moved, 1 deleted, 0 unchanged documents; 0 skipped");
}

}  // namespace
}  // namespace weft::cli
