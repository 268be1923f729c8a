// Hostile chunk records: nothing may crash, read out of bounds, allocate beyond the input's own
// size or take long. Every input is read as it is, and once more with its head's checksum made
// right, so that the checks after it are reached. What a head says of its K and V's type is read,
// too.
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "fusion/record_type.h"
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

/// One that is known and that whole rows of the layers' bytes are in, or one line.
void read_type(const RecordHead& head) {
  const auto type = fusion::record_type(head.identity, head.info);
  const auto name = fusion::record_type_name(head.identity, head.info);
  WEFT_CHECK(type.is_ok() == name.is_ok());
  if (!type.is_ok()) {
    WEFT_CHECK(type.status().code() == StatusCode::kCorrupt);
    WEFT_CHECK(type.status().message().find('\n') == std::string::npos);
    return;
  }
  WEFT_CHECK(*name == fusion::kRecordTypes.name(*type));
  const DTypeInfo& info = dtype_info(*type);
  const uint64_t row = head.info.layer_bytes / 2 / head.info.n_tokens;
  WEFT_CHECK(row * 2 * head.info.n_tokens == head.info.layer_bytes);
  WEFT_CHECK(row_bytes(*type, row / info.block_bytes * info.block_elements) ==
             static_cast<int64_t>(row));
}

void read_record(std::span<const std::byte> bytes) {
  const MemoryFile file(bytes);
  const auto head = read_head(file, "fuzz");
  if (!head.is_ok()) return;
  WEFT_CHECK(head->info.file_bytes(head->identity.size()) == bytes.size());
  read_type(*head);
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
