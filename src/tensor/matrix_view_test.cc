#include "tensor/matrix_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tensor/matrix_buffer.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

class MatrixViewTest : public ::testing::Test {
 protected:
  MatrixViewTest() : numbers_(12) { std::iota(numbers_.begin(), numbers_.end(), 0.0f); }

  std::vector<float> numbers_;
};

TEST_F(MatrixViewTest, ARowIsItsColumnsAndNoneOfWhatLiesBetweenTheRows) {
  const MatrixView<float> view(numbers_.data(), 3, 2, 4);
  EXPECT_FALSE(view.is_dense());
  EXPECT_EQ(view.size(), 6);
  EXPECT_THAT(view.row(0), ElementsAre(0, 1));
  EXPECT_THAT(view.row(2), ElementsAre(8, 9));
  view.row(1)[1] = 100;
  EXPECT_EQ(numbers_[5], 100);
}

TEST_F(MatrixViewTest, ARangeOfRowsKeepsTheStride) {
  const MatrixView<const float> view(numbers_.data(), 3, 2, 4);
  const MatrixView<const float> last = view.row_range(1, 2);
  EXPECT_EQ(last.rows, 2);
  EXPECT_THAT(last.row(0), ElementsAre(4, 5));
  EXPECT_THAT(last.row(1), ElementsAre(8, 9));
  EXPECT_THAT(view.first(1).row(0), ElementsAre(0, 1));
  EXPECT_TRUE(view.first(1).is_dense()) << "nothing lies between the rows of one";
  EXPECT_TRUE(view.row_range(3, 0).is_empty());
}

TEST_F(MatrixViewTest, AllElementsMakeAWholeNumberOfRows) {
  const MatrixView<float> view(numbers_, 4);
  EXPECT_EQ(view.rows, 3);
  EXPECT_TRUE(view.is_dense());
  EXPECT_THAT(view.row(2), ElementsAre(8, 9, 10, 11));
  EXPECT_EQ(view.elements().size(), 12u);
  const MatrixView<float> halves = view.in_rows_of(2);
  EXPECT_EQ(halves.rows, 6);
  EXPECT_THAT(halves.row(3), ElementsAre(6, 7));
  EXPECT_TRUE(same_shape(halves, MatrixView<const float>(numbers_, 2)));
  EXPECT_FALSE(same_shape(halves, view));
}

using MatrixViewDeathTest = MatrixViewTest;

TEST_F(MatrixViewDeathTest, WhatIsOutsideAborts) {
  const MatrixView<float> view(numbers_, 4);
  EXPECT_DEATH((void)view.row(3), "i < rows");
  EXPECT_DEATH((void)view.row_range(2, 2), "rows - begin");
  EXPECT_DEATH((void)view.first(-1), "n >= 0");
  EXPECT_DEATH((void)view.in_rows_of(5), "rows \\* columns");
  EXPECT_DEATH((void)MatrixView<float>(numbers_.data(), 3, 2, 4).elements(), "is_dense");
}

TEST(MatrixBuffer, GrowsAndKeepsItsMemory) {
  MatrixBuffer<float> buffer;
  EXPECT_TRUE(buffer.first(0).is_empty());
  buffer.reserve_discard(3, 4);
  const float* const memory = buffer.first(3).data;
  buffer.reserve_discard(2, 4);
  EXPECT_EQ(buffer.first(3).data, memory);
  EXPECT_EQ(buffer.first(2).size(), 8);
  EXPECT_EQ((MatrixBuffer<float>::uninitialised(2, 5).first(2).columns), 5);
}

TEST(MatrixBufferDeathTest, MoreRowsThanThereIsRoomForAborts) {
  MatrixBuffer<float> buffer;
  buffer.reserve_discard(3, 4);
  EXPECT_DEATH((void)buffer.first(4), "memory_.size");
}

}  // namespace
}  // namespace weft
