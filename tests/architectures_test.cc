// weft beside another program (llama.cpp, in 32-bit floats) on small random models: logits and
// greedy tokens of every architecture and option. architecture_cases.h has the models,
// data/architectures the other program's numbers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "kernels/matmul_prefill.h"
#include "support/architecture_cases.h"
#include "support/test_model.h"

namespace weft {
namespace {

using kernels::MatmulPath;
using test::ArchitectureCase;
using test::TestModel;
using Json = nlohmann::json;

/// Positions that the reference allocated: longrope chooses its divisors by it.
constexpr int32_t kContext = 256;

std::string slurp_reference(const std::string& name) {
  return test::read_text(std::string(WEFT_SOURCE_DIR) + "/tests/data/architectures/" + name +
                         ".json");
}

std::string sha256_of(const std::string& bytes) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(bytes)));
  return hash.finish_hex();
}

/// Squared error over the reference's squares.
double normalised_error(std::span<const float> ours, std::span<const float> reference) {
  const double relative = test::relative_error(reference, ours);
  return relative * relative;
}

class Architectures : public ::testing::TestWithParam<ArchitectureCase> {
 protected:
  void SetUp() override {
    const ArchitectureCase& c = GetParam();
    path_ = dir_.path() + "/" + c.name + ".gguf";
    const Status written = gguf::write_random_model(posix_env(), path_, c.model);
    ASSERT_TRUE(written.is_ok()) << written.message();
    const std::string text = slurp_reference(c.name);
    ASSERT_FALSE(text.empty()) << "no reference for " << c.name
                               << ": run tools/make_architecture_references.py";
    reference_ = Json::parse(text);
    ASSERT_EQ(sha256_of(test::read_text(path_)), reference_["sha256"])
        << "the model that the reference ran is another: its row in architecture_cases.h or the "
           "writer of random models changed; run tools/make_architecture_references.py";
    auto file = gguf::File::open(posix_env(), path_);
    ASSERT_TRUE(file.is_ok()) << file.status().message();
    auto model = model::Model::open(*file);
    ASSERT_TRUE(model.is_ok()) << model.status().message();
  }

  /// Logits of the prompt's rows that the reference has, each compared by itself: a mistake that
  /// shows only behind the window must not be averaged away.
  void expect_logits(std::span<const float> logits, int32_t n_vocab, double tolerance) {
    const auto rows = reference_["rows"].get<std::vector<size_t>>();
    const auto width = static_cast<size_t>(n_vocab);
    double largest = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto expected = reference_["logits"][i].get<std::vector<float>>();
      ASSERT_EQ(expected.size(), width);
      const double error = normalised_error(logits.subspan(rows[i] * width, width), expected);
      EXPECT_LE(error, tolerance) << "row " << rows[i];
      largest = std::max(largest, error);
    }
    RecordProperty("normalised_error", fmt::format("{:.2g}", largest));
  }

  std::vector<int32_t> prompt() { return reference_["prompt"].get<std::vector<int32_t>>(); }

  test::TempDir dir_;
  std::string path_;
  Json reference_;
};

// In F32 the two programs differ by the order of sums and by K and V, which weft keeps in f16: 11
// significant bits, an error of 3e-4 at most, 1e-7 squared; through the layers llama.cpp's own
// logits moved by 2e-7 to 5e-6 with an f16 cache. A window wrong by one, a magnitude or a divisor
// left out moves them by 2e-4 to 1; a soft cap wrong by 5 %, by 4e-5.
TEST_P(Architectures, LogitsAndGreedyTokensAreTheReferences) {
  TestModel m(path_, {.capacity_tokens = kContext, .context_tokens = kContext});
  const kv::SequenceId sequence = m.cache().create_sequence();
  std::vector<float> logits = m.run(sequence, prompt());
  expect_logits(logits, m.n_vocab(), 1e-5);
  const auto greedy = reference_["greedy"].get<std::vector<int32_t>>();
  EXPECT_EQ(m.greedy(sequence, std::move(logits), static_cast<int>(greedy.size())), greedy)
      << "the closest of these choices is decided by " << reference_["least_margin"];
}

INSTANTIATE_TEST_SUITE_P(F32, Architectures, ::testing::ValuesIn(test::f32_architecture_cases()),
                         [](const auto& c) { return c.param.name; });

/// Beside the same weights expanded to F32, on the path that does so too and on those that round
/// activations to 8 bits, or weights and activations to bf16.
class QuantisedArchitectures : public Architectures {
 protected:
  void expect_on(MatmulPath path) {
    TestModel m(path_,
                {.matmul_path = path, .capacity_tokens = kContext, .context_tokens = kContext});
    const kv::SequenceId sequence = m.cache().create_sequence();
    expect_logits(m.run(sequence, prompt()), m.n_vocab(), 1e-3);
  }
};

TEST_P(QuantisedArchitectures, LogitsAreTheReferencesOnF32Path) { expect_on(MatmulPath::kF32); }

TEST_P(QuantisedArchitectures, LogitsAreTheReferencesOnInt8Path) { expect_on(MatmulPath::kInt8); }

TEST_P(QuantisedArchitectures, LogitsAreTheReferencesOnBf16Path) {
  WEFT_SKIP_UNLESS_CPU(kernels::onednn_has_bf16(), "products in bf16");
  expect_on(MatmulPath::kBf16);
}

INSTANTIATE_TEST_SUITE_P(Types, QuantisedArchitectures,
                         ::testing::ValuesIn(test::quantised_architecture_cases()),
                         [](const auto& c) { return c.param.name; });

}  // namespace
}  // namespace weft
