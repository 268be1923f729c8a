// Memory for chunk layers: aligned to a page (4096 bytes; 2 MiB and in huge pages from
// that size on), not initialised, owned by one object.
// It never touches what it allocates, so that a layer's pages are first written by the read itself,
// and never throws: where the system has no memory left, the size is 0.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace weft::store {

/// Not copyable; moving leaves the source empty.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(size_t size_bytes);
  ~AlignedBytes();
  AlignedBytes(AlignedBytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBytes& operator=(AlignedBytes&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::byte* data() { return data_; }
  size_t size() const { return size_; }
  std::span<std::byte> span() { return {data_, size_}; }
  std::span<const std::byte> span() const { return {data_, size_}; }

  /// At least size_bytes long afterwards, or false; contents are lost when it has to grow.
  [[nodiscard]] bool reserve_discard(size_t size_bytes) {
    if (size_bytes > size_) *this = AlignedBytes(size_bytes);
    return size_bytes <= size_;
  }

 private:
  std::byte* data_ = nullptr;  // owned; null when size_ is 0
  size_t size_ = 0;            // bytes; decides the alignment with which data_ is released
};

}  // namespace weft::store
