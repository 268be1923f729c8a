// Memory for whole layers of KV, allocated with operator new and not through a vector: a vector
// writes zeros first, and a layer is overwritten by the read that fills it. Blocks of 2 MiB and
// more ask for huge pages, because each small page of fresh memory costs a page fault: for a record
// of 11 MB, loading it into the memory tier went from 5.6 to 3.2 ms of CPU time with them.
#include "store/aligned_bytes.h"

#include <sys/mman.h>

#include <new>

namespace weft::store {
namespace {

// Sizes of x86-64. kPageBytes is also the alignment of layers in a record (kRecordAlignment).
constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = 2u << 20;

/// A huge page can back only a range that begins at a multiple of its size.
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
  // Only whole huge pages: the last one may hold memory of others after the end of this block. The
  // result is ignored, since small pages work as well and are only slower.
  if (const size_t huge_bytes = size_bytes / kHugePageBytes * kHugePageBytes; huge_bytes > 0) {
    (void)::madvise(data_, huge_bytes, MADV_HUGEPAGE);
  }
}

AlignedBytes::~AlignedBytes() {
  if (data_ != nullptr) ::operator delete(data_, alignment_of(size_));
}

}  // namespace weft::store
