// A name of a model is a file's name without ".gguf", so that whatever a user copies into the
// folder is a model of that name, and there is no list of models that could be wrong.
#include "cli/local_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "cli/app.h"
#include "cli/known_models.h"
#include "cli/suggestion.h"
#include "gguf/gguf.h"
#include "library/library.h"

namespace weft::cli {
namespace {

constexpr std::string_view kSuffix = ".gguf";

std::string names_of(const std::vector<LocalModel>& models) {
  std::string names;
  for (const LocalModel& model : models) names += " " + model.name;
  return names;
}

/// Bytes on the disk that removing the path gives back: none of a link's target. Env follows links.
uint64_t own_bytes(const std::string& path, uint64_t size_bytes) {
  std::error_code error;
  return std::filesystem::is_symlink(path, error) ? 0 : size_bytes;
}

}  // namespace

std::string model_path(std::string_view name, const std::string& models_dir) {
  return join_path(models_dir, fmt::format("{}{}", name, kSuffix));
}

std::string terms_path(std::string_view name, const std::string& models_dir) {
  return join_path(models_dir, fmt::format("{}.terms.txt", name));
}

/// Only where the user has no home and no variable names a folder: a daemon's user, for example.
Status check_models_folder(const std::string& models_dir) {
  if (!models_dir.empty()) return Status::ok();
  return not_found(
      "there is no folder for models: neither WEFT_MODELS nor XDG_DATA_HOME is set, and there is "
      "no "
      "home folder (HOME)");
}

/// In the order of their names (Env::list's).
Result<std::vector<LocalModel>> list_models(Env& env, const std::string& models_dir) {
  std::vector<LocalModel> models;
  if (!env.exists(models_dir)) return models;
  WEFT_ASSIGN_OR_RETURN(const std::vector<DirEntry> entries, env.list(models_dir));
  for (const DirEntry& entry : entries) {
    if (entry.is_directory || !entry.name.ends_with(kSuffix)) continue;
    LocalModel model{entry.name.substr(0, entry.name.size() - kSuffix.size()),
                     join_path(models_dir, entry.name), entry.size_bytes, ""};
    const std::string terms = terms_path(model.name, models_dir);
    if (env.exists(terms)) model.terms_path = terms;
    models.push_back(std::move(model));
  }
  return models;
}

/// A chat template is what tells the two apart: who made a model to be talked with put one in.
std::string kind_of_model(Env& env, const std::string& path) {
  const auto file = gguf::File::open(env, path);
  if (!file.is_ok()) return "";
  return (*file)->get_string("tokenizer.chat_template").is_ok() ? "instruct" : "base";
}

/// A file that is there wins over a name, as for every program that takes a path. Then the folder:
/// "smollm2-135m", also as "smollm2-135m.gguf". Where nothing is found the error is the next step:
/// fetch it, or what was probably meant, of the models that are here before those that are not.
Result<std::string> resolve_model(Env& env, const std::string& name_or_path,
                                  const std::string& models_dir) {
  const auto is_file = [&](const std::string& path) {
    const Result<DirEntry> entry = env.stat(path);
    return entry.is_ok() && !entry->is_directory;
  };
  if (is_file(name_or_path)) {
    // As `weft quantize M smollm2-135m` makes one: silence would let two models go by one name.
    const bool is_bare = name_or_path.find('/') == std::string::npos && !models_dir.empty();
    if (is_bare && is_file(model_path(name_or_path, models_dir))) {
      print_error(fmt::format("{}: taken from this folder; the fetched model of that name is {}",
                              name_or_path, model_path(name_or_path, models_dir)));
    }
    return name_or_path;
  }
  if (name_or_path.empty()) return invalid_argument("the model's name is empty");
  const Result<DirEntry> entry = env.stat(name_or_path);
  const bool is_folder = entry.is_ok() && entry->is_directory;
  if (!is_folder && name_or_path.find('/') != std::string::npos) {
    return not_found(fmt::format("'{}': no such model file", name_or_path));
  }
  if (is_folder && name_or_path.find('/') != std::string::npos) {  // no name: "../x" stays outside
    return not_found(fmt::format("'{}': a folder; name the GGUF file in it", name_or_path));
  }
  if (const Status folder = check_models_folder(models_dir); !folder.is_ok()) {
    return not_found(fmt::format("'{}': no such file, and {}", name_or_path, folder.message()));
  }
  for (const std::string& path :
       {model_path(name_or_path, models_dir), join_path(models_dir, name_or_path)}) {
    if (is_file(path)) return path;
  }
  if (is_folder) {
    return not_found(fmt::format("'{}': a folder; name the GGUF file in it", name_or_path));
  }
  const std::string missing =
      fmt::format("'{}': no such file, and no model of that name in {}", name_or_path, models_dir);
  if (find_known_model(name_or_path).is_ok()) {
    return not_found(fmt::format("{}; fetch it: weft model get {}", missing, name_or_path));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<LocalModel> models, list_models(env, models_dir));
  std::vector<std::string> names;
  for (const LocalModel& model : models) names.push_back(model.name);
  const std::optional<std::string> meant = closest(name_or_path, names);
  if (meant) return not_found(fmt::format("{}; did you mean {}?", missing, *meant));
  names.clear();
  for (const KnownModel& known : known_models()) names.push_back(known.name);
  if (const auto known = closest(name_or_path, names)) {
    return not_found(
        fmt::format("{}; did you mean {}? weft model get {}", missing, *known, *known));
  }
  if (!models.empty()) return not_found(fmt::format("{}; there are:{}", missing, names_of(models)));
  return not_found(fmt::format("{}; a small one is fetched by: weft model get {}", missing,
                               known_models()[0].name));
}

/// By the file's name that the index remembers; that it is the same model is checked when the
/// library is opened, by its fingerprint.
Result<std::string> model_of_store(Env& env, const std::string& dir,
                                   const std::string& models_dir) {
  WEFT_ASSIGN_OR_RETURN(const library::ModelOfStore wanted,
                        library::model_of_store(env, dir, index_wait()));
  if (!wanted.file.empty() && !models_dir.empty()) {
    WEFT_ASSIGN_OR_RETURN(const auto models, list_models(env, models_dir));
    for (const LocalModel& model : models) {
      if (model.name + ".gguf" == wanted.file) return model.path;
    }
  }
  const auto known = std::ranges::find_if(known_models(), [&](const KnownModel& model) {
    return fmt::format("{}{}", model.name, kSuffix) == wanted.file;
  });
  const std::string way = known == known_models().end()
                              ? "name the model's file with -m"
                              : fmt::format("weft model get {} fetches it again", known->name);
  return not_found(fmt::format(
      "{}: its documents were ingested with {}, which is not in the models folder (weft model ls); "
      "{}",
      dir, wanted.name, way));
}

/// Synced at the end: what `rm` said is gone stays gone.
Result<uint64_t> remove_model(Env& env, const std::string& name, const std::string& models_dir) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<LocalModel> models, list_models(env, models_dir));
  auto model = std::ranges::find(models, name, &LocalModel::name);
  if (model == models.end())
    model = std::ranges::find(models, join_path(models_dir, name), &LocalModel::path);
  if (model == models.end()) {
    const std::string missing = fmt::format("'{}': no model of that name in {}", name, models_dir);
    return not_found(models.empty() ? missing + "; there is none"
                                    : fmt::format("{}; there are:{}", missing, names_of(models)));
  }
  uint64_t freed_bytes = own_bytes(model->path, model->size_bytes);
  WEFT_RETURN_IF_ERROR(env.remove(model->path));
  if (!model->terms_path.empty()) {
    WEFT_ASSIGN_OR_RETURN(const DirEntry terms, env.stat(model->terms_path));
    WEFT_RETURN_IF_ERROR(env.remove(model->terms_path));
    freed_bytes += own_bytes(model->terms_path, terms.size_bytes);
  }
  WEFT_RETURN_IF_ERROR(env.sync_dir(models_dir));
  return freed_bytes;
}

}  // namespace weft::cli
