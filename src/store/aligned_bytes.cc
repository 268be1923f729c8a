#include "store/aligned_bytes.h"

#include <sys/mman.h>

#include <new>

namespace weft::store {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = 2u << 20;

/// Filling fresh memory in small pages costs more than reading a cached record (a fault each).
std::align_val_t alignment_of(size_t size_bytes) {
  return std::align_val_t{size_bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes};
}

}  // namespace

AlignedBytes::AlignedBytes(size_t size_bytes) {
  if (size_bytes == 0) return;
  data_ =
      static_cast<std::byte*>(::operator new(size_bytes, alignment_of(size_bytes), std::nothrow));
  if (data_ == nullptr) return;
  size_ = size_bytes;
  // Only whole huge pages: memory behind the block may be somebody else's. Best effort.
  if (const size_t huge_bytes = size_bytes / kHugePageBytes * kHugePageBytes; huge_bytes > 0) {
    (void)::madvise(data_, huge_bytes, MADV_HUGEPAGE);
  }
}

AlignedBytes::~AlignedBytes() {
  if (data_ != nullptr) ::operator delete(data_, alignment_of(size_));
}

}  // namespace weft::store
