#include "retrieval/index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "retrieval/database_internal.h"
#include "support/files.h"
#include "support/index_documents.h"

namespace weft::retrieval {
namespace {

using test::put;
using test::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class IndexTest : public ::testing::Test {
 protected:
  void SetUp() override { reopen(Index::Mode::kCreate); }
  void reopen(Index::Mode mode) {
    index_.reset();
    auto opened = Index::open(file_, mode);
    ASSERT_TRUE(opened.is_ok()) << opened.status().message();
    index_ = std::move(*opened);
  }
  int64_t add(const std::string& path, const std::vector<std::string>& texts,
              const std::string& title = "") {
    const auto id = put(*index_, path, texts, title);
    EXPECT_TRUE(id.is_ok()) << id.status().message();
    return id.is_ok() ? *id : -1;
  }
  /// "PATH ORDINAL" of each hit.
  std::vector<std::string> found(std::string_view question, int k = 10) {
    const auto hits = index_->search(question, k);
    EXPECT_TRUE(hits.is_ok()) << hits.status().message();
    std::vector<std::string> names;
    if (!hits.is_ok()) return names;
    for (const Hit& hit : *hits)
      names.push_back(hit.path + " " + std::to_string(hit.chunk.ordinal));
    return names;
  }

  TempDir dir_;
  std::string file_ = dir_ / "index.db";
  std::unique_ptr<Index> index_;
};

TEST_F(IndexTest, GivenADocumentWhenReopenedThenEverythingIsThere) {
  const int64_t id = add("/a.txt", {"first piece ", "second"}, "A title");
  const DocumentInfo info{"/b.txt", "B", UINT64_C(1) << 40, -7, "h"};
  const std::vector<int32_t> tokens{0, -1, INT32_MAX, INT32_MIN};
  const std::string text("nul \0 inside", 12);
  const std::vector<ChunkText> chunks{{UINT64_C(1) << 33, (UINT64_C(1) << 33) + 12, text, tokens}};
  ASSERT_TRUE(index_->replace_document(info, chunks).is_ok());
  ASSERT_TRUE(index_->mark_stored(id, "hash of /a.txt").is_ok());
  reopen(Index::Mode::kReadOnly);

  const auto documents = index_->documents();
  ASSERT_TRUE(documents.is_ok());
  ASSERT_THAT(*documents, SizeIs(2));
  const Document& a = (*documents)[0];
  EXPECT_EQ(a.id, id);
  EXPECT_EQ(a.info.path, "/a.txt");
  EXPECT_EQ(a.info.title, "A title");
  EXPECT_EQ(a.info.content_hash, "hash of /a.txt");
  EXPECT_EQ(a.status, DocumentStatus::kStored);
  EXPECT_EQ(a.n_chunks, 2);
  EXPECT_EQ(a.n_tokens, 18);
  const Document& b = (*documents)[1];
  EXPECT_EQ(b.info.size_bytes, UINT64_C(1) << 40);
  EXPECT_EQ(b.info.modified_ns, -7);
  EXPECT_EQ(b.status, DocumentStatus::kCatalogued);
  const auto pieces = index_->chunks_of(b.id);
  ASSERT_THAT(*pieces, SizeIs(1));
  EXPECT_EQ((*pieces)[0].text, text);
  EXPECT_EQ((*pieces)[0].tokens, tokens);
  EXPECT_EQ((*pieces)[0].byte_begin, UINT64_C(1) << 33);
  EXPECT_EQ((*pieces)[0].byte_end, (UINT64_C(1) << 33) + 12);
  const auto again = index_->chunk((*pieces)[0].id);
  ASSERT_TRUE(again.is_ok());
  EXPECT_EQ(again->text, text);
  EXPECT_EQ(again->document_id, b.id);
  EXPECT_EQ(index_->counts()->documents, 2);
  EXPECT_EQ(index_->counts()->chunks, 3);
  EXPECT_EQ(index_->counts()->tokens, 22);
}

TEST_F(IndexTest, GivenAReplacedDocumentThenOnlyItsNewTextIsFound) {
  const int64_t id = add("/a.txt", {"old walnut", "old pear"}, "walnuts");
  const int64_t old_chunk = (*index_->chunks_of(id))[0].id;
  ASSERT_TRUE(index_->mark_stored(id, "hash of /a.txt").is_ok());
  EXPECT_EQ(add("/a.txt", {"new apple"}, "apples"), id);
  EXPECT_THAT(found("walnut pear old walnuts"), IsEmpty());
  EXPECT_THAT(found("apple"), ElementsAre("/a.txt 0"));
  EXPECT_EQ((*index_->find_document("/a.txt"))->status, DocumentStatus::kCatalogued);
  EXPECT_EQ(index_->chunk(old_chunk).status().code(), StatusCode::kNotFound);
  EXPECT_NE((*index_->chunks_of(id))[0].id, old_chunk);
  EXPECT_TRUE(index_->verify().is_ok()) << index_->verify().message();
}

TEST_F(IndexTest, GivenARemovedDocumentThenNothingOfItIsLeft) {
  const int64_t id = add("/a.txt", {"walnut"});
  add("/b.txt", {"walnut"});
  ASSERT_TRUE(index_->remove_document("/a.txt").is_ok());
  EXPECT_THAT(found("walnut"), ElementsAre("/b.txt 0"));
  EXPECT_THAT(*index_->chunks_of(id), IsEmpty());
  EXPECT_FALSE(index_->find_document("/a.txt")->has_value());
  EXPECT_EQ(index_->remove_document("/a.txt").code(), StatusCode::kNotFound);
  EXPECT_EQ(index_->mark_stored(id, "hash of /a.txt").code(), StatusCode::kNotFound);
  EXPECT_EQ(index_->touch_document({.path = "/a.txt"}).code(), StatusCode::kNotFound);
  EXPECT_TRUE(index_->verify().is_ok());
}

TEST_F(IndexTest, TouchChangesOnlyTheStat) {
  const int64_t id = add("/a.txt", {"walnut"}, "t");
  ASSERT_TRUE(index_->mark_stored(id, "hash of /a.txt").is_ok());
  const DocumentInfo touched{
      .path = "/a.txt", .size_bytes = 9, .modified_ns = 8, .content_hash = "hash of /a.txt"};
  ASSERT_TRUE(index_->touch_document(touched).is_ok());
  const Document document = **index_->find_document("/a.txt");
  EXPECT_EQ(document.info.modified_ns, 8);
  EXPECT_EQ(document.info.size_bytes, 9u);
  EXPECT_EQ(document.info.content_hash, "hash of /a.txt");
  EXPECT_EQ(document.info.title, "t");
  EXPECT_EQ(document.status, DocumentStatus::kStored);
}

TEST_F(IndexTest, AMovedDocumentKeepsItsChunksAndIsCutAnewWhereItsTitleIsAnother) {
  const int64_t id = add("/a.txt", {"walnut"}, "t");
  ASSERT_TRUE(index_->mark_stored(id, "hash of /a.txt").is_ok());
  const int64_t chunk = (*index_->chunks_of(id))[0].id;
  DocumentInfo info{.path = "/b.txt",
                    .title = "t",
                    .size_bytes = 6,
                    .modified_ns = 9,
                    .content_hash = "hash of /a.txt",
                    .root = "/"};
  ASSERT_TRUE(index_->move_document("/a.txt", info).is_ok());
  EXPECT_FALSE(index_->find_document("/a.txt")->has_value());
  Document moved = **index_->find_document("/b.txt");
  EXPECT_EQ(moved.id, id);
  EXPECT_EQ(moved.status, DocumentStatus::kStored);
  EXPECT_EQ(moved.info.modified_ns, 9);
  EXPECT_EQ((*index_->chunks_of(id))[0].id, chunk);
  EXPECT_THAT(found("walnut"), ElementsAre("/b.txt 0"));

  info.path = "/c.txt";
  info.title = "other";
  ASSERT_TRUE(index_->move_document("/b.txt", info).is_ok());
  moved = **index_->find_document("/c.txt");
  EXPECT_EQ(moved.status, DocumentStatus::kCatalogued);
  EXPECT_EQ(moved.info.title, "t");  // as its chunks have it
  EXPECT_TRUE(index_->verify().is_ok()) << index_->verify().message();

  add("/d.txt", {"fig"});
  info.path = "/d.txt";
  EXPECT_EQ(index_->move_document("/c.txt", info).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(index_->move_document("/a.txt", info).code(), StatusCode::kNotFound);
  info.path = "/e.txt";
  info.content_hash = "another";
  EXPECT_EQ(index_->move_document("/c.txt", info).code(), StatusCode::kNotFound);
}

TEST_F(IndexTest, UnfinishedRootsAreNamedUntilDone) {
  EXPECT_EQ(index_->unfinished()->roots.size(), 0u);
  const std::vector<IngestRoot> roots{{.path = "/b"}, {.path = "/a"}};
  const auto paths = [&] {
    std::vector<std::string> all;
    const Unfinished unfinished = *index_->unfinished();
    for (const IngestRoot& root : unfinished.roots) all.push_back(root.path);
    return all;
  };
  ASSERT_TRUE(index_->begin_roots(roots).is_ok());
  ASSERT_TRUE(index_->begin_roots(roots).is_ok());
  const int64_t id = add("/a.txt", {"walnut"});  // its root is "/"
  reopen(Index::Mode::kReadWrite);
  EXPECT_EQ(index_->unfinished()->documents, 1);
  EXPECT_TRUE(index_->unfinished()->ingest_did_not_end);
  EXPECT_THAT(paths(), ElementsAre("/", "/a", "/b"));
  ASSERT_TRUE(index_->mark_stored(id, "hash of /a.txt").is_ok());
  EXPECT_THAT(paths(), ElementsAre("/a", "/b"));
  ASSERT_TRUE(index_->end_roots(std::vector<std::string>{"/b", "/never"}).is_ok());
  EXPECT_THAT(paths(), ElementsAre("/a"));
}

TEST_F(IndexTest, UnfinishedRootsKeepTheirLatestFlags) {
  const IngestRoot first{
      .path = "/a", .exclude = {"*.log", "", "it's"}, .reads_ignore_files = false};
  const IngestRoot second{.path = "/b", .encoding = "latin-1", .rehash = true};
  ASSERT_TRUE(index_->begin_roots(std::vector<IngestRoot>{first, second}).is_ok());
  add("/a/x.txt", {"walnut"});  // its root is "/"
  reopen(Index::Mode::kReadWrite);
  EXPECT_THAT(index_->unfinished()->roots, ElementsAre(IngestRoot{.path = "/"}, first, second));
  ASSERT_TRUE(index_->begin_roots(std::vector<IngestRoot>{{.path = "/a"}}).is_ok());
  EXPECT_THAT(index_->unfinished()->roots,
              ElementsAre(IngestRoot{.path = "/"}, IngestRoot{.path = "/a"}, second));
}

TEST_F(IndexTest, TheFlagsOfUnfinishedRootsAreBounded) {
  IngestRoot root{.path = "/a", .exclude = {std::string(IngestRoot::kMaxExcludeBytes - 1, 'x')}};
  EXPECT_TRUE(index_->begin_roots(std::vector<IngestRoot>{root}).is_ok());
  EXPECT_THAT(index_->unfinished()->roots, ElementsAre(root));
  root.exclude.emplace_back();
  EXPECT_EQ(index_->begin_roots(std::vector<IngestRoot>{root}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(index_->unfinished()->roots.front().exclude.size(), 1u);
}

TEST_F(IndexTest, ARemovedIndexRefusesChangesOfThoseWhoHaveItOpen) {
  const std::string elsewhere = index_->path() + ".away";
  bool was_called = false;
  const auto take_away = [&] {
    was_called = true;
    return posix_env().rename(index_->path(), elsewhere);
  };
  auto other = *Index::open(index_->path(), Index::Mode::kReadWrite);
  ASSERT_TRUE(index_->begin_roots(std::vector<IngestRoot>{{.path = "/a"}}).is_ok());
  EXPECT_THAT(*index_->if_empty(take_away), false);
  ASSERT_TRUE(index_->end_roots(std::vector<std::string>{"/a"}).is_ok());
  add("/a.txt", {"walnut"});
  EXPECT_THAT(*index_->if_empty(take_away), false);
  ASSERT_TRUE(index_->remove_document("/a.txt").is_ok());
  EXPECT_FALSE(was_called);
  EXPECT_THAT(*index_->if_empty(take_away), true);
  EXPECT_TRUE(was_called);
  const Status refused = put(*other, "/b.txt", {"fig"}).status();
  EXPECT_EQ(refused.code(), StatusCode::kIoError);
  EXPECT_THAT(refused.message(), HasSubstr("was removed or replaced meanwhile"));
  // Nor does it change a new one at its place.
  auto anew = *Index::open(index_->path(), Index::Mode::kCreate);
  EXPECT_EQ(put(*other, "/b.txt", {"fig"}).status().code(), StatusCode::kIoError);
  EXPECT_TRUE(put(*anew, "/b.txt", {"fig"}).is_ok());
}

TEST_F(IndexTest, TermsAreCountedInEachOfTheirForms) {
  add("/a.txt", {"walnuts and walnut oil", "pears"}, "trees");
  add("/b.txt", {"海岸"});
  const std::vector<Term> terms{{"walnut"}, {"tree"}, {"pear"}, {"fig"}, {"u028023", true}};
  const auto counts = index_->count(terms);
  ASSERT_TRUE(counts.is_ok());
  EXPECT_EQ(counts->chunks, 3);
  EXPECT_NEAR(counts->mean_tokens, (22 + 5 + 6) / 3.0, 1e-9);
  EXPECT_THAT(counts->chunks_with, ElementsAre(1, 2, 1, 0, 1));
  EXPECT_THAT(*index_->occurrences(terms, "Walnuts; WALNUT, fig u028023u023736"),
              ElementsAre(2, 0, 0, 1, 1));
  EXPECT_EQ(index_->search(std::vector<Term>{{"u028023", true}}, 5)->size(), 1u);
  EXPECT_EQ(index_->search(std::vector<Term>{{"a\" OR \"walnut"}}, 5)->size(), 0u);
}

TEST_F(IndexTest, ChangesForAnotherContentAreRefused) {
  const int64_t id = add("/a.txt", {"walnut"}, "t");
  EXPECT_EQ(index_->mark_stored(id, "an older hash").code(), StatusCode::kNotFound);
  const DocumentInfo older{.path = "/a.txt", .modified_ns = 8, .content_hash = "an older hash"};
  EXPECT_EQ(index_->touch_document(older).code(), StatusCode::kNotFound);
  const Document document = **index_->find_document("/a.txt");
  EXPECT_EQ(document.status, DocumentStatus::kCatalogued);
  EXPECT_EQ(document.info.modified_ns, 12345);
}

TEST_F(IndexTest, BestFirstAndTiesByPlace) {
  add("/z.txt", {"the rare word heliotrope", "filler", "filler"});
  add("/b.txt", {"filler and twin", "filler and twin"});
  add("/a.txt", {"filler and twin", "heliotrope heliotrope heliotrope"});
  EXPECT_THAT(found("heliotrope"), ElementsAre("/a.txt 1", "/z.txt 0"));
  EXPECT_THAT(found("twin"), ElementsAre("/a.txt 0", "/b.txt 0", "/b.txt 1"));
  EXPECT_THAT(found("twin", 2), ElementsAre("/a.txt 0", "/b.txt 0"));
  EXPECT_THAT(found("twin", 0), IsEmpty());
  EXPECT_THAT(found("twin", -1), IsEmpty());
  const auto hits = index_->search("heliotrope", 5);
  EXPECT_GT((*hits)[0].score, (*hits)[1].score);
  EXPECT_GT((*hits)[1].score, 0);
}

TEST_F(IndexTest, AnyTermIsEnoughAndTitlesCount) {
  add("/a.txt", {"nothing of note"}, "incident-2024_03");
  add("/b.txt", {"Frau Müller wohnt in der Straße, 東京 and ΑΘΗΝΑ"});
  EXPECT_THAT(found("What happened in the incident?"), ElementsAre("/a.txt 0", "/b.txt 0"));
  EXPECT_THAT(found("2024"), ElementsAre("/a.txt 0"));
  EXPECT_THAT(found("MULLER"), ElementsAre("/b.txt 0"));
  EXPECT_THAT(found("東京"), ElementsAre("/b.txt 0"));
  EXPECT_THAT(found("αθηνα"), ElementsAre("/b.txt 0"));
  EXPECT_THAT(found("walnut"), IsEmpty());
}

TEST_F(IndexTest, HostileQuestionsAreOnlyText) {
  add("/a.txt", {"walnut near or and not title text"});
  const std::string nul("walnut\0\"", 8);
  for (const std::string& question :
       {std::string("\"walnut"), std::string("walnut\" OR \""), std::string("walnut AND"),
        std::string("NOT walnut"), std::string("(((walnut"), std::string("walnut)))"),
        std::string("title:walnut"), std::string("- walnut"), std::string("{text} : walnut"),
        std::string("NEAR(walnut, 5)"), std::string("^walnut*"), std::string("walnut + + walnut"),
        std::string("'; DROP TABLE chunks; -- walnut"), nul, std::string("\xff\xfe walnut \xc3"),
        std::string("walnut \xed\xa0\x80 \xf5\x80"), std::string("walnut?1 :x @y $z")}) {
    EXPECT_THAT(found(question), ElementsAre("/a.txt 0")) << question;
  }
  for (const std::string& question :
       {std::string(), std::string("\"\"\"\"\""), std::string("*^:(){}-+"), std::string(5, '\0'),
        std::string("— … 。「」"), std::string("\xff\xff\xff"), std::string(1 << 20, '"'),
        std::string(1 << 20, 'x'), std::string(1 << 20, '(')}) {
    EXPECT_THAT(found(question), IsEmpty());
  }
}

TEST_F(IndexTest, AMegabyteOfTermsIsAnswered) {
  add("/a.txt", {"walnut"});
  std::string question = "walnut";
  for (int i = 0; question.size() < (1 << 20); ++i) question += " term" + std::to_string(i);
  EXPECT_THAT(found(question), ElementsAre("/a.txt 0"));
  std::mt19937 random(1);
  std::string noise(1 << 20, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  EXPECT_TRUE(index_->search(noise, 10).is_ok());
}

TEST_F(IndexTest, AllChunksMayBeChangedWhileTheyAreWalked) {
  for (int i = 0; i < 100; ++i) add("/" + std::to_string(i), {"one", "two"});
  int64_t last = 0;
  int n_chunks = 0;
  const Status status = index_->all_chunks([&](const Chunk& chunk) -> Status {
    EXPECT_GT(chunk.id, last);
    last = chunk.id;
    ++n_chunks;
    return chunk.ordinal == 1 && chunk.document_id % 2 == 0
               ? index_->remove_document("/" + std::to_string(chunk.document_id - 1))
               : Status::ok();
  });
  EXPECT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(n_chunks, 200);
  EXPECT_EQ(index_->counts()->documents, 50);
  n_chunks = 0;
  const Status stopped = index_->all_chunks([&](const Chunk&) {
    ++n_chunks;
    return cancelled("stop");
  });
  EXPECT_EQ(stopped.code(), StatusCode::kCancelled);
  EXPECT_EQ(n_chunks, 1);
}

TEST(IndexOpen, AFileThatIsMissingIsMadeOnlyWhenAsked) {
  const TempDir dir;
  for (const auto mode : {Index::Mode::kReadOnly, Index::Mode::kReadWrite}) {
    const Status status = Index::open(dir / "index.db", mode).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr(dir / "index.db"));
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "index.db"));
  EXPECT_EQ(Index::open("", Index::Mode::kCreate).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(Index::open(dir.path(), Index::Mode::kCreate).is_ok());
  EXPECT_FALSE(Index::open(dir / "no/folder.db", Index::Mode::kCreate).is_ok());
}

TEST(IndexOpen, AForeignFileGetsOneLineAndStaysAsItIs) {
  const TempDir dir;
  dir.write("text.db", std::string(5000, 'x'));
  dir.write("empty.db", "");
  {
    auto other = Database::open(dir / "other.db", true, false);
    ASSERT_TRUE((*other)->execute("CREATE TABLE chunks(x); INSERT INTO chunks VALUES(1)").is_ok());
  }
  { ASSERT_TRUE(Index::open(dir / "newer.db", Index::Mode::kCreate).is_ok()); }
  {
    auto newer = Database::open(dir / "newer.db", false, false);
    ASSERT_TRUE((*newer)->execute("PRAGMA user_version = 99").is_ok());
  }
  const auto bytes_of = [&](const std::string& name) {
    std::ifstream in(dir / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  for (const std::string name : {"text.db", "other.db", "newer.db"}) {
    const std::string before = bytes_of(name);
    for (const auto mode :
         {Index::Mode::kReadOnly, Index::Mode::kReadWrite, Index::Mode::kCreate}) {
      const Status status = Index::open(dir / name, mode).status();
      EXPECT_EQ(status.code(),
                name == "newer.db" ? StatusCode::kUnsupported : StatusCode::kCorrupt);
      EXPECT_THAT(status.message(), HasSubstr(dir / name));
      EXPECT_THAT(status.message(), Not(HasSubstr("\n")));
    }
    EXPECT_EQ(bytes_of(name), before);
  }
  EXPECT_EQ(Index::open(dir / "empty.db", Index::Mode::kReadOnly).status().code(),
            StatusCode::kNotFound);
  EXPECT_TRUE(Index::open(dir / "empty.db", Index::Mode::kCreate).is_ok());
}

TEST(IndexOpen, ADamagedFileIsAnErrorEverywhereAndNeverACrash) {
  const TempDir dir;
  {
    auto index = *Index::open(dir / "good.db", Index::Mode::kCreate);
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(put(*index, "/" + std::to_string(i), {std::string(700, 'a'), "walnut"}).is_ok());
    }
  }
  std::ifstream in(dir / "good.db", std::ios::binary);
  const std::string good(std::istreambuf_iterator<char>(in), {});
  std::mt19937 random(7);
  int noticed = 0;
  for (int round = 0; round < 60; ++round) {
    std::string bad = good;
    if (round % 3 == 0) {
      bad.resize(random() % bad.size());
    } else {
      const size_t at = random() % bad.size();
      for (size_t i = at; i < std::min(bad.size(), at + 3000); ++i) {
        bad[i] = static_cast<char>(random());
      }
    }
    dir.write("bad.db", bad);
    const auto index = Index::open(dir / "bad.db", Index::Mode::kReadWrite);
    Status first = index.status();
    if (index.is_ok()) {
      first = (*index)->verify();
      (void)(*index)->documents();
      (void)(*index)->search("walnut", 10);
      (void)(*index)->all_chunks([](const Chunk&) { return Status::ok(); });
      (void)put(**index, "/new", {"walnut"});
    }
    if (!first.is_ok()) {
      ++noticed;
      EXPECT_EQ(first.code(), StatusCode::kCorrupt) << first.message();
      EXPECT_THAT(first.message(), Not(HasSubstr("\n")));
    }
    std::filesystem::remove(dir / "bad.db-journal");
  }
  EXPECT_GE(noticed, 50);  // some bytes are in nobody's use
}

TEST(IndexOpen, TokenIdsThatDoNotFitTheirCountAreCorrupt) {
  const TempDir dir;
  {
    auto index = *Index::open(dir / "a.db", Index::Mode::kCreate);
    ASSERT_TRUE(put(*index, "/a", {"walnut"}).is_ok());
  }
  {
    auto database = *Database::open(dir / "a.db", false, false);
    ASSERT_TRUE(database->execute("UPDATE chunks SET tokens = x'010203'").is_ok());
  }
  auto index = *Index::open(dir / "a.db", Index::Mode::kReadOnly);
  EXPECT_EQ(index->search("walnut", 1).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(index->chunk(1).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(index->verify().code(), StatusCode::kCorrupt);
}

TEST(IndexOpen, TermsThatDoNotFitTheTextsAreFoundByVerify) {
  const TempDir dir;
  {
    auto index = *Index::open(dir / "a.db", Index::Mode::kCreate);
    ASSERT_TRUE(put(*index, "/a", {"walnut"}).is_ok());
  }
  {
    auto database = *Database::open(dir / "a.db", false, false);
    ASSERT_TRUE(database->execute("UPDATE chunks SET text = 'apple'").is_ok());
  }
  auto index = *Index::open(dir / "a.db", Index::Mode::kReadWrite);
  EXPECT_EQ(index->verify().code(), StatusCode::kCorrupt);
}

TEST(IndexOpen, NamesThatSqliteReadsInItsOwnWayAreFiles) {
  const TempDir dir;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  for (const std::string name : {":memory:", "file:x.db?mode=memory", "a b%20c?.db"}) {
    EXPECT_TRUE(Index::open(name, Index::Mode::kCreate).is_ok()) << name;
    EXPECT_TRUE(std::filesystem::exists(dir / name)) << name;
  }
  std::filesystem::current_path(before);
}

TEST(IndexOpen, AFolderThatMayNotBeWrittenCanBeAsked) {
  const TempDir dir;
  dir.write("store/x", "");
  {
    auto index = *Index::open(dir / "store/a.db", Index::Mode::kCreate);
    ASSERT_TRUE(put(*index, "/a", {"walnut"}).is_ok());
  }
  using std::filesystem::perms;
  std::filesystem::permissions(dir / "store/a.db", perms::owner_read);
  std::filesystem::permissions(dir / "store", perms::owner_read | perms::owner_exec);
  auto index = Index::open(dir / "store/a.db", Index::Mode::kReadOnly);
  ASSERT_TRUE(index.is_ok()) << index.status().message();
  EXPECT_THAT(*(*index)->search("walnut", 1), SizeIs(1));
  EXPECT_TRUE((*index)->verify().is_ok());
  std::filesystem::permissions(dir / "store", perms::owner_all);
}

}  // namespace
}  // namespace weft::retrieval
