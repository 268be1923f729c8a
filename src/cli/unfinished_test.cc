#include "cli/unfinished.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "retrieval/index.h"
#include "support/files.h"

namespace weft::cli {
namespace {

using retrieval::Index;
using retrieval::IngestRoot;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class UnfinishedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    index_ = *Index::open(folder_ / "documents.sqlite", Index::Mode::kCreate);
  }
  void TearDown() override { index_.reset(); }
  void begin(const std::vector<IngestRoot>& roots) {
    ASSERT_TRUE(index_->begin_roots(roots).is_ok());
  }
  std::string line() { return *unfinished_line(*index_, "S"); }

  test::TempDir folder_;
  std::unique_ptr<Index> index_;
};

TEST_F(UnfinishedTest, AWholeStoreHasNoLine) {
  EXPECT_EQ(line(), "");
  EXPECT_TRUE(unfinished_json(*index_, "S")->is_null());
}

TEST_F(UnfinishedTest, TheCommandHasTheFlagsOfTheIngestThatDidNotEnd) {
  begin({{.path = "/my docs",
          .exclude = {"*.log", "it's", "-x"},
          .encoding = "latin-1",
          .reads_ignore_files = false,
          .rehash = true}});
  const std::string command =
      "weft ingest --store S --exclude '*.log' --exclude 'it'\\''s' --exclude -x --no-ignore "
      "--encoding latin-1 --rehash '/my docs'";
  EXPECT_THAT(line(), EndsWith("to complete it: " + command));
  const Json json = *unfinished_json(*index_, "S");
  EXPECT_EQ(json["command"], command);
  EXPECT_EQ(json["documents"], 0);
  EXPECT_EQ(json["ingest_did_not_end"], true);
  EXPECT_EQ(json["paths"], Json::array({"/my docs"}));
}

TEST_F(UnfinishedTest, PathsBegunWithTheSameFlagsShareACommandAndOthersDoNot) {
  begin({{.path = "/a", .exclude = {"x"}}, {.path = "/b"}, {.path = "/c", .exclude = {"x"}}});
  EXPECT_THAT(line(), EndsWith("to complete it: weft ingest --store S --exclude x /a /c && "
                               "weft ingest --store S /b"));
}

TEST_F(UnfinishedTest, TheCommandHasTheLimitThatIsGiven) {
  begin({{.path = "/a"}});
  const auto with = [&](uint64_t limit) { return *unfinished_line(*index_, "S", "m", limit); };
  EXPECT_THAT(with(200'000), EndsWith("weft ingest -m m --store S --store-limit 200KB /a"));
  EXPECT_THAT(with(uint64_t{3} << 30), EndsWith("--store-limit 3GiB /a"));
}

TEST(RoomNote, IsForWhatTheDiskDoesNotHold) {
  EXPECT_EQ(room_note(1'000'000, 1'000'000), "");
  EXPECT_EQ(room_note(3'200'000'000, 1'100'000'000),
            "; its KV takes up to 3.2 GB, and 1.1 GB are free there: make room first");
}

TEST_F(UnfinishedTest, PeopleAreToldThreePathsAndProgramsAll) {
  begin({{.path = "/a"}, {.path = "/a/b"}, {.path = "/c"}, {.path = "/d"}, {.path = "/e"}});
  EXPECT_THAT(line(), EndsWith("weft ingest --store S /a /c /d (and 1 more path)"));
  EXPECT_THAT(line(), Not(HasSubstr("/a/b")));
  EXPECT_EQ((*unfinished_json(*index_, "S"))["command"], "weft ingest --store S /a /c /d /e");
}

}  // namespace
}  // namespace weft::cli
