// Where tests find data that the repository does not carry, and how they skip themselves when it is
// absent. Only tests include this file, and only here may a test skip (tests/layering_test.cc).
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

/// Leaves the test where the machine lacks something that could be had: a model, ../shared, a
/// right. That is a failure with WEFT_REQUIRE_ALL=1, which says that all must be there, as in CI.
#define WEFT_SKIP_UNLESS(has, what)                                                     \
  do {                                                                                  \
    if (has) break;                                                                     \
    if (::weft::test::requires_all()) FAIL() << "WEFT_REQUIRE_ALL is set: no " << what; \
    GTEST_SKIP() << "no " << what;                                                      \
  } while (false)
/// Leaves the test where the CPU lacks something.
#define WEFT_SKIP_UNLESS_CPU(has, what)                     \
  do {                                                      \
    if (!(has)) GTEST_SKIP() << "this CPU has no " << what; \
  } while (false)

namespace weft::test {

inline bool requires_all() {
  const char* set = std::getenv("WEFT_REQUIRE_ALL");
  return set != nullptr && std::string(set) == "1";
}

/// $WEFT_SHARED, else `../shared` beside the source tree; empty when there is no such folder.
inline std::string shared_dir() {
  const char* set = std::getenv("WEFT_SHARED");
  const std::string dir = set != nullptr ? set : std::string(WEFT_SOURCE_DIR) + "/../shared";
  return std::filesystem::is_directory(dir) ? dir : std::string();
}

/// A file under shared_dir(); empty when it is not there.
inline std::string shared_file(const std::string& relative) {
  const std::string dir = shared_dir();
  const std::string path = dir + "/" + relative;
  return !dir.empty() && std::filesystem::is_regular_file(path) ? path : std::string();
}

/// A model that `weft model get` fetched ($WEFT_MODELS, else the XDG data folder); empty if none.
inline std::string model_file(const std::string& name) {
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

inline constexpr const char* kSmolLm2File = "smollm2-135m.gguf";
inline constexpr const char* kGemma3File = "gemma3-270m.gguf";

/// The whole file as bytes; empty when it cannot be read.
inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace weft::test
