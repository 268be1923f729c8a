#include "fusion/record_type.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/narrow.h"
#include "fusion/chunk_key.h"
#include "kernels/kv_codec.h"

namespace weft::fusion {
namespace {

using ::testing::HasSubstr;

model::ModelConfig config_of(int32_t n_layers, int32_t n_kv_heads, int32_t head_dim) {
  model::ModelConfig config;
  config.n_layers = n_layers;
  config.n_kv_heads = n_kv_heads;
  config.head_dim = head_dim;
  return config;
}

std::vector<std::byte> identity_of(DType type) {
  KeyScope scope;
  scope.ropes.resize(1);
  scope.record_type = type;
  return chunk_identity(scope, std::vector<int32_t>{1, 2, 3});
}

TEST(RecordTypes, AreTypesOfKAndVAndHaveTheirNames) {
  for (const auto& known : kRecordTypes) {
    EXPECT_TRUE(kernels::is_kv_type(known.value));
    EXPECT_EQ(*parse_record_type(known.name), known.value);
    EXPECT_EQ(*kernels::parse_kv_type(known.name), known.value);
  }
  EXPECT_EQ(*parse_record_type("Q8_0"), DType::kQ8_0);
  EXPECT_EQ(parse_record_type("q4_0").status().message(), "must be f16 or q8_0");
  EXPECT_EQ(parse_record_type("").status().code(), StatusCode::kInvalidArgument);
}

TEST(RecordTypes, BlocksNeedHeadsOfWholeBlocks) {
  for (const int32_t head_dim : {32, 64, 96, 256}) {
    EXPECT_TRUE(check_record_type(config_of(2, 3, head_dim), DType::kQ8_0).is_ok()) << head_dim;
  }
  for (const int32_t head_dim : {8, 16, 48, 80, 120}) {
    const model::ModelConfig config = config_of(2, 4, head_dim);  // also where all heads are whole
    EXPECT_TRUE(check_record_type(config, DType::kF16).is_ok()) << head_dim;
    const Status refused = check_record_type(config, DType::kQ8_0);
    EXPECT_EQ(refused.code(), StatusCode::kUnsupported) << head_dim;
    EXPECT_THAT(refused.message(), HasSubstr("records of type q8_0: this model's head size " +
                                             std::to_string(head_dim) +
                                             " is no multiple of its "
                                             "block of 32; take f16"));
  }
}

TEST(RecordTypes, BytesAreThoseOfTheTypesBlocks) {
  const model::ModelConfig smollm2 = config_of(30, 3, 64);
  EXPECT_EQ(record_layer_bytes(smollm2, DType::kF16, 480), 368'640);
  EXPECT_EQ(record_layer_bytes(smollm2, DType::kQ8_0, 480), 368'640 * 34 / 64);
  EXPECT_EQ(record_token_bytes(smollm2, DType::kF16), 30 * 768);
  EXPECT_EQ(record_token_bytes(smollm2, DType::kQ8_0), 30 * 408);
}

TEST(RecordTypes, AreToldByTheHeadWhereTheLayersHoldTheTokensInThem) {
  const model::ModelConfig config = config_of(4, 2, 32);
  for (const auto& known : kRecordTypes) {
    const auto identity = identity_of(known.value);
    store::RecordInfo info{
        .n_layers = 4,
        .layer_bytes = narrow<uint64_t>(record_layer_bytes(config, known.value, 7)),
        .n_tokens = 7};
    EXPECT_EQ(*record_type(identity, info), known.value);
    EXPECT_EQ(*record_type_name(identity, info), known.name);
    for (const uint64_t wrong : {info.layer_bytes + 1, info.layer_bytes + 2, info.layer_bytes - 14,
                                 info.layer_bytes / 7 * 6}) {
      const store::RecordInfo other{.n_layers = 4, .layer_bytes = wrong, .n_tokens = 7};
      const bool could_be = known.value == DType::kF16 && wrong % 28 == 0;  // of another model
      EXPECT_EQ(record_type(identity, other).is_ok(), could_be) << wrong;
    }
    info.n_tokens = 0;
    EXPECT_EQ(record_type(identity, info).status().code(), StatusCode::kCorrupt);
  }
  // A layer of f16's bytes is none of q8_0's.
  const store::RecordInfo f16{
      .n_layers = 4,
      .layer_bytes = narrow<uint64_t>(record_layer_bytes(config, DType::kF16, 7)),
      .n_tokens = 7};
  const Status refused = record_type(identity_of(DType::kQ8_0), f16).status();
  EXPECT_EQ(refused.code(), StatusCode::kCorrupt);
  EXPECT_EQ(refused.message(), "layers of 1792 bytes are not K and V of 7 tokens in q8_0: damaged");
}

TEST(RecordTypes, UnknownOnesAreDamage) {
  const store::RecordInfo info{.n_layers = 1, .layer_bytes = 64, .n_tokens = 1};
  for (const uint32_t id : {0u, 2u, 9u, 30u, 99u, 0xffff'ffffu}) {  // also types of the cache
    std::vector<std::byte> identity = identity_of(DType::kF16);
    std::memcpy(&identity[4], &id, sizeof id);
    const Status refused = record_type(identity, info).status();
    EXPECT_EQ(refused.code(), StatusCode::kCorrupt);
    EXPECT_EQ(refused.message(), "its KV has the type " + std::to_string(id) +
                                     ", which is none of f16 or q8_0: damaged");
  }
  const std::vector<std::byte> cut(5);
  EXPECT_THAT(record_type(cut, info).status().message(), HasSubstr("has the type nothing"));
}

}  // namespace
}  // namespace weft::fusion
