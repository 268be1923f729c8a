#include "model/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace weft::model {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::IsEmpty;

TEST(Route, EachRowTakesItsHighestExperts) {
  const std::vector<float> logits = {0, 3, 1, 2,   //
                                     5, 0, 0, 4};  //
  const auto experts = Router().route({logits, 4}, 2);
  EXPECT_THAT(experts[0].rows, ElementsAre(1));
  EXPECT_THAT(experts[1].rows, ElementsAre(0));
  EXPECT_THAT(experts[2].rows, IsEmpty());
  EXPECT_THAT(experts[3].rows, ElementsAre(0, 1));
  const float best = 1 / (1 + std::exp(-1.0f));
  EXPECT_THAT(experts[1].weights, ElementsAre(FloatNear(best, 1e-6f)));
  EXPECT_THAT(experts[3].weights,
              ElementsAre(FloatNear(1 - best, 1e-6f), FloatNear(1 - best, 1e-6f)));
}

TEST(Route, OfEqualOnesTheLower) {
  const std::vector<float> logits = {1, 1, 1};
  const auto experts = Router().route({logits, 3}, 2);
  EXPECT_THAT(experts[0].weights, ElementsAre(0.5f));
  EXPECT_THAT(experts[1].weights, ElementsAre(0.5f));
  EXPECT_THAT(experts[2].rows, IsEmpty());
}

TEST(Route, AllExpertsIsTheSoftmax) {
  const std::vector<float> logits = {0.5f, -1.25f, 2};
  const auto experts = Router().route({logits, 3}, 3);
  float sum = 0;
  for (const float x : logits) sum += std::exp(x);
  for (size_t e = 0; e < 3; ++e) {
    EXPECT_THAT(experts[e].weights, ElementsAre(FloatNear(std::exp(logits[e]) / sum, 1e-6f)));
  }
}

TEST(Route, ANanIsTheLastToBeTaken) {
  const std::vector<float> logits = {std::numeric_limits<float>::quiet_NaN(), 1, 0};
  const auto experts = Router().route({logits, 3}, 2);
  EXPECT_THAT(experts[0].rows, IsEmpty());
  EXPECT_THAT(experts[1].rows, ElementsAre(0));
}

TEST(Route, NoRows) {
  Router router;
  for (const ExpertRows& expert : router.route({nullptr, 0, 4}, 2))
    EXPECT_THAT(expert.rows, IsEmpty());
}

}  // namespace
}  // namespace weft::model
