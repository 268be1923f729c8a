#include "engine/context_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::engine {
namespace {

using ::testing::HasSubstr;

ContextSize size_of(const ContextRequest& request) {
  const auto size = context_size(request, 8192, 4096);
  EXPECT_TRUE(size.is_ok()) << size.status().message();
  return *size;
}

std::string error_of(const ContextRequest& request) {
  const auto size = context_size(request, 8192, 4096);
  EXPECT_EQ(size.status().code(), StatusCode::kInvalidArgument);
  return size.status().message();
}

TEST(ContextSize, IsTheModels) {
  const ContextSize usual = size_of({});
  EXPECT_EQ(usual.tokens, 4096);
  EXPECT_EQ(usual.model_tokens, 4096);
  EXPECT_EQ(usual.most_tokens, 8192);
  EXPECT_EQ(usual.note, "");
  EXPECT_EQ(size_of({.context_tokens = 8192}).model_tokens, 8192);
  EXPECT_THAT(error_of({.context_tokens = 8193}),
              HasSubstr("-c 8193: the model's context is 1 to 8192 tokens"));
  EXPECT_THAT(error_of({.context_tokens = -1}), HasSubstr("-c -1"));
}

TEST(ContextSize, WithGroupsItIsAsManyTimesTheModels) {
  const ContextSize usual = size_of({.self_extend = {4, 1024}});
  EXPECT_EQ(usual.tokens, 4 * 4096);
  EXPECT_EQ(usual.most_tokens, 4 * 8192);
  // (16384 - 1024) / 4 grouped ones, and a window and a half at most.
  EXPECT_EQ(usual.model_tokens, (4 * 4096 - 1536) / 4 + 1536);
  EXPECT_EQ(usual.note, "");
  EXPECT_EQ(size_of({.context_tokens = 100, .self_extend = {4, 1024}}).model_tokens, 100);
  EXPECT_THAT(error_of({.context_tokens = 32769, .self_extend = {4, 1024}}),
              HasSubstr("1 to 32768 tokens with --grp-attn-n 4"));
  EXPECT_THAT(error_of({.self_extend = {4, 1023}}), HasSubstr("--grp-attn-w 1023"));
}

TEST(ContextSize, WhereNobodySaysItKeepsToTheModelsPositions) {
  const kv::SelfExtend extend{4, 1024};
  const auto size = context_size({.self_extend = extend}, 8192, 8192);
  ASSERT_TRUE(size.is_ok());
  EXPECT_EQ(size->note, "");
  EXPECT_LT(size->tokens, 4 * 8192);
  EXPECT_LT(extend.last_position(size->tokens), 8192);
  EXPECT_EQ(extend.last_position(size->tokens + 1), 8192);
  EXPECT_EQ(context_size({.self_extend = {4, 32768}}, 8192, 8192)->tokens, 8192);
  EXPECT_EQ(context_size({.self_extend = {256, 0}}, 8192, 8192)->tokens, 256 * 8192);
}

TEST(ContextSize, NeighboursLeaveRoomForGroups) {
  const auto neighbours = [](int32_t group_tokens, int32_t model_length) {
    const kv::SelfExtend extend{group_tokens, kv::kUsualNeighbours};
    return context_size({.self_extend = extend}, model_length, model_length)
        ->self_extend.neighbour_tokens;
  };
  EXPECT_EQ(neighbours(4, 8192), 1024);
  EXPECT_EQ(neighbours(3, 8192), 1023);
  EXPECT_EQ(neighbours(4, 512), 128);
  EXPECT_EQ(neighbours(200, 512), 200);
}

TEST(ContextSize, SaysWherePositionsAreNotTheModels) {
  const ContextSize full = size_of({.context_tokens = 32768, .self_extend = {4, 1024}});
  EXPECT_EQ(full.model_tokens, 8192);
  EXPECT_THAT(full.note, HasSubstr("a larger --grp-attn-n or a smaller --grp-attn-w keeps"));
  const ContextSize beyond = size_of({.context_tokens = 10000, .beyond_context = true});
  EXPECT_EQ(beyond.tokens, 10000);
  EXPECT_EQ(beyond.model_tokens, 8192);
  EXPECT_THAT(beyond.note, HasSubstr("-c 10000: positions reach 9999, the model was trained for "
                                     "8192 tokens"));
  EXPECT_EQ(size_of({.context_tokens = 8192, .beyond_context = true}).note, "");
  EXPECT_THAT(error_of({.context_tokens = INT32_MAX, .beyond_context = true}),
              HasSubstr("1 to 2097152 tokens"));
}

TEST(ContextSize, NoProductOverflows) {
  const auto size = context_size({.self_extend = {256, 256}}, 1 << 30, 1 << 30);
  ASSERT_TRUE(size.is_ok());
  EXPECT_GT(size->tokens, 1 << 29);
  EXPECT_EQ(size->tokens, size->most_tokens);
}

}  // namespace
}  // namespace weft::engine
