// A hostile file in an index's place: whatever its schema has that weft did not make is refused
// before any of it is run, and its rows cannot say more than the file holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "retrieval/database_internal.h"
#include "retrieval/index.h"
#include "retrieval/passages.h"
#include "retrieval/rows_internal.h"
#include "support/files.h"
#include "support/index_documents.h"

namespace weft::retrieval {
namespace {

using test::put;
using test::record_of;
using test::TempDir;
using ::testing::HasSubstr;
using ::testing::Not;
using Mode = Index::Mode;

/// Takes away what version 5 added; the settlement's hash is still that of version 5.
constexpr const char* kVersion5To4 = R"(
ALTER TABLE settlement DROP COLUMN record_type;
PRAGMA user_version = 4;
)";

/// Takes away what version 4 added, with its rows.
constexpr const char* kVersion4To3 = R"(
DROP TABLE unfinished_roots;
CREATE TABLE unfinished_roots(path TEXT PRIMARY KEY, hash INTEGER NOT NULL) WITHOUT ROWID;
PRAGMA user_version = 3;
)";

/// Takes away what version 3 added; the search terms are made as version 2 had them.
constexpr const char* kVersion3To2 = R"(
DROP TABLE chunk_terms; DROP VIEW chunk_source; DROP TABLE unfinished_roots;
ALTER TABLE documents DROP COLUMN root; ALTER TABLE chunks DROP COLUMN line_begin;
ALTER TABLE chunks DROP COLUMN line_end; ALTER TABLE chunks DROP COLUMN pieces;
CREATE VIEW chunk_source AS
  SELECT chunks.id AS id, document_id, title, text
  FROM chunks JOIN documents ON documents.id = document_id;
CREATE VIRTUAL TABLE chunk_terms USING fts5(
  title, text, content='chunk_source', content_rowid='id',
  tokenize='unicode61 remove_diacritics 2');
INSERT INTO chunk_terms(chunk_terms) VALUES('rebuild');
PRAGMA user_version = 2;
)";

constexpr const char* kMeta =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;";

/// What sets the rows' hashes to XXH3-64 over these columns, as an older version had them.
std::string rehashed(Database& database, const char* table, const std::string& columns) {
  std::string sql;
  auto rows = *database.prepare("SELECT " + columns + ", id FROM " + table);
  while (*rows.step()) {
    std::string said;
    const auto integer = [&](int64_t value) {
      said.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    int column = 0;
    for (size_t at = 0; at < columns.size(); ++column) {
      const size_t end = std::min(columns.find(',', at), columns.size());
      const std::string name = columns.substr(at, end - at);
      at = end + 1;
      const std::set<std::string> integers{
          "id",       "document_id", "ordinal",     "byte_begin", "byte_end",      "n_tokens",
          "n_chunks", "size_bytes",  "modified_ns", "status",     "context_tokens"};
      if (integers.contains(name)) {
        integer(rows.integer(column));
      } else {
        const std::string bytes = rows.bytes(column);
        integer(static_cast<int64_t>(bytes.size()));
        said += bytes;
      }
    }
    sql += "UPDATE " + std::string(table) + " SET hash = " +
           std::to_string(static_cast<int64_t>(hash64(std::as_bytes(std::span(said))))) +
           " WHERE id = " + std::to_string(rows.integer(column)) + ";";
  }
  return sql;
}

/// The settlement's, of versions 2 to 4.
std::string settlement_of_version_4(Database& database) {
  return rehashed(database, "settlement",
                  "model,model_name,ropes,context_tokens,prompt,anchor,anchor_passages,scope");
}

std::string of_version_2(Database& database) {
  return settlement_of_version_4(database) +
         rehashed(database, "documents",
                  "id,path,title,size_bytes,modified_ns,content_hash,status,n_chunks,n_tokens") +
         rehashed(database, "chunks",
                  "id,document_id,ordinal,byte_begin,byte_end,text,tokens,n_tokens,record");
}

class IndexSchema : public ::testing::Test {
 protected:
  void SetUp() override {
    auto index = *Index::open(file_, Mode::kCreate);
    ASSERT_TRUE(put(*index, "/a", {"walnut"}).is_ok());
  }
  void change(const std::string& sql) {
    auto database = *Database::open(file_, false, false);
    const Status status = database->execute(sql);
    ASSERT_TRUE(status.is_ok()) << sql << ": " << status.message();
  }
  void make_old(const std::string& more = "") {
    change(kVersion3To2);
    change(
        "DROP INDEX chunks_by_record; DROP TABLE settlement; DROP TABLE unneeded_records;"
        "ALTER TABLE documents DROP COLUMN n_chunks; ALTER TABLE documents DROP COLUMN n_tokens;"
        "ALTER TABLE documents DROP COLUMN hash; ALTER TABLE chunks DROP COLUMN record;"
        "ALTER TABLE chunks DROP COLUMN hash; PRAGMA user_version = 1;" +
        more);
  }
  void expect_refused() {
    for (const auto mode : {Mode::kReadOnly, Mode::kReadWrite, Mode::kCreate}) {
      const Status status = Index::open(file_, mode).status();
      EXPECT_EQ(status.code(), StatusCode::kCorrupt);
      EXPECT_THAT(status.message(), HasSubstr(file_ + ": not an index of weft"));
      EXPECT_THAT(status.message(), Not(HasSubstr("\n")));
    }
  }

  TempDir dir_;
  std::string file_ = dir_ / "a.db";
};

TEST_F(IndexSchema, SchemasOfWeftAreAccepted) {
  for (const auto mode : {Mode::kReadOnly, Mode::kReadWrite, Mode::kCreate}) {
    EXPECT_TRUE(Index::open(file_, mode).is_ok());
  }
  make_old();
  EXPECT_TRUE((*Index::open(file_, Mode::kReadOnly))->is_old());
  change(kMeta);  // the first weft's had it
  EXPECT_TRUE((*Index::open(file_, Mode::kReadOnly))->is_old());
}

TEST_F(IndexSchema, AnIndexWithoutLinesIsReadAsItIsAndBroughtUpToDate) {
  const Settlement settlement{.model = "m", .prompt = "chat", .anchor = "none", .scope = "s"};
  const auto settle = [&](Index& index) {
    return index.settle({[&](const auto&, bool is_old) -> Result<Settlement> {
                           EXPECT_FALSE(is_old);
                           return settlement;
                         },
                         [](std::span<const int32_t> tokens) { return record_of(tokens); }});
  };
  std::filesystem::remove(file_);
  {
    auto index = *Index::open(file_, Mode::kCreate);
    ASSERT_TRUE(settle(*index).is_ok());
    ASSERT_TRUE(put(*index, "/a", {"walnuts", "東京の海"}, "Trees").is_ok());
  }
  change(kVersion5To4);
  change(kVersion3To2);
  change(of_version_2(**Database::open(file_, false, true)));

  auto reader = *Index::open(file_, Mode::kReadOnly);
  EXPECT_FALSE(reader->is_old());
  EXPECT_EQ(reader->settlement(), settlement);
  EXPECT_TRUE(reader->verify().is_ok()) << reader->verify().message();
  EXPECT_EQ(reader->search("walnuts", 5)->size(), 1u);
  EXPECT_EQ(find_passages(*reader, "Who has the walnuts?", {})->hits.size(), 1u);
  EXPECT_EQ(reader->unfinished()->documents, 1);

  auto index = *Index::open(file_, Mode::kReadWrite);
  EXPECT_EQ(put(*index, "/b", {"fig"}).status().code(), StatusCode::kUnsupported);
  ASSERT_TRUE(settle(*index).is_ok());
  EXPECT_TRUE(index->verify().is_ok()) << index->verify().message();
  EXPECT_EQ(find_passages(*index, "Who has a walnut?", {})->hits.size(), 1u);
  EXPECT_EQ(find_passages(*index, "東京", {})->hits.size(), 1u);
  const Chunk chunk = (*index->chunks_of(1))[1];
  EXPECT_EQ(chunk.line_begin, 0u);
  EXPECT_EQ(chunk.record, record_of("東京の海"));
  EXPECT_EQ((*index->documents())[0].info.root, "");
  EXPECT_TRUE(put(*index, "/b", {"fig"}).is_ok());
  // Whoever had it open reads on.
  EXPECT_EQ(reader->documents()->size(), 2u);
  EXPECT_EQ(find_passages(*reader, "Who has a walnut?", {})->hits.size(), 1u);
}

TEST_F(IndexSchema, AnIndexWithoutFlagsIsReadAsItIsAndBroughtUpToDate) {
  const Settlement settlement{.model = "m", .prompt = "chat", .anchor = "none", .scope = "s"};
  const auto settle = [&](Index& index) {
    return index.settle({[&](const auto&, bool) -> Result<Settlement> { return settlement; },
                         [](std::span<const int32_t> tokens) { return record_of(tokens); }});
  };
  ASSERT_TRUE(settle(**Index::open(file_, Mode::kReadWrite)).is_ok());
  change(kVersion5To4);
  change(kVersion4To3);
  change(settlement_of_version_4(**Database::open(file_, false, true)));
  // As version 3 hashed its row: the path's length, and the path.
  const auto size = int64_t{2};
  const std::string said = std::string(reinterpret_cast<const char*>(&size), sizeof size) + "/w";
  change("INSERT INTO unfinished_roots VALUES('/w', " +
         std::to_string(static_cast<int64_t>(hash64(std::as_bytes(std::span(said))))) + ")");
  const IngestRoot without_flags{.path = "/w"};

  auto reader = *Index::open(file_, Mode::kReadOnly);
  EXPECT_EQ(reader->unfinished()->roots.back(), without_flags);
  EXPECT_EQ(reader->search("walnut", 5)->size(), 1u);
  EXPECT_TRUE(reader->verify().is_ok()) << reader->verify().message();

  auto index = *Index::open(file_, Mode::kReadWrite);
  EXPECT_EQ(index->begin_roots({}).code(), StatusCode::kUnsupported);
  ASSERT_TRUE(settle(*index).is_ok());
  EXPECT_TRUE(index->verify().is_ok()) << index->verify().message();
  EXPECT_EQ(index->unfinished()->roots.back(), without_flags);
  const IngestRoot root{.path = "/w", .exclude = {"*.log"}, .encoding = "utf-16"};
  ASSERT_TRUE(index->begin_roots(std::vector<IngestRoot>{root}).is_ok());
  EXPECT_EQ(reader->unfinished()->roots.back(), root);  // whoever had it open reads on
  EXPECT_EQ(index->search("walnut", 5)->size(), 1u);
}

TEST_F(IndexSchema, AnIndexWithoutTypesIsReadAsF16AndBroughtUpToDate) {
  Settlement settlement{.model = "m", .prompt = "chat", .anchor = "none", .scope = "s"};
  const auto settle = [&](Index& index) {
    return index.settle({[&](const std::optional<Settlement>& there, bool) -> Result<Settlement> {
                           EXPECT_EQ(there.value_or(settlement), settlement);
                           return settlement;
                         },
                         [](std::span<const int32_t> tokens) { return record_of(tokens); }});
  };
  ASSERT_TRUE(settle(**Index::open(file_, Mode::kReadWrite)).is_ok());
  change(kVersion5To4);
  change(settlement_of_version_4(**Database::open(file_, false, true)));

  auto reader = *Index::open(file_, Mode::kReadOnly);
  EXPECT_EQ(reader->settlement()->record_type, "f16");
  EXPECT_EQ(reader->settlement(), settlement);
  EXPECT_TRUE(reader->verify().is_ok()) << reader->verify().message();

  auto index = *Index::open(file_, Mode::kReadWrite);
  EXPECT_EQ(index->begin_roots({}).code(), StatusCode::kUnsupported);
  const std::vector<Chunk> before = *index->chunks_of(1);
  ASSERT_TRUE(settle(*index).is_ok());
  EXPECT_EQ((*index->chunks_of(1))[0].record, before[0].record);
  EXPECT_TRUE(index
                  ->sweep([](const Hash128&) {
                    ADD_FAILURE() << "a record is no longer needed";
                    return Status::ok();
                  })
                  .is_ok());
  EXPECT_TRUE(index->verify().is_ok()) << index->verify().message();
  EXPECT_EQ((*Index::open(file_, Mode::kReadOnly))->settlement(), settlement);
  EXPECT_EQ(reader->search("walnut", 5)->size(), 1u);  // whoever had it open reads on
}

TEST_F(IndexSchema, TheTypeOfRecordsIsKeptAndCounts) {
  const Settlement settlement{
      .model = "m", .prompt = "chat", .anchor = "none", .scope = "s", .record_type = "q8_0"};
  ASSERT_TRUE((*Index::open(file_, Mode::kReadWrite))
                  ->settle({[&](const auto&, bool) -> Result<Settlement> { return settlement; },
                            [](std::span<const int32_t> tokens) { return record_of(tokens); }})
                  .is_ok());
  EXPECT_EQ((*Index::open(file_, Mode::kReadOnly))->settlement(), settlement);
  change("UPDATE settlement SET record_type = 'f16'");
  EXPECT_THAT(Index::open(file_, Mode::kReadOnly).status().message(),
              HasSubstr("its hash differs: damaged"));
}

TEST_F(IndexSchema, AForgedRootOfAnIndexWithoutFlagsIsNotTakenOver) {
  change(std::string(kVersion5To4) + kVersion4To3 + "INSERT INTO unfinished_roots VALUES('/w', 5)");
  EXPECT_EQ((*Index::open(file_, Mode::kReadOnly))->unfinished().status().code(),
            StatusCode::kCorrupt);
  const Status settled =
      (*Index::open(file_, Mode::kReadWrite))
          ->settle({[](const auto&, bool) { return Result<Settlement>(Settlement{}); },
                    [](std::span<const int32_t> t) { return record_of(t); }});
  EXPECT_EQ(settled.code(), StatusCode::kCorrupt);
  EXPECT_EQ((*Index::open(file_, Mode::kReadOnly))->unfinished().status().code(),
            StatusCode::kCorrupt);
}

TEST_F(IndexSchema, AViewInATablesPlaceIsNeverRun) {
  // Each reading of `documents` would be one step of SQLite's that takes hours; were it run, this
  // test would not end.
  change(
      "ALTER TABLE documents RENAME TO documents2;"
      "CREATE VIEW documents AS SELECT * FROM documents2 WHERE id + instr("
      "hex(zeroblob(7000000)), hex(zeroblob(3500000)) || '1') > 0");
  expect_refused();
}

TEST_F(IndexSchema, ForeignSchemasAreRefused) {
  for (const std::string more :
       {"CREATE TABLE other(x)", "CREATE VIEW other AS SELECT 1", "ANALYZE",
        "CREATE INDEX other ON chunks(abs(n_tokens))",
        "CREATE TRIGGER other AFTER INSERT ON chunks BEGIN SELECT 1; END",
        "ALTER TABLE documents ADD COLUMN other AS (hex(path))",
        "DROP VIEW chunk_source; CREATE VIEW chunk_source AS"
        " SELECT chunks.id AS id, document_id, title, hex(text) AS text, pieces"
        " FROM chunks JOIN documents ON documents.id = document_id",
        "DROP INDEX chunks_by_record", "DROP TABLE unneeded_records", "DROP TABLE unfinished_roots",
        "PRAGMA user_version = 4", "PRAGMA user_version = 3", "PRAGMA user_version = 2",
        "PRAGMA user_version = 1"}) {
    SCOPED_TRACE(more);
    change(more);
    expect_refused();
    std::filesystem::remove(file_);
    SetUp();
  }
}

TEST_F(IndexSchema, AnOldIndexesSchemaIsCheckedToo) {
  make_old("CREATE TABLE meta(key TEXT PRIMARY KEY, value BLOB NOT NULL, x AS (hex(value)))");
  expect_refused();
}

TEST_F(IndexSchema, AChangeChecksTheSchemaAgain) {
  auto index = *Index::open(file_, Mode::kReadWrite);
  change("CREATE TABLE other(x)");
  EXPECT_THAT(put(*index, "/b", {"fig"}).status().message(), HasSubstr("not an index of weft"));
}

TEST_F(IndexSchema, ATableOfAnotherToolIsNamed) {
  change("ANALYZE");
  EXPECT_THAT(Index::open(file_, Mode::kReadOnly).status().message(),
              HasSubstr("weft did not make its table 'sqlite_stat1'"));
  change("DROP TABLE sqlite_stat1");
  EXPECT_TRUE(Index::open(file_, Mode::kReadOnly).is_ok());
}

TEST_F(IndexSchema, AnEmptyFileIsNotAnIndexYet) {
  const std::string empty = dir_ / "empty.db";
  std::ofstream(empty).close();
  for (const Mode mode : {Mode::kReadOnly, Mode::kReadWrite}) {
    EXPECT_EQ(Index::open(empty, mode).status().code(), StatusCode::kNotFound);
  }
  EXPECT_TRUE(Index::open(empty, Mode::kCreate).is_ok());
}

TEST_F(IndexSchema, ReadingChecksTheSchemaAgain) {
  for (const Mode mode : {Mode::kReadWrite, Mode::kReadOnly}) {
    auto index = *Index::open(file_, mode);
    ASSERT_TRUE(index->documents().is_ok());
    change("CREATE TABLE other(x)");
    const Hash128 record{};
    for (const Status& status :
         {index->documents().status(), index->find_document("/a").status(),
          index->chunks_of(1).status(), index->chunk(1).status(), index->counts().status(),
          index->search("walnut", 3).status(), index->has_record(record).status(),
          index->all_chunks([](const Chunk&) { return Status::ok(); })}) {
      EXPECT_THAT(status.message(), HasSubstr("not an index of weft"));
    }
    change("DROP TABLE other");
    EXPECT_TRUE(index->documents().is_ok());
  }
}

TEST_F(IndexSchema, RowsCannotSayMoreThanTheFileHolds) {
  const auto database = *Database::open(file_, false, true);
  ReadLimit limit(*database);
  const Document document{.info = {.path = "/a", .title = std::string(1000, 'x')}};
  const auto n_most = static_cast<int>((database->file_bytes() + (1 << 20)) / 1000);
  int n_kept = 0;
  Status status;
  while (n_kept <= n_most && (status = limit.add(document)).is_ok()) ++n_kept;
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr(file_));
  EXPECT_GT(n_kept, n_most / 2);
}

}  // namespace
}  // namespace weft::retrieval
