// The index among processes that are killed, and several at once. Nothing is open in this process
// when it forks: SQLite's locks do not survive that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "retrieval/index.h"
#include "support/files.h"
#include "support/index_documents.h"

namespace weft::retrieval {
namespace {

using test::put;
using test::TempDir;
using Mode = Index::Mode;

/// Runs fn in a child; its result is the child's exit status.
template <class F>
pid_t in_child(F fn) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(fn() ? 0 : 1);
  return child;
}

/// Version `version` of a document: its number of chunks and every text tell the version.
std::vector<std::string> texts_of(int document, int version) {
  std::vector<std::string> texts;
  for (int i = 0; i <= version % 5 + 1; ++i) {
    texts.push_back("document " + std::to_string(document) + " version " + std::to_string(version) +
                    " piece " + std::to_string(i) + " of " + std::to_string(version % 5 + 2) +
                    std::string(2000, ' ') + "end");
  }
  return texts;
}

void expect_whole_documents(Index& index) {
  const Status status = index.verify();
  ASSERT_TRUE(status.is_ok()) << status.message();
  const auto documents = index.documents();
  ASSERT_TRUE(documents.is_ok());
  for (const Document& document : *documents) {
    const auto chunks = index.chunks_of(document.id);
    ASSERT_TRUE(chunks.is_ok());
    const int number = std::stoi(document.info.path.substr(1));
    const int version = std::stoi(document.info.title);
    const auto texts = texts_of(number, version);
    ASSERT_EQ(chunks->size(), texts.size()) << document.info.path;
    for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ((*chunks)[i].text, texts[i]);
  }
}

TEST(IndexProcesses, GivenKillNineDuringIngestThenEveryDocumentIsWholeOrAbsent) {
  const TempDir dir;
  const std::string file = dir / "index.db";
  std::mt19937 random(3);
  int64_t last_documents = 0;
  int interrupted = 0;  // changes that the kill left half done
  for (int round = 0; round < 40; ++round) {
    const pid_t child = in_child([&] {
      auto index = Index::open(file, Mode::kCreate);
      if (!index.is_ok()) return false;
      for (int i = 0;; ++i) {
        const int document = i % 3 == 0 ? round * 1000 + i : i % 7;
        const int version = round + i;
        if (!put(**index, "/" + std::to_string(document), texts_of(document, version),
                 std::to_string(version))
                 .is_ok()) {
          return false;
        }
        if (i % 11 == 10) (void)(*index)->remove_document("/" + std::to_string(i % 7));
      }
    });
    ASSERT_GT(child, 0);
    ::usleep(static_cast<useconds_t>(random() % 120000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    if (!std::filesystem::exists(file) || std::filesystem::file_size(file) == 0) continue;
    interrupted += std::filesystem::exists(file + "-journal") ? 1 : 0;
    // Reading must do, also where the killed process left a half-done change.
    auto index = Index::open(file, round % 2 == 0 ? Mode::kReadOnly : Mode::kCreate);
    ASSERT_TRUE(index.is_ok()) << index.status().message();
    expect_whole_documents(**index);
    last_documents = (*index)->counts()->documents;
  }
  EXPECT_GT(last_documents, 10);
  EXPECT_GT(interrupted, 5);
}

TEST(IndexProcesses, GivenTwoWritersAndAReaderThenAllSucceedAndNothingIsLost) {
  const TempDir dir;
  const std::string file = dir / "index.db";
  constexpr int kDocuments = 25;
  std::vector<pid_t> children;
  for (int writer = 0; writer < 2; ++writer) {
    children.push_back(in_child([&] {
      auto index = Index::open(file, Mode::kCreate);  // both may find no file, and make it
      if (!index.is_ok()) return false;
      for (int i = 0; i < kDocuments; ++i) {
        const int document = writer * 1000 + i;
        if (!put(**index, "/" + std::to_string(document), texts_of(document, i), std::to_string(i))
                 .is_ok()) {
          return false;
        }
        if (!put(**index, "/5000", texts_of(5000, i), std::to_string(i)).is_ok()) return false;
      }
      return true;
    }));
  }
  children.push_back(in_child([&] {
    while (!std::filesystem::exists(file)) ::usleep(1000);
    int questions = 0;
    for (int tries = 0; questions < 100 && tries < 10000; ++tries) {
      auto index = Index::open(file, Mode::kReadOnly);
      if (!index.is_ok()) {  // not made yet
        ::usleep(1000);
        continue;
      }
      const auto hits = (*index)->search("version piece end", 5);
      if (!hits.is_ok()) return false;
      ++questions;
    }
    return questions == 100;
  }));
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  auto index = *Index::open(file, Mode::kReadWrite);
  expect_whole_documents(*index);
  EXPECT_EQ(index->counts()->documents, 2 * kDocuments + 1);
}

}  // namespace
}  // namespace weft::retrieval
