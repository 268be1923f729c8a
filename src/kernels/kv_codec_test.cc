#include "kernels/kv_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "base/hash.h"
#include "base/names.h"
#include "kernels/arithmetic_revision.h"
#include "kernels/ref/kv_codec.h"
#include "support/instruction_sets.h"
#include "support/kv_types.h"
#include "support/numbers.h"
#include "tensor/half.h"

namespace weft::kernels {
namespace {

using test::Guarded;
using test::machine_isas;
using test::same_bits;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr float kGuard = -12345.0f;

/// All halves, values between them (ties, neighbours of ties), the borders, random bits.
std::vector<float> many_floats() {
  std::vector<float> floats;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    floats.push_back(f32_from_f16(bits));
    floats.push_back(f32_from_bf16(bits));
  }
  for (uint16_t i = 0; i + 1 < 0x7c00; ++i) {
    const float tie = 0.5f * (f32_from_f16(i) + f32_from_f16(i + 1));
    for (const float x : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 1e9f)}) {
      floats.push_back(x);
      floats.push_back(-x);
    }
  }
  for (const float x : {65504.0f, 65519.99f, 65520.0f, 1e30f, 1e-30f, 0x1p-25f, 3.4e38f}) {
    floats.push_back(x);
  }
  std::mt19937 generator(8);
  for (int i = 0; i < 100003; ++i) {
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(generator())));
  }
  return floats;
}

TEST(KvCodec, EncodesAndDecodesAsItsTwinOnEveryIsa) {
  const std::vector<float> floats = many_floats();
  for (const DType type : test::kv_types()) {
    const size_t block = dtype_info(type).block_elements;
    const size_t n_all = floats.size() / block * block;
    std::vector<uint8_t> expected(row_bytes(type, n_all));
    std::vector<float> expected_back(n_all);
    ref::set_kv_vector(type, floats.data(), n_all, expected.data());
    for (size_t i = 0; i < n_all; ++i) {
      expected_back[i] = ref::kv_element(type, expected.data(), i);
    }
    for (const Isa isa : machine_isas()) {
      SCOPED_TRACE(::testing::Message() << isa_name(isa) << " " << dtype_info(type).name);
      for (const size_t n_blocks : {size_t{0}, size_t{1}, size_t{8}, size_t{17}, n_all / block}) {
        const size_t n = n_blocks * block;
        Guarded<uint8_t> encoded(row_bytes(type, n), 0xad);
        encode_kv(isa, type, std::span(floats).first(n),
                  reinterpret_cast<std::byte*>(encoded.data()));
        encoded.check();
        const std::vector<uint8_t> values = encoded.values();
        ASSERT_TRUE(std::equal(values.begin(), values.end(), expected.begin()));
        Guarded<float> back(n, kGuard);
        decode_kv(isa, type, reinterpret_cast<const std::byte*>(values.data()),
                  std::span(back.data(), n));
        back.check();
        ASSERT_TRUE(same_bits(back.values(), {expected_back.begin(), expected_back.begin() + n}));
      }
    }
  }
}

// All else in these tests compares a kernel with its twin, and both may be changed together. Other
// digests are right where a type's rule was changed on purpose; then a session of before must not
// be gone on with.
TEST(KvCodec, OtherStoredBitsNeedAnotherRevisionOfTheArithmetic) {
  std::mt19937 generator(10);
  std::vector<float> floats(8192);
  for (float& x : floats) x = static_cast<float>(static_cast<int32_t>(generator())) * 0x1p-29f;
  std::map<std::string, uint64_t> digests;
  for (const std::string& name : kv_type_names()) {
    const DType type = *parse_kv_type(name);
    std::vector<std::byte> bytes(row_bytes(type, std::ssize(floats)));
    encode_kv(Isa::kBaseline, type, floats, bytes.data());
    digests[name] = hash64(bytes);
  }
  EXPECT_THAT(digests,
              ElementsAre(Pair("bf16", 0xdc1275d1b8e0492du), Pair("f16", 0xae671cb411b27fc7u),
                          Pair("f32", 0x8248592d293522c6u), Pair("q4_0", 0x69c44796b73379dbu),
                          Pair("q8_0", 0xd860b12632515569u)))
      << "raise kArithmeticRevision (kernels/arithmetic_revision.h)";
  EXPECT_EQ(kArithmeticRevision, 1u);
}

TEST(KvCodec, NamesAreParsedAndOthersRefusedWithTheList) {
  EXPECT_EQ(*parse_kv_type("f32"), DType::kF32);
  EXPECT_EQ(*parse_kv_type("F16"), DType::kF16);
  EXPECT_EQ(*parse_kv_type("bf16"), DType::kBF16);
  EXPECT_EQ(*parse_kv_type("q8_0"), DType::kQ8_0);
  EXPECT_EQ(*parse_kv_type("Q4_0"), DType::kQ4_0);
  EXPECT_THAT(parse_kv_type("q2_k").status().message(), HasSubstr(listed(kv_type_names())));
  EXPECT_FALSE(is_kv_type(DType::kQ2_K));
}

// The scale is itself rounded to 11 bits, which moves a value by 2^-11 of itself at most.
TEST(KvCodec, ARoundTripIsWithinTheBlocksStep) {
  std::mt19937 generator(9);
  std::normal_distribution<float> normal;
  std::vector<float> values(32 * 64);
  for (float& value : values) value = normal(generator);
  for (const DType type : test::kv_types()) {
    if (!is_quantised(type)) continue;
    for (const Isa isa : machine_isas()) {
      std::vector<std::byte> bytes(row_bytes(type, std::ssize(values)));
      std::vector<float> back(values.size());
      encode_kv(isa, type, values, bytes.data());
      decode_kv(isa, type, bytes.data(), back);
      for (size_t begin = 0; begin < values.size(); begin += 32) {
        double most = 0;
        for (size_t i = begin; i < begin + 32; ++i) {
          most = std::max<double>(most, std::abs(values[i]));
        }
        for (size_t i = begin; i < begin + 32; ++i) {
          ASSERT_NEAR(back[i], values[i], most * (test::kv_error(type) * 1.001 + 0x1p-11)) << i;
        }
      }
    }
  }
}

TEST(KvCodec, LayoutsThatNoKernelTakesAreRefused) {
  const KvLayout good{DType::kF32, DType::kBF16, 24, 3, 16};
  EXPECT_TRUE(check_kv_layout(good).is_ok());
  EXPECT_EQ(kv_token_bytes(good), 3 * 24 * (4 + 2));
  const auto code = [&](auto change) {
    KvLayout bad = good;
    change(bad);
    return check_kv_layout(bad).code();
  };
  EXPECT_EQ(code([](KvLayout& l) { l.v_type = DType::kQ2_K; }), StatusCode::kUnsupported);
  KvLayout blocks = good;
  blocks.v_type = DType::kQ4_0;
  EXPECT_EQ(check_kv_layout(blocks).message(),
            "KV cache: q4_0: this model's head size 24 is no multiple of its block of 32; take f16 "
            "or bf16");
  blocks.head_dim = 96;
  EXPECT_TRUE(check_kv_layout(blocks).is_ok());
  EXPECT_EQ(kv_token_bytes(blocks), 3 * (96 * 4 + 3 * 18));
  EXPECT_EQ(code([](KvLayout& l) { l.head_dim = 20; }), StatusCode::kUnsupported);
  EXPECT_EQ(code([](KvLayout& l) { l.head_dim = 264; }), StatusCode::kUnsupported);
  EXPECT_EQ(code([](KvLayout& l) { l.page_tokens = 24; }), StatusCode::kUnsupported);
  EXPECT_EQ(code([](KvLayout& l) { l.n_kv_heads = 0; }), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weft::kernels
