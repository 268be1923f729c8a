// Where tests find data that the repository does not carry: models and the folder ../shared.
#pragma once

#include <string>

namespace weft::test {

/// Whether WEFT_REQUIRE_ALL=1 says that all data must be there (support/skip.h).
bool requires_all();

/// $WEFT_SHARED, else `../shared` beside the source tree; empty when there is no such folder.
std::string shared_dir();

/// A file under shared_dir(); empty when it is not there.
std::string shared_file(const std::string& relative);

/// A model that `weft model get` fetched ($WEFT_MODELS, else the XDG data folder); empty if none.
std::string model_file(const std::string& name);

inline constexpr const char* kSmolLm2File = "smollm2-135m.gguf";
inline constexpr const char* kGemma3File = "gemma3-270m.gguf";

}  // namespace weft::test
