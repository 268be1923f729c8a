// The layers as a test: a room includes only rooms of a lower layer and no
// test support (ARCHITECTURE.md), and links
// what it includes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace weft {
namespace {

const std::map<std::string, int> kLayers{
    {"base", 0},    {"jinja", 0},    {"tensor", 1}, {"store", 1},  {"documents", 1},
    {"gguf", 2},    {"kernels", 2},  {"text", 3},   {"kv", 3},     {"model", 4},
    {"sparse", 4},  {"sampling", 4}, {"fusion", 5}, {"spec", 5}, {"engine", 6}, {"retrieval", 7},
    {"library", 8}, {"eval", 8},     {"bench", 9},  {"cli", 10},
};

/// Calls fn(path, room, line, number) for every line of the sources in a folder.
template <class Fn>
void for_each_line(Fn fn, const char* folder = "src") {
  const std::filesystem::path root = std::filesystem::path(WEFT_SOURCE_DIR) / folder;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string ending = entry.path().extension().string();
    if (ending != ".h" && ending != ".cc") continue;
    const std::string room = entry.path().lexically_relative(root).begin()->string();
    std::ifstream file(entry.path());
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
      fn(entry.path().string(), room, line, number);
    }
  }
}

TEST(Layering, RoomsIncludeOnlyLowerOnes) {
  const std::regex include("^#include \"([a-z_]+)/.*\"");
  for_each_line(
      [&](const std::string& path, const std::string& room, const std::string& line, int number) {
        std::smatch match;
        if (!std::regex_search(line, match, include) || match[1] == room) return;
        ASSERT_TRUE(kLayers.contains(room)) << path << ": room " << room << " has no layer";
        if (!kLayers.contains(match[1])) return;  // not a room
        EXPECT_LT(kLayers.at(match[1]), kLayers.at(room)) << path << ":" << number << ": " << line;
      });
}

/// CMake's list of a room is what its sources include, no more.
TEST(Layering, RoomsLinkWhatTheyInclude) {
  std::map<std::string, std::set<std::string>> included;
  const std::regex include("^#include \"([a-z_]+)/.*\"");
  for_each_line(
      [&](const std::string& path, const std::string& room, const std::string& line, int) {
        const std::string name = path.substr(path.rfind('/') + 1);
        if (name.ends_with("_test.cc") || name.starts_with("test_")) return;
        std::smatch match;
        if (!std::regex_search(line, match, include) || match[1] == room) return;
        if (kLayers.contains(match[1])) included[room].insert(match[1]);
      });
  std::ifstream file(std::filesystem::path(WEFT_SOURCE_DIR) / "CMakeLists.txt");
  std::stringstream text;
  text << file.rdbuf();
  const std::string lists = text.str();
  const std::regex list(R"(weft_(?:room|kernels_room|program)\((\w+)( weft)?\s*([^)]*)\))");
  size_t n_rooms = 0;
  for (std::sregex_iterator at(lists.begin(), lists.end(), list), end; at != end; ++at, ++n_rooms) {
    std::istringstream words((*at)[3].str());
    std::set<std::string> linked;
    bool in_rooms = false;
    for (std::string word; words >> word;) {
      if (word == "ROOMS" || word == "LINK") {
        in_rooms = word == "ROOMS";
      } else if (in_rooms) {
        linked.insert(word);
      }
    }
    EXPECT_EQ(linked, included[(*at)[1]]) << (*at)[1];
  }
  EXPECT_EQ(n_rooms, kLayers.size());
}

// A thread that the machine refuses must be an error: base/thread.h alone starts any.
TEST(Layering, ThreadsStartInOnePlace) {
  const std::regex starts(R"(std::(thread|jthread|async)\b|\bpthread_create\b|#include <future>)");
  for_each_line(
      [&](const std::string& path, const std::string&, const std::string& line, int number) {
        if (path.ends_with("_test.cc") || path.ends_with("/base/thread.cc")) return;
        const std::string code = line.substr(0, line.find("//"));
        EXPECT_FALSE(std::regex_search(code, starts)) << path << ":" << number << ": " << line;
      });
}

TEST(Layering, LayersAreRunInOnePlace) {
  for_each_line(
      [](const std::string& file, const std::string&, const std::string& line, int number) {
        if (file.ends_with("src/model/executor.cc") || file.ends_with("_test.cc") ||
            file.ends_with("src/model/forward.h") || file.ends_with("src/model/forward.cc")) {
          return;
        }
        for (const char* call : {".run_layer(", "->run_layer(", "run_last_layer("}) {
          EXPECT_EQ(line.find(call), std::string::npos)
              << file << ":" << number << ": only the executor runs layers (model/executor.h)";
        }
      });
}

// What tests share is in tests/support, which the program never links: a room's own files neither
// include it nor carry test helpers of their own.
TEST(Layering, RoomsCarryNoTestSupport) {
  const std::regex helper(R"(/(test_[a-z_]+|[a-z_]*test_support[a-z_]*|fault_env)\.(h|cc)$)");
  const std::regex include("#include (\"support/|<g(test|mock)/)");
  for_each_line(
      [&](const std::string& path, const std::string&, const std::string& line, int number) {
        if (path.ends_with("_test.cc")) return;
        EXPECT_TRUE(number > 1 || !std::regex_search(path, helper)) << path;
        EXPECT_FALSE(std::regex_search(line, include)) << path << ":" << number << ": " << line;
      });
}

/// So that WEFT_REQUIRE_ALL=1 sees every skip.
TEST(Layering, TestsSkipOnlyThroughSupport) {
  const auto check = [](const std::string& path, const std::string&, const std::string& line,
                        int number) {
    if (path.ends_with("tests/support/skip.h")) return;
    EXPECT_EQ(line.find("GTEST_"
                        "SKIP"),
              std::string::npos)
        << path << ":" << number << ": WEFT_SKIP_UNLESS of tests/support/skip.h, please";
  };
  for_each_line(check, "src");
  for_each_line(check, "tests");
}

TEST(Layering, EveryHeaderSaysWhatItIsFor) {
  const auto check = [](const std::string& path, const std::string&, const std::string& line,
                        int number) {
    if (number != 1 || !path.ends_with(".h")) return;
    EXPECT_TRUE(line.starts_with("//")) << path;
  };
  for (const char* folder : {"src", "tests"}) for_each_line(check, folder);
}

}  // namespace
}  // namespace weft
