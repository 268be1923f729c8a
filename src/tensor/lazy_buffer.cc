#include "tensor/lazy_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdint>

namespace weft {
namespace {

constexpr uintptr_t kHugePageBytes = uintptr_t{2} << 20;

}  // namespace

Result<void*> map_lazy_memory(size_t size_bytes, const std::string& what_for) {
  void* const address = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    return resource_exhausted(fmt::format(
        "{}: the machine refuses {} bytes of memory; take a smaller context (-c), fewer requests "
        "at once, a --kv-limit below that, or raise the limit (ulimit -v)",
        what_for, size_bytes));
  }
  return address;
}

void unmap_lazy_memory(void* address, size_t size_bytes) {
  // Refused only where the machine counts mappings and this one was joined with a neighbour: then
  // the addresses stay taken, and nothing else is lost.
  (void)::munmap(address, size_bytes);
}

void advise_pages(MemoryPages pages, void* address, size_t size_bytes) {
  const auto from = reinterpret_cast<uintptr_t>(address);
  const uintptr_t begin = (from + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  const uintptr_t end = (from + size_bytes) / kHugePageBytes * kHugePageBytes;
  if (begin >= end) return;
  (void)::madvise(static_cast<std::byte*>(address) + (begin - from), end - begin,
                  pages == MemoryPages::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

}  // namespace weft
