// Writes GGUF version 3: metadata first, then tensors whose bytes are streamed in the order they
// were declared. It checks what would make the file unreadable only by assertion: it writes what
// weft itself composed (tests, random models, what a checked File holds), never input from outside.
// For one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/atomic_file.h"
#include "base/env.h"
#include "gguf/gguf.h"

namespace weft::gguf {

/// value_type_of<int32_t>() is kI32.
template <class T>
constexpr ValueType value_type_of() {
  if constexpr (std::is_same_v<T, uint8_t>) return ValueType::kU8;
  if constexpr (std::is_same_v<T, int8_t>) return ValueType::kI8;
  if constexpr (std::is_same_v<T, uint16_t>) return ValueType::kU16;
  if constexpr (std::is_same_v<T, int16_t>) return ValueType::kI16;
  if constexpr (std::is_same_v<T, uint32_t>) return ValueType::kU32;
  if constexpr (std::is_same_v<T, int32_t>) return ValueType::kI32;
  if constexpr (std::is_same_v<T, float>) return ValueType::kF32;
  if constexpr (std::is_same_v<T, bool>) return ValueType::kBool;
  if constexpr (std::is_same_v<T, uint64_t>) return ValueType::kU64;
  if constexpr (std::is_same_v<T, int64_t>) return ValueType::kI64;
  if constexpr (std::is_same_v<T, double>) return ValueType::kF64;
}

/// Composes what comes before the tensors' bytes: add metadata and tensors, each in the order
/// wanted in the file, then hand it to Writer::create. A key must not be added twice.
class HeaderBuilder {
 public:
  /// Any alignment but 32 is also written as general.alignment.
  explicit HeaderBuilder(uint32_t alignment = kDefaultAlignment);

  /// The value's type is T's: add<uint32_t>("llama.block_count", 30).
  template <class T>
  requires std::is_arithmetic_v<T>
  void add(std::string_view key, std::type_identity_t<T> value) {
    add_raw(key, value_type_of<T>(), std::as_bytes(std::span(&value, 1)));
  }
  template <class T>
  requires std::is_arithmetic_v<T>
  void add_array(std::string_view key, std::span<const std::type_identity_t<T>> values) {
    add_array_raw(key, value_type_of<T>(), values.size(), std::as_bytes(values));
  }
  void add_string(std::string_view key, std::string_view value);
  /// A value as it was read from another file.
  void add_value(std::string_view key, const Value& value);
  void add_strings(std::string_view key, std::span<const std::string> values);

  /// dims in GGML's order; returns the tensor's bytes. Its offset follows from those before it.
  uint64_t add_tensor(std::string_view name, DType dtype, std::span<const int64_t> dims);

  uint32_t alignment() const { return alignment_; }
  std::span<const uint64_t> tensor_bytes() const { return tensor_bytes_; }
  /// Magic, counts, metadata, tensor table and the padding before the data.
  std::string bytes() const;

 private:
  void add_raw(std::string_view key, ValueType type, std::span<const std::byte> value);
  void add_array_raw(std::string_view key, ValueType type, uint64_t count,
                     std::span<const std::byte> values);

  uint32_t alignment_;
  uint64_t n_entries_ = 0;
  uint64_t data_bytes_ = 0;
  std::string entries_;
  std::string table_;
  std::vector<uint64_t> tensor_bytes_;
};

/// Writes a file beside `path` and gives it its name when it is whole and synced; before that,
/// nothing is left of it when the writer is destroyed. Errors are the file system's, with its path.
///
///   HeaderBuilder header;
///   header.add<uint32_t>("llama.block_count", 2);
///   header.add_tensor("output_norm.weight", DType::kF32, dims);   // 64 floats
///   WEFT_ASSIGN_OR_RETURN(Writer writer, Writer::create(env, path, header));
///   WEFT_RETURN_IF_ERROR(writer.append(bytes));                   // 256 bytes, in any pieces
///   return writer.finish();
class Writer {
 public:
  Writer(Writer&&) = default;
  Writer& operator=(Writer&&) = delete;

  /// Writes the header; `env` must outlive the writer.
  static Result<Writer> create(Env& env, const std::string& path, const HeaderBuilder& header);

  /// More bytes of the current tensor, never past its end; what follows is the next tensor's.
  Status append(std::span<const std::byte> bytes);
  /// After the last tensor's last byte.
  Status finish();

 private:
  explicit Writer(AtomicFile file) : file_(std::move(file)) {}

  AtomicFile file_;
  uint32_t alignment_ = 0;
  std::vector<uint64_t> tensor_bytes_;
  size_t tensor_ = 0;     // the current one
  uint64_t written_ = 0;  // of it
};

}  // namespace weft::gguf
