// Style as a test: what the tree promises of its sources that no compiler looks at.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace weft {
namespace {

namespace fs = std::filesystem;

struct SourceFile {
  std::string path;  // from the repository's root
  std::vector<std::string> lines;
  bool is_test() const {
    const std::string name = path.substr(path.rfind('/') + 1);
    return path.starts_with("tests/") || path.starts_with("fuzz/") || name.ends_with("_test.cc");
  }
  bool is_header() const { return path.ends_with(".h"); }
};

std::vector<SourceFile> read_sources(std::initializer_list<const char*> folders) {
  std::vector<SourceFile> files;
  const fs::path root = WEFT_SOURCE_DIR;
  for (const char* folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string ending = entry.path().extension().string();
      if (ending != ".h" && ending != ".cc") continue;
      SourceFile file{entry.path().lexically_relative(root).string(), {}};
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) file.lines.push_back(line);
      files.push_back(std::move(file));
    }
  }
  return files;
}

/// Without comments and the insides of string literals.
std::string code_of(const std::string& line) {
  static const std::regex kString(R"("(\\.|[^"\\])*")");
  const std::string code = std::regex_replace(line, kString, "\"\"");
  return code.substr(0, code.find("//"));
}

/// `Type name(` at the depth of a namespace or a class, or in a .cc `Type Class::name(` at the
/// beginning of a line.
bool is_declaration(const SourceFile& file, const std::string& code, size_t at) {
  const std::string before = code.substr(0, at);
  static const std::regex kInHeader(R"(^( {2}| {4})?[A-Za-z:\[][^=(,.]*[\w>&*\]]\s+[&*]?$)");
  static const std::regex kInSource(R"(^[A-Za-z].*([\w>&*]\s+[&*]?|::)$)");
  static const std::regex kStatement(R"(^\s*(return|if|for|while|switch|else|case|throw)\b)");
  if (std::regex_search(before, kStatement)) return false;
  return std::regex_match(before, file.is_header() ? kInHeader : kInSource);
}

int64_t columns_of(const std::string& line) {
  return std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

TEST(Style, LinesStayWithin100Columns) {
  for (const SourceFile& file : read_sources({"src", "tests", "fuzz", "bench", "tools"})) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      EXPECT_LE(columns_of(file.lines[i]), 100) << file.path << ":" << i + 1;
    }
  }
}

// Tables and code blocks are as wide as they are.
TEST(Style, ProseStaysWithin100Columns) {
  const fs::path root = WEFT_SOURCE_DIR;
  std::vector<fs::path> pages{root / "README.md", root / "ARCHITECTURE.md",
                              root / "CONTRIBUTING.md"};
  for (const auto& entry : fs::recursive_directory_iterator(root / "docs")) {
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  }
  for (const fs::path& page : pages) {
    std::ifstream in(page);
    bool is_code = false;
    int number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      if (line.starts_with("```")) is_code = !is_code;
      if (is_code || line.starts_with("|")) continue;
      EXPECT_LE(columns_of(line), 100) << page << ":" << number;
    }
  }
}

/// Of some files together.
struct Counts {
  int64_t lines = 0;  // that are not blank
  int64_t comments = 0;
  int64_t casts = 0;
};
Counts count(const std::vector<SourceFile>& files, bool of_tests) {
  Counts counts;
  for (const SourceFile& file : files) {
    if (file.is_test() != of_tests) continue;
    for (const std::string& line : file.lines) {
      const size_t begin = line.find_first_not_of(" \t");
      if (begin == std::string::npos) continue;
      ++counts.lines;
      if (line.compare(begin, 2, "//") == 0) ++counts.comments;
      const std::string code = code_of(line);
      for (size_t at = 0; (at = code.find("static_cast<", at)) != std::string::npos; ++at) {
        ++counts.casts;
      }
    }
  }
  return counts;
}

// Newcomers manage where comments are an eighth of the lines (simdjson, leveldb: 15 to 28 %).
TEST(Style, CommentsAreAnEighthOfTheSource) {
  const Counts source = count(read_sources({"src"}), /*of_tests=*/false);
  EXPECT_GE(source.comments, source.lines * 12 / 100);
}

// There were 1,257: what converts without need hides what must convert.
TEST(Style, CastsAreFew) { EXPECT_LE(count(read_sources({"src"}), /*of_tests=*/false).casts, 400); }

TEST(Style, TestsAreHalfOfTheSourceOrMore) {
  const int64_t source = count(read_sources({"src"}), /*of_tests=*/false).lines;
  EXPECT_GE(2 * count(read_sources({"src", "tests"}), /*of_tests=*/true).lines, source);
}

// What only tests call is dead weight, unless its comment says that it is for them.
TEST(Style, FunctionsOfHeadersAreUsedByTheProduct) {
  const std::vector<SourceFile> files = read_sources({"src", "tools", "bench"});
  static const std::regex kCall(R"(\b([a-z]\w*)\()");
  std::map<std::string, std::string> declared;  // by name: where
  std::set<std::string> used;
  static const std::regex kName(R"(\b[a-z]\w*\b)");
  for (const SourceFile& file : files) {
    if (file.is_test()) continue;
    std::string comment;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      const std::string code = code_of(line);
      if (code.find_first_not_of(' ') == std::string::npos) {
        comment = line.empty() ? "" : comment + line;
        continue;
      }
      for (std::sregex_iterator at(code.begin(), code.end(), kName), end; at != end; ++at) {
        const auto begin = static_cast<size_t>(at->position());
        const size_t after = begin + static_cast<size_t>(at->length());
        const bool is_called = after < code.size() && code[after] == '(';
        if (!is_called || !is_declaration(file, code, begin)) {
          used.insert(at->str());
        } else if (file.is_header() && (comment + line).find("For tests") == std::string::npos &&
                   file.path.find("/ref/") == std::string::npos) {
          declared.emplace(at->str(), file.path + ":" + std::to_string(i + 1));
        }
      }
      comment.clear();
    }
  }
  EXPECT_GT(declared.size(), 1000u);
  for (const auto& [name, where] : declared) {
    EXPECT_TRUE(used.contains(name)) << where << ": only tests use " << name << ", or nothing does";
  }
}

}  // namespace
}  // namespace weft
