#include "kernels/kv_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>

#include "kernels/ref/kv_codec.h"
#include "support/instruction_sets.h"
#include "support/numbers.h"
#include "tensor/half.h"

namespace weft::kernels {
namespace {

using test::Guarded;
using test::machine_isas;
using test::same_bits;
using ::testing::HasSubstr;

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
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
  for (const DType type : kTypes) {
    const size_t bytes = row_bytes(type, 1);
    std::vector<uint8_t> expected(floats.size() * bytes);
    std::vector<float> expected_back(floats.size());
    for (size_t i = 0; i < floats.size(); ++i) {
      ref::set_kv_element(type, floats[i], i, expected.data());
      expected_back[i] = ref::kv_element(type, expected.data(), i);
    }
    for (const Isa isa : machine_isas()) {
      SCOPED_TRACE(::testing::Message() << isa_name(isa) << " " << dtype_info(type).name);
      for (const size_t n : {size_t{0}, size_t{1}, size_t{8}, size_t{17}, floats.size()}) {
        Guarded<uint8_t> encoded(n * bytes, 0xad);
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

TEST(KvCodec, NamesAreParsedAndOthersRefusedWithTheList) {
  EXPECT_EQ(*parse_kv_type("f32"), DType::kF32);
  EXPECT_EQ(*parse_kv_type("F16"), DType::kF16);
  EXPECT_EQ(*parse_kv_type("bf16"), DType::kBF16);
  EXPECT_THAT(parse_kv_type("q8_0").status().message(), HasSubstr("f32, f16 or bf16"));
  EXPECT_FALSE(is_kv_type(DType::kQ8_0));
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
  EXPECT_EQ(code([](KvLayout& l) { l.v_type = DType::kQ4_0; }), StatusCode::kUnsupported);
  EXPECT_EQ(code([](KvLayout& l) { l.head_dim = 20; }), StatusCode::kUnsupported);
  EXPECT_EQ(code([](KvLayout& l) { l.head_dim = 264; }), StatusCode::kUnsupported);
  EXPECT_EQ(code([](KvLayout& l) { l.page_tokens = 24; }), StatusCode::kUnsupported);
  EXPECT_EQ(code([](KvLayout& l) { l.n_kv_heads = 0; }), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weft::kernels
