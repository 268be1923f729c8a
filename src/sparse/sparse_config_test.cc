#include "sparse/sparse_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace weft::sparse {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(SparseConfig, IsReadAsItIsPublished) {
  const auto options = parse_sparse_config(
      "kvstar: {base_method: quest, checkpoint_interval: 4, lock_duration: 32, "
      "update_threshold: 0, sparse_ratio: 0.25}\n",
      "k.yaml");
  ASSERT_TRUE(options.is_ok()) << options.status().message();
  EXPECT_EQ(options->policy, Policy::kQuest);
  EXPECT_EQ(options->lock.interval_tokens, 4);
  EXPECT_EQ(options->lock.duration_tokens, 32);
  EXPECT_EQ(options->lock.update_threshold, 0);
  EXPECT_EQ(options->ratio, 0.25);
  EXPECT_TRUE(options->check(16).is_ok());
}

TEST(SparseConfig, KeysThatAreMissingAreAsPublished) {
  for (const char* yaml : {"kvstar: {}", "# nothing said\nkvstar:\n  lock_duration: 16\n"}) {
    const auto options = parse_sparse_config(yaml, "k.yaml");
    ASSERT_TRUE(options.is_ok()) << options.status().message();
    EXPECT_EQ(options->policy, Policy::kGsa);
    EXPECT_EQ(options->lock.interval_tokens, 8);
    EXPECT_EQ(options->lock.duration_tokens, 16);
    EXPECT_EQ(options->lock.update_threshold, 2);
    EXPECT_EQ(options->ratio, 0.3);
  }
}

std::string error_of(const std::string& yaml) {
  const auto options = parse_sparse_config(yaml, "k.yaml");
  EXPECT_EQ(options.status().code(), StatusCode::kInvalidArgument) << yaml;
  const std::string message = options.status().message();
  EXPECT_EQ(std::ranges::count(message, '\n'), 0) << message;
  return message;
}

TEST(SparseConfig, WhatIsNotOneIsALine) {
  EXPECT_THAT(error_of(""), HasSubstr("must hold one map of the name kvstar"));
  EXPECT_THAT(error_of(", sparse_ratio: 0"), HasSubstr("must hold one map"));  // without end once
  EXPECT_THAT(error_of("[1, 2]"), HasSubstr("kvstar"));
  EXPECT_THAT(error_of("kvstar: 3"), HasSubstr("must hold one map"));
  EXPECT_THAT(error_of("kvstar: {}\nquest: {}"), HasSubstr("must hold one map"));
  EXPECT_THAT(error_of("kvstar: {}\nquest: {}"), StartsWith("k.yaml: line 2: quest: must hold"));
  EXPECT_THAT(error_of("kvstar: {lock_duration: 8, checkpoint_interval: 16}"),
              HasSubstr("lock_duration 8 is not more than checkpoint_interval 16"));
  EXPECT_THAT(error_of("kvstar: {lock_duration: 16, checkpoint_interval: 16}"),
              HasSubstr("lock_duration 16 is not more than checkpoint_interval 16"));
  const auto longer = parse_sparse_config("kvstar: {checkpoint_interval: 16}", "f");
  ASSERT_TRUE(longer.is_ok());
  EXPECT_EQ(longer->lock.duration_tokens, 32);
  const auto between = parse_sparse_config("kvstar: {checkpoint_interval: 12}", "f");
  ASSERT_TRUE(between.is_ok());
  EXPECT_EQ(between->lock.duration_tokens, 24);  // as by --lock-interval 12
  EXPECT_THAT(error_of("kvstar: {lock_duration: '8'}"), HasSubstr("without quotes and tags"));
  EXPECT_THAT(error_of("kvstar: {}\n---\nkvstar: {}"), HasSubstr("must hold one map"));
  EXPECT_THAT(error_of("kvstar: {checkpoint_interval: 8"), StartsWith("k.yaml: line 1: no YAML: "));
  EXPECT_THAT(error_of("kvstar:\n  base: gsa"), StartsWith("k.yaml: line 2: base: no such key"));
  EXPECT_THAT(error_of("kvstar:\n  ? [a]\n  : 1"), HasSubstr("must be a word"));
  EXPECT_THAT(error_of("kvstar: {lock_duration: 1, lock_duration: 2}"), HasSubstr("there twice"));
  EXPECT_THAT(error_of("kvstar: {base_method: [gsa]}"), HasSubstr("base_method (a list or a map)"));
  EXPECT_THAT(error_of("kvstar: {sparse_ratio: }"), HasSubstr("sparse_ratio (nothing): must be"));
  EXPECT_THAT(error_of("kvstar: {base_method: dense}"),
              HasSubstr("must be a policy whose choice can be kept"));
  EXPECT_THAT(error_of("kvstar: {base_method: snapkv}"), HasSubstr("base_method snapkv: must be"));
  EXPECT_EQ(error_of("kvstar: {base_method: \"a\\e[31m\\n\"}").find('\x1b'), std::string::npos);
  EXPECT_THAT(error_of("kvstar: &a {base_method: *a}"), HasSubstr("base_method (a list or a map)"));
  for (const char* value : {"0", "-1", "1.5", "x", "\"8\"", "null", "[8]", "99999999999", "1e3"}) {
    EXPECT_THAT(error_of(std::string("kvstar: {checkpoint_interval: ") + value + "}"),
                HasSubstr("must be a whole number from 1 to"))
        << value;
  }
  for (const char* value : {"0", "1.01", "-0.5", ".nan", ".inf", "half", "'0.3'"}) {
    EXPECT_THAT(error_of(std::string("kvstar: {sparse_ratio: ") + value + "}"),
                HasSubstr("must be a number over 0 and at most 1"))
        << value;
  }
  EXPECT_THAT(error_of(std::string(4097, ' ')), HasSubstr("has more than 4096 bytes"));
  error_of(std::string(4096, '['));
  error_of("kvstar: " + std::string(2000, '{'));
}

}  // namespace
}  // namespace weft::sparse
