// Fetches a model that weft knows: its parts are downloaded one after the other and joined, and the
// file gets its name only when its size and SHA-256 are the published ones. Terms that its user has
// to accept come as text first; whether they were accepted is the caller's to know. A run that is
// killed leaves nothing but a hidden folder that the next one clears.
#pragma once

#include <cstdint>
#include <string>

#include "base/env.h"
#include "base/function_ref.h"
#include "base/status.h"
#include "cli/known_models.h"
#include "cli/local_models.h"

namespace weft::cli {

/// Bytes done, of how many; false stops the work, which is then kCancelled.
using ByteProgress = FunctionRef<bool(uint64_t done, uint64_t total)>;

/// Whether `path` is the published file, byte for byte.
Result<bool> is_published_file(Env& env, const KnownModel& model, const std::string& path,
                               ByteProgress progress);

/// A model's terms as its package has them.
struct Terms {
  std::string notice;  // plain text
  std::string page;    // HTML
};
/// Downloads the package with the terms of a model that has some; keeps nothing on disk.
Result<Terms> fetch_terms(Env& env, const KnownModel& model, const std::string& models_dir);
/// The notice and then the page's text, in lines of `width` columns; kCorrupt when the page has
/// none.
Result<std::string> terms_text(const Terms& terms, int width);

struct FetchOptions {
  bool show_pip = false;   // let pip draw its progress on stderr
  std::string terms_text;  // kept at terms_path(); none when empty
};
/// Puts the model at model_path(), in place of a file that is there. Takes the model's size and
/// twice the largest part's of disk while it works, the model's afterwards. Not for several
/// threads.
Status fetch_model(Env& env, const KnownModel& model, const std::string& models_dir,
                   const FetchOptions& options, ByteProgress progress);

}  // namespace weft::cli
