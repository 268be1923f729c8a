// Bad files, one table: each is refused with one line that names the file and the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "base/narrow.h"
#include "gguf/gguf.h"
#include "gguf/writer.h"

namespace weft::gguf {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}
std::string u32(uint32_t value) { return raw(value); }
std::string u64(uint64_t value) { return raw(value); }
std::string text(std::string_view s) { return u64(s.size()) + std::string(s); }

std::string start(uint64_t n_tensors, uint64_t n_entries, uint32_t version = 3) {
  return "GGUF" + u32(version) + u64(n_tensors) + u64(n_entries);
}
std::string entry(std::string_view key, uint32_t type, std::string_view value) {
  return text(key) + u32(type) + std::string(value);
}
std::string array_entry(std::string_view key, uint32_t element, uint64_t n, std::string_view data) {
  return entry(key, 9, u32(element) + u64(n) + std::string(data));
}
std::string tensor(std::string_view name, std::initializer_list<int64_t> dims, uint32_t type,
                   uint64_t offset) {
  std::string out = text(name) + u32(narrow<uint32_t>(dims.size()));
  for (const int64_t dim : dims) out += raw(dim);
  return out + u32(type) + u64(offset);
}
/// Padding to 32 bytes and `data_bytes` of data.
std::string with_data(std::string file, size_t data_bytes) {
  file.resize((file.size() + 31) / 32 * 32 + data_bytes, '\0');
  return file;
}
/// A file with these tensors and `data_bytes` of data.
std::string tensors(std::initializer_list<std::string> table, size_t data_bytes) {
  std::string file = start(table.size(), 0);
  for (const std::string& one : table) file += one;
  return with_data(std::move(file), data_bytes);
}

constexpr uint32_t kF32Id = 0, kQ4_0Id = 2;
constexpr int64_t kBig = int64_t{1} << 40;

struct Case {
  const char* name;
  std::string bytes;
  const char* field;  // named in the message
  const char* what;   // so does this
  StatusCode code = StatusCode::kCorrupt;
};

constexpr auto unsupported = StatusCode::kUnsupported;

std::vector<Case> bad_headers() {
  return {
      {"empty file", "", "not a GGUF file", "GGUF"},
      {"short magic", "GGU", "not a GGUF file", "GGUF"},
      {"other magic", "GGML" + start(0, 0).substr(4), "not a GGUF file", "GGUF"},
      {"no version", "GGUF", "version", "0 left"},
      {"version 1", start(0, 0, 1), "version", "is 1", unsupported},
      {"version 4", start(0, 0, 4), "version", "is 4", unsupported},
      {"big-endian", start(0, 0, 0x03000000), "version", "big-endian", unsupported},
      {"ends in the counts", start(0, 0).substr(0, 20), "metadata count", "4 left"},
      {"metadata count over the limit", start(0, 65537) + std::string(1 << 20, '\0'),
       "metadata count", "65536"},
      {"metadata count that wraps", start(0, ~uint64_t{0}), "metadata count", "limit"},
      {"metadata count over the file", start(0, 1000), "metadata count", "0 bytes left"},
      {"negative tensor count", start(uint64_t{1} << 63, 0), "tensor count", "limit"},
      {"tensor count over the file", start(1000, 0) + std::string(100, '\0'), "tensor count",
       "100 bytes left"},
  };
}

std::vector<Case> bad_keys() {
  return {
      {"empty key", start(0, 1) + entry("", 4, u32(1)), "metadata entry 0", "empty key"},
      {"key longer than the file", start(0, 1) + u64(1000) + std::string(20, 'k'),
       "metadata entry 0", "1000 bytes"},
      {"key over the limit", start(0, 1) + text(std::string(65536, 'k')) + u32(4) + u32(1),
       "metadata entry 0", "65535"},
      {"key length that wraps", start(0, 1) + u64(~uint64_t{0}) + std::string(20, 'k'),
       "metadata entry 0", "limit"},
      {"duplicate key", start(0, 2) + entry("k", 4, u32(1)) + entry("k", 4, u32(1)), "'k'",
       "twice"},
      {"newlines in a key", start(0, 1) + entry("a\nb\x1b[2J", 99, ""), "'a\\x0ab\\x1b[2J'", "99"},
      {"split file", start(0, 1) + entry("split.count", 2, std::string("\x03\0", 2)),
       "'split.count'", "one of 3 files", unsupported},
      {"split count of another type", start(0, 1) + entry("split.count", 8, text("x")),
       "'split.count'", "wanted an integer"},
      {"alignment 0", start(0, 1) + entry("general.alignment", 4, u32(0)), "'general.alignment'",
       "is 0"},
      {"alignment 24", start(0, 1) + entry("general.alignment", 4, u32(24)), "'general.alignment'",
       "is 24"},
      {"alignment 1", start(0, 1) + entry("general.alignment", 4, u32(1)), "'general.alignment'",
       "is 1"},
      {"alignment 2^31", start(0, 1) + entry("general.alignment", 4, u32(1u << 31)),
       "'general.alignment'", "2147483648"},
      {"alignment of another type", start(0, 1) + entry("general.alignment", 10, u64(32)),
       "'general.alignment'", "is u64"},
  };
}

std::vector<Case> bad_values() {
  const std::string over = u64(uint64_t{1} << 63);
  return {
      {"unknown value type", start(0, 1) + entry("k", 13, u32(1)), "'k'", "is 13"},
      {"value cut off", start(0, 1) + entry("k", 10, u32(1)), "'k'", "4 left"},
      {"string longer than the file", start(0, 1) + entry("k", 8, u64(100) + "abc"), "'k'",
       "100 bytes"},
      {"string over the limit", start(0, 1) + entry("k", 8, over + "abc"), "'k'", "limit"},
      {"a bool of 2", start(0, 1) + entry("k", 7, "\x02"), "'k'", "bool is 2"},
      {"array within array", start(0, 1) + array_entry("k", 9, 1, u32(4) + u64(0)), "'k'",
       "arrays within arrays"},
      {"array of an unknown type", start(0, 1) + array_entry("k", 99, 1, u32(4)), "'k'", "is 99"},
      {"array longer than the file", start(0, 1) + array_entry("k", 4, 100, u32(4)), "'k'",
       "400 bytes"},
      {"array over the limit", start(0, 1) + array_entry("k", 10, (16u << 20) + 1, ""), "'k'",
       "16777216"},
      {"array size that wraps", start(0, 1) + array_entry("k", 10, uint64_t{1} << 61, ""), "'k'",
       "limit"},
      {"strings that can't be there", start(0, 1) + array_entry("k", 8, 1 << 20, text("a")), "'k'",
       "8388608 bytes"},
      {"string in an array cut off",
       start(0, 1) + array_entry("k", 8, 2, text("a") + u64(7) + "bc"), "'k'", "7 bytes"},
      {"array with a bool of 255", start(0, 1) + array_entry("k", 7, 2, "\x01\xff"), "'k'",
       "bool is 255"},
  };
}

std::vector<Case> bad_tensors() {
  return {
      {"empty tensor name", tensors({tensor("", {1}, kF32Id, 0)}, 32), "tensor 0", "empty name"},
      {"tensor name of 64 bytes", tensors({tensor(std::string(64, 't'), {1}, kF32Id, 0)}, 32),
       "tensor 0", "limit of 63"},
      {"duplicate tensor", tensors({tensor("t", {1}, kF32Id, 0), tensor("t", {1}, kF32Id, 32)}, 64),
       "'t'", "twice"},
      {"five dimensions", tensors({tensor("t", {1, 1, 1, 1, 1}, kF32Id, 0)}, 32), "'t'", "has 5"},
      {"a dimension of 0", tensors({tensor("t", {4, 0}, kF32Id, 0)}, 32), "'t'",
       "dimension 1 is 0"},
      {"a negative dimension", tensors({tensor("t", {-4}, kF32Id, 0)}, 32), "'t'", "is -4"},
      {"elements overflow", tensors({tensor("t", {kBig, kBig}, kF32Id, 0)}, 32), "'t'",
       "elements overflows"},
      {"elements overflow to a small number",
       tensors({tensor("t", {int64_t{1} << 32, int64_t{1} << 32, 8}, kF32Id, 0)}, 32), "'t'",
       "elements overflows"},
      {"bytes overflow", tensors({tensor("t", {int64_t{1} << 62}, kF32Id, 0)}, 32), "'t'",
       "bytes overflows"},
      {"not whole blocks", tensors({tensor("t", {48, 2}, kQ4_0Id, 0)}, 64), "'t'", "blocks of 32"},
      {"not whole blocks of Q2_K", tensors({tensor("t", {128, 2}, 10, 0)}, 84), "'t'",
       "blocks of 256 (Q2_K)"},
      {"not whole blocks of IQ4_XS", tensors({tensor("t", {32}, 23, 0)}, 136), "'t'",
       "blocks of 256 (IQ4_XS)"},
      {"not whole blocks of MXFP4", tensors({tensor("t", {16}, 39, 0)}, 32), "'t'",
       "blocks of 32 (MXFP4)"},
      {"Q3_K cut off", tensors({tensor("t", {256}, 11, 0)}, 109), "'t'", "110 bytes"},
      {"IQ4_NL cut off", tensors({tensor("t", {64}, 20, 0)}, 35), "'t'", "36 bytes"},
      {"a newer type of ggml", tensors({tensor("t", {64}, 40, 0)}, 36), "'t'", "40 (NVFP4)",
       unsupported},
      {"a removed type", tensors({tensor("t", {32}, 4, 0)}, 32), "'t'", "type 4"},
      {"a type of the future", tensors({tensor("t", {32}, 4711, 0)}, 32), "'t'", "type 4711"},
      {"a type that weft does not read", tensors({tensor("t", {256}, 16, 0)}, 256), "'t'",
       "16 (IQ2_XXS)", unsupported},
      {"misaligned offset", tensors({tensor("t", {1}, kF32Id, 4)}, 64), "'t'", "multiple of"},
      {"offset past the end", tensors({tensor("t", {1}, kF32Id, 64)}, 64), "'t'", "64 bytes"},
      {"offset that wraps", tensors({tensor("t", {8}, kF32Id, ~uint64_t{31})}, 64), "'t'", "past"},
      {"data cut off", tensors({tensor("t", {9}, kF32Id, 0)}, 35), "'t'", "36 bytes"},
      {"no data", start(1, 0) + tensor("t", {1}, kF32Id, 0), "'t'", "4 bytes"},
      {"overlap", tensors({tensor("a", {9}, kF32Id, 0), tensor("b", {1}, kF32Id, 32)}, 64), "'b'",
       "within tensor 'a'"},
      {"same place", tensors({tensor("a", {1}, kF32Id, 0), tensor("b", {1}, kF32Id, 0)}, 64),
       "tensor '", "within"},
      {"table cut off", start(1, 0) + tensor("t", {1}, kF32Id, 0).substr(0, 28) + "012", "'t'",
       "left"},
  };
}

TEST(HostileGguf, EveryBadFileIsRefusedWithOneLineNamingFileAndField) {
  for (const auto& cases : {bad_headers(), bad_keys(), bad_values(), bad_tensors()}) {
    for (const Case& c : cases) {
      SCOPED_TRACE(c.name);
      // Exactly sized on the heap, so that a sanitizer sees a read past the end.
      const std::vector<char> bytes(c.bytes.begin(), c.bytes.end());
      const auto file = File::parse(std::as_bytes(std::span(bytes)), "dir/bad.gguf");
      ASSERT_FALSE(file.is_ok());
      const std::string& message = file.status().message();
      EXPECT_EQ(file.status().code(), c.code) << message;
      EXPECT_THAT(message, ::testing::StartsWith("dir/bad.gguf: "));
      EXPECT_THAT(message, HasSubstr(c.field));
      EXPECT_THAT(message, HasSubstr(c.what));
      EXPECT_THAT(message, Not(HasSubstr("\n")));
      EXPECT_LT(message.size(), 300u);
    }
  }
}

TEST(HostileGguf, TheTablesHelpersMakeGoodFilesToo) {
  const auto expect_good = [](const std::string& bytes) {
    const auto file = File::parse(std::as_bytes(std::span(bytes)), "good.gguf");
    EXPECT_TRUE(file.is_ok()) << file.status().message();
  };
  expect_good(start(0, 0));
  expect_good(start(0, 0, 2));
  expect_good(start(0, 1) + entry("k", 7, "\x01"));
  expect_good(start(0, 1) + entry("split.count", 2, std::string("\x01\0", 2)));
  expect_good(start(0, 1) + entry("general.alignment", 4, u32(64)));
  expect_good(start(0, 1) + array_entry("k", 8, 2, text("a") + text("bc")));
  expect_good(tensors({tensor(std::string(63, 't'), {9}, kF32Id, 0)}, 36));
  expect_good(tensors({tensor("b", {1}, kF32Id, 64), tensor("a", {9}, kF32Id, 0)}, 68));
}

TEST(HostileGguf, EveryTruncationIsRefused) {
  HeaderBuilder header;
  header.add_string("general.architecture", "llama");
  header.add_array<float>("scores", std::array{1.0f, 2.0f});
  header.add_strings("tokens", std::array<std::string, 2>{"a", "bc"});
  header.add_tensor("t", DType::kQ8_0, std::array<int64_t, 2>{32, 3});
  std::string whole = header.bytes();
  whole.append(3 * 34, '\0');
  for (size_t size = 0; size <= whole.size(); ++size) {
    const std::vector<char> bytes(whole.begin(), whole.begin() + size);
    const auto file = File::parse(std::as_bytes(std::span(bytes)), "cut.gguf");
    EXPECT_EQ(file.is_ok(), size == whole.size()) << size;
  }
}

}  // namespace
}  // namespace weft::gguf
