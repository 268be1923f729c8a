// Rows of numbers that lie somewhere else: what an op takes and gives. The shape travels with the
// pointer, so the caller states it once and the op checks it in one line. Sizes and indices are
// signed. Never owns anything, never computes anything.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "base/check.h"

namespace weft {

/// [rows, columns] elements, each row `stride` elements after the one before. Plain data, valid
/// while what it was made of lives and is not moved. MatrixView<float> is also a
/// MatrixView<const float>.
template <class T>
struct MatrixView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;  // at least columns, where there are two rows

  MatrixView() = default;
  MatrixView(T* first, int64_t n_rows, int64_t n_columns, int64_t row_stride)
      : data(first), rows(n_rows), columns(n_columns), stride(row_stride) {}
  /// Rows one right after another.
  MatrixView(T* first, int64_t n_rows, int64_t n_columns)
      : MatrixView(first, n_rows, n_columns, n_columns) {}
  /// All of `elements`, a whole number of rows one right after another.
  MatrixView(std::span<T> elements, int64_t n_columns)
      : MatrixView(elements.data(), n_columns > 0 ? std::ssize(elements) / n_columns : 0,
                   n_columns) {
    WEFT_CHECK(rows * columns == std::ssize(elements));
  }
  template <class U>
  requires std::is_same_v<const U, T> MatrixView(
      const MatrixView<U>& other)  // NOLINT(google-explicit-constructor)
      : MatrixView(other.data, other.rows, other.columns, other.stride) {}

  int64_t size() const { return rows * columns; }
  bool is_empty() const { return size() == 0; }
  /// Whether there is nothing between the rows.
  bool is_dense() const { return stride == columns || rows <= 1; }

  std::span<T> row(int64_t i) const {
    WEFT_DCHECK(i >= 0 && i < rows);
    return std::span<T>(data + i * stride, columns);
  }
  /// The rows [begin, begin + n).
  MatrixView row_range(int64_t begin, int64_t n) const {
    WEFT_CHECK(begin >= 0 && n >= 0 && n <= rows - begin);
    return {data + begin * stride, n, columns, stride};
  }
  /// The first n rows.
  MatrixView first(int64_t n) const { return row_range(0, n); }
  /// The same elements in rows of n_columns, as in "each head of each row"; of a dense view.
  MatrixView in_rows_of(int64_t n_columns) const { return {elements(), n_columns}; }
  /// All of them one after another, of a dense view.
  std::span<T> elements() const {
    WEFT_CHECK(is_dense());
    return std::span<T>(data, size());
  }
};

template <class T, class U>
bool same_shape(const MatrixView<T>& a, const MatrixView<U>& b) {
  return a.rows == b.rows && a.columns == b.columns;
}

}  // namespace weft
