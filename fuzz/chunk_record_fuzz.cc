// Hostile chunk records: nothing may crash, read out of bounds, allocate beyond the input's own
// size or take long. Every input is read as it is, and once more with its head's checksum made
// right, so that the checks after it are reached.
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "store/record.h"
#include "time_limit.h"

namespace weft::store {
namespace {

class MemoryFile : public ReadFile {
 public:
  explicit MemoryFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint64_t size_bytes() const override { return bytes_.size(); }
  Status read_at(uint64_t offset, std::span<std::byte> out) const override {
    WEFT_CHECK(offset <= bytes_.size() && out.size() <= bytes_.size() - offset);
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return Status::ok();
  }

 private:
  std::span<const std::byte> bytes_;
};

void read_record(std::span<const std::byte> bytes) {
  const MemoryFile file(bytes);
  const auto head = read_head(file, "fuzz");
  if (!head.is_ok()) return;
  WEFT_CHECK(head->info.file_bytes(head->identity.size()) == bytes.size());
  std::vector<std::byte> layer(head->info.layer_bytes);
  for (uint32_t i = 0; i < head->info.n_layers; ++i) {
    if (read_layer(file, *head, i, layer, "fuzz").is_ok()) {
      WEFT_CHECK(hash64(layer) == head->layer_checksums[i]);
    }
  }
}

/// Signs the head as its own fields lay it out (docs/formats/chunk.md).
void sign(std::vector<std::byte>& bytes) {
  if (bytes.size() < 48) return;
  uint32_t n_layers = 0, identity_bytes = 0;
  std::memcpy(&n_layers, &bytes[20], 4);
  std::memcpy(&identity_bytes, &bytes[36], 4);
  const uint64_t table = (48 + uint64_t{identity_bytes} + 7) / 8 * 8;
  const uint64_t payload = (table + 8 * uint64_t{n_layers} + 4095) / 4096 * 4096;
  if (payload > bytes.size()) return;
  const uint64_t checksum = hash64(std::span(bytes).subspan(16, payload - 16));
  std::memcpy(&bytes[8], &checksum, 8);
}

}  // namespace
}  // namespace weft::store

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft::store;
  const weft::fuzz::TimeLimit limit(size);
  const auto bytes = std::as_bytes(std::span(data, size));
  read_record(bytes);
  std::vector<std::byte> signed_bytes(bytes.begin(), bytes.end());
  sign(signed_bytes);
  read_record(signed_bytes);

  (void)parse_record_file_name({reinterpret_cast<const char*>(data), size});
  return 0;
}
