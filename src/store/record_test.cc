#include "store/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "support/files.h"
#include "support/store_chunks.h"

namespace weft::store {
namespace {

using test::MemoryFile;
using test::TestChunk;
using ::testing::HasSubstr;
using ::testing::Not;
using Bytes = std::vector<std::byte>;

/// A file that collects what is written.
class CollectingFile : public WriteFile {
 public:
  Status append(std::span<const std::byte> bytes) override {
    content.insert(content.end(), bytes.begin(), bytes.end());
    return Status::ok();
  }
  Status sync() override { return Status::ok(); }
  Status close() override { return Status::ok(); }
  Bytes content;
};

Bytes record_of(const TestChunk& chunk) {
  const auto layers = chunk.spans();
  const auto head = encode_head(chunk.identity, chunk.n_tokens, 1'700'000'000'123, layers);
  EXPECT_TRUE(head.is_ok()) << head.status().message();
  CollectingFile file;
  EXPECT_TRUE(write_record(file, *head, layers).is_ok());
  return std::move(file.content);
}

/// Reads all of a record. Fails the test when it succeeds with anything but the chunk's content.
Status read_all(std::span<const std::byte> bytes, const TestChunk& chunk) {
  const MemoryFile file(bytes);
  WEFT_ASSIGN_OR_RETURN(const RecordHead head, read_head(file, "rec"));
  EXPECT_EQ(head.identity, chunk.identity);
  EXPECT_EQ(head.info.n_tokens, chunk.n_tokens);
  EXPECT_EQ(head.info.created_unix_ms, 1'700'000'000'123);
  for (uint32_t i = 0; i < head.info.n_layers; ++i) {
    Bytes layer(head.info.layer_bytes);
    WEFT_RETURN_IF_ERROR(read_layer(file, head, i, layer, "rec"));
    EXPECT_EQ(layer, chunk.layers.at(i));
  }
  EXPECT_EQ(head.info.n_layers, chunk.layers.size());
  return Status::ok();
}

TEST(Record, RoundTrips) {
  for (int i = 0; i < 40; ++i) {
    const TestChunk chunk(i);
    const Bytes bytes = record_of(chunk);
    EXPECT_EQ(bytes.size(), chunk.file_bytes());
    EXPECT_EQ(bytes.size() % kRecordAlignment, 0u);
    EXPECT_TRUE(read_all(bytes, chunk).is_ok());
  }
}

TEST(Record, RoundTripsAroundEveryPadding) {
  for (const size_t identity_bytes : {1, 7, 8, 9, 4031, 4032, 4033, 4034, 8192, 100'000}) {
    for (const size_t layer_bytes : {1, 4095, 4096, 4097}) {
      TestChunk chunk(1, layer_bytes);
      chunk.identity.resize(identity_bytes, std::byte{0x5a});
      EXPECT_TRUE(read_all(record_of(chunk), chunk).is_ok());
    }
  }
}

TEST(Record, RefusesToWriteWhatItWouldNotRead) {
  const TestChunk chunk(1, 100);
  const auto refused = [&](size_t identity_bytes, uint32_t n_tokens, size_t n_layers) {
    const std::vector<std::span<const std::byte>> layers(n_layers, chunk.layers[0]);
    const auto head = encode_head(Bytes(identity_bytes), n_tokens, 0, layers);
    return head.status().code() == StatusCode::kInvalidArgument;
  };
  EXPECT_FALSE(refused(1, 1, 1));
  EXPECT_FALSE(refused(kMaxIdentityBytes, kMaxTokens, kMaxLayers));
  EXPECT_TRUE(refused(0, 1, 1));
  EXPECT_TRUE(refused(kMaxIdentityBytes + 1, 1, 1));
  EXPECT_TRUE(refused(1, 0, 1));
  EXPECT_TRUE(refused(1, kMaxTokens + 1, 1));
  EXPECT_TRUE(refused(1, 1, 0));
  EXPECT_TRUE(refused(1, 1, kMaxLayers + 1));
}

TEST(Record, EveryFlippedBitIsFoundOrHarmless) {
  const TestChunk chunk(2, 300);
  Bytes bytes = record_of(chunk);
  size_t harmless = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] ^= std::byte(1 << bit);
      harmless += read_all(bytes, chunk).is_ok();
      bytes[i] ^= std::byte(1 << bit);
    }
  }
  // Only the padding after each layer is covered by no checksum, and nobody reads it.
  EXPECT_EQ(harmless, chunk.layers.size() * (kRecordAlignment - 300) * 8);
}

TEST(Record, EveryTruncationAndExtensionIsFound) {
  const TestChunk chunk(3, 5000);
  Bytes bytes = record_of(chunk);
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Status status = read_all(std::span(bytes).first(size), chunk);
    ASSERT_EQ(status.code(), StatusCode::kCorrupt) << size;
  }
  ASSERT_TRUE(read_all(bytes, chunk).is_ok());
  for (const size_t more : {1, 4095, 4096, 4097, 8192}) {
    Bytes longer = bytes;
    longer.resize(longer.size() + more);
    EXPECT_EQ(read_all(longer, chunk).code(), StatusCode::kCorrupt);
  }
}

// A head with a good checksum over bad fields, as a hostile writer would make it.
struct Forgery {
  Bytes bytes;

  template <class T>
  Forgery& set(size_t at, T value) {
    for (size_t i = 0; i < sizeof(T); ++i) bytes[at + i] = std::byte(value >> (8 * i));
    return *this;
  }
  Forgery& sign(size_t payload_offset = 4096) {
    return set<uint64_t>(8, hash64(std::span(bytes).subspan(16, payload_offset - 16)));
  }
  Forgery& resize(size_t size) {
    bytes.resize(size);
    return *this;
  }
};

struct BadRecord {
  const char* what;
  std::function<void(Forgery&)> forge;
  const char* message;
  StatusCode code = StatusCode::kCorrupt;
};

std::vector<BadRecord> bad_fields() {
  const StatusCode kUnsupported = StatusCode::kUnsupported;
  const auto sized = [](auto at, auto value) {
    return [=](Forgery& f) { f.set(at, value).sign(); };
  };
  return {
      {"version 0", sized(16, uint32_t{0}), "version 0, this weft reads version 1", kUnsupported},
      {"version 2", sized(16, uint32_t{2}), "version 2", kUnsupported},
      {"version 1 in big-endian", sized(16, uint32_t{1u << 24}), "version 16777216", kUnsupported},
      {"no layers", sized(20, uint32_t{0}), "n_layers is 0"},
      {"too many layers", sized(20, kMaxLayers + 1), "n_layers is 4097, must be 1 to 4096"},
      {"most layers", sized(20, ~uint32_t{0}), "n_layers is 4294967295"},
      {"one layer more than there is", sized(20, uint32_t{3}), "file has"},
      {"one layer fewer than there is", sized(20, uint32_t{1}), "file has"},
      {"empty layers", sized(24, uint64_t{0}), "layer_bytes is 0"},
      {"layers too large", sized(24, kMaxLayerBytes + 1), "layer_bytes is 1073741825"},
      {"layers that overflow", sized(24, ~uint64_t{0}), "layer_bytes is 18446744073709551615"},
      {"layers that wrap to 0", sized(24, uint64_t{1} << 63), "layer_bytes is"},
      {"layers larger than the file", sized(24, kMaxLayerBytes), "its header says 2147487744"},
      {"layers one page larger", sized(24, uint64_t{300 + 4096}), "file has"},
      {"layers a little larger", sized(24, uint64_t{301}), "checksum of layer 0 differs"},
      {"layers a little smaller", sized(24, uint64_t{299}), "checksum of layer 0 differs"},
      {"no tokens", sized(32, uint32_t{0}), "n_tokens is 0"},
      {"too many tokens", sized(32, kMaxTokens + 1), "n_tokens is 16777217"},
      {"no identity", sized(36, uint32_t{0}), "identity_bytes is 0"},
      {"identity too large", sized(36, kMaxIdentityBytes + 1), "identity_bytes is 16777217"},
      {"largest identity", sized(36, ~uint32_t{0}), "identity_bytes is 4294967295"},
      {"identity larger than the file", sized(36, uint32_t{1} << 20), "file has"},
  };
}

/// Files that are no records, and records that something damaged.
std::vector<BadRecord> damaged() {
  return {
      {"empty", [](Forgery& f) { f.resize(0); }, "0 bytes, a chunk record has at least 8192"},
      {"one byte", [](Forgery& f) { f.resize(1); }, "truncated"},
      {"half a head", [](Forgery& f) { f.resize(2048); }, "truncated"},
      {"head alone", [](Forgery& f) { f.resize(4096); }, "truncated"},
      {"one byte short of the least", [](Forgery& f) { f.resize(8191); }, "truncated"},
      {"zeros", [](Forgery& f) { f.bytes.assign(8192, {}); }, "magic"},
      {"text", [](Forgery& f) { f.bytes.assign(8192, std::byte{'a'}); }, "magic"},
      {"a GGUF", [](Forgery& f) { f.set<uint32_t>(0, 0x46554747); }, "magic"},
      {"line ends changed by a text transfer",
       [](Forgery& f) { f.bytes.erase(f.bytes.begin() + 6); }, "magic"},
      {"header checksum 0", [](Forgery& f) { f.set<uint64_t>(8, 0); }, "header checksum differs"},
      {"creation time changed", [](Forgery& f) { f.set<uint8_t>(40, 0); }, "header checksum"},
      {"head's padding used", [](Forgery& f) { f.set<uint8_t>(4095, 1); }, "header checksum"},
      {"last layer cut off", [](Forgery& f) { f.resize(f.bytes.size() - 4096); }, "file has 8192"},
      {"a byte after the end", [](Forgery& f) { f.resize(f.bytes.size() + 1); }, "file has"},
      {"first layer damaged", [](Forgery& f) { f.bytes[4096] ^= std::byte{1}; }, "layer 0"},
      {"last layer damaged", [](Forgery& f) { f.bytes[8192 + 299] ^= std::byte{128}; }, "layer 1"},
      {"layers swapped",
       [](Forgery& f) {
         std::swap_ranges(f.bytes.begin() + 4096, f.bytes.begin() + 8192, f.bytes.begin() + 8192);
       },
       "checksum of layer 0 differs"},
  };
}

TEST(Record, BadRecordsGetOneClearLineEach) {
  TestChunk chunk(4, 300);
  chunk.layers.resize(2, Bytes(300, std::byte{7}));
  const Bytes good = record_of(chunk);
  ASSERT_EQ(good.size(), 3 * 4096u);
  ASSERT_TRUE(read_all(good, chunk).is_ok());
  std::vector<BadRecord> cases = bad_fields();
  for (BadRecord& more : damaged()) cases.push_back(std::move(more));
  for (const BadRecord& c : cases) {
    SCOPED_TRACE(c.what);
    Forgery forgery{good};
    c.forge(forgery);
    const MemoryFile file(forgery.bytes);
    const auto head = read_head(file, "some/file.chunk");
    Status status = head.status();
    for (uint32_t i = 0; status.is_ok() && i < head->info.n_layers; ++i) {
      Bytes layer(head->info.layer_bytes);
      status = read_layer(file, *head, i, layer, "some/file.chunk");
    }
    EXPECT_EQ(status.code(), c.code) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(c.message));
    EXPECT_THAT(status.message(), HasSubstr("some/file.chunk"));
    EXPECT_THAT(status.message(), Not(HasSubstr("\n")));
  }
}

TEST(Record, FileNamesRoundTripAndOtherNamesAreRejected) {
  const Hash128 hash{0x0123456789abcdef, 0xfedcba9876543210};
  EXPECT_EQ(record_file_name(hash), "0123456789abcdeffedcba9876543210.chunk");
  EXPECT_EQ(parse_record_file_name(record_file_name(hash)), hash);
  EXPECT_EQ(parse_hash(hash.to_hex()), hash);
  for (const char* name :
       {"", ".chunk", "0123.chunk", "0123456789ABCDEFFEDCBA9876543210.chunk",
        "0123456789abcdeffedcba987654321g.chunk", "0123456789abcdeffedcba9876543210", "properties",
        "store.lock", "0123456789abcdeffedcba9876543210.chunk.chunk"}) {
    EXPECT_EQ(parse_record_file_name(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace weft::store
