// weft cache ls|stat|verify|rm: what a folder's chunk store holds.
#include <fmt/format.h>

#include "cli/app.h"
#include "store/chunk_store.h"

namespace weft::cli {
namespace {

struct CacheFlags {
  std::string dir;
  std::vector<std::string> hashes;
  bool all = false;
  bool json = false;
};

Result<std::unique_ptr<store::ChunkStore>> open_store(App& app, const CacheFlags& flags) {
  return store::ChunkStore::open(app.env, {.dir = flags.dir});
}

Status run_ls(App& app, const CacheFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const auto store, open_store(app, flags));
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
      fmt::print("{}  damaged: {}\n", r.hash.to_hex(), r.status.message());
    } else {
      fmt::print("{}  {:>5} tokens {:>8.2f} MB  used {} UTC\n", r.hash.to_hex(), r.info.n_tokens,
                 static_cast<double>(r.file_bytes) * 1e-6, date_of(r.last_use_unix_ms));
    }
  }
  if (flags.json) print_json({{"records", std::move(list)}});
  return Status::ok();
}

Status run_stat(App& app, const CacheFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const auto store, open_store(app, flags));
  WEFT_ASSIGN_OR_RETURN(const store::StoreStats stats, store->stat());
  WEFT_ASSIGN_OR_RETURN(const uint64_t free, app.env.free_bytes(flags.dir));
  const auto property = [&](const char* name) {
    const auto value = store->property(name);
    return value.is_ok() ? *value : std::string();
  };
  const std::string model = property("model");
  const std::string anchor = property("anchor");
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
             model.empty() ? "-" : model, anchor.empty() ? "-" : anchor);
  return Status::ok();
}

Status run_verify(App& app, const CacheFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const auto store, open_store(app, flags));
  auto progress = std::make_unique<Progress>("verify");
  WEFT_ASSIGN_OR_RETURN(
      const store::VerifyReport report, store->verify([&](uint64_t done, uint64_t total) {
        progress->show(static_cast<int64_t>(done), static_cast<int64_t>(total), "records");
        return !interrupted();
      }));
  progress.reset();
  Json bad = Json::array();
  for (const auto& b : report.bad) {
    if (flags.json) {
      bad.push_back({{"file", b.file}, {"error", b.status.message()}});
    } else {
      fmt::print("{}\n", b.status.message());
    }
  }
  if (flags.json) {
    print_json({{"records", report.records}, {"bytes", report.bytes}, {"bad", std::move(bad)}});
  } else {
    fmt::print("{} records, {:.1f} MB, {} bad\n", report.records,
               static_cast<double>(report.bytes) * 1e-6, report.bad.size());
  }
  if (report.bad.empty()) return Status::ok();
  return corrupt(
      fmt::format("{}: {} bad records; asking treats them as misses, weft cache rm removes them",
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
  WEFT_ASSIGN_OR_RETURN(const auto store, open_store(app, flags));
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

CLI::App* add_action(CLI::App& cache, App& app, const std::shared_ptr<CacheFlags>& flags,
                     const char* name, const char* what, Status (*run)(App&, const CacheFlags&)) {
  CLI::App* command = cache.add_subcommand(name, what);
  command->add_option("--store", flags->dir, "folder that weft ingest filled")->required();
  command->callback(
      [flags, run, &app] { app.run = [flags, run, &app] { return run(app, *flags); }; });
  return command;
}

}  // namespace

void add_cache_command(CLI::App& root, App& app) {
  CLI::App* cache = root.add_subcommand("cache", "Look at and tidy the stored KV of documents");
  cache->require_subcommand(1);
  auto flags = std::make_shared<CacheFlags>();
  const auto json = [&](CLI::App* command) {
    command->add_flag("--json", flags->json, "print the report as JSON");
  };
  json(add_action(*cache, app, flags, "ls", "List the records, least recently used first", run_ls));
  json(add_action(*cache, app, flags, "stat", "Counts and sizes", run_stat));
  json(add_action(*cache, app, flags, "verify", "Check every checksum", run_verify));
  CLI::App* rm = add_action(*cache, app, flags, "rm", "Remove records", run_rm);
  rm->add_option("hash", flags->hashes, "the records' names");
  rm->add_flag("--all", flags->all, "remove all records");
  json(rm);
}

}  // namespace weft::cli
