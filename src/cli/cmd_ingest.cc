// weft ingest: documents into a folder: cut into chunks, catalogued, and each chunk's KV computed
// once and stored.
#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include "cli/app.h"
#include "cli/ingester.h"
#include "cli/library.h"
#include "cli/reuse_flags.h"

namespace weft::cli {
namespace {

struct IngestFlags {
  ModelFlags model;
  LibraryOptions library;
  std::string anchor;
  std::vector<std::string> paths;
};

IngestEvents shown_events(Progress& progress) {
  IngestEvents events;
  events.skipped = [](const retrieval::SkippedFile& file) {
    print_error(fmt::format("{}: skipped, {}", file.path, file.reason));
  };
  events.planned = [](const IngestPlan& plan) {
    fmt::print(
        "{} documents, {} chunks, {} tokens: about {:.1f} MB of KV on disk ({:.1f} MB free)\n",
        plan.documents, plan.chunks, plan.tokens, static_cast<double>(plan.new_bytes) * 1e-6,
        static_cast<double>(plan.free_bytes) * 1e-6);
    std::fflush(stdout);
  };
  events.stored = [&progress](int64_t done, int64_t total) {
    progress.show(done, total, "tokens");
  };
  events.cancelled = interrupted;
  return events;
}

Status run_ingest(App& app, IngestFlags flags) {
  WEFT_RETURN_IF_ERROR(retrieval::check_outside_store(flags.paths, flags.library.dir));
  if (!app.env.stat(flags.library.dir).is_ok()) {  // no new folder for nothing
    for (const std::string& path : flags.paths) {
      WEFT_RETURN_IF_ERROR(app.env.stat(path).status());
    }
  }
  if (flags.model.model.empty()) {
    if (!app.env.exists(index_path(flags.library.dir))) {
      return invalid_argument(flags.library.dir +
                              ": the first ingest needs a model: -m (weft model ls lists them)");
    }
    WEFT_ASSIGN_OR_RETURN(flags.model.model, model_of_store(app, flags.library.dir));
  }
  WEFT_ASSIGN_OR_RETURN(const auto engine, open_engine(app, flags.model));
  WEFT_ASSIGN_OR_RETURN(Library library,
                        Library::create(app.env, flags.library, *engine, flags.anchor));
  std::optional<Progress> progress("ingest");
  Ingester ingester(app.env, *engine, library, shown_events(*progress));
  WEFT_ASSIGN_OR_RETURN(const IngestCounts counts, ingester.run(flags.paths));
  progress.reset();  // off the line
  const std::string moved = counts.moved > 0 ? fmt::format("{} moved, ", counts.moved) : "";
  fmt::print("{} new, {} changed, {} completed, {}{} deleted, {} unchanged documents; {} skipped\n",
             counts.added, counts.changed, counts.completed, moved, counts.deleted,
             counts.unchanged, counts.skipped);
  return Status::ok();
}

}  // namespace

void add_ingest_command(Command root, App& app) {
  auto flags = std::make_shared<IngestFlags>();
  Command command = root.add_command("ingest", "Compute and store the KV of documents");
  add_model_flags(command, flags->model, /*model_is_optional=*/true)
      .describe(
          "GGUF file, or the name of a fetched model; the first ingest needs it (default: "
          "the store's own)");
  command.add_option("--store", flags->library.dir, "folder for index and KV").required();
  add_prompt_flag(command, flags->library.prompt);
  command.add_option("--anchor", flags->anchor,
                     "what chunks are computed behind: none, opening, neutral or a file");
  command.add_bytes("--memory-limit", flags->library.memory_limit_bytes,
                    "bytes of KV kept in memory, as 512MB (default: 1GB)");
  command
      .add_bytes("--store-limit", flags->library.store_limit_bytes,
                 "bytes of KV on disk at most, as 10GB (default: none)")
      .positive();
  command.add_option("paths", flags->paths, "files and folders").required();
  command.when_given(
      [flags, &app] { app.run = [flags, &app] { return run_ingest(app, *flags); }; });
}

}  // namespace weft::cli
