// The ingester where files change between its looks at them: each file is read by the scan, for the
// plan, and when its turn comes.
#include "library/ingester.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gguf/random_model.h"
#include "support/fault_env.h"
#include "support/files.h"

namespace weft::library {
namespace {

using test::FaultEnv;

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// What happens at the n-th opening (1, 2, …) of a file of that name.
class WatchedEnv : public FaultEnv {
 public:
  WatchedEnv() : FaultEnv(posix_env()) {}
  using FaultEnv::open_read;
  Result<std::unique_ptr<ReadFile>> open_read(const std::string& path, Links links) override {
    const std::string name = fs::path(path).filename().string();
    if (at_opening && name == watched && ++n_openings == when) at_opening(path);
    return FaultEnv::open_read(path, links);
  }

  std::string watched;
  int when = 0;
  int n_openings = 0;
  std::function<void(const std::string&)> at_opening;
};

class IngesterTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    temp_ = std::make_unique<test::TempDir>();
    folder_ = temp_->path();
    ASSERT_TRUE(gguf::write_random_model(posix_env(), folder_ / "model.gguf",
                                         {.n_layers = 2,
                                          .n_embd = 32,
                                          .n_ff = 64,
                                          .n_heads = 2,
                                          .n_kv_heads = 2,
                                          .head_dim = 16,
                                          .vocab = 300})
                    .is_ok());
    auto engine = engine::Engine::open(
        posix_env(), {.model_path = folder_ / "model.gguf", .n_threads = 1, .compute = "f32"});
    ASSERT_TRUE(engine.is_ok()) << engine.status().message();
    engine_ = std::move(*engine);
  }
  static void TearDownTestSuite() {
    engine_.reset();
    temp_.reset();
  }
  void SetUp() override {
    fs::create_directories(docs());
    write("a.txt", "The harbour opens at seven.");
    write("b.txt", "The orchard has pears.");
  }
  void TearDown() override {
    fs::remove_all(docs());
    fs::remove_all(folder_ / "store");
  }

  static std::string docs() { return folder_ / "docs"; }
  static void write(const std::string& name, const std::string& text) {
    std::ofstream(docs() + "/" + name, std::ios::binary) << text;
  }

  IngestCounts ingest(WatchedEnv& env, const std::string& path = docs()) {
    skipped_.clear();
    plan_ = {};
    auto library = Library::create(posix_env(), {.dir = folder_ / "store", .prompt = "fewshot"},
                                   *engine_, "none");
    EXPECT_TRUE(library.is_ok()) << library.status().message();
    IngestEvents events;
    events.skipped = [&](const retrieval::SkippedFile& file) {
      skipped_.push_back(fs::path(file.path).filename().string() + ": " + file.reason);
    };
    events.planned = [&](const IngestPlan& plan) { plan_ = plan; };
    events.stored = [&](const IngestProgress& at) { last_ = {at.done_tokens, at.computed_tokens}; };
    const auto counts = Ingester(env, *engine_, *library, events).run({path});
    EXPECT_TRUE(counts.is_ok()) << counts.status().message();
    titles_.clear();
    texts_.clear();
    lines_.clear();
    const auto documents = library->index().documents();
    for (const retrieval::Document& document : *documents) {
      titles_.push_back(document.info.title);
      for (const auto& chunk : *library->index().chunks_of(document.id)) {
        texts_.push_back(chunk.text);
        lines_.emplace_back(chunk.line_begin, chunk.line_end);
      }
    }
    unfinished_ = library->index().unfinished()->roots;
    return counts.is_ok() ? *counts : IngestCounts{};
  }

  static inline std::unique_ptr<test::TempDir> temp_;
  static inline fs::path folder_;
  static inline std::unique_ptr<engine::Engine> engine_;
  std::vector<std::string> skipped_, titles_, texts_;
  std::vector<retrieval::IngestRoot> unfinished_;
  std::vector<std::pair<uint64_t, uint64_t>> lines_;  // of each chunk, first and last
  IngestPlan plan_;
  std::pair<int64_t, int64_t> last_;  // done and computed tokens
};

TEST_F(IngesterTest, BeforeTheFirstChunkItCanBeStoppedAndChangesNothing) {
  WatchedEnv env;
  ingest(env);
  write("a.txt", "The harbour opens at eight now.");
  write("c.txt", "The cellar has casks.");
  auto library = Library::create(posix_env(), {.dir = folder_ / "store"}, *engine_, "");
  ASSERT_TRUE(library.is_ok()) << library.status().message();
  int n_asked = 0;
  int stop_at = 0;
  bool planned = false;
  IngestEvents events;
  events.cancelled = [&] { return ++n_asked == stop_at; };
  events.planned = [&](const IngestPlan&) { planned = true; };
  Status status;
  while (!planned) {  // the last stop is the one right after the plan
    n_asked = 0;
    ++stop_at;
    status = Ingester(env, *engine_, *library, events).run({docs()}).status();
    ASSERT_EQ(status.code(), StatusCode::kCancelled) << stop_at;
    EXPECT_EQ(status.message(), "stopped; nothing was changed");
    EXPECT_EQ(library->index().counts()->documents, 2);
    EXPECT_EQ(library->index().unfinished()->documents, 0);
    EXPECT_THAT(library->index().unfinished()->roots, IsEmpty());
  }
  // Three entries, files and documents of the scan, three files of the two looks after it.
  EXPECT_GE(stop_at, 12);
  n_asked = 0;
  ++stop_at;  // before the first chunk
  status = Ingester(env, *engine_, *library, events).run({docs()}).status();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(status.message(), "stopped; what was stored so far can be used");
  EXPECT_EQ(library->index().unfinished()->roots.size(), 1u);
}

TEST_F(IngesterTest, ANewStoreWithoutDocumentsIsRemoved) {
  WatchedEnv env;
  env.limit_disk(100);
  const std::string store = folder_ / "new/inner/store";
  const auto create = [&] {
    auto library =
        Library::create(posix_env(), {.dir = store, .prompt = "fewshot"}, *engine_, "none");
    EXPECT_TRUE(library.is_ok()) << library.status().message();
    return std::move(*library);
  };
  fs::create_directory(folder_ / "new");
  {
    Library library = create();
    EXPECT_EQ(Ingester(env, *engine_, library, {}).run({docs()}).status().code(),
              StatusCode::kResourceExhausted);
    {
      Library other = create();  // it may be about to put documents in
      EXPECT_FALSE(*other.take_away_if_new(posix_env()));
      EXPECT_FALSE(*library.take_away_if_new(posix_env()));
    }
    std::ofstream(store + "/notes.txt") << "not weft's";
    EXPECT_FALSE(*library.take_away_if_new(posix_env()));
    fs::remove(store + "/notes.txt");
    EXPECT_TRUE(fs::exists(store + "/documents.sqlite"));
    EXPECT_TRUE(*library.take_away_if_new(posix_env()));
  }
  EXPECT_TRUE(fs::is_empty(folder_ / "new"));  // which was there
  {
    Library library = create();  // with documents it stays
    EXPECT_TRUE(Ingester(posix_env(), *engine_, library, {}).run({docs()}).is_ok());
    EXPECT_FALSE(*library.take_away_if_new(posix_env()));
  }
  EXPECT_TRUE(fs::exists(store + "/documents.sqlite"));
  fs::remove_all(folder_ / "new");
}

TEST_F(IngesterTest, AnExistingEmptyFolderIsLeftUnchanged) {
  const fs::path store = folder_ / "store";
  fs::create_directory(store);
  fs::permissions(store, fs::perms(0750));
  WatchedEnv env;
  env.limit_disk(100);
  const auto create = [&] {
    auto library = Library::create(posix_env(), {.dir = store}, *engine_, "");
    EXPECT_TRUE(library.is_ok()) << library.status().message();
    return std::move(*library);
  };
  Library library = create();
  EXPECT_FALSE(Ingester(env, *engine_, library, {}).run({docs()}).is_ok());
  {
    Library other = create();  // it may be about to put documents in
    EXPECT_FALSE(*library.take_away_if_new(posix_env()));
    EXPECT_FALSE(*other.take_away_if_new(posix_env()));  // it found a store
  }
  std::ofstream(store / "notes.txt") << "not weft's";
  EXPECT_FALSE(*library.take_away_if_new(posix_env()));
  fs::remove(store / "notes.txt");
  EXPECT_TRUE(*library.take_away_if_new(posix_env()));
  EXPECT_TRUE(fs::is_empty(store));
  EXPECT_EQ(fs::status(store).permissions(), fs::perms(0750));
  Library again = create();  // with documents they stay
  EXPECT_TRUE(Ingester(posix_env(), *engine_, again, {}).run({docs()}).is_ok());
  EXPECT_FALSE(*again.take_away_if_new(posix_env()));
  EXPECT_TRUE(fs::exists(store / "documents.sqlite"));
}

TEST_F(IngesterTest, AnUnfinishedIngestKeepsItsFlags) {
  auto library = Library::create(posix_env(), {.dir = folder_ / "store"}, *engine_, "");
  ASSERT_TRUE(library.is_ok()) << library.status().message();
  IngestEvents events;
  bool planned = false;
  events.planned = [&](const IngestPlan&) { planned = true; };
  int n_asked = 0;
  events.cancelled = [&] { return planned && ++n_asked > 1; };  // before the first chunk
  const retrieval::ScanOptions options{.encoding = documents::Encoding::kLatin1,
                                       .reads_ignore_files = false,
                                       .rehash = true,
                                       .exclude = {"b.*", "!c"}};
  EXPECT_EQ(
      Ingester(posix_env(), *engine_, *library, events).run({docs()}, options).status().code(),
      StatusCode::kCancelled);
  EXPECT_THAT(library->index().unfinished()->roots,
              ElementsAre(retrieval::IngestRoot{.path = fs::canonical(docs()).string(),
                                                .exclude = {"b.*", "!c"},
                                                .encoding = "latin-1",
                                                .reads_ignore_files = false,
                                                .rehash = true}));
}

TEST_F(IngesterTest, AnIngestThatCannotFitTheDiskIsRefusedUnchanged) {
  WatchedEnv env;
  ingest(env);
  const uint64_t kept = plan_.new_bytes;
  write("c.txt", "The cellar has casks of wine, and a cat that sleeps on them.");
  env.limit_disk(100);
  const auto run = [&](uint64_t limit) {
    auto library = Library::create(
        posix_env(), {.dir = folder_ / "store", .store_limit_bytes = limit}, *engine_, "");
    EXPECT_TRUE(library.is_ok()) << library.status().message();
    plan_ = {};
    IngestEvents events;
    events.planned = [&](const IngestPlan& plan) { plan_ = plan; };
    const Status status = Ingester(env, *engine_, *library, events).run({docs()}).status();
    unfinished_ = library->index().unfinished()->roots;
    return status;
  };
  const Status refused = run(0);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("100 B are free there; leave some out (--exclude)"));
  EXPECT_THAT(refused.message(), HasSubstr("nothing was changed"));
  EXPECT_EQ(plan_.documents, 0);
  EXPECT_THAT(unfinished_, IsEmpty());
  // A limit says that what fits is wanted; the store's own disk is not the one that is full here.
  EXPECT_TRUE(run(uint64_t{1} << 30).is_ok());
  // What a document loses makes room for what it gets.
  write("a.txt", "The harbour opens at eight.");
  write("b.txt", "The orchard had pears.");
  env.limit_disk(kept / 2);
  EXPECT_TRUE(run(0).is_ok());
  EXPECT_GT(plan_.new_bytes, kept / 2);
}

/// Documents, of which some share a step, by whether they are whole.
class IngesterStepsTest : public IngesterTest {
 protected:
  /// Of one chunk each, some 160 tokens: three in a step.
  void write_documents(int n) {
    for (int i = 0; i < n; ++i) {
      std::string text;
      for (int word = 0; word < 38; ++word) text += fmt::format("{:03} ", 100 * i + word);
      write(std::string(1, static_cast<char>('a' + i)) + ".txt", text);
    }
  }
  Library create(uint64_t limit = 0) {
    auto library = Library::create(
        posix_env(), {.dir = folder_ / "store", .store_limit_bytes = limit, .prompt = "fewshot"},
        *engine_, "none");
    EXPECT_TRUE(library.is_ok()) << library.status().message();
    return std::move(*library);
  }
  /// "a whole, b whole, c not".
  static std::vector<std::string> state(Library& library) {
    std::vector<std::string> lines;
    const auto documents = library.index().documents();
    for (const retrieval::Document& document : *documents) {
      const bool whole = document.status == retrieval::DocumentStatus::kStored;
      lines.push_back(document.info.title + (whole ? " whole" : " not"));
    }
    return lines;
  }
};

TEST_F(IngesterStepsTest, ALimitStopsAtTheDocumentThatItDoesNotHold) {
  write_documents(3);
  uint64_t bytes = 0;
  IngestProgress at;
  {
    Library library = create();
    ASSERT_TRUE(Ingester(posix_env(), *engine_, library, {}).run({docs()}).is_ok());
    bytes = library.store().stat()->disk.bytes;
    ASSERT_TRUE(library.store().clear().is_ok());
  }
  Library library = create(bytes - 1);
  IngestEvents events;
  std::vector<std::string> stored;
  events.stored = [&](const IngestProgress& now) {
    if (now.computed_tokens > at.computed_tokens) {
      stored.push_back(fs::path(now.path).filename().string());
    }
    at = now;
  };
  const Status status = Ingester(posix_env(), *engine_, library, events).run({docs()}).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("stopped at " + docs() + "/c.txt: "));
  EXPECT_THAT(status.message(), HasSubstr("; the 2 chunks stored before can be used"));
  EXPECT_THAT(stored, ElementsAre("a.txt", "b.txt"));
  EXPECT_EQ(at.done_tokens, at.computed_tokens);
  EXPECT_NEAR(3.0 * at.done_tokens, 2.0 * at.total_tokens, 6);
  EXPECT_THAT(state(library), ElementsAre("a whole", "b whole", "c not"));

  Library unlimited = create();
  const auto counts = Ingester(posix_env(), *engine_, unlimited, {}).run({docs()});
  ASSERT_TRUE(counts.is_ok()) << counts.status().message();
  EXPECT_EQ(counts->completed, 1);
  EXPECT_EQ(counts->unchanged, 2);
  EXPECT_THAT(state(unlimited), ElementsAre("a whole", "b whole", "c whole"));
}

TEST_F(IngesterStepsTest, StoppedBetweenStepsItKeepsWhatIsDone) {
  write_documents(8);
  Library library = create();
  IngestEvents events;
  bool has_stored = false;
  int n_stored = 0;
  events.stored = [&](const IngestProgress& now) {
    has_stored = now.computed_tokens > 0;
    n_stored += has_stored ? 1 : 0;
  };
  events.cancelled = [&] { return has_stored; };
  Ingester ingester(posix_env(), *engine_, library, events);
  const Status status = ingester.run({docs()}).status();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(status.message(), "stopped; what was stored so far can be used");
  EXPECT_GT(ingester.bytes_left(), 0u);
  const uint64_t all_bytes = library.store().stat()->disk.bytes + ingester.bytes_left();
  EXPECT_THAT(state(library), ::testing::Contains("a whole"));
  const auto whole = std::ranges::count_if(
      state(library), [](const std::string& line) { return line.ends_with(" whole"); });
  EXPECT_EQ(whole, 3);  // of the first step
  const auto counts = Ingester(posix_env(), *engine_, library, {}).run({docs()});
  ASSERT_TRUE(counts.is_ok()) << counts.status().message();
  EXPECT_EQ(counts->unchanged, 3);
  EXPECT_EQ(library.store().stat()->disk.bytes, all_bytes);
}

TEST_F(IngesterStepsTest, AFailingFileDoesNotLoseEarlierOnes) {
  write_documents(3);
  WatchedEnv env;
  env.watched = "c.txt";
  env.when = 3;  // for its KV
  env.at_opening = [&](const std::string&) { env.fail_call(env.calls()); };
  Library library = create();
  const Status status = Ingester(env, *engine_, library, {}).run({docs()}).status();
  EXPECT_EQ(status.code(), StatusCode::kIoError) << status.message();
  EXPECT_THAT(state(library), ElementsAre("a whole", "b whole"));
}

TEST_F(IngesterTest, AFileDeletedBeforeItsTurnIsIgnored) {
  for (const int when : {1, 2, 3}) {
    SCOPED_TRACE(when);
    TearDown();
    SetUp();
    WatchedEnv env;
    env.watched = "a.txt";
    env.when = when;
    env.at_opening = [](const std::string& path) { fs::remove(path); };
    const IngestCounts counts = ingest(env);
    EXPECT_EQ(counts.added, 1);
    EXPECT_EQ(counts.deleted, 0);
    EXPECT_THAT(skipped_, IsEmpty());
    EXPECT_THAT(titles_, ElementsAre("b"));
  }
}

TEST_F(IngesterTest, ADocumentWhoseFileIsDeletedBeforeItsTurnIsRemoved) {
  for (const int when : {1, 2, 3}) {
    SCOPED_TRACE(when);
    TearDown();
    SetUp();
    WatchedEnv env;
    ingest(env);
    write("a.txt", "The harbour opens at eight now.");
    env.watched = "a.txt";
    env.when = when;
    env.at_opening = [](const std::string& path) { fs::remove(path); };
    const IngestCounts counts = ingest(env);
    EXPECT_EQ(counts.deleted, 1);
    EXPECT_EQ(counts.skipped_now, 0);
    EXPECT_EQ(counts.unchanged, 1);
    EXPECT_THAT(titles_, ElementsAre("b"));
  }
}

TEST_F(IngesterTest, AFileThatIsNoLongerTextIsSkipped) {
  for (const int when : {2, 3}) {
    SCOPED_TRACE(when);
    TearDown();
    SetUp();
    WatchedEnv env;
    env.watched = "a.txt";
    env.when = when;
    env.at_opening = [](const std::string&) { write("a.txt", "%PDF-1.4"); };
    const IngestCounts counts = ingest(env);
    EXPECT_EQ(counts.added, 1);
    EXPECT_EQ(counts.skipped, 1);
    EXPECT_THAT(skipped_, ElementsAre("a.txt: a PDF: weft reads text; pdftotext makes text of it"));
    EXPECT_THAT(titles_, ElementsAre("b"));
  }
}

TEST_F(IngesterTest, AMovedFileDeletedBeforeItsTurnIsRemoved) {
  // Opened by the scan, for its title, for the plan (which the new title needs), for its KV.
  for (const int when : {1, 2, 3, 4}) {
    SCOPED_TRACE(when);
    TearDown();
    SetUp();
    WatchedEnv env;
    ingest(env);
    fs::rename(docs() + "/a.txt", docs() + "/c.txt");
    env.watched = "c.txt";
    env.when = when;
    env.at_opening = [](const std::string& path) { fs::remove(path); };
    const IngestCounts counts = ingest(env);
    EXPECT_EQ(counts.moved, 0);
    EXPECT_EQ(counts.deleted, 1);
    EXPECT_EQ(counts.skipped_now, 0);
    EXPECT_THAT(skipped_, IsEmpty());
    EXPECT_THAT(titles_, ElementsAre("b"));
    EXPECT_THAT(unfinished_, IsEmpty());
  }
}

TEST_F(IngesterTest, ADocumentOutsideTheIngestStaysWhenItsMovedFileIsDeleted) {
  for (const int when : {1, 2}) {
    SCOPED_TRACE(when);
    TearDown();
    SetUp();
    WatchedEnv env;
    ingest(env);
    fs::create_directories(docs() + "/sub");
    fs::rename(docs() + "/a.txt", docs() + "/sub/a.txt");
    env.watched = "a.txt";
    env.when = when;
    env.at_opening = [](const std::string& path) { fs::remove(path); };
    const IngestCounts counts = ingest(env, docs() + "/sub");
    EXPECT_EQ(counts.moved + counts.added + counts.deleted, 0);
    EXPECT_THAT(titles_, ElementsAre("a", "b"));
  }
}

TEST_F(IngesterTest, PassagesCiteLinesOfTheFile) {
  write("a.txt", "");
  write("b.html", "<html>\n<head>\n<title>B</title>\n</head>\n\n<p>The\norchard\n</p>\n</html>\n");
  write("b.txt", "");
  write("c.md", "---\ntitle: C\n---\n# C\n\nThe harbour opens.\nAt seven.\n\n");
  WatchedEnv env;
  ingest(env);
  // A heading is shown with the passage right after it.
  EXPECT_THAT(lines_, ElementsAre(std::pair(6u, 7u), std::pair(4u, 7u)));
}

TEST_F(IngesterTest, OnlyTheFirstPassageBeginsAtTheHeading) {
  write("a.txt", "\n\nThe harbour opens.");
  std::string text = "# Words\n\n";
  for (int i = 0; i < 300; ++i) text += "Word " + std::to_string(i) + ".\n";
  write("b.txt", text);
  WatchedEnv env;
  ingest(env);
  ASSERT_GE(lines_.size(), 3u);
  EXPECT_EQ(lines_[0], std::pair(uint64_t{3}, uint64_t{3}));
  EXPECT_EQ(lines_[1].first, 1u);
  EXPECT_EQ(lines_[2].first, lines_[1].second + 1);
}

TEST_F(IngesterTest, ADocumentWithOnlyAHeadingHasItAsText) {
  fs::remove_all(docs());
  fs::create_directories(docs());
  write("a.md", "# The plumber is Zacharias, 030-4711");
  write("b.txt", "## The baker is Olga \n\n");
  write("c.sh", "# restart the router\n");
  write("d.md", "---\ntitle: The vet is Ada\n---\n");
  write("e.md", "---\ntitle: The smith is Ned\n---\n# The smith is Ned\n");
  write("f.html", "<title>The cook is Kim</title><body></body>");
  write("g.md", "---\ndraft: true\n---\n");  // says nothing
  WatchedEnv env;
  EXPECT_EQ(ingest(env).added, 7);
  EXPECT_THAT(texts_, ElementsAre("The plumber is Zacharias, 030-4711", "The baker is Olga \n\n",
                                  "restart the router\n", "The vet is Ada", "The smith is Ned\n",
                                  "The cook is Kim"));
  EXPECT_THAT(titles_, ElementsAre("a", "b", "c", "d", "e", "f", "g"));
  for (size_t i = 0; i < lines_.size(); ++i) {
    const uint64_t line = i == 4 ? 4 : 1;
    EXPECT_EQ(lines_[i], std::pair(line, line)) << i;
  }
  EXPECT_EQ(ingest(env).unchanged, 7);
}

TEST_F(IngesterTest, FrontMattersTagsAreInTheFirstPassage) {
  fs::remove_all(docs());
  fs::create_directories(docs());
  write("a.md", "---\ntags:\n  - masonry\n---\n# Quay\n\nIt is of stone.\n");
  write("b.md", "---\ndate: 2026-05-01\n---\n");
  WatchedEnv env;
  ingest(env);
  EXPECT_THAT(texts_,
              ElementsAre("tags:\n  - masonry\n\nIt is of stone.\n", "date: 2026-05-01\n\n"));
  EXPECT_THAT(titles_, ElementsAre("Quay", "b"));
  EXPECT_EQ(lines_[0], std::pair(uint64_t{5}, uint64_t{7}));
  EXPECT_EQ(lines_[1], std::pair(uint64_t{2}, uint64_t{2}));
}

TEST_F(IngesterTest, ATitleOnlyDocumentOfAnOlderWeftIsIngestedAgain) {
  WatchedEnv env;
  fs::remove(docs() + "/b.txt");
  write("a.txt", "# The plumber is Zacharias");
  ingest(env);
  {
    auto library = Library::create(posix_env(), {.dir = folder_ / "store"}, *engine_, "");
    ASSERT_TRUE(library.is_ok()) << library.status().message();
    retrieval::DocumentInfo info = library->index().documents()->front().info;
    info.title = "The plumber is Zacharias";
    const auto id = library->index().replace_document(info, {});
    ASSERT_TRUE(id.is_ok()) << id.status().message();
    ASSERT_TRUE(library->index().mark_stored(*id, info.content_hash).is_ok());
  }
  EXPECT_EQ(ingest(env).completed, 1);
  EXPECT_THAT(texts_, ElementsAre("The plumber is Zacharias"));
}

TEST_F(IngesterTest, AShortDocumentIsStoredAsItIs) {
  write("a.txt", "short");
  WatchedEnv env;
  ingest(env);
  EXPECT_THAT(texts_, ElementsAre("short", "The orchard has pears."));
}

TEST_F(IngesterTest, ThePlanNamesTheLargestAndProgressTellsComputedTokens) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "Word " + std::to_string(i) + ". ";
  write("a.txt", text);
  WatchedEnv env;
  ingest(env);
  EXPECT_EQ(plan_.documents, 2);
  EXPECT_EQ(plan_.largest_path, docs() + "/a.txt");
  EXPECT_GT(plan_.largest_bytes, plan_.new_bytes / 2);
  EXPECT_EQ(last_, std::pair(plan_.tokens, plan_.new_tokens));
  // The same passages in another file: no KV is new, and none is computed.
  fs::create_directories(docs() + "/copy");
  fs::copy_file(docs() + "/b.txt", docs() + "/copy/b.txt");
  const IngestCounts counts = ingest(env);
  EXPECT_EQ(counts.added, 1);
  EXPECT_EQ(plan_.new_tokens, 0);
  EXPECT_EQ(plan_.new_bytes, 0u);
  EXPECT_EQ(plan_.largest_path, "");
  EXPECT_EQ(last_.second, 0);
}

TEST_F(IngesterTest, NoNameOrHeadingIsTooLongForAChunk) {
  std::string name;
  for (int i = 0; i < 80; ++i) name += "\u4e2d";  // three tokens each for this model
  write(name + ".txt", "A long name.");
  write("c.md", "# " + std::string(5000, 'x') + "\nA long heading.");
  WatchedEnv env;
  EXPECT_EQ(ingest(env).added, 4);
  EXPECT_THAT(titles_, ElementsAre("a", "b", "c", name));
}

}  // namespace
}  // namespace weft::library
