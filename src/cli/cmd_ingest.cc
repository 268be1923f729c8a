// weft ingest: documents into a folder: cut into chunks, catalogued, and each chunk's KV computed
// once and stored.
// The work is library::Ingester's; here is what people are told of it. Folders hold many files that
// are no text, so lines about files come in groups
// ("3 hidden, 2 PDF (a.pdf, b.pdf)"), and only what was named on the command line has its own. What
// it will take is said before it is taken: chunks, tokens and bytes of KV, which are thousands of
// times those of the text.
//
// Whatever ends it, what was stored can be used, and the line at the end has the command that
// completes it.
#include <fmt/format.h>

#include <cstdio>
#include <map>

#include "base/byte_sizes.h"
#include "base/counts_text.h"
#include "cli/app.h"
#include "cli/ingest_report.h"
#include "cli/local_models.h"
#include "cli/reuse_flags.h"
#include "cli/unfinished.h"
#include "library/ingester.h"
#include "library/library.h"

namespace weft::cli {
namespace {

constexpr size_t kMaxJsonEntries = 10'000;  // of what was skipped
constexpr size_t kGuessesByName = 3;        // more are told together; so are empty documents

struct IngestFlags {
  ModelFlags model;
  library::LibraryOptions library{.cancelled = interrupted};
  std::string anchor;
  std::string encoding;
  std::vector<std::string> exclude;
  bool no_ignore = false;
  bool rehash = false;
  bool json = false;
  std::vector<std::string> paths;
};

/// Shows how an ingest goes, and keeps what is to be said at its end.
/// In JSON the lists end at kMaxJsonEntries; n_skipped counts all.
class Report {
 public:
  Report(App& app, const IngestFlags& flags) : app_(app), flags_(flags), progress_("ingest") {}

  library::IngestEvents events() {
    library::IngestEvents events;
    events.skipped = [this](const retrieval::SkippedFile& file) { skipped(file); };
    events.guessed = [this](const std::string& path, const std::string& guess) {
      guessed(path, guess);
    };
    events.empty = [this](const std::string& path) { empty_.push_back(path); };
    events.noted = [this](const std::string& line) { note(line); };
    events.planned = [this](const library::IngestPlan& plan) { planned(plan); };
    // Redrawn for each chunk; one column is left free, as some terminals wrap when the last is
    // filled.
    events.stored = [this](const library::IngestProgress& at) {
      const double elapsed_s = (app_.env.monotonic_ns() - began_ns_) * 1e-9;
      progress_.show_line(
          progress_line({at, plan_.new_tokens, elapsed_s}, Progress::columns() - 1));
    };
    events.cancelled = interrupted;
    return events;
  }

  /// What was skipped and guessed and what has no text, in a few lines.
  void end() {
    progress_.hide();
    end_empty();
    for (const auto& [guess, paths] : guessed_) {
      if (flags_.model.verbose) continue;  // told already
      if (paths.size() <= kGuessesByName) {
        for (const std::string& path : paths) say_guess(path, guess);
        continue;
      }
      NameGroups names;
      for (const std::string& path : paths) names.add(guess, file_name(path));
      say(fmt::format("{} files {} ({}; --encoding says otherwise)",
                      grouped_digits(std::ssize(paths)), guess, names.groups().front().names));
    }
    if (!skips_.is_empty()) say("skipped: " + skips_.line());
  }

  void print_counts(const library::IngestCounts& counts) {
    if (!flags_.json) {
      fmt::print("{}\n", counts_line(counts));
      return;
    }
    print_json({{"new", counts.added},
                {"changed", counts.changed},
                {"completed", counts.completed},
                {"moved", counts.moved},
                {"deleted", counts.deleted},
                {"skipped_now", counts.skipped_now},
                {"unchanged", counts.unchanged},
                {"chunks", plan_.chunks},
                {"tokens", plan_.tokens},
                {"new_chunks", plan_.new_chunks},
                {"new_tokens", plan_.new_tokens},
                {"new_bytes", plan_.new_bytes},
                {"guesses", guesses_json_},
                {"notes", notes_},
                {"n_skipped", counts.skipped},
                {"skipped", skipped_json_}});
  }

 private:
  void say(const std::string& line) {
    if (flags_.json) return;
    progress_.hide();
    print_error(line);
  }

  void note(const std::string& line) {
    notes_.push_back(line);
    say(line);
  }

  /// A document without text is in the index, and a user who asks about it would wonder. These are
  /// notes: JSON has them, too.
  void end_empty() {
    if (flags_.model.verbose || empty_.size() <= kGuessesByName) {
      for (const std::string& path : empty_) note(path + ": has no text, so no question finds it");
      return;
    }
    NameGroups names;
    for (const std::string& path : empty_) names.add("", file_name(path));
    note(fmt::format("{} documents have no text, so no question finds them ({})",
                     grouped_digits(std::ssize(empty_)), names.groups().front().names));
  }

  void skipped(const retrieval::SkippedFile& file) {
    if (flags_.json) {
      if (skipped_json_.size() < kMaxJsonEntries) {
        skipped_json_.push_back(
            {{"path", file.path}, {"kind", file.kind}, {"reason", file.reason}});
      }
      return;
    }
    if (file.named || flags_.model.verbose)
      say(fmt::format("{}: skipped, {}", file.path, file.reason));
    if (!file.named) skips_.add(file.kind, file_name(file.path));
  }

  void guessed(const std::string& path, const std::string& guess) {
    if (flags_.json) {
      if (guesses_json_.size() < kMaxJsonEntries) {
        guesses_json_.push_back({{"path", path}, {"guess", guess}});
      }
      return;
    }
    guessed_[guess].push_back(path);
    if (flags_.model.verbose) say_guess(path, guess);
  }

  void say_guess(const std::string& path, const std::string& guess) {
    say(fmt::format("{}: {} (--encoding says otherwise)", path, guess));
  }

  /// The clock of the progress line starts here: scanning and cutting are not part of its rate.
  void planned(const library::IngestPlan& plan) {
    plan_ = plan;
    began_ns_ = app_.env.monotonic_ns();
    if (flags_.json) return;
    fmt::print("{}\n", plan_line(plan));
    std::fflush(stdout);
  }

  static std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

  App& app_;
  const IngestFlags& flags_;
  Progress progress_;
  library::IngestPlan plan_;
  int64_t began_ns_ = 0;
  NameGroups skips_;
  std::map<std::string, std::vector<std::string>> guessed_;  // paths by guess
  std::vector<std::string> empty_;                           // paths
  std::vector<std::string> notes_;
  Json skipped_json_ = Json::array();
  Json guesses_json_ = Json::array();
};

/// What the scan is to read, and how.
Result<retrieval::ScanOptions> scan_options(const IngestFlags& flags) {
  retrieval::ScanOptions options;
  if (!flags.encoding.empty()) {
    const auto encoding = documents::encoding_by_name(flags.encoding);
    if (!encoding) {
      return invalid_argument(fmt::format("--encoding: '{}': must be one of {}", flags.encoding,
                                          fmt::join(documents::kEncodingNames, ", ")));
    }
    options.encoding = *encoding;
  }
  options.exclude = flags.exclude;
  options.reads_ignore_files = !flags.no_ignore;
  options.rehash = flags.rehash;
  return options;
}

/// The command that completes what Ctrl-C ended, such that it does not stop for want of room.
Result<std::string> line_after_stop(App& app, const IngestFlags& flags, library::Library& library,
                                    uint64_t bytes_left, const std::string& given_model) {
  WEFT_ASSIGN_OR_RETURN(const store::StoreStats stats, library.store().stat());
  const uint64_t limit = flags.library.store_limit_bytes;
  const uint64_t needed = stats.disk.bytes + bytes_left;
  const bool is_limit_too_small = limit > 0 && needed > limit;
  // The limit that is named is rounded up to three digits, for people to type.
  const auto three_digits = parse_byte_size(size_flag_for(needed));
  WEFT_ASSIGN_OR_RETURN(
      std::string line,
      unfinished_line(library.index(), flags.library.dir, given_model,
                      is_limit_too_small && three_digits ? three_digits->bytes : limit));
  if (line.empty()) return line;
  if (is_limit_too_small) {
    line += fmt::format(" (--store-limit {} does not hold all of it)", size_flag(limit));
  }
  WEFT_ASSIGN_OR_RETURN(const uint64_t free_bytes, app.env.free_bytes(flags.library.dir));
  return line + room_note(bytes_left, free_bytes);
}

/// What is wrong with the command is said before the model is opened and before anything is made: a
/// store that is the documents' own folder, a folder of other files that would become a store, a
/// misspelt path that would leave an empty one.
Status run_ingest(App& app, IngestFlags flags) {
  if (flags.paths.empty()) {
    return invalid_argument("name the files and folders to ingest: weft ingest --store DIR PATH");
  }
  WEFT_ASSIGN_OR_RETURN(const retrieval::ScanOptions options, scan_options(flags));
  WEFT_RETURN_IF_ERROR(retrieval::check_not_empty(flags.paths));
  WEFT_RETURN_IF_ERROR(retrieval::check_outside_store(flags.paths, flags.library.dir));
  WEFT_RETURN_IF_ERROR(library::check_may_be_store(app.env, flags.library.dir));
  // Of a store that is there, a path that is gone is for the scan to judge: its documents are.
  if (!app.env.stat(flags.library.dir).is_ok()) {  // no new folder for nothing
    for (const std::string& path : flags.paths) {
      const Status there = app.env.stat(path).status();
      if (there.code() == StatusCode::kNotFound)
        return not_found(path + ": no such file or folder");
      WEFT_RETURN_IF_ERROR(there);
    }
  }
  const std::string given_model = flags.model.model;
  flags.library.model_is_from_variable = is_from_variable(app, flags.model);
  if (flags.model.model.empty()) {
    if (!app.env.exists(library::index_path(flags.library.dir))) {
      return invalid_argument(flags.library.dir +
                              ": the first ingest needs a model: -m (weft model ls lists them)");
    }
    WEFT_ASSIGN_OR_RETURN(flags.model.model,
                          model_of_store(app.env, flags.library.dir, app.models_dir));
  }
  flags.model.steps = {.makes_chunks = true};
  WEFT_ASSIGN_OR_RETURN(const auto engine, open_engine(app, flags.model));
  WEFT_RETURN_IF_ERROR(record_type_of(flags.library.record_type, *engine).status());
  WEFT_ASSIGN_OR_RETURN(library::Library library,
                        library::Library::create(app.env, flags.library, *engine, flags.anchor));
  Report report(app, flags);
  library::Ingester ingester(app.env, *engine, library, report.events());
  const auto counts = ingester.run(flags.paths, options);
  report.end();
  // Nobody wants a new store that nothing came into; where it cannot be taken away, it stays.
  const auto taken_away = library.take_away_if_new(app.env);
  if (!counts.is_ok()) {
    const bool is_gone = taken_away.is_ok() && *taken_away;
    if (counts.status().code() == StatusCode::kCancelled && !is_gone) {  // an error is one line
      const auto line = line_after_stop(app, flags, library, ingester.bytes_left(), given_model);
      if (line.is_ok() && !line->empty()) print_error(*line);
    }
    return counts.status();
  }
  report.print_counts(*counts);
  if (counts->took_something() || counts->deleted > 0) return Status::ok();
  const bool is_gone = taken_away.is_ok() && *taken_away;
  // A mistyped folder or a filter that leaves nothing is a failure for whoever runs this in a
  // script.
  return not_found(flags.library.dir + ": no document came in, " +
                   (is_gone ? "so no store was made" : "and the store has what it had"));
}

}  // namespace

void add_ingest_command(Command root, App& app) {
  auto flags = std::make_shared<IngestFlags>();
  Command command = root.add_command("ingest", "Compute and store the KV of documents");
  add_model_flags(command, flags->model, /*model_is_optional=*/true)
      .describe(
          "GGUF file, or the name of a fetched model; the first ingest needs it (default: "
          "the store's own)");
  command
      .add_option("--store", flags->library.dir,
                  "folder of the store, for index and KV; made where it is not there")
      .value_name("DIR")
      .or_environment("WEFT_STORE");
  add_prompt_flag(command, flags->library.prompt);
  add_record_type_flag(command, flags->library.record_type, "the store's, at first f16");
  command.add_option(
      "--anchor", flags->anchor,
      fmt::format("what comes before each chunk while its KV is computed: {} (default: the "
                  "store's, at first neutral)",
                  engine::AnchorSpec::choices()));
  command.add_option("--encoding", flags->encoding,
                     "of files that are not UTF-8: utf-16, utf-16le, utf-16be, latin-1, "
                     "windows-1252, or utf-8 to mark damage (default: guessed)");
  command.add_repeated(
      "--exclude", flags->exclude,
      "pattern as in a .gitignore of what to skip, in this ingest alone (.weftignore "
      "lasts); may be given again");
  command.add_flag("--no-ignore", flags->no_ignore, "do not read .gitignore and .weftignore");
  command.add_flag("--rehash", flags->rehash,
                   "read also files whose size and time are as they were");
  command.get_option("--verbose")
      .describe(
          "a line for each file that is skipped, more of what is done, and what the KV cache held");
  command.add_flag("--json", flags->json, "the report as JSON");
  command.add_bytes("--memory-limit", flags->library.memory_limit_bytes,
                    "bytes of KV kept in memory, as 512MB (default: 1GB)");
  command
      .add_bytes(
          "--store-limit", flags->library.store_limit_bytes,
          "bytes of KV on disk at most, as 10GB, during this command: weft ask stores what is "
          "missing beyond it (default: none)")
      .positive();
  command.add_option("paths", flags->paths, "files and folders (at least one)");
  command.when_given(
      [flags, &app] { app.run = [flags, &app] { return run_ingest(app, *flags); }; });
}

}  // namespace weft::cli
