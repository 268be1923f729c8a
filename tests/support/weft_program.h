// The built program in a folder of its own with a small random model: how tests run `weft` and look
// at what it did.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gguf/random_model.h"
#include "support/files.h"
#include "support/program.h"
#include "support/skip.h"

namespace weft::test {

struct Outcome : ProgramRun {
  nlohmann::json json() const {
    nlohmann::json parsed = nlohmann::json::parse(out, nullptr, false);
    EXPECT_FALSE(parsed.is_discarded()) << out << err;
    return parsed;
  }
};

/// Two models of one shape, three documents, and the program.
class WeftProgram : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempDir>();
    gguf::RandomModelOptions options{.n_layers = 6,
                                     .n_embd = 64,
                                     .n_ff = 512,
                                     .n_heads = 4,
                                     .n_kv_heads = 2,
                                     .head_dim = 16,
                                     .vocab = 600};
    ASSERT_TRUE(gguf::write_random_model(posix_env(), model(), options).is_ok());
    options.seed = 2;
    ASSERT_TRUE(gguf::write_random_model(posix_env(), other_model(), options).is_ok());
  }
  static void TearDownTestSuite() { folder_.reset(); }

  void SetUp() override {
    std::filesystem::create_directories(docs());
    write_text(docs() + "/harbour.md", "# Harbour\n\nThe harbour opens at seven. " + filler(40));
    write_text(docs() + "/orchard.txt", "The orchard has pears and a stream. " + filler(60));
    write_text(docs() + "/library.txt", "The library lends maps. " + filler(300));
  }
  void TearDown() override {
    std::filesystem::remove_all(docs());
    std::filesystem::remove_all(store());
  }

  static std::string filler(int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += "Item " + std::to_string(i) + " stands on its shelf. ";
    return text;
  }

  static std::string path(const std::string& name) { return folder_->path() + "/" + name; }
  static std::string model() { return path("model.gguf"); }
  static std::string other_model() { return path("other.gguf"); }
  static std::string docs() { return path("docs"); }
  static std::string store() { return path("store"); }

  /// A run that goes on; finish() waits for its end.
  static RunningProgram start(std::vector<std::string> arguments, const std::string& input = "",
                              const std::string& name = "",
                              const std::function<void()>& prepare = {}) {
    return start_weft(folder_->path(), std::move(arguments), input, prepare, name);
  }
  static Outcome finish(const RunningProgram& running) { return {finish_weft(running)}; }
  static Outcome weft(std::vector<std::string> arguments, const std::string& input = "") {
    return finish(start(std::move(arguments), input));
  }

  Outcome ingest(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"ingest", "-m", model(), "--store", store(), docs()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return weft(arguments);
  }
  Outcome ask(const std::string& question, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"ask", "-m", model(),  "--store", store(),
                                       "-n",  "8",  "--json", question};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return weft(arguments);
  }

  /// One line on stderr that begins with the program's name, and the given exit status.
  static void expect_error(const Outcome& run, int status, const std::string& part) {
    EXPECT_EQ(run.status, status) << run.err;
    EXPECT_THAT(run.err, ::testing::HasSubstr(part));
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    EXPECT_TRUE(run.err.starts_with("weft: ")) << run.err;
  }

  static inline std::unique_ptr<TempDir> folder_;
};

}  // namespace weft::test
