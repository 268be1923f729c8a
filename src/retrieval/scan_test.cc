#include "retrieval/scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>

#include "retrieval/test_support_internal.h"

namespace weft::retrieval {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const char* name_of(Change change) {
  switch (change) {
    case Change::kNew:
      return "new";
    case Change::kChanged:
      return "changed";
    case Change::kIncomplete:
      return "incomplete";
    case Change::kTouched:
      return "touched";
    case Change::kUnchanged:
      return "unchanged";
    case Change::kMoved:
      return "moved";
    case Change::kDeleted:
      return "deleted";
  }
  return "?";
}

class ScanTest : public ::testing::Test {
 protected:
  ScanTest() : index_(*Index::open(dir_ / "store.db", Index::Mode::kCreate)) {}

  std::string relative(const std::string& path) const {
    return path.starts_with(dir_.path() + "/") ? path.substr(dir_.path().size() + 1) : path;
  }
  ScanResult look(const std::vector<std::string>& names) {
    std::vector<std::string> paths;
    for (const std::string& name : names) paths.push_back(dir_ / name);
    auto result = scan(posix_env(), *index_, paths, options_);
    EXPECT_TRUE(result.is_ok()) << result.status().message();
    return result.is_ok() ? std::move(*result) : ScanResult{};
  }
  /// "CHANGE PATH" of every file, then "skipped PATH: REASON".
  std::vector<std::string> seen(const std::vector<std::string>& names = {"docs"}) {
    const ScanResult result = look(names);
    std::vector<std::string> lines;
    for (const auto& file : result.files) {
      lines.push_back(std::string(name_of(file.change)) + " " + relative(file.info.path));
    }
    for (const auto& file : result.skipped) {
      lines.push_back("skipped " + relative(file.path) + ": " + file.reason);
    }
    return lines;
  }
  /// As `weft ingest` does: everything new or changed goes in and gets its KV.
  void ingest() {
    for (const auto& file : look({"docs"}).files) {
      const auto id = index_->replace_document(file.info, {});
      ASSERT_TRUE(id.is_ok());
      ASSERT_TRUE(index_->mark_stored(*id, file.info.content_hash).is_ok());
    }
  }
  /// Changes a file's time by so many seconds.
  void age(const std::string& name, int seconds) {
    fs::last_write_time(dir_ / name,
                        fs::last_write_time(dir_ / name) + std::chrono::seconds(seconds));
  }

  TempDir dir_;
  std::unique_ptr<Index> index_;
  ScanOptions options_;
};

TEST_F(ScanTest, WalksFoldersSortedAndLeavesOutWhatIsHidden) {
  dir_.write("docs/b.txt", "b");
  dir_.write("docs/a.md", "a");
  dir_.write("docs/sub/deep/c.txt", "c");
  dir_.write("docs/empty.txt", "");
  dir_.write("docs/.hidden.txt", "no");
  dir_.write("docs/.git/config", "no");
  dir_.write("other.txt", "o");
  EXPECT_THAT(seen(), ElementsAre("new docs/a.md", "new docs/b.txt", "new docs/empty.txt",
                                  "new docs/sub/deep/c.txt"));
  EXPECT_THAT(seen({"docs/sub", "other.txt", "docs/.hidden.txt"}),
              ElementsAre("new docs/.hidden.txt", "new docs/sub/deep/c.txt", "new other.txt"));
  EXPECT_THAT(seen({"docs/sub", "docs/sub/deep", "docs/sub/../sub/deep/c.txt"}),
              ElementsAre("new docs/sub/deep/c.txt"));
}

TEST_F(ScanTest, LeavesOutTheStoreItself) {
  dir_.write("docs/a.txt", "a");
  dir_.write("docs/store/index.txt", "x");
  dir_.write("docs/store-2/b.txt", "b");
  options_.store_dir = dir_ / "docs/../docs/store/";
  EXPECT_THAT(seen(), ElementsAre("new docs/a.txt", "new docs/store-2/b.txt"));
}

TEST_F(ScanTest, LeavesOutOtherStores) {
  dir_.write("docs/a.txt", "a");
  for (const char* name : {"properties", "store.lock", "documents.sqlite"}) {
    dir_.write(std::string("docs/old/") + name, "x");
  }
  dir_.write("docs/house/properties", "no store's");
  EXPECT_THAT(seen(), ElementsAre("new docs/a.txt", "new docs/house/properties",
                                  "skipped docs/old: a store of weft's"));
}

TEST_F(ScanTest, SkipsByNameWhatIsNoText) {
  dir_.write("docs/a.txt", "gr\xc3\xbc\xc3\x9f");
  dir_.write("docs/binary", std::string("ab\0cd", 5));
  dir_.write("docs/late-nul.txt", std::string(9000, 'x') + '\0');
  dir_.write("docs/latin1.txt", "gr\xfc\xdf");
  dir_.write("docs/large.txt", std::string(20001, 'x'));
  ::mkfifo((dir_ / "docs/pipe").c_str(), 0600);
  options_.max_document_bytes = 20000;
  EXPECT_THAT(
      seen(),
      ElementsAre("new docs/a.txt", "new docs/late-nul.txt", "skipped docs/binary: a binary file",
                  "skipped docs/large.txt: larger than 20000 bytes",
                  "skipped docs/latin1.txt: not UTF-8", "skipped docs/pipe: it cannot be read"));
}

TEST_F(ScanTest, LoopsAndSecondWaysToAFileAreHarmless) {
  dir_.write("docs/a.txt", "a");
  dir_.write("elsewhere/b.txt", "b");
  fs::create_directory_symlink(".", dir_ / "docs/here");
  fs::create_symlink("self", dir_ / "docs/self");
  fs::create_symlink("nowhere", dir_ / "docs/broken");
  fs::create_symlink("a.txt", dir_ / "docs/again.txt");
  EXPECT_THAT(seen(), ElementsAre("new docs/a.txt"));
}

TEST_F(ScanTest, LinksThatLeadOutOfWhatWasNamedAreNotFollowed) {
  dir_.write("docs/a.txt", "a");
  dir_.write("elsewhere/b.txt", "b");
  dir_.write("elsewhere/c.txt", "c");
  fs::create_directory_symlink("..", dir_ / "docs/up");
  fs::create_directory_symlink("../elsewhere", dir_ / "docs/else");
  fs::create_symlink("../elsewhere/b.txt", dir_ / "docs/file.txt");
  const auto out = [&](const std::string& link, const std::string& target) {
    return "skipped docs/" + link + ": a link out of the folder; name " + target + " to ingest it";
  };
  const std::string top = fs::canonical(dir_ / "docs").parent_path();
  EXPECT_THAT(seen(), ElementsAre("new docs/a.txt", out("else", top + "/elsewhere"),
                                  out("file.txt", top + "/elsewhere/b.txt"), out("up", top)));
  // Named, too, it is a document like any other, and reached in both ways it is one.
  std::vector<std::string> files;
  for (const auto& file : look({"docs", "elsewhere"}).files) {
    files.push_back(fs::path(file.info.path).filename());
  }
  EXPECT_THAT(files, ElementsAre("a.txt", "b.txt", "c.txt"));
}

TEST_F(ScanTest, TellsWhatHasChanged) {
  for (const char* name : {"same", "content", "grown", "touched", "gone", "binary"}) {
    dir_.write(std::string("docs/") + name + ".txt", "before");
  }
  dir_.write("other/kept.txt", "not looked at");
  ingest();
  ASSERT_TRUE(put(*index_, dir_ / "other/kept.txt", {"x"}).is_ok());
  ASSERT_TRUE(put(*index_, dir_ / "docs-2/gone-too.txt", {"x"}).is_ok());
  dir_.write("docs/content.txt", "after!");  // of the same length
  age("docs/content.txt", 1);
  dir_.write("docs/grown.txt", "before and after");
  age("docs/touched.txt", 1);
  fs::remove(dir_ / "docs/gone.txt");
  dir_.write("docs/binary.txt", std::string("bin\0ry", 6));
  age("docs/binary.txt", 1);
  dir_.write("docs/new.txt", "new");
  EXPECT_THAT(
      seen(),
      ElementsAre("deleted docs/binary.txt", "changed docs/content.txt", "deleted docs/gone.txt",
                  "changed docs/grown.txt", "new docs/new.txt", "unchanged docs/same.txt",
                  "touched docs/touched.txt", "skipped docs/binary.txt: a binary file"));
}

TEST_F(ScanTest, AScanAfterTouchReadsNothingAgain) {
  dir_.write("docs/a.txt", "a");
  ingest();
  age("docs/a.txt", 5);
  const ScanResult result = look({"docs"});
  ASSERT_EQ(result.files[0].change, Change::kTouched);
  ASSERT_TRUE(index_->touch_document(result.files[0].info).is_ok());
  EXPECT_THAT(seen(), ElementsAre("unchanged docs/a.txt"));
}

TEST_F(ScanTest, ADocumentWithoutAllItsKvIsIncomplete) {
  dir_.write("docs/a.txt", "a");
  ASSERT_TRUE(index_->replace_document(look({"docs"}).files[0].info, {}).is_ok());
  EXPECT_THAT(seen(), ElementsAre("incomplete docs/a.txt"));
  age("docs/a.txt", 5);
  EXPECT_THAT(seen(), ElementsAre("incomplete docs/a.txt"));
}

TEST_F(ScanTest, AMissingPathIsAnErrorUnlessItWasIngested) {
  dir_.write("docs/a.txt", "a");
  ingest();
  fs::remove_all(dir_ / "docs");
  EXPECT_THAT(seen({"docs"}), ElementsAre("deleted docs/a.txt"));
  EXPECT_THAT(seen({"docs/a.txt"}), ElementsAre("deleted docs/a.txt"));
  const std::vector<std::string> missing{dir_ / "nosuch"};
  const auto result = scan(posix_env(), *index_, missing, options_);
  EXPECT_EQ(result.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(result.status().message(), HasSubstr("nosuch: no such file or folder"));
}

TEST_F(ScanTest, ADocumentIsLoadedWithTheStatOfItsBytes) {
  dir_.write("docs/team list.txt", "text");
  const auto document = load_document(posix_env(), dir_ / "docs/team list.txt", 100);
  ASSERT_TRUE(document.is_ok());
  EXPECT_EQ(document->text, "text");
  EXPECT_EQ(document->info.title, "team list");
  EXPECT_EQ(document->info.size_bytes, 4u);
  EXPECT_EQ(document->info.content_hash.size(), 32u);
  EXPECT_EQ(load_document(posix_env(), dir_ / "docs/team list.txt", 3).status().code(),
            StatusCode::kUnsupported);
  EXPECT_EQ(load_document(posix_env(), dir_ / "docs/none", 3).status().code(),
            StatusCode::kNotFound);
}

TEST_F(ScanTest, ANewFileWithAGoneDocumentsContentIsThatDocument) {
  dir_.write("docs/a.txt", "walnut");
  dir_.write("docs/b.txt", "pear");
  dir_.write("elsewhere/c.txt", "fig");
  for (const std::string name : {"docs/a.txt", "docs/b.txt", "elsewhere/c.txt"}) {
    const auto loaded = load_document(posix_env(), dir_ / name, 1000);
    ASSERT_TRUE(index_->replace_document(loaded->info, {}).is_ok());
  }
  fs::rename(dir_ / "docs/a.txt", dir_ / "docs/new.txt");
  dir_.write("docs/copy.txt", "pear");                        // b.txt is still there
  fs::rename(dir_ / "elsewhere/c.txt", dir_ / "docs/c.txt");  // from outside what is named
  dir_.write("docs/c2.txt", "fig");                           // a second copy is new
  EXPECT_THAT(seen(), ElementsAre("incomplete docs/b.txt", "moved docs/c.txt", "new docs/c2.txt",
                                  "new docs/copy.txt", "moved docs/new.txt"));
  const ScanResult result = look({"docs"});
  EXPECT_EQ(result.files[1].moved_from, dir_ / "elsewhere/c.txt");
  EXPECT_EQ(result.files[4].moved_from, dir_ / "docs/a.txt");
  EXPECT_EQ(result.files[4].info.root, dir_ / "docs");
  EXPECT_THAT(result.roots, ElementsAre(dir_ / "docs"));
}

TEST_F(ScanTest, AnUnfinishedRootThatIsGoneIsNoError) {
  EXPECT_EQ(
      scan(posix_env(), *index_, std::vector<std::string>{dir_ / "gone"}, options_).status().code(),
      StatusCode::kNotFound);
  ASSERT_TRUE(index_->begin_roots(std::vector<std::string>{dir_ / "gone"}).is_ok());
  EXPECT_THAT(seen({"gone"}), IsEmpty());
}

TEST(PathFromRoot, BeginsWithTheRootsOwnName) {
  EXPECT_EQ(path_from_root("/home/ann/notes/x/a.md", "/home/ann/notes"), "notes/x/a.md");
  EXPECT_EQ(path_from_root("/home/ann/a.md", "/home/ann/a.md"), "a.md");
  EXPECT_EQ(path_from_root("/a.md", "/"), "/a.md");
  EXPECT_EQ(path_from_root("/home/a.md", ""), "/home/a.md");
  EXPECT_EQ(path_from_root("/other/a.md", "/home"), "/other/a.md");
}

}  // namespace
}  // namespace weft::retrieval
