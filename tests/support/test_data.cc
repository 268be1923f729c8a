#include "support/test_data.h"

#include <cstdlib>
#include <filesystem>

namespace weft::test {

bool requires_all() {
  const char* set = std::getenv("WEFT_REQUIRE_ALL");
  return set != nullptr && std::string(set) == "1";
}

std::string shared_dir() {
  const char* set = std::getenv("WEFT_SHARED");
  const std::string dir = set != nullptr ? set : std::string(WEFT_SOURCE_DIR) + "/../shared";
  return std::filesystem::is_directory(dir) ? dir : std::string();
}

std::string shared_file(const std::string& relative) {
  const std::string dir = shared_dir();
  const std::string path = dir + "/" + relative;
  return !dir.empty() && std::filesystem::is_regular_file(path) ? path : std::string();
}

std::string model_file(const std::string& name) {
  std::string dir;
  if (const char* models = std::getenv("WEFT_MODELS")) {
    dir = models;
  } else if (const char* data = std::getenv("XDG_DATA_HOME")) {
    dir = std::string(data) + "/weft/models";
  } else if (const char* home = std::getenv("HOME")) {
    dir = std::string(home) + "/.local/share/weft/models";
  }
  const std::string path = dir + "/" + name;
  return !dir.empty() && std::filesystem::is_regular_file(path) ? path : std::string();
}

}  // namespace weft::test
