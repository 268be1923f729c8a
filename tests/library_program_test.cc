// A folder of documents among processes, through the built program: two first ingests at once,
// folders from before, damage, records that must not outlive their documents.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "retrieval/database_internal.h"
#include "retrieval/index.h"
#include "store/chunk_store.h"
#include "support/weft_program.h"

namespace weft {
namespace {

using test::Outcome;
using test::write_text;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr int kNotPermitted = 77;

/// Every file and folder, with what changes when somebody writes.
std::map<std::string, std::string> picture_of(const std::string& dir) {
  std::map<std::string, std::string> picture;
  const auto add = [&](const std::string& path) {
    struct stat s {};
    ASSERT_EQ(lstat(path.c_str(), &s), 0);
    picture[path] = fmt::format("{} {} {}.{} {:o}", s.st_ino, s.st_size, s.st_mtim.tv_sec,
                                s.st_mtim.tv_nsec, s.st_mode);
  };
  add(dir);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    add(entry.path().string());
  }
  return picture;
}

class LibraryProgram : public test::WeftProgram {
 protected:
  static std::string index_file() { return store() + "/documents.sqlite"; }
  static int records() {
    return weft({"cache", "stat", "--store", store(), "--json"}).json()["records"].get<int>();
  }
  static std::unique_ptr<retrieval::Index> open_index() {
    auto index = retrieval::Index::open(index_file(), retrieval::Index::Mode::kReadWrite);
    EXPECT_TRUE(index.is_ok()) << index.status().message();
    return std::move(*index);
  }
  static int needed_records() {
    std::set<std::string> names;
    EXPECT_TRUE(open_index()
                    ->all_chunks([&](const retrieval::Chunk& chunk) {
                      names.insert(chunk.record.to_hex());
                      return Status::ok();
                    })
                    .is_ok());
    return static_cast<int>(names.size());
  }
  static void alter_index(const std::string& sql) {
    auto database = retrieval::Database::open(index_file(), /*create=*/false, /*read_only=*/false);
    ASSERT_TRUE(database.is_ok()) << database.status().message();
    const Status status = (*database)->execute(sql);
    ASSERT_TRUE(status.is_ok()) << status.message();
  }
};

TEST_F(LibraryProgram, OfTwoFirstIngestsWithTwoModelsOneSettlesAndTheOtherIsRefused) {
  for (int round = 0; round < 6; ++round) {
    SCOPED_TRACE(round);
    std::filesystem::remove_all(store());
    const auto arguments = [](const std::string& with) {
      return std::vector<std::string>{"ingest", "-m", with, "--store", store(), docs()};
    };
    const test::RunningProgram first = start(arguments(model()), "", ".1");
    const test::RunningProgram second = start(arguments(other_model()), "", ".2");
    Outcome runs[] = {finish(first), finish(second)};
    const size_t refused = runs[0].status == 0 ? 1 : 0;
    EXPECT_EQ(runs[1 - refused].status, 0) << runs[1 - refused].err;
    expect_error(runs[refused], 2, "nothing here for");
    const std::string winner = refused == 1 ? model() : other_model();
    EXPECT_EQ(weft({"ask", "-m", winner, "--store", store(), "-n", "2", "harbour"}).status, 0);
  }
}

TEST_F(LibraryProgram, OfTwoFirstIngestsWithTwoAnchorsOneSettlesAndTheOtherIsRefused) {
  for (int round = 0; round < 6; ++round) {
    SCOPED_TRACE(round);
    std::filesystem::remove_all(store());
    const auto arguments = [](const std::string& anchor) {
      return std::vector<std::string>{"ingest", "-m",   model(),    "--store",
                                      store(),  docs(), "--anchor", anchor};
    };
    const test::RunningProgram first = start(arguments("none"), "", ".1");
    const test::RunningProgram second = start(arguments("opening"), "", ".2");
    Outcome runs[] = {finish(first), finish(second)};
    const size_t refused = runs[0].status == 0 ? 1 : 0;
    EXPECT_EQ(runs[1 - refused].status, 0) << runs[1 - refused].err;
    expect_error(runs[refused], 2, "anchor '");
  }
}

TEST_F(LibraryProgram, AFolderWhereNoDocumentCameInSaysSo) {
  // What a crash between the folder, the settlement and the first document leaves.
  ASSERT_TRUE(store::ChunkStore::open(posix_env(), {.dir = store(), .create = true}).is_ok());
  const auto ask_here = [&](const std::string& with) {
    return weft({"ask", "-m", with, "--store", store(), "harbour"});
  };
  expect_error(ask_here(model()), 1, "no documents were ingested here");
  ASSERT_TRUE(retrieval::Index::open(index_file(), retrieval::Index::Mode::kCreate).is_ok());
  expect_error(ask_here(model()), 1, "no documents were ingested here");
  std::filesystem::remove_all(docs());
  std::filesystem::create_directories(docs());
  ASSERT_EQ(ingest().status, 1);  // settles, and finds no document
  expect_error(ask_here(model()), 1, "no documents were ingested here");
  expect_error(ask_here(other_model()), 1, "no documents were ingested here");
}

TEST_F(LibraryProgram, AFormOfPromptThatNobodyKnowsIsTheFoldersFaultNotAFlags) {
  ASSERT_EQ(ingest().status, 0);
  retrieval::Settlement settled = *open_index()->settlement();
  settled.prompt = "odd";
  for (const char* ending : {"", "-wal", "-shm"}) std::filesystem::remove(index_file() + ending);
  {
    auto index = retrieval::Index::open(index_file(), retrieval::Index::Mode::kCreate);
    ASSERT_TRUE(index.is_ok());
    const auto agree = [&](const std::optional<retrieval::Settlement>&, bool) {
      return Result<retrieval::Settlement>(settled);
    };
    const auto record_of = [](std::span<const int32_t>) { return Hash128{}; };
    ASSERT_TRUE((*index)->settle({agree, record_of}).is_ok());
  }
  const Outcome refused = ingest();
  expect_error(refused, 1, store() + ": its passages have the form 'odd'");
  EXPECT_EQ(refused.err.find("--prompt"), std::string::npos) << refused.err;
}

TEST_F(LibraryProgram, AFolderOfAnOlderWeftIsTakenOverWithoutIngestingAgain) {
  ASSERT_EQ(ingest({"--anchor", "none"}).status, 0);
  const Json before = ask("harbour", {"--ratio", "0.1"}).json();
  const int n_records = records();
  const retrieval::Settlement settled = *open_index()->settlement();
  {
    const auto old = store::ChunkStore::open(posix_env(), {.dir = store()});
    ASSERT_TRUE(old.is_ok());
    for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{
             {"model", settled.model + " " + settled.model_name},
             {"ropes", settled.ropes + " " + std::to_string(settled.context_tokens)},
             {"prompt", settled.prompt},
             {"anchor", settled.anchor}}) {
      ASSERT_TRUE((*old)->set_property(name, value).is_ok());
    }
  }
  alter_index(
      "DROP TABLE chunk_terms; DROP VIEW chunk_source; DROP TABLE unfinished_roots;"
      "ALTER TABLE documents DROP COLUMN root; ALTER TABLE chunks DROP COLUMN line_begin;"
      "ALTER TABLE chunks DROP COLUMN line_end; ALTER TABLE chunks DROP COLUMN pieces;"
      "CREATE VIEW chunk_source AS\n"
      "  SELECT chunks.id AS id, document_id, title, text\n"
      "  FROM chunks JOIN documents ON documents.id = document_id;"
      "CREATE VIRTUAL TABLE chunk_terms USING fts5(\n"
      "  title, text, content='chunk_source', content_rowid='id',\n"
      "  tokenize='unicode61 remove_diacritics 2');"
      "INSERT INTO chunk_terms(chunk_terms) VALUES('rebuild')");
  alter_index(
      "DROP INDEX chunks_by_record; DROP TABLE settlement; DROP TABLE unneeded_records;"
      "ALTER TABLE documents DROP COLUMN n_chunks; ALTER TABLE documents DROP COLUMN n_tokens;"
      "ALTER TABLE documents DROP COLUMN hash; ALTER TABLE chunks DROP COLUMN record;"
      "ALTER TABLE chunks DROP COLUMN hash; PRAGMA user_version = 1");
  EXPECT_EQ(weft({"cache", "verify", "--store", store()}).status, 0);
  {  // Nothing is removed before the index is up to date: it cannot say what is needed.
    std::string damaged;
    for (const auto& entry : std::filesystem::directory_iterator(store())) {
      if (entry.path().extension() == ".chunk") damaged = entry.path().string();
    }
    const std::string whole = test::read_text(damaged);
    std::string bytes = whole;
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    write_text(damaged, bytes);
    expect_error(weft({"cache", "verify", "--repair", "--store", store()}), 1,
                 "an index of an older weft; weft ingest, run once, brings it up to date");
    EXPECT_EQ(records(), n_records);
    write_text(damaged, whole);
  }
  EXPECT_EQ(weft({"cache", "stat", "--store", store(), "--json"}).json()["anchor"], "none");
  expect_error(weft({"cache", "gc", "--store", store()}), 1, "weft ingest");
  expect_error(weft({"ask", "-m", other_model(), "--store", store(), "harbour"}), 2,
               "nothing here for");
  expect_error(ingest({"--anchor", "neutral"}), 2, "anchor 'none'");
  const Json after = ask("harbour", {"--ratio", "0.1"}).json();
  EXPECT_EQ(after["answer"], before["answer"]);
  EXPECT_EQ(after["tier"], "disk");
  EXPECT_EQ(open_index()->settlement(), settled);
  // Once it looks at each document anew, for its lines; no KV is computed for that.
  const Outcome again = ingest();
  EXPECT_THAT(again.out, HasSubstr("no new KV"));
  EXPECT_THAT(again.out, HasSubstr("3 completed"));
  EXPECT_EQ(ask("harbour").json()["chunks"][0]["line_begin"], 1);
  EXPECT_THAT(ingest().out, HasSubstr("3 unchanged"));
  EXPECT_EQ(records(), n_records);
  EXPECT_EQ(weft({"cache", "gc", "--store", store(), "--json"}).json()["removed"], 0);
}

TEST_F(LibraryProgram, ADamagedTokenIdIsOneLineAndNoCrash) {
  ASSERT_EQ(ingest().status, 0);
  // A byte as a bad disk changes it: SQLite's own checks pass.
  const std::string bytes = test::read_text(index_file());
  const std::vector<int32_t> tokens = open_index()->search("harbour", 1)->front().chunk.tokens;
  const std::string ids(reinterpret_cast<const char*>(tokens.data()), 16);
  const size_t at = bytes.find(ids);
  ASSERT_NE(at, std::string::npos);
  for (const char mask : {'\x01', '\x40'}) {
    for (const size_t byte : {0, 1, 3}) {
      std::string bad = bytes;
      bad[at + byte] = static_cast<char>(bad[at + byte] ^ mask);
      write_text(index_file(), bad);
      const Outcome run = weft({"ask", "-m", model(), "--store", store(), "harbour"});
      expect_error(run, 1, "documents.sqlite: chunk ");
      EXPECT_THAT(run.err, HasSubstr("ingest again"));
    }
  }
  expect_error(weft({"cache", "verify", "--store", store()}), 1, "documents.sqlite: chunk ");
  expect_error(weft({"cache", "gc", "--store", store()}), 1, "documents.sqlite: chunk ");
  std::filesystem::remove(index_file());
  ASSERT_EQ(ingest().status, 0);
  // The KV was found again (of passages enough that reuse pays).
  EXPECT_EQ(ask("harbour orchard library", {"--ratio", "0.1"}).json()["tier"], "disk");
}

TEST_F(LibraryProgram, TokenIdsThatAreNotThoseOfTheTextAreNotUsed) {
  ASSERT_EQ(ingest().status, 0);
  const auto ask_here = [&](const std::string& reuse) {
    const Outcome run = weft({"ask", "-m", model(), "--store", store(), "--json", "--reuse", reuse,
                              "-n", "8", "--chunks", "1", "harbour"});
    EXPECT_EQ(run.status, 0) << run.err;
    return run.json();
  };
  const auto sound = ask_here("none");
  EXPECT_TRUE(sound["notes"].empty());
  {
    const auto index = open_index();
    for (const retrieval::Document& document : *index->documents()) {
      std::vector<retrieval::Chunk> chunks = *index->chunks_of(document.id);
      std::vector<retrieval::ChunkText> forged;
      for (retrieval::Chunk& chunk : chunks) {
        chunk.tokens.insert(chunk.tokens.end(), {2, 1, 2, 1});  // control tokens of any text
        forged.push_back({chunk.byte_begin, chunk.byte_end, chunk.text, chunk.tokens,
                          hash128(std::as_bytes(std::span(chunk.tokens)))});
      }
      ASSERT_TRUE(index->replace_document(document.info, forged).is_ok());
    }
  }
  for (const std::string reuse : {"none", "full", "blend"}) {
    const auto asked = ask_here(reuse);
    EXPECT_EQ(asked["chunks"][0]["tokens"], sound["chunks"][0]["tokens"]);
    EXPECT_THAT(asked["notes"].dump(), HasSubstr("are not those of its text"));
    if (reuse == "none") {
      EXPECT_EQ(asked["answer"], sound["answer"]);
    }
  }
  ASSERT_EQ(ingest().status, 0);
  EXPECT_EQ(ask_here("none")["notes"].dump(), sound["notes"].dump());  // put right
}

TEST_F(LibraryProgram, ALinkInTheIndexsPlaceIsRefusedAndNothingIsMadeWhereItLeads) {
  ASSERT_EQ(ingest().status, 0);
  std::filesystem::rename(index_file(), path("kept"));
  for (const char* side : {"", "-journal"}) {
    const std::string link = index_file() + side;
    const std::string elsewhere = path("elsewhere");
    std::filesystem::create_symlink(elsewhere, link);
    expect_error(ingest(), 2, link + ": a symbolic link");
    expect_error(ask("harbour"), 2, link + ": a symbolic link");
    expect_error(weft({"cache", "verify", "--store", store()}), 2, link + ": a symbolic link");
    EXPECT_FALSE(std::filesystem::exists(elsewhere));
    std::filesystem::remove(link);
    if (*side == 0) std::filesystem::copy_file(path("kept"), index_file());
  }
  EXPECT_EQ(ask("harbour").status, 0);
}

TEST_F(LibraryProgram, AStoreThatItsOwnerSharedStaysShared) {
  ASSERT_EQ(ingest().status, 0);
  const auto mode_of = [](const std::string& file) {
    return std::filesystem::status(file).permissions();
  };
  using std::filesystem::perms;
  const perms private_file = perms::owner_read | perms::owner_write;
  EXPECT_EQ(mode_of(index_file()), private_file);
  const perms shared_file = private_file | perms::group_read | perms::others_read;
  const perms shared_dir = shared_file | perms::owner_exec | perms::group_exec | perms::others_exec;
  std::filesystem::permissions(store(), shared_dir);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(store())) {
    std::filesystem::permissions(entry.path(), entry.is_directory() ? shared_dir : shared_file);
  }
  const auto before = picture_of(store());
  EXPECT_EQ(weft({"cache", "verify", "--store", store()}).status, 0);
  EXPECT_EQ(picture_of(store()), before) << "verify changes nothing";
  EXPECT_EQ(ask("harbour").status, 0);
  EXPECT_EQ(ingest().status, 0);
  EXPECT_EQ(mode_of(store()), shared_dir);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(store())) {
    EXPECT_EQ(mode_of(entry.path().string()), entry.is_directory() ? shared_dir : shared_file)
        << entry.path();
  }
}

TEST_F(LibraryProgram, AWriteAheadLogIsUndoneByWhoeverWritesAndLeftByWhoeverReads) {
  ASSERT_EQ(ingest().status, 0);
  std::string bytes = test::read_text(index_file());
  bytes[18] = bytes[19] = 2;  // as any SQLite tool sets it
  write_text(index_file(), bytes);
  const auto before = picture_of(store());
  for (const char* look : {"stat", "verify"}) {
    expect_error(weft({"cache", look, "--store", store()}), 1, "has a write-ahead log");
  }
  EXPECT_EQ(picture_of(store()), before);
  EXPECT_EQ(ask("harbour").status, 0);
  EXPECT_EQ(test::read_text(index_file())[18], 1);
  EXPECT_EQ(weft({"cache", "verify", "--store", store()}).status, 0);
}

TEST_F(LibraryProgram, WhatAnIndexSaysItWasMadeWithIsOneLineEach) {
  ASSERT_EQ(ingest().status, 0);
  {
    const auto index = open_index();
    retrieval::Settlement forged = *index->settlement();
    forged.anchor = "none\nmodel  forged";
    forged.record_type = "f16\nanchor forged";
    ASSERT_TRUE(
        index
            ->settle({[&](const auto&, bool) -> Result<retrieval::Settlement> { return forged; },
                      [](std::span<const int32_t>) { return Hash128{}; }})
            .is_ok());
  }
  const std::string out = weft({"cache", "stat", "--store", store()}).out;
  EXPECT_THAT(out, HasSubstr("anchor none"));
  EXPECT_THAT(out, HasSubstr("type   f16"));
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 4) << out;
}

TEST_F(LibraryProgram, RecordsThatACrashLeftBehindADeletionGoWithTheNextOpening) {
  for (const bool by_asking : {false, true}) {
    SCOPED_TRACE(by_asking);
    SetUp();
    ASSERT_EQ(ingest().status, 0);
    const int all = records();
    const std::string path = std::filesystem::canonical(docs() + "/library.txt").string();
    std::filesystem::remove(path);
    ASSERT_TRUE(open_index()->remove_document(path).is_ok());  // killed right after the commit
    ASSERT_EQ(records(), all);
    if (by_asking) {
      EXPECT_EQ(ask("harbour").status, 0);
    } else {
      EXPECT_EQ(ingest().status, 0);
    }
    EXPECT_EQ(records(), needed_records());
    EXPECT_LT(records(), all);
    TearDown();
  }
}

TEST_F(LibraryProgram, GcRemovesWhatNoDocumentHas) {
  ASSERT_EQ(ingest().status, 0);
  const int needed = records();
  const std::string elsewhere = path("elsewhere");
  write_text(path("stray.txt"), "A text that is in no document here.");
  ASSERT_EQ(weft({"ingest", "-m", model(), "--store", elsewhere, path("stray.txt")}).status, 0);
  uint64_t stray_bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(elsewhere)) {
    if (entry.path().extension() != ".chunk") continue;
    stray_bytes += entry.file_size();
    std::filesystem::copy(entry.path(), store() + "/" + entry.path().filename().string());
  }
  ASSERT_EQ(records(), needed + 1);
  const Json tried = weft({"cache", "gc", "--store", store(), "--dry-run", "--json"}).json();
  EXPECT_EQ(tried, (Json{{"dry_run", true}, {"removed", 1}, {"freed_bytes", stray_bytes}}));
  EXPECT_EQ(records(), needed + 1);
  EXPECT_THAT(weft({"cache", "gc", "--store", store(), "--dry-run"}).out,
              HasSubstr("1 record would be removed"));
  const Json done = weft({"cache", "gc", "--store", store(), "--json"}).json();
  EXPECT_EQ(done, (Json{{"dry_run", false}, {"removed", 1}, {"freed_bytes", stray_bytes}}));
  EXPECT_EQ(records(), needed);
  EXPECT_THAT(weft({"cache", "gc", "--store", store()}).out, HasSubstr("0 records removed"));
  EXPECT_EQ(ask("harbour", {"--ratio", "0.1"}).json()["tier"], "disk");
  std::filesystem::remove(elsewhere + "/documents.sqlite");
  expect_error(weft({"cache", "gc", "--store", elsewhere}), 1, "no index of documents");
  std::filesystem::remove_all(elsewhere);
}

TEST_F(LibraryProgram, GivenKillNineWhileTwoIngestThenNothingOfDeletedDocumentsIsLeft) {
  std::mt19937 random(9);
  int killed = 0;
  for (int round = 0; round < 30; ++round) {
    for (int i = 0; i < 4; ++i) {
      const std::string name = docs() + "/" + std::to_string(i) + ".txt";
      if (random() % 3 == 0) {
        std::filesystem::remove(name);
      } else {
        write_text(name, "Text " + std::to_string(random() % 6) + ". " + filler(random() % 90));
      }
    }
    const std::vector<std::string> arguments{"ingest", "-m",      model(), "-t",
                                             "1",      "--store", store(), docs()};
    const test::RunningProgram runs[] = {start(arguments, "", ".1"), start(arguments, "", ".2")};
    usleep(static_cast<useconds_t>(random() % 600000));
    for (const test::RunningProgram& run : runs) kill(run.child, SIGKILL);
    for (const test::RunningProgram& run : runs)
      killed += finish(run).status == 1000 + SIGKILL ? 1 : 0;
  }
  EXPECT_GT(killed, 10);
  for (int i = 0; i < 4; ++i) std::filesystem::remove(docs() + "/" + std::to_string(i) + ".txt");
  ASSERT_EQ(ingest().status, 0);
  // What a folder holds that was never interrupted.
  const std::string fresh = path("fresh");
  ASSERT_EQ(weft({"ingest", "-m", model(), "--store", fresh, docs()}).status, 0);
  const Json stat = weft({"cache", "stat", "--store", fresh, "--json"}).json();
  EXPECT_EQ(records(), stat["records"]);
  EXPECT_EQ(weft({"cache", "gc", "--store", store(), "--json"}).json()["removed"], 0);
  EXPECT_EQ(weft({"cache", "verify", "--store", store()}).status, 0);
  std::filesystem::remove_all(fresh);
}

// ------------------------------------------------------------------- stores nobody may write to

class ReadOnlyStore : public LibraryProgram, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    LibraryProgram::SetUp();
    ASSERT_EQ(ingest().status, 0);
  }
  /// In the new process: the store as one that may only be read.
  static void become_reader() {
    if (std::string(GetParam()) == "another user") {
      if (setgid(65534) != 0 || setuid(65534) != 0) _exit(kNotPermitted);
      return;
    }
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
      _exit(kNotPermitted);
    }
    const std::string dir = store();
    const bool mounted =
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
        mount(dir.c_str(), dir.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
        mount(nullptr, dir.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) == 0;
    if (!mounted) _exit(kNotPermitted);
  }
  /// Of another user's store the files have to be readable.
  static void share() {
    namespace fs = std::filesystem;
    const auto readable = fs::perms::group_read | fs::perms::others_read;
    const auto enterable = readable | fs::perms::group_exec | fs::perms::others_exec;
    fs::permissions(folder_->path(), enterable, fs::perm_options::add);
    fs::permissions(store(), enterable, fs::perm_options::add);
    for (const auto& entry : fs::recursive_directory_iterator(store())) {
      fs::permissions(entry, entry.is_directory() ? enterable : readable, fs::perm_options::add);
    }
  }
  static Outcome as_reader(std::vector<std::string> arguments) {
    return finish(start(std::move(arguments), "", "", become_reader));
  }
  static Outcome ask_as_reader(const std::string& question) {
    return as_reader({"ask", "-m", model(), "--store", store(), "-n", "8", "--ratio", "0.1",
                      "--json", question});
  }
};

TEST_P(ReadOnlyStore, CanBeAskedAndLookedAtAndIsNotWritten) {
  const std::string question = "harbour orchard library";
  const Json before = ask(question, {"--ratio", "0.1", "-t", "2"}).json();
  share();
  WEFT_SKIP_UNLESS(as_reader({"--version"}).status == 0, GetParam());
  auto picture = picture_of(store());
  const auto cache = [](const std::string& action) {
    return as_reader({"cache", action, "--store", store(), "--json"});
  };
  const Outcome asked = ask_as_reader(question);
  ASSERT_EQ(asked.status, 0) << asked.err;
  EXPECT_EQ(asked.err, "");
  EXPECT_EQ(asked.json()["answer"], before["answer"]);
  EXPECT_EQ(asked.json()["tier"], "disk");
  for (const char* action : {"ls", "stat", "verify"}) {
    const Outcome run = cache(action);
    EXPECT_EQ(run.status, 0) << action << ": " << run.err;
  }
  EXPECT_EQ(as_reader({"cache", "gc", "--dry-run", "--store", store()}).status, 0);
  expect_error(as_reader({"cache", "gc", "--store", store()}), 1, store());
  expect_error(as_reader({"cache", "rm", "--all", "--store", store()}), 1, store());
  expect_error(as_reader({"ingest", "-m", model(), "--store", store(), docs()}), 1, store());
  EXPECT_EQ(picture_of(store()), picture);

  // What is missing is computed, and not kept.
  ASSERT_EQ(weft({"cache", "rm", "--all", "--store", store()}).status, 0);
  share();
  picture = picture_of(store());
  const Outcome computed = ask_as_reader(question);
  ASSERT_EQ(computed.status, 0) << computed.err;
  EXPECT_EQ(computed.err, "");
  EXPECT_EQ(picture_of(store()), picture);
}

INSTANTIATE_TEST_SUITE_P(All, ReadOnlyStore, ::testing::Values("a read-only mount", "another user"),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace weft
