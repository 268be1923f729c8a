// The dimensions that labels go by: found once, kept in a file that anyone may have written to.
#include "engine/label_channels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>

#include "kernels/isa.h"
#include "support/test_model.h"
#include "text/tokenizer.h"

namespace weft::engine {
namespace {

using kernels::LabelKind;

constexpr int32_t kLayers = 2;
constexpr int32_t kKvHeads = 2;
constexpr int32_t kHeadDim = 64;

class LabelChannels : public ::testing::TestWithParam<LabelKind> {
 protected:
  void SetUp() override {
    const std::string path = dir_.path() + "/random.gguf";
    const Status written = gguf::write_random_model(posix_env(), path,
                                                    {.n_layers = kLayers,
                                                     .n_embd = 64,
                                                     .n_ff = 96,
                                                     .n_heads = 4,
                                                     .n_kv_heads = kKvHeads,
                                                     .head_dim = kHeadDim,
                                                     .recipe = "Q8_0"});
    ASSERT_TRUE(written.is_ok()) << written.message();
    model_ = std::make_unique<test::TestModel>(path);
    auto file = gguf::File::open(posix_env(), path);
    ASSERT_TRUE(file.is_ok()) << file.status().message();
    auto tokenizer = text::Tokenizer::open(**file);
    ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
    tokenizer_ = *std::move(tokenizer);
  }

  std::vector<uint8_t> channels(const std::string& folder) {
    return channels_in(model_->context(), folder);
  }
  std::vector<uint8_t> channels_in(const kernels::Context& context, const std::string& folder) {
    auto found =
        label_channels(posix_env(), model_->model(), *tokenizer_, context, GetParam(), folder);
    EXPECT_TRUE(found.is_ok()) << found.status().message();
    return *std::move(found);
  }

  std::string file() const {
    return folder_ + "/" + model_->model().fingerprint().to_hex() + "-" +
           kernels::isa_name(model_->context().isa) +
           (GetParam() == LabelKind::kSides ? "-order" : "-channels");
  }
  std::vector<uint8_t> contents() const {
    std::ifstream in(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::vector<uint8_t>& bytes) const {
    std::ofstream out(file(), std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  }

  test::TempDir dir_;
  std::string folder_ = dir_.path() + "/cache/labels";
  std::unique_ptr<test::TestModel> model_;
  std::optional<text::Tokenizer> tokenizer_;
};

TEST_P(LabelChannels, AreFoundOnceAndKept) {
  const std::vector<uint8_t> found = channels(folder_);
  const int64_t n = GetParam() == LabelKind::kSides ? kHeadDim : kernels::kLabelChannels;
  ASSERT_EQ(std::ssize(found), kLayers * kKvHeads * n);
  EXPECT_EQ(contents(), found);
  EXPECT_EQ(channels(""), found);
  // What is kept is what is taken: another order that could be one.
  std::vector<uint8_t> other = found;
  if (GetParam() == LabelKind::kSides) {
    std::swap(other[0], other[1]);
  } else {
    std::iota(other.begin(), other.begin() + n, 40);
  }
  write(other);
  EXPECT_EQ(channels(folder_), other);
}

// Else the answers of a command would depend on the command that was first.
TEST_P(LabelChannels, AreTheSameWhateverPathTheMatmulsTake) {
  kernels::Context context = model_->context();
  context.matmul_path = kernels::MatmulPath::kF32;
  const std::vector<uint8_t> found = channels_in(context, "");
  context.matmul_path = kernels::MatmulPath::kInt8;
  EXPECT_EQ(channels_in(context, ""), found);
}

// A dimension that is none would be read from after the head, one that comes twice leaves another
// out.
TEST_P(LabelChannels, AreFoundAgainWhereTheFileIsNotOne) {
  const std::vector<uint8_t> found = channels(folder_);
  const auto with = [&](size_t i, uint8_t value) {
    std::vector<uint8_t> bytes = found;
    bytes[i] = value;
    return bytes;
  };
  std::vector<uint8_t> shorter(found.begin(), found.end() - 1), longer = found;
  longer.push_back(0);
  for (const std::vector<uint8_t>& bad :
       {std::vector<uint8_t>{}, shorter, longer, with(found.size() - 1, kHeadDim),
        with(found.size() - 1, 255), with(1, found[0])}) {
    write(bad);
    EXPECT_EQ(channels(folder_), found);
    EXPECT_EQ(contents(), found);
  }
}

TEST_P(LabelChannels, AFolderThatCannotBeIsNoError) {
  std::ofstream(dir_.path() + "/cache") << "a file";
  EXPECT_EQ(channels(folder_), channels(""));
}

INSTANTIATE_TEST_SUITE_P(Both, LabelChannels,
                         ::testing::Values(LabelKind::kSides, LabelKind::kChannels),
                         [](const auto& test) {
                           return test.param == LabelKind::kSides ? "sides" : "channels";
                         });

}  // namespace
}  // namespace weft::engine
