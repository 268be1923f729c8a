// Memory for tensors that may be far larger than what is used of it: zeroed, aligned to a memory
// page, taken from the machine as it is touched and given back at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/status.h"

namespace weft {

/// size_bytes > 0 of anonymous memory; kResourceExhausted, naming `what_for`, when there is none.
/// It is a promise of addresses (MAP_NORESERVE), not of memory: a KV cache of the whole context is
/// asked for at once, and a page costs memory when it is first written.
Result<void*> map_lazy_memory(size_t size_bytes, const std::string& what_for);
void unmap_lazy_memory(void* address, size_t size_bytes);
/// Of such memory, whether the whole pages of 2 MB (x86-64) in it come as one, where the system has
/// them: the first write into one takes all of it. Where nothing is said the system's setting
/// holds, which for Debian is yes. Only advice: small ones work as well.
enum class MemoryPages { kSmall, kHuge };
void advise_pages(MemoryPages pages, void* address, size_t size_bytes);
inline constexpr int64_t kHugePageBytes = int64_t{2} << 20;
/// What small memory pages are multiples of.
int64_t memory_page_bytes();
/// Of such memory, the whole memory pages in it go back to the machine: they are zero from now on,
/// and are taken again as they are touched.
void give_back_memory(void* address, size_t size_bytes);
/// How many bytes of it the machine has taken memory for, in whole memory pages; it begins at one.
/// Takes memory for the answer: a byte for each page.
int64_t resident_bytes(void* address, size_t size_bytes);

/// n elements of T, a type that is right when its bytes are zero. Not copyable; moving leaves the
/// source empty and keeps the address.
template <class T>
class LazyBuffer {
 public:
  /// n > 0; an n whose bytes overflow is kResourceExhausted too.
  static Result<LazyBuffer> create(size_t n, const std::string& what_for) {
    size_t size_bytes = 0;
    if (n == 0 || __builtin_mul_overflow(n, sizeof(T), &size_bytes)) {
      return resource_exhausted(what_for + ": memory for 0 or too many elements asked for");
    }
    WEFT_ASSIGN_OR_RETURN(void* const address, map_lazy_memory(size_bytes, what_for));
    return LazyBuffer(static_cast<T*>(address), n);
  }
  ~LazyBuffer() {
    if (data_ != nullptr) unmap_lazy_memory(data_, size_ * sizeof(T));
  }
  LazyBuffer(LazyBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  LazyBuffer& operator=(LazyBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  LazyBuffer(T* data, size_t size) : data_(data), size_(size) {}
  T* data_;
  size_t size_;
};

}  // namespace weft
