// weft cache ls|stat|verify|rm|gc: what a folder's chunk store holds, and what of it no document
// has.
// These commands see records and not what is in them. A record belongs to chunks of documents, and
// which do is known by the index alone: so whatever removes records here asks the index, and where
// that is damaged or missing, nothing is removed but by name or by --all. The rule for what cannot
// be read (rights, a bad sector, a newer version) is to keep it: it may be whole.
//
// Another process may ingest, ask or remove at the same time. Hence the order of each command:
// documents are read before records, as what is stored has its record first, and a record that
// seems unneeded is looked up once more when it is removed, under the index's lock.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/byte_sizes.h"
#include "base/counts_text.h"
#include "base/terminal_text.h"
#include "cli/app.h"
#include "cli/unfinished.h"
#include "fusion/record_type.h"
#include "library/library.h"
#include "store/chunk_store.h"

namespace weft::cli {
namespace {

struct CacheFlags {
  std::string dir;
  std::vector<std::string> hashes;
  bool all = false;
  bool dry_run = false;
  bool repair = false;
  bool json = false;
};

/// A store that is only looked at is opened read-only: it may be somebody else's.
enum class Access { kRead, kChange };

Result<std::unique_ptr<store::ChunkStore>> open_store(App& app, const CacheFlags& flags,
                                                      Access access) {
  return store::ChunkStore::open(app.env, {.dir = flags.dir,
                                           .read_only = access == Access::kRead,
                                           .type_of = fusion::record_type_name,
                                           .cancelled = interrupted});
}

/// Null in a store without one: nothing was ingested.
Result<std::unique_ptr<retrieval::Index>> open_index(App& app, const CacheFlags& flags,
                                                     retrieval::Index::Mode mode) {
  auto index = retrieval::Index::open(library::index_path(flags.dir), mode, app.env, index_wait());
  if (index.status().code() == StatusCode::kNotFound) return std::unique_ptr<retrieval::Index>();
  return index;
}

/// Reads each record's head alone: "damaged" here is a head that is wrong, and `verify` reads the
/// rest.
Status run_ls(App& app, const CacheFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const auto store, open_store(app, flags, Access::kRead));
  WEFT_ASSIGN_OR_RETURN(const std::vector<store::RecordSummary> records, store->ls());
  Json list = Json::array();
  for (const store::RecordSummary& r : records) {
    if (flags.json) {
      list.push_back({{"hash", r.hash.to_hex()},
                      {"tokens", r.info.n_tokens},
                      {"bytes", r.file_bytes},
                      {"type", r.type},
                      {"created_unix_ms", r.info.created_unix_ms},
                      {"last_use_unix_ms", r.last_use_unix_ms},
                      {"error", r.status.message()}});
    } else if (!r.status.is_ok()) {
      fmt::print("{}  damaged: {}\n", r.hash.to_hex(), one_line(r.status.message()));
    } else {
      fmt::print("{}  {:>5} tokens {:>8.2f} MB  {:<4}  used {} UTC\n", r.hash.to_hex(),
                 r.info.n_tokens, r.file_bytes * 1e-6, r.type, date_of(r.last_use_unix_ms));
    }
  }
  if (flags.json) print_json({{"records", std::move(list)}});
  return Status::ok();
}

/// What the store was settled to (model, anchor, type) is in the index, so a folder without one has
/// "-".
Status run_stat(App& app, const CacheFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const auto store, open_store(app, flags, Access::kRead));
  WEFT_ASSIGN_OR_RETURN(const store::StoreStats stats, store->stat());
  WEFT_ASSIGN_OR_RETURN(const uint64_t free, app.env.free_bytes(flags.dir));
  WEFT_ASSIGN_OR_RETURN(const auto index,
                        open_index(app, flags, retrieval::Index::Mode::kReadOnly));
  std::string model;
  std::string anchor;
  std::string type;
  if (index != nullptr) {
    WEFT_ASSIGN_OR_RETURN(const auto settled, library::settlement_of(*index, *store));
    if (settled) model = fmt::format("{} {}", settled->model, settled->model_name);
    if (settled) anchor = settled->anchor;
    if (settled) type = settled->record_type;
  }
  if (flags.json) {
    print_json({{"records", stats.disk.records},
                {"bytes", stats.disk.bytes},
                {"free_bytes", free},
                {"model", model},
                {"anchor", anchor},
                {"record_type", type}});
    return Status::ok();
  }
  fmt::print("{}, {} ({} free)\nmodel  {}\nanchor {}\ntype   {}\n",
             counted(stats.disk.records, "record"), size_text(stats.disk.bytes), size_text(free),
             model.empty() ? "-" : one_line(model), anchor.empty() ? "-" : one_line(anchor),
             type.empty() ? "-" : one_line(type));
  return Status::ok();
}

/// A document that counts as stored and has chunks without a record.
struct MissingRecords {
  std::string path;
  int64_t id = 0;
  int64_t chunks = 0;
};

/// Which documents miss records; nothing where the index is an older weft's, which has no names of
/// records.
Result<std::vector<MissingRecords>> find_missing(store::ChunkStore& store, retrieval::Index& index,
                                                 const store::VerifyReport& report) {
  std::vector<MissingRecords> missing;
  // Asked of any hash: what counts is whether it can be asked at all.
  if (index.has_record({}).status().code() == StatusCode::kUnsupported) return missing;
  // Before the records: what is stored in the meantime has a record already.
  WEFT_ASSIGN_OR_RETURN(const auto documents, index.documents());
  std::vector<std::vector<Hash128>> needed;
  for (const retrieval::Document& document : documents) {
    needed.emplace_back();
    if (document.status != retrieval::DocumentStatus::kStored) continue;
    WEFT_ASSIGN_OR_RETURN(const auto chunks, index.chunks_of(document.id));
    for (const retrieval::Chunk& chunk : chunks) needed.back().push_back(chunk.record);
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<store::RecordSummary> records, store.ls());
  std::set<Hash128> there;
  for (const store::RecordSummary& record : records) there.insert(record.hash);
  for (const auto& bad : report.bad) {  // links are no records, but are not missing besides
    if (const auto hash = store::parse_record_file_name(bad.file)) there.insert(*hash);
  }
  for (size_t i = 0; i < documents.size(); ++i) {
    MissingRecords of{documents[i].info.path, documents[i].id, 0};
    for (const Hash128& record : needed[i]) {
      if (there.contains(record)) continue;
      WEFT_ASSIGN_OR_RETURN(const bool has_record, index.has_record(record));
      if (has_record) ++of.chunks;  // else its document was taken out meanwhile
    }
    if (of.chunks > 0) missing.push_back(std::move(of));
  }
  return missing;
}

/// What --repair did.
struct Repaired {
  int64_t removed_bad = 0;
  int64_t removed_unneeded = 0;
  int64_t incomplete_documents = 0;  // that it has marked so
};

/// The removals of repair(), which syncs the folder.
/// Two kinds go: records whose bytes are wrong, and those that no chunk of the index has. Removed
/// one by one with a look at Ctrl-C in between; what is gone stays gone, and a second run goes on
/// from there.
Status remove_for_repair(store::ChunkStore& store, retrieval::Index& index,
                         const store::VerifyReport& report, Repaired& repaired) {
  for (const auto& bad : report.bad) {
    const auto record = store::parse_record_file_name(bad.file);
    if (!record || !bad.is_damaged()) continue;  // what may be whole stays
    if (interrupted()) return cancelled("stopped; what was removed so far is gone");
    WEFT_ASSIGN_OR_RETURN(const bool removed, store.remove_damaged(*record));
    if (removed) ++repaired.removed_bad;
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<store::RecordSummary> records, store.ls());
  std::set<Hash128> unreadable;
  for (const auto& bad : report.bad) {
    const auto record = store::parse_record_file_name(bad.file);
    if (record && !bad.is_damaged()) unreadable.insert(*record);
  }
  std::vector<Hash128> unneeded;
  for (const store::RecordSummary& record : records) {
    // It may be needed for all that can be told; see the head of this file.
    if (unreadable.contains(record.hash)) continue;
    WEFT_ASSIGN_OR_RETURN(const bool needed, index.has_record(record.hash));
    if (!needed) unneeded.push_back(record.hash);
  }
  return index.remove_unneeded(unneeded, [&](const Hash128& record) {
    if (interrupted()) return cancelled("stopped; what was removed so far is gone");
    ++repaired.removed_unneeded;
    return library::remove_record(store, record, store::ChunkStore::Durable::kAtSync);
  });
}

/// Removes damaged records and those that no document has, and has the next ingest make the missing
/// ones. What could not be read stays. Only where the index is sound and this weft's: it says which
/// they are.
/// The last step makes documents that now lack a record incomplete, which is how `weft ingest`
/// knows to compute them again. It cannot be first: what is damaged counts as there until it is
/// removed.
Result<Repaired> repair(store::ChunkStore& store, retrieval::Index& index,
                        const store::VerifyReport& report) {
  WEFT_RETURN_IF_ERROR(index.has_record({}).status());  // of an older weft: before any removal
  Repaired repaired;
  const Status all = remove_for_repair(store, index, report, repaired);
  WEFT_RETURN_IF_ERROR(store.sync());  // also of those before one that failed
  WEFT_RETURN_IF_ERROR(all);
  WEFT_RETURN_IF_ERROR(
      index.sweep([&](const Hash128& record) { return library::remove_record(store, record); }));
  store::VerifyReport kept;
  for (const auto& bad : report.bad) {
    if (!bad.is_damaged()) kept.bad.push_back(bad);
  }
  WEFT_ASSIGN_OR_RETURN(const auto missing, find_missing(store, index, kept));
  for (const MissingRecords& of : missing) {
    const Status marked = index.mark_incomplete(of.id);
    // Not found: it was taken out while this ran.
    if (!marked.is_ok() && marked.code() != StatusCode::kNotFound) return marked;
    ++repaired.incomplete_documents;
  }
  return repaired;
}

/// What `verify` found, and what --repair did about it.
struct Verified {
  store::VerifyReport report;
  int64_t damaged = 0;  // of report.bad; the others could not be read
  Status index;
  std::vector<MissingRecords> missing;  // before the repair
  int64_t missing_chunks = 0;
  std::optional<Repaired> repaired;

  int64_t unreadable() const { return std::ssize(report.bad) - damaged; }
};

void show_verified_json(const Verified& verified) {
  Json bad = Json::array(), unreadable = Json::array(), missing = Json::array();
  for (const auto& b : verified.report.bad) {
    (b.is_damaged() ? bad : unreadable)
        .push_back({{"file", b.file}, {"error", b.status.message()}});
  }
  for (const MissingRecords& of : verified.missing) {
    missing.push_back({{"path", of.path}, {"chunks", of.chunks}});
  }
  Json json = {{"records", verified.report.records},
               {"bytes", verified.report.bytes},
               {"bad", std::move(bad)},
               {"unreadable", std::move(unreadable)},
               {"missing", std::move(missing)},
               {"index_error", verified.index.message()}};
  if (const auto& repaired = verified.repaired) {
    json["removed_bad"] = repaired->removed_bad;
    json["removed_unneeded"] = repaired->removed_unneeded;
    json["incomplete_documents"] = repaired->incomplete_documents;
  }
  print_json(json);
}

void show_verified(const Verified& verified) {
  for (const auto& b : verified.report.bad) {
    fmt::print("{}{}\n", b.is_damaged() ? "" : "unreadable: ", one_line(b.status.message()));
  }
  for (const MissingRecords& of : verified.missing) {
    fmt::print("{}: {} without a record\n", one_line(of.path), counted(of.chunks, "chunk"));
  }
  fmt::print("{}, {:.1f} MB, {} bad", counted(verified.report.records, "record"),
             verified.report.bytes * 1e-6, verified.damaged);
  if (verified.unreadable() > 0) fmt::print(", {} unreadable", verified.unreadable());
  if (verified.missing_chunks > 0) {
    fmt::print(", {} without a record", counted(verified.missing_chunks, "chunk"));
  }
  fmt::print("\n");
  if (const auto& repaired = verified.repaired) {
    fmt::print("{} removed, {} that no document has; {} incomplete now\n",
               counted(repaired->removed_bad, "damaged record"), repaired->removed_unneeded,
               repaired->incomplete_documents == 1
                   ? "1 document is"
                   : fmt::format("{} documents are", repaired->incomplete_documents));
  }
}

/// What is still wrong, as one line.
/// kCorrupt, and so exit status 1, where anything is bad: a script that runs `weft cache verify`
/// nightly needs no look at the text. After a repair only what had to be kept counts.
Status judge(const std::string& dir, const Verified& verified) {
  WEFT_RETURN_IF_ERROR(verified.index);
  const int64_t unreadable = verified.unreadable();
  if (verified.repaired) {
    if (unreadable == 0) return Status::ok();
    return io_error(fmt::format("{}: {} could not be read and {} kept", dir,
                                counted(unreadable, "record"), unreadable == 1 ? "was" : "were"));
  }
  std::string what;
  const auto add = [&](int64_t n, const std::string& text) {
    if (n > 0) what += (what.empty() ? "" : ", ") + text;
  };
  add(verified.damaged, counted(verified.damaged, "bad record"));
  add(unreadable, counted(unreadable, "unreadable record"));
  add(verified.missing_chunks, counted(verified.missing_chunks, "chunk") + " without a record");
  if (what.empty()) return Status::ok();
  const bool can_repair = verified.damaged + verified.missing_chunks > 0;
  return corrupt(fmt::format("{}: {}; asking treats them as misses{}", dir, what,
                             can_repair ? ", weft cache verify --repair removes what is bad and "
                                          "says how to make what is missing"
                                        : ""));
}

/// All that was found is printed before the first error ends it: the list of bad records is what a
/// user of a failing disk needs.
Status run_verify(App& app, const CacheFlags& flags) {
  using Mode = retrieval::Index::Mode;
  WEFT_ASSIGN_OR_RETURN(const auto store,
                        open_store(app, flags, flags.repair ? Access::kChange : Access::kRead));
  auto progress = std::make_unique<Progress>("verify");
  WEFT_ASSIGN_OR_RETURN(store::VerifyReport report,
                        store->verify([&](uint64_t done, uint64_t total) {
                          progress->show(done, total, "records");
                          return !interrupted();
                        }));
  progress.reset();
  // Opened to write, where that is allowed: only then SQLite compares the search terms, too. But
  // what cannot be read as it is (WAL) is not changed here.
  auto index = open_index(app, flags, Mode::kReadOnly);
  if (index.is_ok()) index = open_index(app, flags, Mode::kReadWrite);
  Verified verified{.report = std::move(report)};
  verified.damaged =
      std::ranges::count_if(verified.report.bad, [](const auto& bad) { return bad.is_damaged(); });
  verified.index = index.status();
  if (index.is_ok() && *index != nullptr) verified.index = (*index)->verify();
  const bool has_index = verified.index.is_ok() && *index != nullptr;
  if (has_index) {
    WEFT_ASSIGN_OR_RETURN(verified.missing, find_missing(*store, **index, verified.report));
    for (const MissingRecords& of : verified.missing) verified.missing_chunks += of.chunks;
  }
  if (flags.repair && verified.index.is_ok()) {
    if (!has_index) {
      return not_found(fmt::format(
          "{}: no index of documents here; weft cache rm --all removes all records", flags.dir));
    }
    WEFT_ASSIGN_OR_RETURN(verified.repaired, repair(*store, **index, verified.report));
  }
  flags.json ? show_verified_json(verified) : show_verified(verified);
  if (has_index) {  // what an earlier repair took out is missing still
    WEFT_ASSIGN_OR_RETURN(const std::string unfinished, unfinished_line(**index, flags.dir));
    if (!unfinished.empty()) print_error(unfinished);
  }
  return judge(flags.dir, verified);
}

/// "cache rm" without a name must not mean all. What was removed is the difference of two looks at
/// the folder, as clear() does not count.
Status run_rm(App& app, const CacheFlags& flags) {
  if (flags.all == !flags.hashes.empty()) {
    return invalid_argument("name the records to remove (weft cache ls), or give --all");
  }
  std::vector<Hash128> hashes;
  for (const std::string& hex : flags.hashes) {
    const auto hash = store::parse_hash(hex);
    if (!hash)
      return invalid_argument(fmt::format("'{}' is no record: 32 hexadecimal digits", hex));
    hashes.push_back(*hash);
  }
  WEFT_ASSIGN_OR_RETURN(const auto store, open_store(app, flags, Access::kChange));
  WEFT_ASSIGN_OR_RETURN(const store::StoreStats before, store->stat());
  if (flags.all) WEFT_RETURN_IF_ERROR(store->clear());
  for (const Hash128& hash : hashes) WEFT_RETURN_IF_ERROR(store->remove(hash));
  WEFT_ASSIGN_OR_RETURN(const store::StoreStats after, store->stat());
  const int64_t removed = before.disk.records - after.disk.records;
  const int64_t freed = before.disk.bytes - after.disk.bytes;
  if (flags.json) {
    print_json({{"removed", removed}, {"freed_bytes", freed}});
  } else {
    fmt::print("{} removed, {:.1f} MB freed\n", counted(removed, "record"), freed * 1e-6);
  }
  return Status::ok();
}

/// Removes the records that no document's chunk has. With the index's own word for which those are,
/// and only when the index is sound.
Status run_gc(App& app, const CacheFlags& flags) {
  using Mode = retrieval::Index::Mode;
  WEFT_ASSIGN_OR_RETURN(const auto store,
                        open_store(app, flags, flags.dry_run ? Access::kRead : Access::kChange));
  WEFT_ASSIGN_OR_RETURN(const auto index,
                        open_index(app, flags, flags.dry_run ? Mode::kReadOnly : Mode::kReadWrite));
  if (index == nullptr) {
    return not_found(fmt::format(
        "{}: no index of documents here; weft cache rm --all removes all records", flags.dir));
  }
  WEFT_RETURN_IF_ERROR(index->verify());
  WEFT_ASSIGN_OR_RETURN(const std::vector<store::RecordSummary> records, store->ls());
  std::map<Hash128, uint64_t> unneeded;  // and their bytes
  for (const store::RecordSummary& record : records) {
    WEFT_ASSIGN_OR_RETURN(const bool needed, index->has_record(record.hash));
    if (!needed) unneeded.emplace(record.hash, record.file_bytes);
  }
  int64_t removed = 0;
  uint64_t freed = 0;
  // Called by the index for each record that is still unneeded when its turn comes.
  const auto remove = [&](const Hash128& record) {
    if (interrupted()) return cancelled("stopped; what was removed so far is gone");
    if (!flags.dry_run) {  // one sync for all: there may be very many
      WEFT_RETURN_IF_ERROR(
          library::remove_record(*store, record, store::ChunkStore::Durable::kAtSync));
    }
    ++removed;
    freed += unneeded[record];
    return Status::ok();
  };
  if (flags.dry_run) {
    for (const auto& [record, bytes] : unneeded) WEFT_RETURN_IF_ERROR(remove(record));
  } else {
    std::vector<Hash128> hashes;
    for (const auto& [record, bytes] : unneeded) hashes.push_back(record);
    const Status all = index->remove_unneeded(hashes, remove);
    WEFT_RETURN_IF_ERROR(store->sync());  // also of those before one that failed
    WEFT_RETURN_IF_ERROR(all);
    // What changes had left to be removed is gone now; the index may forget it.
    WEFT_RETURN_IF_ERROR(index->sweep(
        [&](const Hash128& record) { return library::remove_record(*store, record); }));
    WEFT_RETURN_IF_ERROR(index->drop_former_terms());
  }
  if (flags.json) {
    print_json({{"dry_run", flags.dry_run}, {"removed", removed}, {"freed_bytes", freed}});
  } else {
    fmt::print("{} {}, {:.1f} MB {}\n", counted(removed, "record"),
               flags.dry_run ? "would be removed" : "removed", freed * 1e-6,
               flags.dry_run ? "would be freed" : "freed");
  }
  return Status::ok();
}

/// One of the five commands; all share `flags`, of which only the given one's are set.
Command add_action(Command cache, App& app, const std::shared_ptr<CacheFlags>& flags,
                   const char* name, const char* what, Status (*run)(App&, const CacheFlags&)) {
  Command command = cache.add_command(name, what);
  command.add_option("--store", flags->dir, "folder that weft ingest filled")
      .value_name("DIR")
      .or_environment("WEFT_STORE");
  add_verbose_flag(command);
  command.when_given(
      [flags, run, &app] { app.run = [flags, run, &app] { return run(app, *flags); }; });
  return command;
}

}  // namespace

void add_cache_command(Command root, App& app) {
  Command cache = root.add_command("cache", "Look at and tidy the stored KV of documents");
  cache.needs_command();
  auto flags = std::make_shared<CacheFlags>();
  const auto json = [&](Command command) {
    command.add_flag("--json", flags->json, "print the report as JSON");
  };
  json(add_action(cache, app, flags, "ls", "List the records, least recently used first", run_ls));
  json(add_action(cache, app, flags, "stat", "Counts and sizes", run_stat));
  Command verify =
      add_action(cache, app, flags, "verify", "Check every checksum, and the index", run_verify);
  verify.add_flag("--repair", flags->repair,
                  "remove damaged records and those that no document has; weft ingest then makes "
                  "what is missing");
  json(verify);
  Command rm = add_action(cache, app, flags, "rm", "Remove records", run_rm);
  rm.add_option("hash", flags->hashes, "the records' names");
  rm.add_flag("--all", flags->all, "remove all records");
  json(rm);
  Command gc =
      add_action(cache, app, flags, "gc", "Remove the records that no document has", run_gc);
  gc.add_flag("--dry-run", flags->dry_run, "say what would be removed, remove nothing");
  json(gc);
}

}  // namespace weft::cli
