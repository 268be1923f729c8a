// The models folder: what is there, which file a name means, and removing one. Everything stays in
// that folder, which comes from the caller: a name never reaches out of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/status.h"

namespace weft::cli {

/// DIR/NAME.gguf
std::string model_path(std::string_view name, const std::string& models_dir);
/// DIR/NAME.terms.txt, the terms that were accepted for it.
std::string terms_path(std::string_view name, const std::string& models_dir);

/// kNotFound where `models_dir` is "": the user has none.
Status check_models_folder(const std::string& models_dir);

struct LocalModel {
  std::string name;
  std::string path;
  uint64_t size_bytes = 0;
  std::string terms_path;  // empty when it has none
};
/// The folder's .gguf files by name; a missing folder has none.
Result<std::vector<LocalModel>> list_models(Env& env, const std::string& models_dir);

/// "instruct" for a model with a chat template, "base" for one without, which goes on with a text
/// and is not talked with; "" for a file that is no model that can be read.
std::string kind_of_model(Env& env, const std::string& path);

/// The file that -m means: a path that exists, or a model in the folder by its name. kNotFound says
/// how to get it, or which there are.
Result<std::string> resolve_model(Env& env, const std::string& name_or_path,
                                  const std::string& models_dir);

/// The file of the model that a store's documents were ingested with, where it is in the models
/// folder: for commands without -m. kNotFound says that nothing was ingested, or names the model.
Result<std::string> model_of_store(Env& env, const std::string& dir, const std::string& models_dir);

/// Removes a model of the folder and its terms; returns the bytes freed. A link in the folder is
/// removed, what it points to stays. `name` is one that list_models gives, with or without .gguf;
/// any other, paths included, is kNotFound, which lists those.
Result<uint64_t> remove_model(Env& env, const std::string& name, const std::string& models_dir);

}  // namespace weft::cli
