// Reads a GGUF file: checks the whole header (metadata, tensor table, where each tensor's bytes
// lie) once, then answers from it without copying; weights stay in the memory mapping. What keys
// and tensors a model needs, and what their numbers may be, is the model's business, not this
// room's. Format: github.com/ggml-org/ggml, docs/gguf.md; versions 2 and 3, little-endian; one file
// or the parts of a split one. A File is immutable: any number of threads may use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/env.h"
#include "base/function_ref.h"
#include "base/status.h"
#include "tensor/dtype.h"

namespace weft::gguf {

/// What a file may hold; beyond any of these it is refused before memory is taken for it.
inline constexpr uint64_t kMaxMetadata = 65'536;
inline constexpr uint64_t kMaxTensors = 131'072;
inline constexpr uint64_t kMaxKeyBytes = 65'535;
inline constexpr uint64_t kMaxTensorNameBytes = 63;
inline constexpr uint64_t kMaxStringBytes = 16u << 20;
inline constexpr uint64_t kMaxArrayElements = 16u << 20;
inline constexpr uint64_t kMaxParts = 4096;
inline constexpr uint64_t kMinAlignment = 8;
inline constexpr uint64_t kMaxAlignment = 1u << 20;
inline constexpr uint64_t kDefaultAlignment = 32;

/// Values are the format's own ids.
enum class ValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

/// "u32", "string", …; never null.
const char* value_type_name(ValueType type);

/// An array as it lies in the file: checked, not yet decoded. A vocabulary of 262,144 strings is
/// the common large one; decoded values would take several times its bytes.
struct Array {
  ValueType element_type = ValueType::kU8;  // never kArray
  uint64_t size = 0;                        // elements
  std::span<const std::byte> bytes;         // packed, unaligned
};

/// One metadata value. Unsigned types are held as uint64_t, signed as int64_t, floats as double.
struct Value {
  ValueType type = ValueType::kU8;
  std::variant<uint64_t, int64_t, double, bool, std::string_view, Array> data;
};

/// Calls `fn` with the first `limit` elements, decoded, in order.
void for_each_element(const Array& array, uint64_t limit, FunctionRef<void(const Value&)> fn);

/// One key of the metadata; the key is not empty and no other entry has it.
struct Entry {
  std::string_view key;
  Value value;
};

/// One line of the tensor table, checked: `data` has size_bytes bytes that no other tensor shares.
/// A matrix of 576 x 1,536 Q4_0 weights has dims {576, 1536, 1, 1}, 1,536 rows of 324 bytes.
struct TensorInfo {
  std::string_view name;
  int n_dims = 0;                   // 0 to 4
  int64_t dims[4] = {1, 1, 1, 1};   // GGML's order: dims[0] is contiguous (a row's length)
  DType dtype = DType::kF32;        // dims[0] is a whole number of its blocks
  size_t part = 0;                  // of File::parts()
  uint64_t offset = 0;              // from the start of the part's data
  uint64_t size_bytes = 0;          // exact, without padding
  const std::byte* data = nullptr;  // in the mapping, aligned as File::alignment() says

  int64_t n_rows() const { return dims[1] * dims[2] * dims[3]; }
  int64_t n_elements() const { return dims[0] * n_rows(); }
};

/// One of the files that a model is made of.
struct FilePart {
  std::string path;
  std::span<const std::byte> bytes;   // all of it
  std::span<const std::byte> header;  // what comes before the tensors' data
};

/// An open, checked file. Everything that it returns (views of names, keys, strings, data) lives as
/// long as the File; hence the shared_ptr. A file that shrinks on disk while it is mapped raises
/// SIGBUS at the next read of what is gone, as with every mapping (base/mapped_guard.h).
class File {
 public:
  /// Maps and checks `path`. Every error is one line that names the file and the key or tensor. Of
  /// a model split over files, `path` is the first part, NAME-00001-of-0000N.gguf; the others are
  /// looked for beside it, under the names that follow from its own. Metadata is the first part's.
  static Result<std::shared_ptr<const File>> open(Env& env, const std::string& path);
  /// The same over memory that the caller keeps alive, at a 64-byte boundary if tensors' data are
  /// to be used; `name` is the path in messages.
  static Result<std::shared_ptr<const File>> parse(std::span<const std::byte> bytes,
                                                   std::string name);

  const std::string& path() const { return path_; }
  /// Of all parts.
  uint64_t size_bytes() const;
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  /// One for an unsplit file. The headers together are what describes the model.
  std::span<const FilePart> parts() const { return parts_; }

  /// In the file's order.
  std::span<const Entry> metadata() const { return entries_; }
  std::span<const TensorInfo> tensors() const { return tensors_; }
  /// Null when there is none.
  const Value* find(std::string_view key) const;
  const TensorInfo* find_tensor(std::string_view name) const;

  // Typed access. A missing key is kNotFound; another type than wanted, a negative number where an
  // unsigned one is wanted, or a float that is not finite is kCorrupt. `_or` returns the fallback
  // for a missing key only: a key of the wrong type is still an error.
  Result<uint64_t> get_uint(std::string_view key) const;  // any integer type
  Result<uint64_t> get_uint_or(std::string_view key, uint64_t fallback) const;
  Result<float> get_float(std::string_view key) const;  // f32 or f64
  Result<bool> get_bool_or(std::string_view key, bool fallback) const;
  Result<std::string_view> get_string(std::string_view key) const;  // lives as long as the file
  Result<std::string_view> get_string_or(std::string_view key, std::string_view fallback) const;
  Result<std::vector<std::string_view>> get_string_array(std::string_view key) const;
  Result<std::vector<float>> get_float_array(std::string_view key) const;  // f32 or f64
  Result<std::vector<int64_t>> get_int_array(std::string_view key) const;  // any integer type

 private:
  friend class Parser;
  File() = default;

  static Result<std::shared_ptr<File>> map(Env& env, const std::string& path);
  static Result<std::shared_ptr<File>> make(std::unique_ptr<MappedFile> mapping,
                                            std::span<const std::byte> bytes, std::string path);
  Status add_parts(Env& env, uint64_t count);
  Status add_part(File& part, uint64_t number, uint64_t count, uint64_t n_tensors);
  Result<const Value*> require(std::string_view key) const;
  Result<const Array*> require_array(std::string_view key, const char* wanted) const;
  Status wrong_type(std::string_view key, const Value& value, const char* wanted) const;

  std::string path_;
  std::vector<std::unique_ptr<MappedFile>> mappings_;  // none after parse()
  std::vector<FilePart> parts_;
  uint32_t version_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
  std::vector<Entry> entries_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string_view, size_t> entry_index_;
  std::unordered_map<std::string_view, size_t> tensor_index_;
};

/// `text` fit for a one-line message: at most 80 bytes of it, anything but printable ASCII escaped.
/// Names in a file are anybody's bytes, and a terminal obeys some of them: a key "a\nb\x1b[2J" is
/// shown as a\x0ab\x1b[2J.
std::string printable(std::string_view text);

}  // namespace weft::gguf
