#include "cli/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "gguf/random_model.h"
#include "gguf/writer.h"
#include "support/files.h"

namespace weft::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class InspectTest : public ::testing::Test {
 protected:
  void SetUp() override {
    gguf::HeaderBuilder header;
    header.add_string("general.architecture", "llama");
    header.add_string("bad", "a\xff\xfe\x1b[31m\x7f\xc2\x9b z");
    header.add_string("bad\xff key\n", "x");
    header.add_string("long", std::string(71, 'l') + "\xc3\xa9" + std::string(1000, 'l'));
    header.add<float>("eps", 1e-5f);
    header.add<double>("nan", std::numeric_limits<double>::quiet_NaN());
    header.add<bool>("flag", true);
    header.add<int8_t>("minus", -3);
    std::vector<int32_t> numbers(100);
    for (int i = 0; i < 100; ++i) numbers[static_cast<size_t>(i)] = i;
    header.add_array<int32_t>("numbers", numbers);
    header.add_strings("tokens", std::array<std::string, 2>{"\xff", "ok"});
    header.add_tensor("b\xff", DType::kQ8_0, std::array<int64_t, 2>{64, 2});
    header.add_tensor("a", DType::kF32, std::array<int64_t, 1>{3});
    header.add_tensor("c", DType::kQ8_0, std::array<int64_t, 1>{32});
    bytes_ = header.bytes();
    bytes_.resize(bytes_.size() + 160 + 32 + 34);
    auto file = gguf::File::parse(std::as_bytes(std::span(bytes_)), "m\xff.gguf");
    ASSERT_TRUE(file.is_ok()) << file.status().message();
    file_ = *file;
  }

  std::string bytes_;
  std::shared_ptr<const gguf::File> file_;
};

TEST_F(InspectTest, JsonIsValidWhateverTheFileSays) {
  const std::string line = gguf_json(*file_);
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  const json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(parsed.is_object()) << line;
  EXPECT_EQ(parsed["path"], "m\uFFFD.gguf");
  EXPECT_EQ(parsed["format"], "gguf");
  const json& metadata = parsed["metadata"];
  EXPECT_EQ(metadata["general.architecture"], "llama");
  EXPECT_EQ(metadata["bad"], "a\uFFFD\uFFFD\x1b[31m\x7f\u009b z");
  EXPECT_EQ(metadata["bad\uFFFD key\n"], "x");
  EXPECT_EQ(metadata["long"].get<std::string>().size(), 1073u);
  EXPECT_EQ(metadata["eps"].dump(), "1e-05");
  EXPECT_TRUE(metadata["nan"].is_null());
  EXPECT_EQ(metadata["flag"], true);
  EXPECT_EQ(metadata["minus"], -3);
  EXPECT_EQ(metadata["numbers"],
            json::parse(R"({"array":"i32","size":100,"first":[0,1,2,3,4,5,6,7]})"));
  EXPECT_EQ(metadata["tokens"]["first"][0], "\uFFFD");
}

TEST_F(InspectTest, JsonTensorsSayWhereTheirBytesAre) {
  const json parsed = json::parse(gguf_json(*file_));
  ASSERT_EQ(parsed["tensors"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const gguf::TensorInfo& tensor = file_->tensors()[i];
    const auto offset = parsed["tensors"][i]["offset"].get<size_t>();
    EXPECT_EQ(reinterpret_cast<const char*>(tensor.data), bytes_.data() + offset);
    EXPECT_EQ(parsed["tensors"][i]["bytes"], tensor.size_bytes);
  }
  EXPECT_EQ(parsed["tensors"][0]["dims"], json::parse("[64,2]"));
  EXPECT_EQ(parsed["parameters"], 64 * 2 + 3 + 32);
  EXPECT_EQ(parsed["tensor_bytes"], 4 * 34 + 12 + 34);
  EXPECT_EQ(parsed["dtypes"]["Q8_0"], json::parse(R"({"tensors":2,"parameters":160,"bytes":170})"));
}

TEST_F(InspectTest, TextIsSafeForATerminalAndCutsWhatIsLong) {
  const std::string text = gguf_text(*file_);
  for (const char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
  EXPECT_THAT(text, Not(HasSubstr("\x7f")));
  EXPECT_THAT(text, Not(HasSubstr("\xc2\x9b")));
  EXPECT_THAT(text, HasSubstr("\\u001b[31m\\u007f\\u009b"));
  // Cut before the character that would be split.
  EXPECT_THAT(text, HasSubstr("\"" + std::string(71, 'l') + "\"... (1073 bytes)"));
  EXPECT_THAT(text, HasSubstr("100 x i32 [0, 1, 2, 3, 4, 5, 6, 7, ...]"));
  EXPECT_THAT(text, HasSubstr("1e-05"));
  EXPECT_THAT(text, HasSubstr("nan"));
  EXPECT_THAT(text, HasSubstr("64 x 2"));
  file_.reset();
  bytes_.resize(bytes_.size() + 2'000'000);
  file_ = *gguf::File::parse(std::as_bytes(std::span(bytes_)), "m.gguf");
  EXPECT_THAT(gguf_text(*file_), HasSubstr(" bytes (2.00 MB)"));
}

// Two layers of 2 KV heads of 16: K and V are 2 * 2 * 2 * 16 elements a token.
TEST(InspectModel, SaysWhatItsKvTakes) {
  const test::TempDir dir;
  const std::string path = dir.path() + "/model.gguf";
  ASSERT_TRUE(gguf::write_random_model(posix_env(), path, {.vocab = 300}).is_ok());
  const auto file = gguf::File::open(posix_env(), path);
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  const json sizes = json::parse(gguf_json(**file))["kv_token_bytes"];
  EXPECT_EQ(sizes["f16"], 256);
  EXPECT_EQ(sizes["f32"], 512);
  const std::string text = gguf_text(**file);
  EXPECT_THAT(text, HasSubstr("\nKV cache\n  type   bytes a token        4K        8K"));
  EXPECT_THAT(text, ::testing::ContainsRegex("f16 +256 +1.0 MB +2.1 MB"));
}

// Three layers of six have the window: of 65,536 tokens they keep 100 and what is beside a window.
TEST(InspectModel, SaysWhatItsKvTakesWhereWindowsRoll) {
  const test::TempDir dir;
  const std::string path = dir.path() + "/model.gguf";
  ASSERT_TRUE(
      gguf::write_random_model(
          posix_env(), path, {.architecture = "gemma2", .n_layers = 6, .vocab = 300, .window = 100})
          .is_ok());
  const auto file = gguf::File::open(posix_env(), path);
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  const json sizes = json::parse(gguf_json(**file));
  const int64_t token_bytes = sizes["kv_token_bytes"]["f16"];
  const int64_t window_tokens = (100 + 32 + 2048 + 1024 + 15) / 16 * 16;
  EXPECT_EQ(sizes["kv_rolling_bytes"]["f16"]["65536"], token_bytes / 2 * (65536 + window_tokens));
  EXPECT_THAT(gguf_text(**file), HasSubstr("windows roll"));
}

TEST_F(InspectTest, OfAModelThatWeftDoesNotRunKvIsLeftOut) {
  EXPECT_THAT(json::parse(gguf_json(*file_))["kv_token_bytes"], ::testing::IsEmpty());
  EXPECT_THAT(gguf_text(*file_), Not(HasSubstr("KV cache")));
}

TEST(InspectRecord, SaysWhatTheHeadHolds) {
  store::RecordHead head;
  head.info = {.n_layers = 30, .layer_bytes = 4096, .n_tokens = 7, .created_unix_ms = 1234};
  head.identity = {std::byte{1}, std::byte{2}};
  const json parsed = json::parse(record_json("x.chunk", 5000, head, "q8_0"));
  EXPECT_EQ(parsed["format"], "chunk");
  EXPECT_EQ(parsed["bytes"], 5000);
  EXPECT_EQ(parsed["key"], hash128(head.identity).to_hex());
  EXPECT_EQ(parsed["tokens"], 7);
  EXPECT_EQ(parsed["type"], "q8_0");
  EXPECT_EQ(parsed["layers"], 30);
  EXPECT_THAT(record_text("x.chunk", 5000, head, "q8_0"), HasSubstr("30 of 4096 bytes"));
}

}  // namespace
}  // namespace weft::cli
