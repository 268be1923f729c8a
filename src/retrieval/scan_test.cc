#include "retrieval/scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <functional>

#include "base/hash.h"
#include "support/fault_env.h"
#include "support/files.h"
#include "support/index_documents.h"

namespace weft::retrieval {
namespace {

using test::FaultEnv;
using test::put;
using test::TempDir;

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

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
    case Change::kGone:
      return "gone";
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
  void ingest(const std::string& name = "docs") { ingest_all({name}); }
  void ingest_all(const std::vector<std::string>& names) {
    for (const auto& file : look(names).files) {
      if (file.change == Change::kDeleted) {
        ASSERT_TRUE(index_->remove_document(file.info.path).is_ok());
        continue;
      }
      if (file.change == Change::kTouched) {
        ASSERT_TRUE(index_->touch_document(file.info).is_ok());
        continue;
      }
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
  const std::string hidden = ": hidden: name it to have it";
  EXPECT_THAT(seen(), ElementsAre("new docs/a.md", "new docs/b.txt", "new docs/empty.txt",
                                  "new docs/sub/deep/c.txt", "skipped docs/.git" + hidden,
                                  "skipped docs/.hidden.txt" + hidden));
  EXPECT_THAT(seen({"docs/sub", "other.txt", "docs/.hidden.txt"}),
              ElementsAre("new docs/.hidden.txt", "new docs/sub/deep/c.txt", "new other.txt"));
  EXPECT_THAT(seen({"docs/sub", "docs/sub/deep", "docs/sub/../sub/deep/c.txt"}),
              ElementsAre("new docs/sub/deep/c.txt"));
}

TEST_F(ScanTest, ANamedFileStaysWhenItsFolderIsIngested) {
  dir_.write("docs/.gitignore", "draft.md\n");
  dir_.write("docs/a.md", "a");
  dir_.write("docs/.secret.md", "s");
  dir_.write("docs/draft.md", "d");
  dir_.write("docs/.vault/b.md", "b");
  dir_.write("docs/.vault/.c.md", "c");
  const auto changes = [&](const std::vector<std::string>& names = {"docs"}) {
    std::vector<std::string> lines;
    for (const std::string& line : seen(names)) {
      if (!line.starts_with("skipped ")) lines.push_back(line);
    }
    return lines;
  };
  // Together with the folder, and by themselves.
  for (const bool together : {true, false}) {
    ingest_all({"docs"});
    ASSERT_THAT(changes(), ElementsAre("unchanged docs/a.md"));
    std::vector<std::string> named{"docs/.secret.md", "docs/draft.md", "docs/.vault"};
    if (together) named.insert(named.begin(), "docs");
    ingest_all(named);
    EXPECT_THAT(changes(), ElementsAre("unchanged docs/.secret.md", "unchanged docs/.vault/b.md",
                                       "unchanged docs/a.md", "unchanged docs/draft.md"));
    EXPECT_THAT(look({"docs"}).notes, IsEmpty());
    // What is left out is that a file is skipped which is a document.
    EXPECT_THAT(seen(), Not(Contains(HasSubstr("skipped docs/.secret.md"))));
    // Changed, it is read again.
    dir_.write("docs/.secret.md", together ? "more" : "most");
    EXPECT_THAT(changes(), Contains("changed docs/.secret.md"));
    ingest_all({"docs"});
    // What is said now is newer.
    options_.exclude = {".secret.md", ".vault/"};
    const ScanResult excluded = look({"docs"});
    EXPECT_THAT(changes(), ElementsAre("deleted docs/.secret.md", "deleted docs/.vault/b.md",
                                       "unchanged docs/a.md", "unchanged docs/draft.md"));
    EXPECT_THAT(excluded.notes,
                ElementsAre(dir_ / "docs/.secret.md: no longer in the store, its file is skipped "
                                   "now (hidden: name it to have it)",
                            ::testing::StartsWith(dir_ / "docs/.vault/b.md: no longer in")));
    options_.exclude.clear();
    for (const char* name : {"docs/.secret.md", "docs/draft.md", "docs/.vault/b.md"}) {
      ASSERT_TRUE(index_->remove_document(dir_ / name).is_ok());
    }
    EXPECT_THAT(changes(), ElementsAre("unchanged docs/a.md"));
  }
  // A file that is gone is gone.
  ingest_all({"docs/.secret.md"});
  fs::remove(dir_ / "docs/.secret.md");
  EXPECT_THAT(changes(), ElementsAre("deleted docs/.secret.md", "unchanged docs/a.md"));
}

TEST_F(ScanTest, ADocumentOfAWalkThatIsNamedNowStays) {
  dir_.write("docs/a.md", "a");
  dir_.write("docs/b.md", "b");
  ingest();
  dir_.write("docs/.weftignore", "b.md\n");
  ingest_all({"docs/b.md", "docs/a.md"});
  EXPECT_EQ((*index_->find_document(dir_ / "docs/a.md"))->info.root, dir_ / "docs");
  EXPECT_EQ((*index_->find_document(dir_ / "docs/b.md"))->info.root, dir_ / "docs/b.md");
  EXPECT_THAT(look({"docs"}).notes, IsEmpty());
  EXPECT_THAT(seen(), Contains("unchanged docs/b.md"));
}

TEST_F(ScanTest, DocumentsThatAreSkippedNowAreNamed) {
  for (const char* name : {"a", "b", "c", "d", "e"}) dir_.write(std::string("docs/") + name, name);
  ingest();
  dir_.write("docs/.gitignore", "[a-d]\n");
  const ScanResult result = look({"docs"});
  ASSERT_EQ(result.notes.size(), 4u);
  EXPECT_EQ(result.notes[0], dir_ /
                                 "docs/a: no longer in the store, its file is skipped now "
                                 "(.gitignore says so)");
  EXPECT_EQ(result.notes[3],
            "1 more document is no longer in the store, as the files are skipped "
            "now");
}

TEST_F(ScanTest, AFolderInAFilesPlaceIsSaid) {
  dir_.write("docs/a", "a");
  ingest();
  fs::remove(dir_ / "docs/a");
  dir_.write("docs/a/b", "b");
  EXPECT_THAT(look({"docs"}).notes,
              ElementsAre(dir_ / "docs/a: no longer in the store, a folder is there now"));
}

TEST_F(ScanTest, LeavesOutTheStoreItself) {
  dir_.write("docs/a.txt", "a");
  dir_.write("docs/store/index.txt", "x");
  dir_.write("docs/store-2/b.txt", "b");
  options_.store_dir = dir_ / "docs/../docs/store/";
  EXPECT_THAT(seen(), ElementsAre("new docs/a.txt", "new docs/store-2/b.txt",
                                  "skipped docs/store: the store itself"));
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

TEST_F(ScanTest, SkipsBinaryFilesByKind) {
  dir_.write("docs/a.txt", "gr\xc3\xbc\xc3\x9f");
  dir_.write("docs/binary", std::string("ab\0cd", 5));
  dir_.write("docs/late-nul.txt", std::string(9000, 'x') + '\0');
  dir_.write("docs/latin1.txt", "gr\xfc\xdf aus");
  dir_.write("docs/koi8.txt", "\xf0\xd2\xc9\xd7\xc5\xd4");
  dir_.write("docs/paper.pdf", "%PDF-1.7\n");
  dir_.write("docs/large.txt", std::string(20001, 'x'));
  ::mkfifo((dir_ / "docs/pipe").c_str(), 0600);
  options_.max_document_bytes = 20000;
  EXPECT_THAT(
      seen(),
      ElementsAre("new docs/a.txt", "new docs/late-nul.txt", "new docs/latin1.txt",
                  "skipped docs/binary: a binary file",
                  "skipped docs/koi8.txt: neither UTF-8 nor by its looks Western text: iconv makes "
                  "UTF-8 of it, or --encoding says what it is",
                  "skipped docs/large.txt: larger than 20000 bytes",
                  "skipped docs/paper.pdf: a PDF: weft reads text; pdftotext makes text of it",
                  "skipped docs/pipe: it cannot be read"));
}

TEST_F(ScanTest, LoopsAndSecondWaysToAFileAreHarmless) {
  dir_.write("docs/a.txt", "a");
  dir_.write("elsewhere/b.txt", "b");
  fs::create_directory_symlink(".", dir_ / "docs/here");
  fs::create_symlink("self", dir_ / "docs/self");
  fs::create_symlink("nowhere", dir_ / "docs/broken");
  fs::create_symlink("a.txt", dir_ / "docs/again.txt");
  const std::string nowhere = ": a link that leads nowhere";
  EXPECT_THAT(seen(), ElementsAre("new docs/a.txt", "skipped docs/broken" + nowhere,
                                  "skipped docs/self" + nowhere));
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

TEST_F(ScanTest, AMissingPathIsAnErrorThatNamesHowItsDocumentsGo) {
  dir_.write("docs/a.txt", "a");
  dir_.write("docs/b.txt", "b");
  ingest();
  const auto refusal = [&](const std::string& name) {
    const std::vector<std::string> paths{dir_ / name};
    const auto result = scan(posix_env(), *index_, paths, options_);
    EXPECT_EQ(result.status().code(), StatusCode::kNotFound);
    return relative(result.status().message());
  };
  fs::remove_all(dir_ / "docs");
  const std::string docs = dir_ / "docs";
  EXPECT_EQ(refusal("docs"),
            "docs does not exist; `weft docs rm " + docs + "` takes its 2 documents out");
  EXPECT_EQ(refusal("docs/a.txt"), "docs/a.txt does not exist; `weft docs rm " + docs +
                                       "/a.txt` takes its 1 document out");
  EXPECT_EQ(refusal("nosuch"), "nosuch: no such file or folder");
  fs::create_symlink("nowhere", dir_ / "link");
  EXPECT_EQ(refusal("link"), "link: a link that leads nowhere");
}

TEST_F(ScanTest, SuggestedCommandsNameTheStoreAndAreQuoted) {
  dir_.write("my docs/a.txt", "a");
  ingest("my docs");
  fs::remove_all(dir_ / "my docs");
  options_.store_dir = dir_ / "a store";
  const std::vector<std::string> paths{dir_ / "my docs"};
  const std::string message = scan(posix_env(), *index_, paths, options_).status().message();
  EXPECT_THAT(message, HasSubstr("`weft docs rm --store '" + (dir_ / "a store") + "' '" +
                                 (dir_ / "my docs") + "'` takes its 1 document out"));
}

TEST_F(ScanTest, PatternsToExcludeByAreBoundedTogether) {
  dir_.write("a.txt", "a");
  options_.exclude.assign(IngestRoot::kMaxExcludeBytes / 1000, std::string(999, 'x'));
  EXPECT_TRUE(scan(posix_env(), *index_, std::vector<std::string>{dir_.path()}, options_).is_ok());
  options_.exclude.emplace_back(999, 'x');
  const Status status =
      scan(posix_env(), *index_, std::vector<std::string>{dir_.path()}, options_).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("of 66000 bytes together: at most 65536"));
}

TEST_F(ScanTest, AnEmptyPathIsRefusedAndHoldsNothing) {
  dir_.write("docs/a.txt", "a");
  ingest();
  const std::vector<std::string> paths{dir_ / "docs", ""};
  const auto result = scan(posix_env(), *index_, paths, options_);
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(is_under(dir_ / "docs/a.txt", canonical_path("")));
  EXPECT_FALSE(is_under("", ""));
  EXPECT_TRUE(is_under(dir_ / "docs/a.txt", "/"));
}

TEST_F(ScanTest, IgnoreFilesHoldFromTheirFolderDown) {
  dir_.write("docs/.gitignore", "*.log\n/only-here\nbuild/\nsub/x.txt\n");
  for (const char* name : {"a.txt", "a.log", "only-here", "build/b.txt", "sub/build", "sub/x.txt",
                           "sub/only-here", "sub/keep.log", "sub/other.log", "sub/deep/x.txt"}) {
    dir_.write(std::string("docs/") + name, "x");
  }
  dir_.write("docs/sub/.gitignore", "!keep.log\n");
  options_.store_dir = dir_ / "store";
  std::vector<std::string> names, skipped;
  const auto look_again = [&] {
    names.clear();
    skipped.clear();
    const ScanResult result = look({"docs"});
    for (const auto& file : result.files) names.push_back(relative(file.info.path));
    for (const auto& file : result.skipped) {
      if (file.kind != "hidden") skipped.push_back(relative(file.path) + " " + file.kind);
    }
  };
  look_again();
  EXPECT_THAT(names, ElementsAre("docs/a.txt", "docs/sub/build", "docs/sub/deep/x.txt",
                                 "docs/sub/keep.log", "docs/sub/only-here"));
  EXPECT_THAT(skipped,
              ElementsAre("docs/a.log by .gitignore", "docs/build by .gitignore",
                          "docs/only-here by .gitignore", "docs/sub/other.log by .gitignore",
                          "docs/sub/x.txt by .gitignore"));
  // .weftignore beats .gitignore, also one farther down, and --exclude beats both.
  dir_.write("docs/.weftignore", "!*.log\ndeep\n");
  options_.exclude = {"/sub/keep.log", "!only-here"};
  look_again();
  EXPECT_THAT(names, ElementsAre("docs/a.log", "docs/a.txt", "docs/only-here", "docs/sub/build",
                                 "docs/sub/only-here", "docs/sub/other.log"));
  EXPECT_THAT(skipped,
              ElementsAre("docs/build by .gitignore", "docs/sub/deep by .weftignore",
                          "docs/sub/keep.log by --exclude", "docs/sub/x.txt by .gitignore"));
  options_.exclude.clear();
  options_.reads_ignore_files = false;
  look_again();
  EXPECT_EQ(names.size(), 10u);
  EXPECT_THAT(skipped, IsEmpty());
}

TEST_F(ScanTest, NamedFilesAreReadEvenIfIgnored) {
  dir_.write("docs/.gitignore", "*\n");
  dir_.write("docs/a.txt", "a");
  dir_.write("docs/node_modules/b.txt", "b");
  dir_.write("docs/.c/d.txt", "d");
  EXPECT_THAT(seen({"docs/a.txt", "docs/node_modules", "docs/.c"}),
              ElementsAre("new docs/.c/d.txt", "new docs/a.txt", "new docs/node_modules/b.txt"));
  options_.exclude = {"a.txt"};
  EXPECT_THAT(seen({"docs/a.txt"}), ElementsAre("new docs/a.txt"));
  dir_.write("docs/x.pdf", "%PDF-1.4");
  dir_.write("docs/y.pdf", "%PDF-1.4");
  const ScanResult result = look({"docs/x.pdf", "docs"});
  for (const auto& file : result.skipped) {
    EXPECT_EQ(file.named, relative(file.path) == "docs/x.pdf") << file.path;
  }
}

TEST_F(ScanTest, IgnoreFilesAboveHoldInAGitWorkTreeOnly) {
  dir_.write("top/.gitignore", "*.log\n/docs/secret\n");
  dir_.write("top/docs/a.log", "a");
  dir_.write("top/docs/secret", "s");
  EXPECT_THAT(seen({"top/docs"}), ElementsAre("new top/docs/a.log", "new top/docs/secret"));
  fs::create_directories(dir_ / "top/.git");
  EXPECT_THAT(seen({"top/docs"}), ElementsAre("skipped top/docs/a.log: .gitignore says so",
                                              "skipped top/docs/secret: .gitignore says so"));
}

TEST_F(ScanTest, PackagesOfOthersAreSkipped) {
  dir_.write("docs/node_modules/a.md", "a");
  dir_.write("docs/sub/node_modules", "a file of that name");
  EXPECT_THAT(seen(), ElementsAre("new docs/sub/node_modules",
                                  "skipped docs/node_modules: packages of others: name it to have "
                                  "it"));
}

TEST_F(ScanTest, BackupsAreSkipped) {
  for (const char* name : {"a.md", "a.md.bak", "a.md~", "a.md.orig", "bak.md"}) {
    dir_.write(std::string("docs/") + name, name);
  }
  dir_.write("docs/b.bak/c.md", "a folder of that name");
  const std::string reason = "an editor's backup: name it to have it";
  EXPECT_THAT(seen(),
              ElementsAre("new docs/a.md", "new docs/b.bak/c.md", "new docs/bak.md",
                          "skipped docs/a.md.bak: " + reason, "skipped docs/a.md.orig: " + reason,
                          "skipped docs/a.md~: " + reason));
  EXPECT_THAT(seen({"docs/a.md~"}), ElementsAre("new docs/a.md~"));
}

TEST_F(ScanTest, ADocumentThatIsIgnoredNowIsDeletedAndSaidToBeThere) {
  dir_.write("docs/a.txt", "a");
  dir_.write("docs/b/b.txt", "b");
  dir_.write("docs/c.txt", "c");
  ingest();
  fs::remove(dir_ / "docs/c.txt");
  dir_.write("docs/.gitignore", "b\n");
  const ScanResult result = look({"docs"});
  ASSERT_EQ(result.files.size(), 3u);
  EXPECT_EQ(result.files[0].change, Change::kUnchanged);
  EXPECT_EQ(result.files[1].change, Change::kDeleted);
  EXPECT_TRUE(result.files[1].is_there);
  EXPECT_EQ(result.files[2].change, Change::kDeleted);
  EXPECT_FALSE(result.files[2].is_there);
}

TEST_F(ScanTest, AnIgnoreFileThatCannotBeUsedSaysSo) {
  dir_.write("docs/.gitignore", "[\n*.log\n");
  dir_.write("docs/a.log", "a");
  const ScanResult some = look({"docs"});
  EXPECT_THAT(some.files, IsEmpty());
  ASSERT_EQ(some.notes.size(), 1u);
  EXPECT_THAT(some.notes[0], HasSubstr("docs/.gitignore: some of its lines are not used"));
  dir_.write("docs/.gitignore", std::string((1 << 20) + 1, 'x'));
  const ScanResult large = look({"docs"});
  EXPECT_EQ(large.files.size(), 1u);
  EXPECT_THAT(large.notes[0], HasSubstr("larger than 1048576 bytes"));
  fs::remove(dir_ / "docs/.gitignore");
  fs::create_directory(dir_ / "docs/.gitignore");
  EXPECT_THAT(look({"docs"}).notes, IsEmpty());
  options_.exclude = {"[a"};
  const std::vector<std::string> paths{dir_ / "docs"};
  EXPECT_EQ(scan(posix_env(), *index_, paths, options_).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(ScanTest, IgnoreFilesTakeNoMoreMemoryThanTheyMay) {
  // One takes some 40 MiB as rules: beside each other they hold one after another, below each other
  // the second is too much.
  std::string large;
  for (int i = 0; i < 1023; ++i) large += "?" + std::string(1000, 'x') + std::to_string(i) + "\n";
  large += "*.log\n";
  for (const char* folder : {"docs/a/", "docs/b/", "docs/c/", "docs/c/d/", "docs/c/e/"}) {
    dir_.write(std::string(folder) + ".gitignore", large);
  }
  for (const char* folder : {"docs/a/", "docs/b/", "docs/c/"}) {
    dir_.write(std::string(folder) + "x.log", "x");
  }
  dir_.write("docs/c/d/y.txt", "y");
  const ScanResult result = look({"docs"});
  ASSERT_EQ(result.files.size(), 1u);
  EXPECT_EQ(relative(result.files[0].info.path), "docs/c/d/y.txt");
  ASSERT_EQ(result.notes.size(), 1u);
  EXPECT_EQ(relative(result.notes[0]),
            "docs/c/d/.gitignore and 1 more ignore files: not used: with the ignore files above "
            "them the patterns take more than 64 MiB of memory");
}

/// An Env in which something happens to a file when it is opened.
class EnvWithAnOpening : public FaultEnv {
 public:
  explicit EnvWithAnOpening(std::function<void(const std::string&)> opening)
      : FaultEnv(posix_env()), opening_(std::move(opening)) {}
  using FaultEnv::open_read;
  Result<std::unique_ptr<ReadFile>> open_read(const std::string& path, Links links) override {
    opening_(path);
    return FaultEnv::open_read(path, links);
  }

 private:
  std::function<void(const std::string&)> opening_;
};

TEST_F(ScanTest, AFileDeletedDuringTheScanIsIgnored) {
  dir_.write("docs/a.txt", "a");
  dir_.write("docs/b.txt", "b");
  EnvWithAnOpening env([&](const std::string& path) {
    if (path.ends_with("b.txt")) fs::remove(path);
  });
  const std::vector<std::string> paths{dir_ / "docs"};
  const auto result = scan(env, *index_, paths, options_);
  ASSERT_TRUE(result.is_ok()) << result.status().message();
  EXPECT_EQ(result->files.size(), 1u);
  EXPECT_THAT(result->skipped, IsEmpty());
}

TEST_F(ScanTest, AFolderWhoseIgnoreFileCannotBeReadIsNotWalked) {
  dir_.write("docs/a/.gitignore", "secret\n");
  dir_.write("docs/a/secret", "s");
  dir_.write("docs/b.txt", "b");
  // Root may read what has no mode, so the fault is made.
  class : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    using FaultEnv::open_read;
    Result<std::unique_ptr<ReadFile>> open_read(const std::string& path, Links links) override {
      if (path.ends_with(".gitignore")) return io_error(path + ": refused");
      return FaultEnv::open_read(path, links);
    }
  } env(posix_env());
  const std::vector<std::string> paths{dir_ / "docs"};
  const auto result = scan(env, *index_, paths, options_);
  ASSERT_TRUE(result.is_ok());
  ASSERT_EQ(result->files.size(), 1u);
  EXPECT_EQ(relative(result->files[0].info.path), "docs/b.txt");
  ASSERT_EQ(result->skipped.size(), 1u);
  EXPECT_EQ(result->skipped[0].reason, "an ignore file that holds for it cannot be read");
}

TEST_F(ScanTest, RehashSeesContentThatChangedUnderTheSameTime) {
  dir_.write("docs/a.txt", "before");
  dir_.write("docs/b.txt", "as it was");
  ingest();
  const auto time = fs::last_write_time(dir_ / "docs/a.txt");
  dir_.write("docs/a.txt", "after!");
  fs::last_write_time(dir_ / "docs/a.txt", time);
  EXPECT_THAT(seen(), ElementsAre("unchanged docs/a.txt", "unchanged docs/b.txt"));
  options_.rehash = true;
  EXPECT_THAT(seen(), ElementsAre("changed docs/a.txt", "unchanged docs/b.txt"));
}

TEST_F(ScanTest, AFileThatWasNewWhenItWasReadIsReadAgain) {
  class : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    int64_t unix_ms() override { return now_ms; }
    int64_t now_ms = 0;
  } env(posix_env());
  dir_.write("docs/a.txt", "before");
  const auto time = fs::last_write_time(dir_ / "docs/a.txt");
  const int64_t written_ms = posix_env().stat(dir_ / "docs/a.txt")->modified_ns / 1'000'000;
  const std::vector<std::string> paths{dir_ / "docs"};
  const auto scan_and_write_at = [&](int64_t ms) {
    env.now_ms = ms;
    const auto result = scan(env, *index_, paths, options_);
    EXPECT_EQ(result->files.size(), 1u);
    const ScannedFile& file = result->files[0];
    const auto id = file.change == Change::kTouched ? Result<int64_t>(0)
                                                    : index_->replace_document(file.info, {});
    EXPECT_TRUE(file.change == Change::kTouched
                    ? index_->touch_document(file.info).is_ok()
                    : index_->mark_stored(*id, file.info.content_hash).is_ok());
    return std::string(name_of(file.change));
  };
  // Read within the tick in which it was written, or before it by a clock that was set back.
  for (const int64_t after_ms : {-3'600'000, 0, 2000}) {
    SCOPED_TRACE(after_ms);
    dir_.write("docs/a.txt", "before");
    fs::last_write_time(dir_ / "docs/a.txt", time);
    (void)index_->remove_document(dir_ / "docs/a.txt");
    EXPECT_EQ(scan_and_write_at(written_ms + after_ms), "new");
    EXPECT_EQ(scan_and_write_at(written_ms + after_ms), "unchanged");  // and not written each time
    dir_.write("docs/a.txt", "after!");
    fs::last_write_time(dir_ / "docs/a.txt", time);
    EXPECT_EQ(scan_and_write_at(written_ms + 2001), "changed");
    EXPECT_EQ(scan_and_write_at(written_ms + 2002), "unchanged");
  }
  // Read once more, it is known.
  (void)index_->remove_document(dir_ / "docs/a.txt");
  EXPECT_EQ(scan_and_write_at(written_ms), "new");
  EXPECT_EQ(scan_and_write_at(written_ms + 2001), "touched");
  EXPECT_EQ(index_->find_document(dir_ / "docs/a.txt")->value().info.modified_ns / 1'000'000,
            written_ms);
}

TEST_F(ScanTest, AnotherEncodingIsAnotherContent) {
  dir_.write("docs/a.txt", "caf\xe9 \x80 und mehr");
  dir_.write("docs/b.txt", "plain");
  ingest();
  EXPECT_THAT(seen(), ElementsAre("unchanged docs/a.txt", "unchanged docs/b.txt"));
  options_.encoding = documents::Encoding::kWindows1252;  // as it was guessed
  EXPECT_THAT(seen(), ElementsAre("unchanged docs/a.txt", "unchanged docs/b.txt"));
  options_.encoding = documents::Encoding::kLatin1;
  EXPECT_THAT(seen(), ElementsAre("changed docs/a.txt", "unchanged docs/b.txt"));
}

TEST_F(ScanTest, ADocumentKnowsTheLinesOfItsFile) {
  dir_.write("docs/a.md", "---\ntitle: T\n---\n\n# H\ntext\n");
  const auto document = load_document(posix_env(), dir_ / "docs/a.md", {});
  ASSERT_TRUE(document.is_ok());
  EXPECT_EQ(document->text, "# H\ntext\n");
  EXPECT_EQ(document->info.title, "T");
  EXPECT_TRUE(document->has_own_title);
  EXPECT_EQ(document->lines.line_of(document->text.find("text")), 6u);
  // Text that is the bytes as they are has their hash; converted text has another one.
  dir_.write("docs/same.txt", "---\ntitle: T\n---\n\n# H\ntext\n");
  const auto plain = load_document(posix_env(), dir_ / "docs/same.txt", {});
  EXPECT_EQ(plain->info.content_hash, hash128(std::as_bytes(std::span(plain->text))).to_hex());
  EXPECT_NE(plain->info.content_hash, document->info.content_hash);
}

TEST_F(ScanTest, ADocumentIsLoadedWithTheStatOfItsBytes) {
  dir_.write("docs/team list.txt", "text");
  const auto document = load_document(posix_env(), dir_ / "docs/team list.txt", options_);
  ASSERT_TRUE(document.is_ok());
  EXPECT_EQ(document->text, "text");
  EXPECT_EQ(document->info.title, "team list");
  EXPECT_EQ(document->info.size_bytes, 4u);
  EXPECT_EQ(document->info.content_hash.size(), 32u);
  options_.max_document_bytes = 3;
  EXPECT_EQ(load_document(posix_env(), dir_ / "docs/team list.txt", options_).status().code(),
            StatusCode::kUnsupported);
  EXPECT_EQ(load_document(posix_env(), dir_ / "docs/none", options_).status().code(),
            StatusCode::kNotFound);
}

TEST_F(ScanTest, ANewFileWithAGoneDocumentsContentIsThatDocument) {
  dir_.write("docs/a.txt", "walnut");
  dir_.write("docs/b.txt", "pear");
  dir_.write("elsewhere/c.txt", "fig");
  for (const std::string name : {"docs/a.txt", "docs/b.txt", "elsewhere/c.txt"}) {
    const auto loaded = load_document(posix_env(), dir_ / name, {});
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

TEST_F(ScanTest, AnEmptyFileIsNotTakenForAMovedDocument) {
  dir_.write("docs/a.txt", "");
  dir_.write("docs/b.txt", "b");
  ingest();
  fs::rename(dir_ / "docs/a.txt", dir_ / "docs/c.txt");
  EXPECT_THAT(seen(), ElementsAre("deleted docs/a.txt", "unchanged docs/b.txt", "new docs/c.txt"));
}

TEST_F(ScanTest, AFolderThatBecameALinkTakesItsDocumentsAlong) {
  dir_.write("h/notes/kept.txt", "walnut");
  dir_.write("h/notes/changed.txt", "pear");
  dir_.write("h/notes/gone.txt", "fig");
  dir_.write("h/notes-2/other.txt", "quince");
  ingest("h/notes");
  ingest("h/notes-2");
  fs::create_directory(dir_ / "d");
  fs::rename(dir_ / "h/notes", dir_ / "d/notes");
  fs::create_directory_symlink(dir_ / "d/notes", dir_ / "h/notes");
  dir_.write("d/notes/changed.txt", "pear and quince");
  fs::remove(dir_ / "d/notes/gone.txt");
  EXPECT_THAT(seen({"h/notes"}),
              ElementsAre("new d/notes/changed.txt", "moved d/notes/kept.txt",
                          "deleted h/notes/changed.txt", "deleted h/notes/gone.txt"));
  for (const ScannedFile& file : look({"h/notes"}).files)
    EXPECT_NE(file.is_there, file.change == Change::kDeleted);
  // Named by its new path alone, it is not known to have been that folder, but its files are.
  EXPECT_THAT(seen({"d/notes"}), ElementsAre("new d/notes/changed.txt", "moved d/notes/kept.txt"));
  // As it was left by a weft that did not look there.
  ASSERT_TRUE(put(*index_, dir_ / "d/notes/kept.txt", {"x"}).is_ok());
  EXPECT_THAT(seen({"h/notes"}), Contains("deleted h/notes/kept.txt"));
  EXPECT_THAT(seen({"h/notes/kept.txt"}),
              ElementsAre("changed d/notes/kept.txt", "deleted h/notes/kept.txt"));
}

TEST_F(ScanTest, AnUnreadableLinkTargetKeepsItsDocuments) {
  dir_.write("h/notes/a/x.txt", "walnut");
  dir_.write("h/notes/b.txt", "pear");
  ingest("h/notes");
  fs::rename(dir_ / "h/notes", dir_ / "d");
  fs::create_directory_symlink(dir_ / "d", dir_ / "h/notes");
  class : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    using FaultEnv::list;
    Result<std::vector<DirEntry>> list(const std::string& dir, BrokenLinks broken) override {
      if (dir.ends_with("/a")) return io_error(dir + ": refused");
      return FaultEnv::list(dir, broken);
    }
  } without_a(posix_env());
  const std::vector<std::string> paths{dir_ / "h/notes"};
  const auto result = scan(without_a, *index_, paths, options_);
  ASSERT_TRUE(result.is_ok()) << result.status().message();
  ASSERT_EQ(result->files.size(), 1u);
  EXPECT_EQ(result->files[0].change, Change::kMoved);
  EXPECT_EQ(relative(result->files[0].info.path), "d/b.txt");
}

TEST_F(ScanTest, ADocumentThatBecameALinkToAnotherIsGone) {
  dir_.write("docs/x/a.txt", "walnut");
  dir_.write("docs/y/b.txt", "pear");
  ingest();
  fs::remove(dir_ / "docs/x/a.txt");
  fs::create_symlink("../y/b.txt", dir_ / "docs/x/a.txt");
  const ScanResult result = look({"docs"});
  ASSERT_EQ(result.files.size(), 2u);
  EXPECT_EQ(result.files[0].change, Change::kDeleted);
  EXPECT_FALSE(result.files[0].is_there);
  EXPECT_EQ(result.files[1].change, Change::kUnchanged);
}

TEST_F(ScanTest, AnEmptyMountPointDeletesNothing) {
  dir_.write("mnt/a.txt", "walnut");
  dir_.write("mnt/sub/b.txt", "pear");
  dir_.write("docs/c.txt", "fig");
  ingest("mnt");
  ingest();
  const auto status_of = [&](const std::vector<std::string>& names) {
    std::vector<std::string> paths;
    for (const std::string& name : names) paths.push_back(dir_ / name);
    return scan(posix_env(), *index_, paths, options_).status();
  };
  fs::rename(dir_ / "mnt", dir_ / "away");
  fs::create_directory(dir_ / "mnt");
  dir_.write("mnt/.keep", "");
  dir_.write("mnt/film.png", std::string("\x89PNG\r\n\x1a\n\0\0", 10));
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"mnt"}, {"docs", "mnt"}, {"mnt", "docs"}}) {
    const Status status = status_of(names);
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_EQ(relative(status.message()),
              "mnt: none of its 2 documents is there any more (a disk that is not mounted?); `weft "
              "docs rm " +
                  (dir_ / "mnt") + "` takes them out");
  }
  // Its folder, one of its documents that is found elsewhere, or anything to read: it is there.
  EXPECT_TRUE(status_of({"mnt", "away"}).is_ok());
  dir_.write("mnt/new.txt", "new");
  EXPECT_THAT(seen({"mnt"}), ::testing::IsSupersetOf({"deleted mnt/a.txt", "new mnt/new.txt"}));
  fs::remove(dir_ / "mnt/new.txt");
  // Skipped now is there, too.
  dir_.write("mnt/a.txt", "walnut");
  options_.exclude = {"*.txt"};
  EXPECT_THAT(seen({"mnt"}),
              ::testing::IsSupersetOf({"deleted mnt/a.txt", "deleted mnt/sub/b.txt"}));
  // The only document of a folder goes as any other.
  options_.exclude.clear();
  fs::remove(dir_ / "docs/c.txt");
  EXPECT_THAT(seen(), ElementsAre("deleted docs/c.txt"));
}

TEST_F(ScanTest, AmongManyOfOneContentEachIsLookedAtOnce) {
  class : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    Result<DirEntry> stat(const std::string& path) override {
      n_stats += path.find("/old/") != std::string::npos ? 1 : 0;
      return FaultEnv::stat(path);
    }
    int n_stats = 0;
  } env(posix_env());
  constexpr int kFiles = 40;
  for (int i = 0; i < kFiles; ++i) {
    const std::string name = std::to_string(i);
    dir_.write("old/" + name, "x");
    dir_.write("docs/" + name, "x");
    const auto loaded = load_document(posix_env(), dir_ / ("old/" + name), {});
    ASSERT_TRUE(index_->replace_document(loaded->info, {}).is_ok());
  }
  fs::remove(dir_ / "old/7");
  const std::vector<std::string> paths{dir_ / "docs"};
  const auto result = scan(env, *index_, paths, options_);
  ASSERT_TRUE(result.is_ok());
  EXPECT_EQ(std::ranges::count(result->files, Change::kMoved, &ScannedFile::change), 1);
  EXPECT_EQ(result->files.size(), size_t{kFiles});
  EXPECT_EQ(env.n_stats, kFiles);
}

TEST_F(ScanTest, CanBeStoppedAtEachEntry) {
  dir_.write("docs/a.txt", "a");
  dir_.write("docs/sub/b.txt", "b");
  dir_.write("docs/c.txt", "c");
  ingest();
  fs::remove(dir_ / "docs/c.txt");
  dir_.write("docs/d.txt", "d");
  int n_asked = 0;
  int stop_at = 0;
  options_.cancelled = [&] { return ++n_asked == stop_at; };
  EXPECT_EQ(look({"docs"}).files.size(), 4u);
  const int n_all = n_asked;
  EXPECT_GE(n_all, 4 + 3 + 3);  // entries, files, documents
  const std::vector<std::string> paths{dir_ / "docs"};
  for (stop_at = 1; stop_at <= n_all; ++stop_at) {
    n_asked = 0;
    const Status status = scan(posix_env(), *index_, paths, options_).status();
    EXPECT_EQ(status.code(), StatusCode::kCancelled);
    EXPECT_THAT(status.message(), HasSubstr("nothing was changed"));
    EXPECT_EQ(n_asked, stop_at);
  }
}

TEST_F(ScanTest, AnUnfinishedRootThatIsGoneIsSaid) {
  const auto refusal = [&] {
    const Status status =
        scan(posix_env(), *index_, std::vector<std::string>{dir_ / "gone"}, options_).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    return relative(status.message());
  };
  EXPECT_EQ(refusal(), "gone: no such file or folder");
  ASSERT_TRUE(index_->begin_roots(std::vector<IngestRoot>{{.path = dir_ / "gone"}}).is_ok());
  EXPECT_EQ(refusal(), "gone does not exist; `weft docs rm " + (dir_ / "gone") +
                           "` ends the ingest that was begun there");
}

TEST_F(ScanTest, AFileThatMovedToWhereItIsSkippedIsDeleted) {
  dir_.write("docs/a.txt", "walnut");
  dir_.write("docs/b.txt", "pear");
  ingest();
  dir_.write("docs/.gitignore", "old/\n");
  fs::create_directory(dir_ / "docs/old");
  fs::rename(dir_ / "docs/a.txt", dir_ / "docs/old/a.txt");
  EXPECT_THAT(seen(), ElementsAre("deleted docs/a.txt", "unchanged docs/b.txt",
                                  "skipped docs/.gitignore: hidden: name it to have it",
                                  "skipped docs/old: .gitignore says so"));
  EXPECT_THAT(seen({"docs", "docs/old"}), Contains("moved docs/old/a.txt"));
}

TEST_F(ScanTest, EmptyFilesMoveWithTheirFolderByName) {
  dir_.write("docs/a.txt", "walnut");
  dir_.write("docs/empty.txt", "");
  dir_.write("docs/one/__init__.py", "");
  dir_.write("docs/two/__init__.py", "");
  ingest();
  fs::rename(dir_ / "docs", dir_ / "papers");
  dir_.write("papers/other.txt", "");
  EXPECT_THAT(seen({"papers"}), ElementsAre("moved papers/a.txt", "moved papers/empty.txt",
                                            "moved papers/one/__init__.py", "new papers/other.txt",
                                            "moved papers/two/__init__.py"));
}

TEST_F(ScanTest, AFileReadInAnotherFormatIsNotMoved) {
  dir_.write("docs/a.txt", "<p>walnut</p>");
  dir_.write("docs/b.txt", "pear");
  ingest();
  fs::rename(dir_ / "docs/a.txt", dir_ / "docs/a.html");
  fs::rename(dir_ / "docs/b.txt", dir_ / "docs/b.md");
  EXPECT_THAT(seen(), ElementsAre("new docs/a.html", "deleted docs/a.txt", "moved docs/b.md"));
}

TEST(FormsOfPath, FollowLinksFromTheBeginning) {
  const TempDir dir;
  dir.write("real/sub/a.txt", "a");
  fs::create_directory_symlink("real", dir / "one");
  fs::create_symlink("../two/a.txt", dir / "real/b.txt");
  fs::create_directory_symlink("real/sub", dir / "two");
  EXPECT_THAT(forms_of_path(dir / "one/./b.txt"),
              ElementsAre(dir / "one/b.txt", dir / "real/b.txt", dir / "real/sub/a.txt"));
  EXPECT_THAT(forms_of_path(dir / "real//sub/"), ElementsAre(dir / "real/sub"));
  EXPECT_THAT(forms_of_path(dir / "two/../b.txt"),
              ElementsAre(dir / "real/b.txt", dir / "real/sub/a.txt"));
  EXPECT_THAT(forms_of_path(dir / "none/x"), ElementsAre(dir / "none/x"));
  EXPECT_THAT(forms_of_path("/"), ElementsAre("/"));
  EXPECT_THAT(forms_of_path("x"), ElementsAre((fs::current_path() / "x").string()));
  EXPECT_THAT(forms_of_path(""), IsEmpty());
}

TEST(Outermost, LeavesOutWhatLiesUnderAnother) {
  const auto outer = outermost({"/a/b", "/a-b", "/a", "/a b/c", "/c/d", "/a/b/c", "/c/d", "/ab"});
  EXPECT_THAT(outer, UnorderedElementsAre("/a", "/a-b", "/a b/c", "/c/d", "/ab"));
  for (const char* path : {"/a", "/a/x", "/a-b/x", "/a b/c", "/c/d/e", "/ab/c"}) {
    EXPECT_TRUE(is_under_any(path, outer)) << path;
  }
  for (const char* path : {"/", "/a!", "/a b", "/c", "/c/dd", "/b", "/a-", "/abc"}) {
    EXPECT_FALSE(is_under_any(path, outer)) << path;
  }
  EXPECT_THAT(outermost({"/b", "/", "/a"}), ElementsAre("/"));
  EXPECT_TRUE(is_under_any("/a/b", outermost({"/b", "/"})));
  EXPECT_FALSE(is_under_any("/a", {}));
}

TEST(PathFromRoot, BeginsWithTheRootsOwnName) {
  EXPECT_EQ(path_from_root("/home/ann/notes/x/a.md", "/home/ann/notes"), "notes/x/a.md");
  EXPECT_EQ(path_from_root("/home/ann/a.md", "/home/ann/a.md"), "a.md");
  EXPECT_EQ(path_from_root("/a.md", "/"), "/a.md");
  EXPECT_EQ(path_from_root("/home/a.md", ""), "/home/a.md");
  EXPECT_EQ(path_from_root("/other/a.md", "/home"), "/other/a.md");
}

TEST(RootsToShow, TellDocumentsOfOneNameApart) {
  const auto shown = [](const std::vector<std::pair<std::string, std::string>>& all) {
    std::vector<Document> documents;
    for (const auto& [path, root] : all) {
      Document document;
      document.info.path = path;
      document.info.root = root;
      documents.push_back(document);
    }
    const auto roots = roots_to_show(documents);
    std::vector<std::string> out;
    for (size_t i = 0; i < all.size(); ++i) out.push_back(path_from_root(all[i].first, roots[i]));
    return out;
  };
  EXPECT_THAT(
      shown({{"/h/a/n.md", "/h/a/n.md"}, {"/h/b/n.md", "/h/b/n.md"}, {"/h/b/m.md", "/h/b/m.md"}}),
      ElementsAre("a/n.md", "b/n.md", "m.md"));
  EXPECT_THAT(shown({{"/h/a/x/n.md", "/h/a/x/n.md"}, {"/h/b/x/n.md", "/h/b/x/n.md"}}),
              ElementsAre("a/x/n.md", "b/x/n.md"));
  EXPECT_THAT(shown({{"/a/notes/x.md", "/a/notes"},
                     {"/b/notes/x.md", "/b/notes"},
                     {"/b/notes/y.md", "/b/notes"}}),
              ElementsAre("a/notes/x.md", "b/notes/x.md", "notes/y.md"));
  EXPECT_THAT(shown({{"/n.md", "/n.md"}, {"/a/n.md", "/a/n.md"}}), ElementsAre("/n.md", "a/n.md"));
  EXPECT_THAT(shown({{"x/n.md", "x"}, {"/z/x/n.md", "/z/x"}}), ElementsAre("x/n.md", "z/x/n.md"));
  EXPECT_THAT(shown({}), IsEmpty());
}

TEST_F(ScanTest, ALinksTargetIsRefusedAsInAWalk) {
  dir_.write("docs/.gitignore", "secret/\n*.key\n");
  dir_.write("docs/.env", "PASSWORD=x");
  dir_.write("docs/.hid/sub/a.txt", "hidden");
  dir_.write("docs/secret/k.txt", "secret");
  dir_.write("docs/secret/deep/k.txt", "secret");
  dir_.write("docs/a.key", "key");
  dir_.write("docs/node_modules/m.txt", "module");
  dir_.write("docs/open/o.txt", "open");
  fs::create_symlink(".env", dir_ / "docs/env.txt");
  fs::create_directory_symlink(".hid", dir_ / "docs/vis");
  fs::create_directory_symlink(".hid/sub", dir_ / "docs/vis2");
  fs::create_symlink("secret/k.txt", dir_ / "docs/pub.txt");
  fs::create_directory_symlink("secret/deep", dir_ / "docs/pub");
  fs::create_symlink("a.key", dir_ / "docs/key.txt");
  fs::create_symlink("node_modules/m.txt", dir_ / "docs/m.txt");
  fs::create_symlink("open/o.txt", dir_ / "docs/o.txt");
  const std::string hidden = ": hidden: name it to have it";
  EXPECT_THAT(
      seen(),
      UnorderedElementsAre(
          "new docs/open/o.txt", "skipped docs/.gitignore" + hidden, "skipped docs/.env" + hidden,
          "skipped docs/.hid" + hidden, "skipped docs/secret: .gitignore says so",
          "skipped docs/a.key: .gitignore says so",
          "skipped docs/node_modules: packages of others: name it to have it",
          "skipped docs/env.txt" + hidden, "skipped docs/vis" + hidden,
          "skipped docs/vis2" + hidden, "skipped docs/pub.txt: .gitignore says so",
          "skipped docs/pub: .gitignore says so", "skipped docs/key.txt: .gitignore says so",
          "skipped docs/m.txt: packages of others: name it to have it"));
  // What was named is as if it were not hidden, and so is what lies in it.
  EXPECT_THAT(seen({"docs/open", "docs/.hid", "docs/vis"}),
              UnorderedElementsAre("new docs/open/o.txt", "new docs/.hid/sub/a.txt"));
}

TEST_F(ScanTest, AnIgnoreFileThatTakesTooLongIsLeftOutInPart) {
  const std::string name(240, 'z');
  std::string costly = "zz*\n";  // asked last
  for (int i = 0; i < 3999; ++i) costly += "*[a-z]q\n";
  dir_.write("docs/.gitignore", costly);
  dir_.write("docs/.weftignore", "*.log\n");
  for (const char* end : {".log", "a", "b"}) dir_.write("docs/" + name + end, "text");
  dir_.write("docs/zz", "text");
  const ScanResult result = look({"docs"});
  std::vector<std::string> files;
  for (const ScannedFile& file : result.files) files.push_back(relative(file.info.path));
  EXPECT_THAT(files, ElementsAre("docs/" + name + "a", "docs/" + name + "b"));
  EXPECT_THAT(result.notes,
              ElementsAre(dir_ / "docs/.gitignore" +
                          ": not all of its lines are used for each file: comparing them with one "
                          "path takes too long"));
}

}  // namespace
}  // namespace weft::retrieval
