#include "tensor/lazy_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace weft {

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
  constexpr uintptr_t kHuge = kHugePageBytes;
  const auto from = reinterpret_cast<uintptr_t>(address);
  const uintptr_t begin = (from + kHuge - 1) / kHuge * kHuge;
  const uintptr_t end = (from + size_bytes) / kHuge * kHuge;
  if (begin >= end) return;
  (void)::madvise(static_cast<std::byte*>(address) + (begin - from), end - begin,
                  pages == MemoryPages::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

int64_t memory_page_bytes() {
  static const int64_t bytes = ::sysconf(_SC_PAGESIZE);
  return bytes;
}

void give_back_memory(void* address, size_t size_bytes) {
  const uintptr_t page = memory_page_bytes();
  const auto from = reinterpret_cast<uintptr_t>(address);
  const uintptr_t begin = (from + page - 1) / page * page;
  const uintptr_t end = (from + size_bytes) / page * page;
  if (begin >= end) return;
  // Refused for memory that is locked (mlockall): it stays, with what is in it.
  (void)::madvise(static_cast<std::byte*>(address) + (begin - from), end - begin, MADV_DONTNEED);
}

int64_t resident_bytes(void* address, size_t size_bytes) {
  const int64_t page = memory_page_bytes();
  std::vector<unsigned char> is_resident((size_bytes + page - 1) / page);
  if (::mincore(address, size_bytes, is_resident.data()) != 0) return 0;
  return page * std::ranges::count_if(is_resident, [](unsigned char r) { return (r & 1) != 0; });
}

}  // namespace weft
