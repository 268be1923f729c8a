// What an open Index is made of, for the files that its calls are written in. Internal to this
// room.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "retrieval/database_internal.h"
#include "retrieval/index.h"
#include "retrieval/rows_internal.h"

namespace weft::retrieval {

struct Index::State {
  std::unique_ptr<Database> database;
  Rows rows;
  bool is_read_only = false;
  std::optional<Settlement> settlement;

  /// What is there now, in one snapshot: another process may bring the index up to date.
  Status look(int64_t& version, std::optional<Settlement>& there) {
    WEFT_ASSIGN_OR_RETURN(const auto reading, Transaction::begin_reading(*database));
    WEFT_ASSIGN_OR_RETURN(version, schema_version(*database));
    there.reset();
    if (version == kVersionWithoutHashes) return Status::ok();
    WEFT_ASSIGN_OR_RETURN(there, read_settlement(*database, version));
    return Status::ok();
  }

  Status check_up_to_date() const {
    if (rows.version() == kSchemaVersion) return Status::ok();
    return unsupported(database->path() +
                       ": an index of an older weft; weft ingest, run once, brings it up to date");
  }

  /// A transaction in an index that still is what this Index knows it as.
  Result<Transaction> begin_change() {
    WEFT_RETURN_IF_ERROR(check_up_to_date());
    WEFT_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*database));
    int64_t version = 0;
    std::optional<Settlement> there;
    WEFT_RETURN_IF_ERROR(look(version, there));
    if (version == rows.version() && there == settlement) return transaction;
    return invalid_argument(fmt::format(
        "{}: was settled anew{} by another process meanwhile; run this again", database->path(),
        there ? fmt::format(" for {}, anchor '{}',", there->model_name, there->anchor) : ""));
  }

  /// One snapshot to read in, whose schema is weft's own: another process may have put something
  /// else in a table's place since the last look.
  Result<std::optional<Transaction>> begin_reading() {
    WEFT_ASSIGN_OR_RETURN(auto reading, Transaction::begin_reading(*database));
    WEFT_ASSIGN_OR_RETURN(const int64_t version, schema_version(*database));
    rows.set_version(version);  // another process may have brought the index up to date
    return reading;
  }

  Result<Document> find(std::string_view where, FunctionRef<void(Statement&)> bind) {
    WEFT_ASSIGN_OR_RETURN(Statement row,
                          database->prepare(fmt::format("SELECT {} FROM documents d WHERE {}",
                                                        rows.document_columns(), where)));
    bind(row);
    WEFT_ASSIGN_OR_RETURN(const bool exists, row.step());
    if (!exists) return not_found(database->path() + ": no such document");
    return rows.document(row);
  }
  Result<Document> find(const std::string& path) {
    return find("d.path = ?", [&](Statement& row) { row.bind_text(path); });
  }
};

}  // namespace weft::retrieval
