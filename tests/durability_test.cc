// What survives a power cut: the store, the index, the whole program's ingest and its saved
// conversations, run with every file-changing system call recorded and the power cut after each of
// them (tests/recorder/). What was promised is found again, what was removed stays away, and
// everything opens and can be used.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "base/hash.h"
#include "engine/session.h"
#include "gguf/random_model.h"
#include "recorder/cuts.h"
#include "retrieval/index.h"
#include "store/chunk_store.h"
#include "support/files.h"
#include "support/skip.h"
#include "support/store_chunks.h"

namespace weft::test {
namespace {

using retrieval::Index;
using store::ChunkStore;
using test::read_text;
using test::TestChunk;

constexpr const char* kWorkloadFlag = "--workload";

/// A workload's promise that cannot be given ends it: the parent sees the exit status.
void must(const Status& status) {
  if (status.is_ok()) return;
  fmt::print(stderr, "workload: {}\n", status.message());
  ::_exit(3);
}
template <class T>
T must(Result<T> result) {
  must(result.status());
  return std::move(result).value();
}

/// This program again, as a workload: `name` names one of kWorkloads.
std::vector<std::string> workload(const std::string& name, const Recording& recording) {
  return {std::filesystem::read_symlink("/proc/self/exe").string(), kWorkloadFlag, name,
          recording.root()};
}

size_t count(const Facts& facts, const std::string& kind) {
  size_t n = 0;
  for (const auto& [name, value] : facts) n += name.starts_with(kind + "/");
  return n;
}

std::string output_of(const Recording& recording) { return read_text(recording.path("output")); }

// -------------------------------------------------------------------------------------- the store

constexpr int kChunks = 6;
constexpr int kUnusedChunk = kChunks;  // in no workload

/// Chunks of one to five layers, and of one or two pages a layer.
const TestChunk& chunk(int number) {
  static const std::vector<TestChunk> chunks = [] {
    std::vector<TestChunk> all;
    for (int i = 0; i <= kUnusedChunk; ++i) all.emplace_back(i, 900 + static_cast<size_t>(i) * 700);
    return all;
  }();
  return chunks[static_cast<size_t>(number)];
}

std::string store_dir(const std::string& root) { return root + "/of/someone/store"; }

std::string record_fact(int number) { return "record/" + std::to_string(number); }

std::unique_ptr<ChunkStore> open_workload_store(const std::string& root, uint64_t limit_bytes = 0) {
  return must(ChunkStore::open(
      posix_env(), {.dir = store_dir(root), .disk_limit_bytes = limit_bytes, .create = true}));
}

void store_workload(const std::string& root) {
  auto opened = open_workload_store(root);
  for (int i = 0; i < 3; ++i) {
    must(put(*opened, chunk(i)));
    mark_in_workload(fmt::format("put {}", i), {{record_fact(i), "whole"}});
  }
  must(put(*opened, chunk(1)));
  mark_in_workload("put 1, which is there", {{record_fact(1), "whole"}});
  must(opened->set_property("first", "one"));
  mark_in_workload("set first", {{"property/first", "one"}});
  must(opened->set_property("second", "two = 2"));
  must(opened->set_property("first", "another"));
  mark_in_workload("set first again",
                   {{"property/first", "another"}, {"property/second", "two = 2"}});
  must(opened->remove(chunk(1).key().hash));
  mark_in_workload("remove 1", {{record_fact(1), ""}});
  must(put(*opened, chunk(1)));
  mark_in_workload("put 1 again", {{record_fact(1), "whole"}});
  must(opened->remove(chunk(0).key().hash));
  mark_in_workload("remove 0", {{record_fact(0), ""}, {record_fact(2), "whole"}});
  opened.reset();
  const uint64_t limit = chunk(1).file_bytes() + chunk(2).file_bytes() + chunk(3).file_bytes() - 1;
  opened = open_workload_store(root, limit);
  must(put(*opened, chunk(3)));
  mark_in_workload("evicts to put 3", {{record_fact(3), "whole"}});
  must(opened->clear());
  mark_in_workload("clear", {{record_fact(1), ""}, {record_fact(2), ""}, {record_fact(3), ""}});
  must(put(*opened, chunk(4)));
  mark_in_workload("put 4", {{record_fact(4), "whole"}, {"property/first", "another"}});
}

/// A damaged record is an error, whoever finds it.
void observe_records(ChunkStore& store, Facts& facts) {
  const auto report = store.verify([](uint64_t, uint64_t) { return true; });
  if (!report.is_ok()) facts[kError] = report.status().message();
  if (report.is_ok() && !report->bad.empty()) facts[kError] = report->bad[0].status.message();
}

/// A store that was found must also be one that can be used.
Status use_store(ChunkStore& store) {
  WEFT_RETURN_IF_ERROR(put(store, chunk(kUnusedChunk)));
  WEFT_RETURN_IF_ERROR(load(store, chunk(kUnusedChunk)));
  WEFT_RETURN_IF_ERROR(store.remove(chunk(kUnusedChunk).key().hash));
  return store.set_property("used", "yes");
}

Facts observe_store(const std::string& root) {
  Facts facts;
  auto opened = ChunkStore::open(posix_env(), {.dir = store_dir(root), .create = true});
  if (!opened.is_ok()) return {{kError, "the store does not open: " + opened.status().message()}};
  ChunkStore& store = **opened;
  observe_records(store, facts);
  for (int i = 0; i < kChunks; ++i) {
    const Status status = load(store, chunk(i));
    if (status.is_ok()) facts[record_fact(i)] = "whole";
    if (!status.is_ok() && status.code() != StatusCode::kNotFound) facts[kError] = status.message();
  }
  for (const char* name : {"first", "second"}) {
    const auto value = store.property(name);
    if (value.is_ok()) facts[std::string("property/") + name] = *value;
  }
  if (test::unfinished_files(store_dir(root)) > 0) facts[kError] = "unfinished files are left";
  const Status used = use_store(store);
  if (!used.is_ok()) facts[kError] = "the store cannot be used: " + used.message();
  return facts;
}

TEST(Durability, TheStoreKeepsWhatItPromised) {
  Recording recording;
  ASSERT_EQ(recording.run(workload("store", recording)), 0) << output_of(recording);
  check_every_cut(recording, observe_store);
}

/// What a process finds that another left in the middle of it, and promises itself.
void resume_store_workload(const std::string& root) {
  auto opened = open_workload_store(root);
  must(put(*opened, chunk(0)));
  mark_in_workload("put 0", {{record_fact(0), "whole"}});
  const Status removed = opened->remove(chunk(1).key().hash);
  if (removed.code() != StatusCode::kNotFound) must(removed);
  mark_in_workload("remove 1", {{record_fact(1), ""}});
}

void killed_store_workload(const std::string& root) {
  auto opened = open_workload_store(root);
  must(put(*opened, chunk(1)));
  must(put(*opened, chunk(0)));
  must(opened->remove(chunk(1).key().hash));
}

/// Runs the first workload, killed after 1, 2, … changes, then the second to its end. The first
/// died between a change and its sync: what the second one says is durable all the same.
void check_after_every_kill(const std::string& killed, const std::string& resumed,
                            const Observe& observe) {
  for (int changes = 1;; ++changes) {
    SCOPED_TRACE(fmt::format("killed after {} changes", changes));
    Recording recording;
    const int status = recording.run(workload(killed, recording), changes);
    ASSERT_TRUE(status == 0 || status == 1000 + SIGKILL) << output_of(recording);
    ASSERT_EQ(recording.run(workload(resumed, recording)), 0) << output_of(recording);
    check_every_cut(recording, observe, {.only_at_marks = true});
    if (status == 0 || ::testing::Test::HasFailure()) return;
  }
}

TEST(Durability, TheStoreKeepsWhatItPromisedAfterAnotherProcessWasKilled) {
  check_after_every_kill("killed_store", "resume_store", observe_store);
}

// -------------------------------------------------------------------------------------- the index

std::string index_path(const std::string& root) { return root + "/documents.sqlite"; }

Hash128 record_of(std::span<const int32_t> tokens) { return hash128(std::as_bytes(tokens)); }

/// Of a new index, or another scope than the one there, which gives all records other names.
Status settle(Index& index, const std::string& scope) {
  const auto agree = [&](const std::optional<retrieval::Settlement>& there,
                         bool /*is_old*/) -> Result<retrieval::Settlement> {
    retrieval::Settlement settled = there.value_or(retrieval::Settlement{.model = "model"});
    settled.scope = scope;
    return settled;
  };
  const auto name = [&](std::span<const int32_t> tokens) {
    return scope == "first" ? record_of(tokens) : record_of(tokens.first(1));
  };
  return index.settle({agree, name});
}

/// Texts and token ids that follow from the document's version; long enough for several pages.
Result<int64_t> put_document(Index& index, const std::string& path, int version, int n_chunks) {
  std::vector<std::string> texts;
  std::vector<std::vector<int32_t>> ids;
  for (int i = 0; i < n_chunks; ++i) {
    std::string text = fmt::format("{} version{} part{}", path, version, i);
    while (text.size() < 700) text += fmt::format(" word{}", text.size() * 31 % 97);
    ids.emplace_back(text.begin(), text.end());
    texts.push_back(std::move(text));
  }
  std::vector<retrieval::ChunkText> chunks;
  for (size_t i = 0; i < texts.size(); ++i) {
    chunks.push_back({i * 1000, i * 1000 + texts[i].size(), texts[i], ids[i], record_of(ids[i])});
  }
  return index.replace_document({.path = path,
                                 .title = fmt::format("Title {}", version),
                                 .size_bytes = 1000,
                                 .modified_ns = version,
                                 .content_hash = std::to_string(version)},
                                chunks);
}

/// Everything of a document but its status: "version 2, 3 chunks, <hash of the chunks>".
Result<std::string> describe_document(Index& index, const retrieval::Document& document) {
  WEFT_ASSIGN_OR_RETURN(const auto chunks, index.chunks_of(document.id));
  std::string all = document.info.title + document.info.content_hash;
  for (const retrieval::Chunk& chunk : chunks) {
    all += chunk.text + chunk.record.to_hex();
    all.append(reinterpret_cast<const char*>(chunk.tokens.data()), chunk.tokens.size() * 4);
  }
  return fmt::format("time {}, {} chunks, {}", document.info.modified_ns, chunks.size(),
                     hash128(std::as_bytes(std::span(all))).to_hex());
}

Status observe_documents(Index& index, Facts& facts) {
  WEFT_RETURN_IF_ERROR(index.verify());
  WEFT_ASSIGN_OR_RETURN(const auto documents, index.documents());
  for (const retrieval::Document& document : documents) {
    WEFT_ASSIGN_OR_RETURN(facts["document/" + document.info.path],
                          describe_document(index, document));
    if (document.status == retrieval::DocumentStatus::kStored) {
      facts["stored/" + document.info.path] = "yes";
    }
  }
  return Status::ok();
}

/// Records of chunks that are gone are not forgotten before they are removed.
Status observe_unneeded(Index& index, Facts& facts) {
  return index.sweep([&](const Hash128& record) {
    facts["unneeded/" + record.to_hex()] = "yes";
    return Status::ok();
  });
}

/// The search finds a document's chunks as long as the document is there, and uses what is new.
Status use_index(Index& index) {
  WEFT_ASSIGN_OR_RETURN(const int64_t id, put_document(index, "unused", 77, 1));
  WEFT_ASSIGN_OR_RETURN(const auto hits, index.search("version77", 5));
  if (hits.size() != 1 || hits[0].chunk.document_id != id) return corrupt("search finds nothing");
  return index.remove_document("unused");
}

Facts observe_index(const std::string& root) {
  Facts facts;
  auto opened = Index::open(index_path(root), Index::Mode::kCreate);
  if (!opened.is_ok()) return {{kError, "the index does not open: " + opened.status().message()}};
  Index& index = **opened;
  if (index.settlement()) facts["settled"] = index.settlement()->scope;
  Status status = observe_documents(index, facts);
  if (status.is_ok()) status = observe_unneeded(index, facts);
  if (status.is_ok()) status = use_index(index);
  if (!status.is_ok()) facts[kError] = status.message();
  return facts;
}

void index_workload(const std::string& root) {
  const auto index = must(Index::open(index_path(root), Index::Mode::kCreate));
  mark_in_workload("open");
  must(settle(*index, "first"));
  mark_in_workload("settle", {{"settled", "first"}});
  const int64_t a = must(put_document(*index, "a", 1, 4));
  mark_in_workload("put a", {{"stored/a", ""}});
  must(index->mark_stored(a, "1"));
  mark_in_workload("store a", {{"stored/a", "yes"}});
  must(put_document(*index, "b", 1, 2));
  mark_in_workload("put b", {{"stored/a", "yes"}});
  must(put_document(*index, "a", 2, 6));
  mark_in_workload("replace a", {{"stored/a", ""}});
  must(index->remove_document("b"));
  mark_in_workload("remove b", {{"document/b", ""}});
  must(settle(*index, "second"));
  mark_in_workload("settle again", {{"settled", "second"}});
}

TEST(Durability, TheIndexKeepsWhatItPromised) {
  Recording recording;
  ASSERT_EQ(recording.run(workload("index", recording)), 0) << output_of(recording);
  const std::vector<Step> steps = check_every_cut(recording, observe_index, {.all_at_once = true});
  ASSERT_EQ(steps.size(), 8u);
  EXPECT_TRUE(steps[2].facts.at("document/a").starts_with("time 1, 4 chunks"));
  EXPECT_TRUE(steps[5].facts.at("document/a").starts_with("time 2, 6 chunks"));
  EXPECT_TRUE(steps[7].facts.at("document/a").starts_with("time 2, 6 chunks"));
  EXPECT_TRUE(steps[5].facts.contains("document/b"));
  EXPECT_EQ(count(steps[5].facts, "unneeded"), 4u);
  EXPECT_EQ(count(steps[6].facts, "unneeded"), 6u);
  EXPECT_EQ(count(steps[7].facts, "unneeded"), 12u);
}

void killed_index_workload(const std::string& root) {
  const auto index = must(Index::open(index_path(root), Index::Mode::kCreate));
  must(put_document(*index, "a", 1, 1));
  must(index->remove_document("a"));
}

/// Changes nothing: what it finds there it tells its user, as an ingest that has nothing to do.
void resume_index_workload(const std::string& root) {
  const auto index = must(Index::open(index_path(root), Index::Mode::kCreate));
  must(index->documents());
  mark_in_workload("list documents");
}

TEST(Durability, TheIndexKeepsWhatItShowedAfterAnotherProcessWasKilled) {
  check_after_every_kill("killed_index", "resume_index", observe_index);
}

// ------------------------------------------------------------------------------------ the program

constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

std::string filler(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += "Item " + std::to_string(i) + " is on its shelf. ";
  return text;
}

/// A small random model in a folder of its own.
class DurableProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    gguf::RandomModelOptions options{.vocab = 300};
    options.chat_template = kChatMl;
    ASSERT_TRUE(gguf::write_random_model(posix_env(), model(), options).is_ok());
    std::filesystem::create_directory(docs());
    test::write_text(docs() + "/harbour.md", "# Harbour\n\nThe harbour opens at seven.");
    test::write_text(docs() + "/orchard.txt", "The orchard has pears. " + filler(60));
    // Of new files the index has no time, until the next ingest.
    for (const char* name : {"/harbour.md", "/orchard.txt"}) {
      std::filesystem::last_write_time(
          docs() + name, std::filesystem::last_write_time(docs() + name) - std::chrono::hours(1));
    }
  }

  std::string model() const { return recording_.path("model.gguf"); }
  std::string docs() const { return recording_.path("docs"); }
  std::vector<std::string> ingest(const std::string& root) const {
    return {WEFT_BINARY_DIR "/weft", "ingest", "-m", model(), "-t", "1", "--store",
            root + "/library/store", docs()};
  }

  Recording recording_;
};

/// After the sweep with which every opening begins: a document that is called stored has all its
/// records, and there is none that no document has.
Status match_records(ChunkStore& store, Index& index, Facts& facts) {
  WEFT_RETURN_IF_ERROR(index.sweep([&](const Hash128& record) {
    const Status removed = store.remove(record);
    return removed.code() == StatusCode::kNotFound ? Status::ok() : removed;
  }));
  std::set<Hash128> there;
  WEFT_ASSIGN_OR_RETURN(const auto records, store.ls());
  for (const auto& record : records) {
    there.insert(record.hash);
    facts["record/" + record.hash.to_hex()] = "whole";
  }
  std::set<Hash128> needed;
  WEFT_ASSIGN_OR_RETURN(const auto documents, index.documents());
  for (const retrieval::Document& document : documents) {
    WEFT_ASSIGN_OR_RETURN(const auto chunks, index.chunks_of(document.id));
    for (const retrieval::Chunk& chunk : chunks) {
      needed.insert(chunk.record);
      if (document.status == retrieval::DocumentStatus::kStored && !there.contains(chunk.record)) {
        return corrupt(document.info.path + " is called stored, and a record of it is missing");
      }
    }
  }
  const bool all_needed = std::ranges::includes(needed, there);
  return all_needed ? Status::ok() : corrupt("a record is there that no document has");
}

Facts observe_library(const std::string& root) {
  Facts facts;
  const std::string dir = root + "/library/store";
  auto opened = ChunkStore::open(posix_env(), {.dir = dir, .create = true});
  if (!opened.is_ok()) return {{kError, "the store does not open: " + opened.status().message()}};
  ChunkStore& store = **opened;
  observe_records(store, facts);
  auto index = Index::open(dir + "/documents.sqlite", Index::Mode::kCreate);
  if (!index.is_ok()) return {{kError, "the index does not open: " + index.status().message()}};
  Status status = observe_documents(**index, facts);
  if (status.is_ok()) status = match_records(store, **index, facts);
  if (status.is_ok()) status = use_store(store);
  if (status.is_ok()) status = use_index(**index);
  if (!status.is_ok()) facts[kError] = status.message();
  return facts;
}

TEST_F(DurableProgram, IngestKeepsWhatItSaidAndDeletesForGood) {
  ASSERT_EQ(recording_.run(ingest(recording_.root())), 0) << output_of(recording_);
  recording_.mark("ingest of two documents");
  std::filesystem::remove(docs() + "/orchard.txt");
  ASSERT_EQ(recording_.run(ingest(recording_.root())), 0) << output_of(recording_);
  recording_.mark("ingest of one, the other deleted");

  // Wherever the power went, the same command makes it whole.
  std::filesystem::copy(recording_.root(), recording_.path("end"),
                        std::filesystem::copy_options::recursive);
  const Facts last = observe_library(recording_.path("end"));
  const auto ingest_again = [&](const std::string& root) {
    const int status = recording_.run_unrecorded(ingest(root));
    EXPECT_EQ(status, 0) << output_of(recording_);
    EXPECT_EQ(observe_library(root), last);
  };
  const std::vector<Step> steps =
      check_every_cut(recording_, observe_library, {.samples = 8, .on_sample = ingest_again});
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(count(steps[0].facts, "stored"), 2u);
  EXPECT_GE(count(steps[0].facts, "record"), 3u);
  EXPECT_EQ(count(steps[1].facts, "stored"), 1u);
  EXPECT_EQ(count(steps[1].facts, "record"), 1u);
}

// -------------------------------------------------------------------------------- a conversation

/// A recorded weft that is told lines and waited for.
class Talk {
 public:
  Talk(const Recording& recording, std::vector<std::string> arguments) {
    int to_child[2];
    int from_child[2];
    WEFT_CHECK(::pipe2(to_child, O_CLOEXEC) == 0 && ::pipe2(from_child, O_CLOEXEC) == 0);
    child_ = ::fork();
    WEFT_CHECK(child_ >= 0);
    if (child_ == 0) {
      ::dup2(to_child[0], STDIN_FILENO);
      ::dup2(from_child[1], STDOUT_FILENO);
      ::dup2(from_child[1], STDERR_FILENO);
      recording.become(std::move(arguments));
    }
    ::close(to_child[0]);
    ::close(from_child[1]);
    in_ = to_child[1];
    out_ = from_child[0];
  }

  /// False when it ended before it said that.
  bool ask(const std::string& lines, const std::string& answer) {
    said_.clear();
    if (::write(in_, lines.data(), lines.size()) != std::ssize(lines)) return false;
    while (said_.find(answer) == std::string::npos) {
      if (!read_more()) return false;
    }
    return true;
  }

  int end() {
    ::close(in_);
    while (read_more()) {
    }
    ::close(out_);
    int status = 0;
    WEFT_CHECK(::waitpid(child_, &status, 0) == child_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  const std::string& said() const { return said_; }

 private:
  bool read_more() {
    char buffer[4096];
    const ssize_t n = ::read(out_, buffer, sizeof(buffer));
    if (n > 0) said_.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }

  pid_t child_ = -1;
  int in_ = -1;
  int out_ = -1;
  std::string said_;
};

/// Each conversation's number of messages and content; what a save left beside it is no matter.
Facts observe_conversations(const std::string& root) {
  Facts facts;
  for (const char* name : {"kept", "saved"}) {
    const std::string path = root + "/" + name + ".json";
    if (!std::filesystem::exists(path)) continue;
    const std::string text = read_text(path);
    const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    const bool whole = json.is_object() && json.contains("messages");
    if (!whole) return {{kError, path + " is not whole"}};
    facts[fmt::format("chat/{}", name)] =
        fmt::format("{} messages, {}", json["messages"].size(),
                    hash128(std::as_bytes(std::span(text))).to_hex());
  }
  return facts;
}

TEST_F(DurableProgram, AConversationIsTheOldOneOrTheNewOne) {
  const std::string kept = recording_.root() + "/kept.json";
  const std::string saved = recording_.root() + "/saved.json";
  Talk talk(recording_,
            {WEFT_BINARY_DIR "/weft", "chat", "-m", model(), "-t", "1", "-n", "4", "--save", kept});
  // An answer is saved before the next line is read.
  for (const char* question : {"Hello", "And then?"}) {
    ASSERT_TRUE(talk.ask(std::string(question) + "\n/stats\n", " turns (")) << talk.said();
    recording_.mark(std::string("answer to ") + question);
  }
  ASSERT_TRUE(talk.ask("/save " + saved + "\n", "(saved to")) << talk.said();
  recording_.mark("/save");
  ASSERT_EQ(talk.end(), 0) << talk.said();

  const auto load = [&](const std::string& root) {
    if (!std::filesystem::exists(root + "/kept.json")) return;
    EXPECT_EQ(recording_.run_unrecorded({WEFT_BINARY_DIR "/weft", "chat", "-m", model(), "-t", "1",
                                         "--load", root + "/kept.json"}),
              0)
        << output_of(recording_);
  };
  const std::vector<Step> steps =
      check_every_cut(recording_, observe_conversations, {.samples = 3, .on_sample = load});
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_TRUE(steps[0].facts.at("chat/kept").starts_with("2 messages"));
  EXPECT_TRUE(steps[1].facts.at("chat/kept").starts_with("4 messages"));
  EXPECT_TRUE(steps[2].facts.at("chat/saved").starts_with("4 messages"));
}

/// The session's number of turns and content, where there is one.
Facts observe_session(const std::string& root) {
  const std::string path = root + "/kept.session";
  if (!std::filesystem::exists(path)) return {};
  const auto saved = engine::SavedSession::open(posix_env(), path);
  if (!saved.is_ok()) return {{kError, saved.status().message()}};
  return {{"session", fmt::format("{} turns, {:016x}", (*saved)->session().turns.size(),
                                  (*saved)->file().stamp().last)}};
}

TEST_F(DurableProgram, ASessionIsTheOldOneOrTheNewOne) {
  const std::string kept = recording_.root() + "/kept.session";
  Talk talk(recording_, {WEFT_BINARY_DIR "/weft", "chat", "-m", model(), "-t", "1", "-n", "4",
                         "--session", kept});
  for (const char* question : {"Hello", "And then?"}) {
    ASSERT_TRUE(talk.ask(std::string(question) + "\n/stats\n", " turns (")) << talk.said();
    recording_.mark(std::string("answer to ") + question);
  }
  ASSERT_EQ(talk.end(), 0) << talk.said();
  const auto go_on = [&](const std::string& root) {
    EXPECT_EQ(recording_.run_unrecorded({WEFT_BINARY_DIR "/weft", "chat", "-m", model(), "-t", "1",
                                         "--session", root + "/kept.session"}),
              0)
        << output_of(recording_);
  };
  const std::vector<Step> steps =
      check_every_cut(recording_, observe_session, {.samples = 3, .on_sample = go_on});
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_TRUE(steps[0].facts.at("session").starts_with("2 turns"));
  EXPECT_TRUE(steps[1].facts.at("session").starts_with("4 turns"));
}

// ----------------------------------------------------------------------------------------------
// main

struct Workload {
  std::string_view name;
  void (*run)(const std::string& root);
};
constexpr Workload kWorkloads[] = {
    {"store", store_workload},
    {"killed_store", killed_store_workload},
    {"resume_store", resume_store_workload},
    {"index", index_workload},
    {"killed_index", killed_index_workload},
    {"resume_index", resume_index_workload},
};

}  // namespace
}  // namespace weft::test

/// The tests; with --workload NAME ROOT what they record.
int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == weft::test::kWorkloadFlag) {
    for (const auto& workload : weft::test::kWorkloads) {
      if (workload.name != argv[2]) continue;
      workload.run(argv[3]);
      return 0;
    }
    return 2;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
