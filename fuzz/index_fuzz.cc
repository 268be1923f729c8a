// Hostile indexes of documents: a whole database file from anywhere, a good one with bytes changed,
// and good files of both versions whose rows say anything. All that asking, ingesting and verifying
// do with an index is done; nothing may crash, an error is one line that names the file, and no
// token id outside the vocabulary comes out.
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "retrieval/best_sentence.h"
#include "retrieval/database_internal.h"
#include "retrieval/index.h"
#include "retrieval/passages.h"
#include "time_limit.h"

namespace weft::retrieval {
namespace {

constexpr int32_t kVocabulary = 600;
constexpr size_t kMaxFileBytes = 1 << 20;

/// Takes values off the input's front.
class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  uint8_t byte() {
    if (bytes_.empty()) return 0;
    const uint8_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }
  uint32_t number() {
    uint32_t value = byte();
    value = value << 8 | byte();
    return value << 8 | byte();
  }
  int64_t integer() {
    const unsigned shift = byte() % 64;
    return static_cast<int64_t>(static_cast<uint64_t>(number()) << shift);
  }
  std::string text() {
    const size_t wanted = number() % 4096;  // before what is left is looked at
    const size_t n = std::min(wanted, bytes_.size());
    std::string value(reinterpret_cast<const char*>(bytes_.data()), n);
    bytes_ = bytes_.subspan(n);
    return value;
  }
  std::string rest() { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  std::span<const uint8_t> bytes_;
};

/// A folder in memory where there is one, and what is made once.
struct Folder {
  std::string dir;
  std::string file;
  std::string good;      // the bytes of a good index
  std::string good_old;  // and of one of version 1

  Folder() {
    const bool in_memory = std::filesystem::exists("/dev/shm");
    dir = in_memory ? "/dev/shm/weft_index_fuzz_XXXXXX" : "/tmp/weft_index_fuzz_XXXXXX";
    WEFT_CHECK(::mkdtemp(dir.data()) != nullptr);
    file = dir + "/documents.sqlite";
    make_good();
    good = read();
    make_old();
    WEFT_CHECK((*Index::open(file, Index::Mode::kReadOnly))->is_old());  // as version 1 made it
    good_old = read();
  }
  ~Folder() { std::filesystem::remove_all(dir); }

  std::string read() const {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& bytes) const {
    for (const char* side : {"-journal", "-wal", "-shm"}) std::filesystem::remove(file + side);
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  }
  std::unique_ptr<Database> raw() const {
    return *Database::open(file, /*create=*/false, /*read_only=*/false);
  }

  void make_good() const {
    auto index = *Index::open(file, Index::Mode::kCreate);
    const Status settled = index->settle(
        {[](const auto&, bool) -> Result<Settlement> {
           return Settlement{.model = "m", .model_name = "n", .prompt = "chat", .anchor = "none"};
         },
         [](std::span<const int32_t> tokens) { return hash128(std::as_bytes(tokens)); }});
    WEFT_CHECK(settled.is_ok());
    for (int i = 0; i < 4; ++i) {
      const std::string name = "/" + std::to_string(i);
      const std::string text = "walnut and pear " + name;
      const std::vector<int32_t> tokens(text.begin(), text.end());
      const std::vector<ChunkText> chunks(
          2, {0, text.size(), text, tokens, hash128(std::as_bytes(std::span(tokens)))});
      WEFT_CHECK(index->replace_document({.path = name, .title = "Trees"}, chunks).is_ok());
    }
    WEFT_CHECK(index->remove_document("/3").is_ok());
  }
  void make_old() const {
    WEFT_CHECK(raw()
                   ->execute("DROP TABLE chunk_terms; DROP VIEW chunk_source;"
                             "DROP TABLE unfinished_roots;"
                             "ALTER TABLE documents DROP COLUMN root;"
                             "ALTER TABLE chunks DROP COLUMN line_begin;"
                             "ALTER TABLE chunks DROP COLUMN line_end;"
                             "ALTER TABLE chunks DROP COLUMN pieces;"
                             "CREATE VIEW chunk_source AS\n"
                             "  SELECT chunks.id AS id, document_id, title, text\n"
                             "  FROM chunks JOIN documents ON documents.id = document_id;"
                             "CREATE VIRTUAL TABLE chunk_terms USING fts5(\n"
                             "  title, text, content='chunk_source', content_rowid='id',\n"
                             "  tokenize='unicode61 remove_diacritics 2');"
                             "INSERT INTO chunk_terms(chunk_terms) VALUES('rebuild');"
                             "DROP INDEX chunks_by_record; DROP TABLE settlement;"
                             "DROP TABLE unneeded_records;"
                             "ALTER TABLE documents DROP COLUMN n_chunks;"
                             "ALTER TABLE documents DROP COLUMN n_tokens;"
                             "ALTER TABLE documents DROP COLUMN hash;"
                             "ALTER TABLE chunks DROP COLUMN record;"
                             "ALTER TABLE chunks DROP COLUMN hash; PRAGMA user_version = 1")
                   .is_ok());
  }
};

void check(const Status& status, const std::string& file) {
  if (status.is_ok()) return;
  WEFT_CHECK(status.message().find(file) != std::string::npos);
  WEFT_CHECK(status.message().find('\n') == std::string::npos);
}

void check(const Chunk& chunk) {
  for (const int32_t token : chunk.tokens) WEFT_CHECK(token >= 0 && token < kVocabulary);
}

/// Rows that say anything: of an old index, where no hash keeps them from being looked at.
void write_rows(Database& database, Input& input) {
  (void)database.execute("PRAGMA foreign_keys = OFF");
  while (!input.empty()) {
    const bool document = input.byte() % 3 == 0;
    auto row =
        database.prepare(document ? "INSERT OR REPLACE INTO documents VALUES(?, ?, ?, ?, ?, ?, ?)"
                                  : "INSERT OR REPLACE INTO chunks VALUES(?, ?, ?, ?, ?, ?, ?, ?)");
    if (!row.is_ok()) return;
    row->bind(static_cast<int64_t>(input.byte() % 8));
    if (document) {
      row->bind_text(input.text()).bind_text(input.text()).bind(input.integer());
      row->bind(input.integer()).bind_text(input.text()).bind(input.integer());
    } else {
      row->bind(static_cast<int64_t>(input.byte() % 5)).bind(input.integer());
      row->bind(input.integer()).bind(input.integer()).bind_text(input.text());
      const std::string tokens = input.text();
      row->bind_blob(std::as_bytes(std::span(tokens)));
      row->bind(input.byte() % 2 == 0 ? static_cast<int64_t>(tokens.size() / 4) : input.integer());
    }
    (void)row->run();
  }
}

/// What ask, ingest and cache verify do.
void use(const std::string& file, Index::Mode mode) {
  auto opened = Index::open(file, mode);
  check(opened.status(), file);
  if (!opened.is_ok()) return;
  Index& index = **opened;
  index.set_token_limit(kVocabulary);
  const auto look = [&] {
    const auto hits = index.search("walnut pear trees", 10);
    check(hits.status(), file);
    if (hits.is_ok()) {
      for (const Hit& hit : *hits) check(hit.chunk);
    }
    const auto passages = find_passages(index, "Which walnut, 東京 pear trees?", {});
    check(passages.status(), file);
    if (passages.is_ok()) {
      for (const Hit& hit : passages->hits) {
        check(hit.chunk);
        check(best_sentence(index, passages->terms, hit.title, hit.chunk.text, 80).status(), file);
      }
    }
    check(index.unfinished().status(), file);
    check(index.all_chunks([](const Chunk& chunk) { return check(chunk), Status::ok(); }), file);
    const auto documents = index.documents();
    check(documents.status(), file);
    if (documents.is_ok() && !documents->empty()) {
      check(index.chunks_of(documents->front().id).status(), file);
    }
    check(index.counts().status(), file);
    check(index.verify(), file);
  };
  look();
  check(index.settle(
            {[&](const auto& there, bool) -> Result<Settlement> {
               return there.value_or(Settlement{.model = "x", .scope = "y"});
             },
             [](std::span<const int32_t> tokens) { return hash128(std::as_bytes(tokens)); }}),
        file);
  look();
  if (mode == Index::Mode::kReadOnly) return;
  check(index.sweep([](const Hash128&) { return Status::ok(); }), file);
  const std::vector<int32_t> tokens{1, 2, 3};
  const std::vector<ChunkText> chunks{{0, 4, "pear", tokens, Hash128{1, 2}}};
  check(index.replace_document({.path = "/1", .title = "t"}, chunks).status(), file);
  check(index.remove_document("/2"), file);
  check(index.begin_roots(std::vector<IngestRoot>{{.path = "/", .exclude = {"*.log"}}}), file);
  check(index.move_document("/1", {.path = "/5", .title = "t"}), file);
  look();
}

}  // namespace
}  // namespace weft::retrieval

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft::retrieval;
  static const Folder folder;
  if (size == 0 || size > kMaxFileBytes) return 0;
  const weft::fuzz::TimeLimit limit(size);
  Input input(std::span(data, size).subspan(1));
  const auto mode = (data[0] & 8) != 0 ? Index::Mode::kReadOnly : Index::Mode::kReadWrite;
  switch (data[0] % 4) {
    case 0:
      folder.write(input.rest());
      break;
    case 1:
    case 2: {
      std::string bytes = data[0] % 4 == 1 ? folder.good : folder.good_old;
      while (!input.empty()) {
        const size_t at = input.number() % bytes.size();
        bytes[at] = static_cast<char>(bytes[at] ^ input.byte());
      }
      folder.write(bytes);
      break;
    }
    default:
      folder.write(folder.good_old);
      write_rows(*folder.raw(), input);
  }
  use(folder.file, mode);
  return 0;
}
