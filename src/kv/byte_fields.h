// Numbers and lists of a file's fields, little-endian, one after another. The reader takes bytes
// from anyone: it never reads past their end, and a length is compared with what is left before
// anything is taken by it. Neither knows what a field means.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/narrow.h"

namespace weft::kv {

static_assert(std::endian::native == std::endian::little);

class ByteWriter {
 public:
  template <class T>
  void number(T value) {
    bytes(std::as_bytes(std::span(&value, 1)));
  }
  void bytes(std::span<const std::byte> more) { out_.insert(out_.end(), more.begin(), more.end()); }
  /// After its length, 4 bytes; so `text` is shorter than 4 GiB.
  void text(std::string_view text) {
    number(narrow<uint32_t>(text.size()));
    bytes(std::as_bytes(std::span(text)));
  }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  std::vector<std::byte> out_;
};

/// Once something was asked for that is not there, it is 0 or empty, and so is all that follows:
/// ok() is asked at the end.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : left_(bytes) {}
  /// T: any bits must be a value of it (integers and floats).
  template <class T>
  T number() {
    T value{};
    const std::span<const std::byte> from = bytes(sizeof(T));
    if (!from.empty()) std::memcpy(&value, from.data(), sizeof(T));
    return value;
  }
  /// Of the bytes given at the beginning.
  std::span<const std::byte> bytes(uint64_t n) {
    if (!ok_ || n > left_.size()) {
      ok_ = false;
      return {};
    }
    const std::span<const std::byte> taken = left_.first(n);
    left_ = left_.subspan(n);
    return taken;
  }
  std::string text() {
    const std::span<const std::byte> chars = bytes(number<uint32_t>());
    return {reinterpret_cast<const char*>(chars.data()), chars.size()};
  }
  bool ok() const { return ok_; }
  /// Nothing is left, and nothing was missing.
  bool at_end() const { return ok_ && left_.empty(); }

 private:
  std::span<const std::byte> left_;
  bool ok_ = true;
};

}  // namespace weft::kv
