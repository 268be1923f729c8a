// `weft bench ttft -m a.gguf --write-tokens a.gguf` must not replace the model. What a command
// reads is compared by the file itself (device and inode), as "./a.gguf", a link to it and the name
// in the models folder are all the same file.
#include "cli/output_file.h"

#include <filesystem>
#include <system_error>

namespace weft::cli {

Status refuse_inputs(const std::string& path, std::span<const std::string> inputs) {
  for (const std::string& input : inputs) {
    std::error_code none;  // one of the two is not there: then they are not the same
    if (std::filesystem::equivalent(input, path, none)) {
      return invalid_argument(path + ": is the file to be read; name another one to write");
    }
  }
  return Status::ok();
}

Result<AtomicFile> create_output(Env& env, const std::string& path,
                                 std::span<const std::string> inputs) {
  WEFT_RETURN_IF_ERROR(refuse_inputs(path, inputs));
  return AtomicFile::create(env, path, {});
}

}  // namespace weft::cli
