// Hostile sessions: nothing may crash, read out of bounds, allocate beyond the input's own size or
// take long, and what is accepted is restored as it is and written as the same bytes. Every input
// is read as it is, and once more with all checksums made right, so that the checks after them are
// reached.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "base/narrow.h"
#include "engine/session.h"
#include "kernels/kv_codec.h"
#include "kv/session_file.h"
#include "time_limit.h"

namespace weft::engine {
namespace {

using Bytes = std::vector<std::byte>;

class MemoryFile : public ReadFile {
 public:
  explicit MemoryFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint64_t size_bytes() const override { return bytes_.size(); }
  Status read_at(uint64_t offset, std::span<std::byte> out) const override {
    WEFT_CHECK(offset <= bytes_.size() && out.size() <= bytes_.size() - offset);
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return Status::ok();
  }

 private:
  std::span<const std::byte> bytes_;
};

/// Into a cache of its own shape, where the kernels take that, and out of it again.
void restore_and_write(const kv::SessionReader& file, std::span<const std::byte> bytes) {
  const kv::SessionHead& head = file.head();
  kernels::KvLayout layout = head.layout;
  layout.page_tokens = 16;
  if (!kernels::check_kv_layout(layout).is_ok() || head.layer_groups.size() > 64) return;
  auto cache = kv::Cache::create({.n_layers = static_cast<int>(head.layer_groups.size()),
                                  .layer_groups = head.layer_groups,
                                  .layout = layout,
                                  .capacity_tokens = head.n_slots + 1});
  if (!cache.is_ok()) return;  // groups that are not numbered as they come
  WEFT_CHECK(file.check_cache(**cache).is_ok());
  const auto restored = file.restore(**cache, head.n_slots);
  WEFT_CHECK(restored.is_ok());
  Bytes written;
  const auto stamp = kv::write_session(**cache, *restored,
                                       {.tokens = file.tokens(),
                                        .n_slots = head.n_slots,
                                        .identity = head.identity,
                                        .state = file.state()},
                                       [&](std::span<const std::byte> more) {
                                         written.insert(written.end(), more.begin(), more.end());
                                         return Status::ok();
                                       });
  WEFT_CHECK(stamp.is_ok());
  // Two runs of one kind may lie next to each other in the input, never in what is written.
  if (written.size() != bytes.size()) return;
  WEFT_CHECK(std::ranges::equal(written, bytes) && *stamp == file.stamp());
}

void read(std::span<const std::byte> bytes) {
  const auto file = kv::SessionReader::open(std::make_unique<MemoryFile>(bytes), "fuzz");
  const auto saved = SavedSession::read(std::make_unique<MemoryFile>(bytes), "fuzz");
  WEFT_CHECK(file.is_ok() || !saved.is_ok());
  if (file.is_ok()) restore_and_write(*file, bytes);
  if (saved.is_ok()) WEFT_CHECK((*saved)->session().tokens.size() == file->tokens().size());
}

/// Signs head and blocks as the head's fields lay them out (docs/formats/session.md).
void sign(Bytes& bytes) {
  const auto get = [&](size_t at) {
    uint32_t value = 0;
    std::memcpy(&value, &bytes[at], sizeof(value));
    return uint64_t{value};
  };
  const auto put = [&](size_t at, uint64_t value) { std::memcpy(&bytes[at], &value, 8); };
  constexpr uint64_t kFixedBytes = 76;
  if (bytes.size() < kFixedBytes) return;
  const uint64_t n_layers = get(32), header_bytes = kFixedBytes + 4 * n_layers + get(72);
  if (header_bytes > bytes.size() || n_layers == 0) return;
  const uint64_t token_bytes = 4 * get(52) + 8 * get(60), state_bytes = get(64);
  const uint64_t around = header_bytes + token_bytes + state_bytes + 8 * (2 + n_layers);
  if (around > bytes.size() || (bytes.size() - around) % n_layers != 0) return;
  put(24, bytes.size());
  const auto header = narrow<uint32_t>(header_bytes);
  std::memcpy(&bytes[20], &header, sizeof(header));
  uint64_t checksum = hash64(std::span(bytes).subspan(16, header_bytes - 16));
  put(8, checksum);
  size_t at = header_bytes;
  for (uint64_t block = 0; block < 2 + n_layers; ++block) {
    const uint64_t layer_bytes = (bytes.size() - around) / n_layers;
    const uint64_t n_bytes = block == 0 ? token_bytes : block == 1 ? state_bytes : layer_bytes;
    checksum = hash64(std::span(bytes).subspan(at, n_bytes), checksum);
    put(at + n_bytes, checksum);
    at += n_bytes + 8;
  }
}

}  // namespace
}  // namespace weft::engine

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft::engine;
  const weft::fuzz::TimeLimit limit(size);
  const auto bytes = std::as_bytes(std::span(data, size));
  read(bytes);
  Bytes signed_bytes(bytes.begin(), bytes.end());
  sign(signed_bytes);
  read(signed_bytes);
  return 0;
}
