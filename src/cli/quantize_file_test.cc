// Whole files: what is converted, kept and refused, and that nothing is left of a file that failed.
#include "cli/quantize_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>

#include "gguf/quantise.h"
#include "gguf/writer.h"
#include "kernels/dequantize.h"
#include "support/fault_env.h"
#include "support/files.h"
#include "support/test_pool.h"

namespace weft::cli {
namespace {

using test::FaultEnv;
using test::TestPool;
using ::testing::HasSubstr;

constexpr int64_t kRow = 512, kRows = 1000;

class QuantizeFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0.0f, 0.05f);
    values_.resize(static_cast<size_t>(kRow * kRows));
    for (float& value : values_) value = normal(random);
  }

  std::string path(const std::string& name) const { return folder_ / name; }

  /// A norm, a bias, a matrix and, with split_part, the keys of a part.
  void write(const std::string& name, int split_part = -1, int n_tensors = 3) {
    gguf::HeaderBuilder header(64);
    header.add_string("general.architecture", "llama");
    header.add<uint32_t>("general.file_type", 0);
    header.add<uint32_t>("llama.block_count", 1);
    header.add_strings("tokens", std::array<std::string, 2>{"\xff", "ok"});
    if (split_part >= 0) {
      header.add<uint16_t>("split.no", static_cast<uint16_t>(split_part));
      header.add<uint16_t>("split.count", 2);
      header.add<int32_t>("split.tensors.count", n_tensors);
    }
    if (split_part <= 0) {
      header.add_tensor("blk.0.attn_norm.weight", DType::kF32, std::array<int64_t, 1>{kRow});
      header.add_tensor("blk.0.attn_q.bias", DType::kF32, std::array<int64_t, 1>{kRow});
    }
    if (split_part != 0) {
      header.add_tensor("blk.0.attn_q.weight", DType::kF32, std::array<int64_t, 2>{kRow, kRows});
    }
    auto writer = gguf::Writer::create(posix_env(), path(name), header);
    ASSERT_TRUE(writer.is_ok()) << writer.status().message();
    for (const uint64_t bytes : header.tensor_bytes()) {
      ASSERT_TRUE(writer->append(std::as_bytes(std::span(values_)).first(bytes)).is_ok());
    }
    ASSERT_TRUE(writer->finish().is_ok());
  }

  Result<QuantizeReport> quantize(const std::string& in, const std::string& out, const char* type,
                                  Env& env = posix_env(), int threads = 2, bool go_on = true) {
    WEFT_ASSIGN_OR_RETURN(const auto file, gguf::File::open(posix_env(), path(in)));
    WEFT_ASSIGN_OR_RETURN(const gguf::Recipe recipe, gguf::find_recipe(type));
    TestPool pool(threads);
    return quantize_file(env, *file, path(out), recipe, pool, kernels::best_isa(),
                         [&](int64_t done, int64_t total) {
                           EXPECT_LE(done, total);
                           return go_on;
                         });
  }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  test::TempDir folder_;
  std::vector<float> values_;
};

TEST_F(QuantizeFileTest, ConvertsMatricesAndKeepsTheRest) {
  write("in.gguf");
  for (const char* type : {"Q8_0", "Q4_0", "Q5_1", "Q4_K_S", "Q6_K", "F16", "BF16"}) {
    SCOPED_TRACE(type);
    const auto report = quantize("in.gguf", "out.gguf", type);
    ASSERT_TRUE(report.is_ok()) << report.status().message();
    EXPECT_EQ(report->tensors, 3);
    EXPECT_EQ(report->quantised, 1);
    EXPECT_EQ(report->requantised, 0);
    const auto out = gguf::File::open(posix_env(), path("out.gguf"));
    ASSERT_TRUE(out.is_ok()) << out.status().message();
    const gguf::File& file = **out;
    EXPECT_EQ(report->bytes_out, file.size_bytes());
    EXPECT_EQ(file.alignment(), 64u);
    EXPECT_EQ(*file.get_uint("general.file_type"), gguf::find_recipe(type)->file_type);
    EXPECT_EQ(*file.get_uint("general.quantization_version"), 2u);
    EXPECT_EQ(*file.get_string("general.architecture"), "llama");
    EXPECT_THAT(*file.get_string_array("tokens"), ::testing::ElementsAre("\xff", "ok"));
    const gguf::TensorInfo* norm = file.find_tensor("blk.0.attn_norm.weight");
    ASSERT_EQ(norm->dtype, DType::kF32);
    EXPECT_EQ(std::memcmp(norm->data, values_.data(), kRow * sizeof(float)), 0);
    // The whole matrix at once gives the same bytes as rows by tasks.
    const gguf::TensorInfo* matrix = file.find_tensor("blk.0.attn_q.weight");
    std::vector<std::byte> want(matrix->size_bytes);
    gguf::quantise(matrix->dtype, values_, want.data());
    EXPECT_EQ(std::memcmp(matrix->data, want.data(), want.size()), 0);
  }
  EXPECT_THAT(files(), ::testing::ElementsAre("in.gguf", "out.gguf"));
}

TEST_F(QuantizeFileTest, QuantisedFilesAreExpandedFirst) {
  write("in.gguf");
  ASSERT_TRUE(quantize("in.gguf", "q8.gguf", "Q8_0").is_ok());
  const auto report = quantize("q8.gguf", "q4.gguf", "Q4_0", posix_env(), 1);
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  EXPECT_EQ(report->requantised, 1);
  const auto out = gguf::File::open(posix_env(), path("q4.gguf"));
  ASSERT_TRUE(out.is_ok());
  const gguf::TensorInfo* matrix = (*out)->find_tensor("blk.0.attn_q.weight");
  ASSERT_EQ(matrix->dtype, DType::kQ4_0);
  std::vector<float> back(values_.size());
  kernels::dequantize(kernels::best_isa(), DType::kQ4_0, matrix->data, back.data(),
                      static_cast<int64_t>(back.size()));
  double error = 0, power = 0;
  for (size_t i = 0; i < back.size(); ++i) {
    error += std::pow(static_cast<double>(back[i] - values_[i]), 2);
    power += std::pow(static_cast<double>(values_[i]), 2);
  }
  EXPECT_LT(error, 0.01 * power);  // four bits of a normal number
}

TEST_F(QuantizeFileTest, ASplitFileBecomesOne) {
  write("m-00001-of-00002.gguf", 0);
  write("m-00002-of-00002.gguf", 1);
  const auto report = quantize("m-00001-of-00002.gguf", "out.gguf", "Q8_0");
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  const auto out = gguf::File::open(posix_env(), path("out.gguf"));
  ASSERT_TRUE(out.is_ok()) << out.status().message();
  EXPECT_EQ((*out)->parts().size(), 1u);
  EXPECT_EQ((*out)->tensors().size(), 3u);
  EXPECT_EQ((*out)->find("split.count"), nullptr);
  const auto onto_a_part = quantize("m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "Q8_0");
  EXPECT_THAT(onto_a_part.status().message(), HasSubstr("is the file to be read"));
}

TEST_F(QuantizeFileTest, NeverWritesOntoItsInputNorOntoWhatIsNoFile) {
  write("in.gguf");
  std::filesystem::create_hard_link(path("in.gguf"), path("link.gguf"));
  for (const char* out : {"in.gguf", "link.gguf", "../"}) {
    const auto report = quantize("in.gguf", out, "Q8_0");
    ASSERT_FALSE(report.is_ok());
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(quantize("in.gguf", "none/out.gguf", "Q8_0").status().code(), StatusCode::kNotFound);
}

TEST_F(QuantizeFileTest, BadWeightsNameTheTensor) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 1e6f}) {
    values_[values_.size() / 2] = bad;
    write("in.gguf");
    const auto report = quantize("in.gguf", "out.gguf", "Q4_K_M");
    ASSERT_FALSE(report.is_ok());
    EXPECT_EQ(report.status().code(), StatusCode::kCorrupt);
    EXPECT_THAT(report.status().message(), HasSubstr("'blk.0.attn_q.weight'"));
    EXPECT_THAT(files(), ::testing::ElementsAre("in.gguf"));
  }
  EXPECT_TRUE(quantize("in.gguf", "out.gguf", "BF16").is_ok());  // 1e6 is fine there
}

TEST_F(QuantizeFileTest, NothingIsLeftOfAFileThatFailed) {
  write("in.gguf");
  EXPECT_EQ(quantize("in.gguf", "out.gguf", "Q8_0", posix_env(), 2, false).status().code(),
            StatusCode::kCancelled);
  EXPECT_THAT(files(), ::testing::ElementsAre("in.gguf"));
  {
    FaultEnv full(posix_env());
    full.limit_disk(100'000);
    const auto report = quantize("in.gguf", "out.gguf", "Q8_0", full);
    ASSERT_FALSE(report.is_ok());
    EXPECT_EQ(report.status().code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(files(), ::testing::ElementsAre("in.gguf"));
  }
  for (uint64_t call = 0;; ++call) {
    FaultEnv env(posix_env());
    env.fail_call(call);
    const auto report = quantize("in.gguf", "out.gguf", "Q8_0", env);
    if (call >= env.calls()) break;
    EXPECT_FALSE(report.is_ok() && !std::filesystem::exists(path("out.gguf")));
    std::filesystem::remove(path("out.gguf"));
    EXPECT_THAT(files(), ::testing::ElementsAre("in.gguf")) << call;
  }
}

}  // namespace
}  // namespace weft::cli
