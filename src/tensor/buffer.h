// Memory for tensors: aligned to a cache line (64 bytes), zeroed, owned by one object. Throws
// OutOfMemory, which says how much was asked for, where there is none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "base/out_of_memory.h"

namespace weft {

/// n elements of T at a 64-byte boundary, the width of the widest register, so that kernels may use
/// aligned loads. T is a type that is right when its bytes are zero. Not copyable; moving leaves
/// the source empty.
template <class T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t n) : data_(n == 0 ? nullptr : allocate(n)), size_(n) {
    if (n > 0) std::memset(data_, 0, n * sizeof(T));
  }
  ~AlignedBuffer() {
    if (data_ != nullptr) ::operator delete[](data_, kAlignment);
  }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  /// n elements whose contents are unspecified: for scratch that is written before it is read.
  static AlignedBuffer uninitialised(int64_t n) {
    AlignedBuffer buffer;
    if (n != 0) buffer.data_ = allocate(n);
    buffer.size_ = n;
    return buffer;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }
  std::span<T> span() { return std::span<T>(data_, size_); }
  std::span<const T> span() const { return std::span<const T>(data_, size_); }

  /// At least n elements; contents are lost when it has to grow.
  void reserve_discard(int64_t n) {
    if (n > size_) *this = AlignedBuffer(n);
  }
  /// The same without contents, and for a size that grows step by step: half as many again.
  void grow_discard(int64_t n) {
    if (n > size_) *this = uninitialised(n + n / 2);
  }

 private:
  static constexpr std::align_val_t kAlignment{64};

  static T* allocate(int64_t n) {
    size_t size_bytes = 0;
    const bool overflows = __builtin_mul_overflow(n, sizeof(T), &size_bytes);  // so does n < 0
    void* const memory =
        overflows ? nullptr : ::operator new[](size_bytes, kAlignment, std::nothrow);
    if (memory == nullptr) throw OutOfMemory(overflows ? SIZE_MAX : size_bytes);
    return static_cast<T*>(memory);
  }

  T* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace weft
