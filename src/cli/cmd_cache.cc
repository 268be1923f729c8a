// weft cache ls|stat|verify|rm|gc: what a folder's chunk store holds, and what of it no document
// has.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/terminal_text.h"
#include "cli/app.h"
#include "cli/library.h"
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

enum class Access { kRead, kChange };

Result<std::unique_ptr<store::ChunkStore>> open_store(App& app, const CacheFlags& flags,
                                                      Access access) {
  return store::ChunkStore::open(
      app.env, {.dir = flags.dir, .read_only = access == Access::kRead, .cancelled = interrupted});
}

/// Null in a store without one: nothing was ingested.
Result<std::unique_ptr<retrieval::Index>> open_index(App& app, const CacheFlags& flags,
                                                     retrieval::Index::Mode mode) {
  auto index = retrieval::Index::open(index_path(flags.dir), mode, app.env, index_wait());
  if (index.status().code() == StatusCode::kNotFound) return std::unique_ptr<retrieval::Index>();
  return index;
}

Status run_ls(App& app, const CacheFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const auto store, open_store(app, flags, Access::kRead));
  WEFT_ASSIGN_OR_RETURN(const std::vector<store::RecordSummary> records, store->ls());
  Json list = Json::array();
  for (const store::RecordSummary& r : records) {
    if (flags.json) {
      list.push_back({{"hash", r.hash.to_hex()},
                      {"tokens", r.info.n_tokens},
                      {"bytes", r.file_bytes},
                      {"created_unix_ms", r.info.created_unix_ms},
                      {"last_use_unix_ms", r.last_use_unix_ms},
                      {"error", r.status.message()}});
    } else if (!r.status.is_ok()) {
      fmt::print("{}  damaged: {}\n", r.hash.to_hex(), one_line(r.status.message()));
    } else {
      fmt::print("{}  {:>5} tokens {:>8.2f} MB  used {} UTC\n", r.hash.to_hex(), r.info.n_tokens,
                 static_cast<double>(r.file_bytes) * 1e-6, date_of(r.last_use_unix_ms));
    }
  }
  if (flags.json) print_json({{"records", std::move(list)}});
  return Status::ok();
}

Status run_stat(App& app, const CacheFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const auto store, open_store(app, flags, Access::kRead));
  WEFT_ASSIGN_OR_RETURN(const store::StoreStats stats, store->stat());
  WEFT_ASSIGN_OR_RETURN(const uint64_t free, app.env.free_bytes(flags.dir));
  WEFT_ASSIGN_OR_RETURN(const auto index,
                        open_index(app, flags, retrieval::Index::Mode::kReadOnly));
  std::string model;
  std::string anchor;
  if (index != nullptr) {
    WEFT_ASSIGN_OR_RETURN(const auto settled, settlement_of(*index, *store));
    if (settled) model = fmt::format("{} {}", settled->model, settled->model_name);
    if (settled) anchor = settled->anchor;
  }
  if (flags.json) {
    print_json({{"records", stats.disk.records},
                {"bytes", stats.disk.bytes},
                {"free_bytes", free},
                {"model", model},
                {"anchor", anchor}});
    return Status::ok();
  }
  fmt::print("{} records, {:.1f} MB ({:.1f} MB free)\nmodel  {}\nanchor {}\n", stats.disk.records,
             static_cast<double>(stats.disk.bytes) * 1e-6, static_cast<double>(free) * 1e-6,
             model.empty() ? "-" : one_line(model), anchor.empty() ? "-" : one_line(anchor));
  return Status::ok();
}

/// What --repair did.
struct Repaired {
  int64_t removed_bad = 0;
  int64_t removed_unneeded = 0;
  int64_t incomplete_documents = 0;  // that it has marked so
};

/// Documents with a chunk whose record is not there are marked as incomplete.
Status mark_incomplete(retrieval::Index& index, const std::set<Hash128>& there,
                       Repaired& repaired) {
  WEFT_ASSIGN_OR_RETURN(const auto documents, index.documents());
  for (const retrieval::Document& document : documents) {
    if (document.status != retrieval::DocumentStatus::kStored) continue;
    WEFT_ASSIGN_OR_RETURN(const auto chunks, index.chunks_of(document.id));
    const bool is_whole = std::ranges::all_of(
        chunks, [&](const retrieval::Chunk& chunk) { return there.contains(chunk.record); });
    if (is_whole) continue;
    const Status marked = index.mark_incomplete(document.id);
    if (!marked.is_ok() && marked.code() != StatusCode::kNotFound) return marked;
    ++repaired.incomplete_documents;
  }
  return Status::ok();
}

/// Removes damaged records and those that no document has, and has the next ingest make the missing
/// ones. Only where the index is sound: it says which they are.
Result<Repaired> repair(store::ChunkStore& store, retrieval::Index& index,
                        const store::VerifyReport& report) {
  Repaired repaired;
  for (const auto& bad : report.bad) {
    const auto record = store::parse_record_file_name(bad.file);
    if (!record) continue;  // verify looks at no other files
    WEFT_RETURN_IF_ERROR(remove_record(store, *record, store::ChunkStore::Durable::kAtSync));
    ++repaired.removed_bad;
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<store::RecordSummary> records, store.ls());
  std::set<Hash128> there;
  std::vector<Hash128> unneeded;
  for (const store::RecordSummary& record : records) {
    WEFT_ASSIGN_OR_RETURN(const bool needed, index.has_record(record.hash));
    if (needed) {
      there.insert(record.hash);
    } else {
      unneeded.push_back(record.hash);
    }
  }
  const Status all = index.remove_unneeded(unneeded, [&](const Hash128& record) {
    if (interrupted()) return cancelled("stopped; what was removed so far is gone");
    ++repaired.removed_unneeded;
    return remove_record(store, record, store::ChunkStore::Durable::kAtSync);
  });
  WEFT_RETURN_IF_ERROR(store.sync());
  WEFT_RETURN_IF_ERROR(all);
  WEFT_RETURN_IF_ERROR(
      index.sweep([&](const Hash128& record) { return remove_record(store, record); }));
  WEFT_RETURN_IF_ERROR(mark_incomplete(index, there, repaired));
  return repaired;
}

void show_verified(const CacheFlags& flags, const store::VerifyReport& report, const Status& sound,
                   const std::optional<Repaired>& repaired) {
  Json bad = Json::array();
  for (const auto& b : report.bad) {
    if (flags.json) {
      bad.push_back({{"file", b.file}, {"error", b.status.message()}});
    } else {
      fmt::print("{}\n", one_line(b.status.message()));
    }
  }
  if (flags.json) {
    Json json = {{"records", report.records},
                 {"bytes", report.bytes},
                 {"bad", std::move(bad)},
                 {"index_error", sound.message()}};
    if (repaired) {
      json["removed_bad"] = repaired->removed_bad;
      json["removed_unneeded"] = repaired->removed_unneeded;
      json["incomplete_documents"] = repaired->incomplete_documents;
    }
    print_json(json);
    return;
  }
  fmt::print("{} records, {:.1f} MB, {} bad\n", report.records,
             static_cast<double>(report.bytes) * 1e-6, report.bad.size());
  if (repaired) {
    fmt::print(
        "{} damaged records removed, {} that no document has; {} documents are incomplete "
        "by that\n",
        repaired->removed_bad, repaired->removed_unneeded, repaired->incomplete_documents);
  }
}

Status run_verify(App& app, const CacheFlags& flags) {
  using Mode = retrieval::Index::Mode;
  WEFT_ASSIGN_OR_RETURN(const auto store,
                        open_store(app, flags, flags.repair ? Access::kChange : Access::kRead));
  auto progress = std::make_unique<Progress>("verify");
  WEFT_ASSIGN_OR_RETURN(
      const store::VerifyReport report, store->verify([&](uint64_t done, uint64_t total) {
        progress->show(static_cast<int64_t>(done), static_cast<int64_t>(total), "records");
        return !interrupted();
      }));
  progress.reset();
  // Opened to write, where that is allowed: only then SQLite compares the search terms, too. But
  // what cannot be read as it is (WAL) is not changed here.
  auto index = open_index(app, flags, Mode::kReadOnly);
  if (index.is_ok()) index = open_index(app, flags, Mode::kReadWrite);
  const Status sound = !index.is_ok() ? index.status() : *index ? (*index)->verify() : Status::ok();
  std::optional<Repaired> repaired;
  if (flags.repair && sound.is_ok()) {
    if (*index == nullptr) {
      return not_found(fmt::format(
          "{}: no index of documents here; weft cache rm --all removes all records", flags.dir));
    }
    WEFT_ASSIGN_OR_RETURN(repaired, repair(*store, **index, report));
  }
  show_verified(flags, report, sound, repaired);
  WEFT_RETURN_IF_ERROR(sound);
  if (repaired) {
    WEFT_ASSIGN_OR_RETURN(const std::string unfinished, unfinished_line(**index, flags.dir));
    if (!unfinished.empty()) print_error(unfinished);
    return Status::ok();
  }
  if (report.bad.empty()) return Status::ok();
  return corrupt(fmt::format(
      "{}: {} bad records; asking treats them as misses, weft cache verify --repair removes them",
      flags.dir, report.bad.size()));
}

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
  const auto removed = static_cast<int64_t>(before.disk.records) - after.disk.records;
  const auto freed = static_cast<int64_t>(before.disk.bytes) - after.disk.bytes;
  if (flags.json) {
    print_json({{"removed", removed}, {"freed_bytes", freed}});
  } else {
    fmt::print("{} records removed, {:.1f} MB freed\n", removed, static_cast<double>(freed) * 1e-6);
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
  const auto remove = [&](const Hash128& record) {
    if (interrupted()) return cancelled("stopped; what was removed so far is gone");
    if (!flags.dry_run) {  // one sync for all: there may be very many
      WEFT_RETURN_IF_ERROR(remove_record(*store, record, store::ChunkStore::Durable::kAtSync));
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
    WEFT_RETURN_IF_ERROR(
        index->sweep([&](const Hash128& record) { return remove_record(*store, record); }));
    WEFT_RETURN_IF_ERROR(index->drop_former_terms());
  }
  if (flags.json) {
    print_json({{"dry_run", flags.dry_run}, {"removed", removed}, {"freed_bytes", freed}});
  } else {
    fmt::print("{} records {}, {:.1f} MB {}\n", removed,
               flags.dry_run ? "would be removed" : "removed", static_cast<double>(freed) * 1e-6,
               flags.dry_run ? "would be freed" : "freed");
  }
  return Status::ok();
}

Command add_action(Command cache, App& app, const std::shared_ptr<CacheFlags>& flags,
                   const char* name, const char* what, Status (*run)(App&, const CacheFlags&)) {
  Command command = cache.add_command(name, what);
  command.add_option("--store", flags->dir, "folder that weft ingest filled")
      .value_name("DIR")
      .or_environment("WEFT_STORE");
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
