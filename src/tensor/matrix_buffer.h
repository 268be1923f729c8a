// Memory for rows, kept from one use to the next: an op's output before its rows are counted.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "tensor/buffer.h"
#include "tensor/matrix_view.h"

namespace weft {

/// Dense rows of one width. Throws OutOfMemory as AlignedBuffer does.
template <class T>
class MatrixBuffer {
 public:
  MatrixBuffer() = default;
  /// Contents are unspecified.
  static MatrixBuffer uninitialised(int64_t rows, int64_t columns) {
    MatrixBuffer buffer;
    buffer.memory_ = AlignedBuffer<T>::uninitialised(rows * columns);
    buffer.columns_ = columns;
    return buffer;
  }

  /// Room for `rows` rows at least; contents are lost even where there is room already, since the
  /// rows may have another width than before.
  void reserve_discard(int64_t rows, int64_t columns) {
    memory_.reserve_discard(rows * columns);
    columns_ = columns;
  }

  /// The first n of the rows that there is room for.
  MatrixView<T> first(int64_t n) {
    WEFT_CHECK(n >= 0 && n * columns_ <= memory_.size());
    return {memory_.data(), n, columns_};
  }
  MatrixView<const T> first(int64_t n) const {
    WEFT_CHECK(n >= 0 && n * columns_ <= memory_.size());
    return {memory_.data(), n, columns_};
  }

 private:
  AlignedBuffer<T> memory_;
  int64_t columns_ = 0;
};

}  // namespace weft
