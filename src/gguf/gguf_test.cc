#include "gguf/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "gguf/writer.h"
#include "support/files.h"
#include "support/skip.h"

namespace weft::gguf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Bytes at a 64-byte boundary, as parse() wants them.
class Bytes {
 public:
  explicit Bytes(std::string_view text) : storage_(text.size() + 64) {
    void* start = storage_.data();
    size_t space = storage_.size();
    data_ = static_cast<std::byte*>(std::align(64, text.size(), start, space));
    std::memcpy(data_, text.data(), text.size());
    size_ = text.size();
  }
  std::span<const std::byte> span() const { return {data_, size_}; }

 private:
  std::vector<std::byte> storage_;
  std::byte* data_;
  size_t size_;
};

Result<std::shared_ptr<const File>> parse(const Bytes& bytes) {
  return File::parse(bytes.span(), "m.gguf");
}

const std::array<uint16_t, 3> kU16s{1, 2, 65535};
const std::array<int32_t, 2> kI32s{-7, 7};
const std::array<uint64_t, 1> kHugeU64s{std::numeric_limits<uint64_t>::max()};
const std::array<float, 2> kFloats{0.5f, -2.0f};
const std::array<float, 2> kNans{0.5f, std::numeric_limits<float>::quiet_NaN()};
const std::array<bool, 2> kBools{true, false};
const std::array<std::string, 3> kStrings{"a", "", "\xff\n"};

/// One value of every type and three tensors.
HeaderBuilder sample_header(uint32_t alignment = 32) {
  HeaderBuilder header(alignment);
  header.add_string("general.architecture", "llama");
  header.add<uint8_t>("t.u8", 200);
  header.add<int8_t>("t.i8", -100);
  header.add<uint16_t>("t.u16", 60000);
  header.add<int16_t>("t.i16", 30000);
  header.add<uint32_t>("t.u32", 4000000000u);
  header.add<int32_t>("t.i32", -5);
  header.add<uint64_t>("t.u64", std::numeric_limits<uint64_t>::max());
  header.add<int64_t>("t.i64", std::numeric_limits<int64_t>::min());
  header.add<float>("t.f32", 1.5f);
  header.add<double>("t.f64", -0.25);
  header.add<double>("t.f64_big", 1e300);
  header.add<float>("t.nan", std::numeric_limits<float>::quiet_NaN());
  header.add<bool>("t.bool", true);
  header.add_array<uint16_t>("a.u16", kU16s);
  header.add_array<int32_t>("a.i32", kI32s);
  header.add_array<uint64_t>("a.u64_huge", kHugeU64s);
  header.add_array<float>("a.f32", kFloats);
  header.add_array<float>("a.nan", kNans);
  header.add_array<bool>("a.bool", kBools);
  header.add_strings("a.strings", kStrings);
  header.add_tensor("f", DType::kF32, std::array<int64_t, 2>{3, 2});
  header.add_tensor("q", DType::kQ4_0, std::array<int64_t, 3>{64, 2, 2});
  header.add_tensor("h", DType::kBF16, std::array<int64_t, 1>{5});
  return header;
}

/// The header and data in which byte i of tensor t is 16 t + i.
std::string with_data(const HeaderBuilder& header) {
  std::string file = header.bytes();
  int t = 0;
  for (const uint64_t size : header.tensor_bytes()) {
    for (uint64_t i = 0; i < size; ++i) file += static_cast<char>(16 * t + static_cast<int>(i));
    file.append((header.alignment() - size % header.alignment()) % header.alignment(), '\0');
    ++t;
  }
  return file;
}

template <class T>
void expect_error(const Result<T>& result, StatusCode code, const char* key, const char* what) {
  ASSERT_FALSE(result.is_ok());
  EXPECT_EQ(result.status().code(), code);
  EXPECT_THAT(result.status().message(), HasSubstr("m.gguf"));
  EXPECT_THAT(result.status().message(), HasSubstr(key));
  EXPECT_THAT(result.status().message(), HasSubstr(what));
}

TEST(Gguf, ReadsWhatTheWriterWrites) {
  for (const uint32_t alignment : {8u, 32u, 4096u}) {
    const HeaderBuilder header = sample_header(alignment);
    const Bytes bytes(with_data(header));
    const auto parsed = parse(bytes);
    ASSERT_TRUE(parsed.is_ok()) << parsed.status().message();
    const File& file = **parsed;
    EXPECT_EQ(file.version(), 3u);
    EXPECT_EQ(file.alignment(), alignment);
    ASSERT_EQ(file.parts().size(), 1u);
    EXPECT_EQ(file.parts().front().header.size(), header.bytes().size());
    ASSERT_EQ(file.tensors().size(), 3u);

    const TensorInfo* q = file.find_tensor("q");
    ASSERT_NE(q, nullptr);
    EXPECT_EQ(q->n_dims, 3);
    EXPECT_THAT(q->dims, ElementsAre(64, 2, 2, 1));
    EXPECT_EQ(q->n_rows(), 4);
    EXPECT_EQ(q->n_elements(), 256);
    EXPECT_EQ(q->dtype, DType::kQ4_0);
    EXPECT_EQ(q->size_bytes, 8u * 18u);
    for (size_t t = 0; t < 3; ++t) {
      const TensorInfo& tensor = file.tensors()[t];
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % std::min(alignment, 64u), 0u);
      for (uint64_t i = 0; i < tensor.size_bytes; ++i) {
        ASSERT_EQ(std::to_integer<size_t>(tensor.data[i]), 16 * t + i);
      }
    }
    EXPECT_EQ(file.find_tensor("nothing"), nullptr);
  }
}

TEST(Gguf, ValuesOfEveryTypeAreReadAndFallbacksAreForMissingKeys) {
  const Bytes bytes(with_data(sample_header()));
  const auto parsed = parse(bytes);
  ASSERT_TRUE(parsed.is_ok()) << parsed.status().message();
  const File& file = **parsed;
  EXPECT_EQ(*file.get_uint("t.u8"), 200u);
  EXPECT_EQ(*file.get_uint("t.u16"), 60000u);
  EXPECT_EQ(*file.get_uint("t.i16"), 30000u);
  EXPECT_EQ(*file.get_uint("t.u32"), 4000000000u);
  EXPECT_EQ(*file.get_uint("t.u64"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(*file.get_float("t.f32"), 1.5f);
  EXPECT_EQ(*file.get_float("t.f64"), -0.25f);
  EXPECT_EQ(*file.get_bool_or("t.bool", false), true);
  EXPECT_EQ(*file.get_string("general.architecture"), "llama");
  EXPECT_THAT(*file.get_int_array("a.u16"), ElementsAre(1, 2, 65535));
  EXPECT_THAT(*file.get_int_array("a.i32"), ElementsAre(-7, 7));
  EXPECT_THAT(*file.get_float_array("a.f32"), ElementsAre(0.5f, -2.0f));
  EXPECT_THAT(*file.get_string_array("a.strings"), ElementsAre("a", "", "\xff\n"));

  EXPECT_EQ(*file.get_uint_or("t.u8", 1), 200u);
  EXPECT_EQ(*file.get_uint_or("none", 1), 1u);
  EXPECT_EQ(*file.get_bool_or("none", true), true);
  EXPECT_EQ(*file.get_string_or("none", "x"), "x");
}

TEST(Gguf, AValueOfAnotherTypeIsAnErrorThatNamesFileKeyAndTypes) {
  const Bytes bytes(with_data(sample_header()));
  const auto parsed = parse(bytes);
  ASSERT_TRUE(parsed.is_ok()) << parsed.status().message();
  const File& file = **parsed;
  const auto corrupt = StatusCode::kCorrupt;
  expect_error(file.get_uint("no\nsuch"), StatusCode::kNotFound, "'no\\x0asuch'", "missing");
  expect_error(file.get_float_array("none"), StatusCode::kNotFound, "'none'", "missing");
  expect_error(file.get_uint("t.i32"), corrupt, "'t.i32'", "-5");
  expect_error(file.get_uint("t.f32"), corrupt, "'t.f32'", "is f32, wanted an integer");
  expect_error(file.get_uint("t.bool"), corrupt, "'t.bool'", "is bool, wanted an integer");
  expect_error(file.get_uint_or("t.f32", 1), corrupt, "'t.f32'", "is f32");
  expect_error(file.get_float("t.u8"), corrupt, "'t.u8'", "is u8, wanted f32");
  expect_error(file.get_float("t.nan"), corrupt, "'t.nan'", "finite");
  expect_error(file.get_float("t.f64_big"), corrupt, "'t.f64_big'", "finite");
  expect_error(file.get_bool_or("t.u8", true), corrupt, "'t.u8'", "is u8, wanted bool");
  expect_error(file.get_string("a.strings"), corrupt, "'a.strings'", "is array of string, wanted");
  expect_error(file.get_string_or("t.u8", ""), corrupt, "'t.u8'", "is u8, wanted string");
  expect_error(file.get_string_array("a.f32"), corrupt, "'a.f32'", "is array of f32, wanted");
  expect_error(file.get_float_array("a.i32"), corrupt, "'a.i32'", "is array of i32, wanted");
  expect_error(file.get_float_array("a.nan"), corrupt, "'a.nan'", "element 1");
  expect_error(file.get_int_array("a.bool"), corrupt, "'a.bool'", "is array of bool, wanted");
  expect_error(file.get_int_array("a.u64_huge"), corrupt, "'a.u64_huge'", "element 0");
}

TEST(Gguf, OpensTheRealModel) {
  const std::string path = test::model_file(test::kSmolLm2File);
  WEFT_SKIP_UNLESS(!path.empty(), "smollm2-135m (weft model get)");
  const auto opened = File::open(posix_env(), path);
  ASSERT_TRUE(opened.is_ok()) << opened.status().message();
  const File& file = **opened;
  EXPECT_EQ(*file.get_uint("llama.block_count"), 30u);
  EXPECT_EQ(*file.get_float("llama.rope.freq_base"), 100000.0f);
  EXPECT_EQ(file.get_string_array("tokenizer.ggml.tokens")->size(), 49152u);
  EXPECT_EQ(file.tensors().size(), 272u);
  EXPECT_EQ(file.find_tensor("token_embd.weight")->dtype, DType::kQ8_0);
  EXPECT_EQ(file.find_tensor("blk.29.ffn_down.weight")->dtype, DType::kQ4_1);
}

TEST(Gguf, AMissingFileIsNotFoundAndAFolderNoFile) {
  const auto missing = File::open(posix_env(), "/nowhere/m.gguf");
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("/nowhere/m.gguf"));
  EXPECT_FALSE(File::open(posix_env(), ::testing::TempDir()).is_ok());
}

}  // namespace
}  // namespace weft::gguf
