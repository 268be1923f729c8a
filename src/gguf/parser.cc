// Checks a GGUF's header once, so that nobody after it has to. A model file is anybody's: a
// download, a half-finished copy, or made to harm. What loaders of this format have been caught by,
// and is refused here: sums and products that wrap (CVE-2025-53630 and its bypass CVE-2026-27940;
// CVE-2026-33298), and tensors past the end of the file (CVE-2026-7482). Hence three rules.
//
// 1. Limits first. A count or length from the file is compared with a limit and with the bytes that
//    are left before anything is multiplied by it or allocated for it. Under the limits of gguf.h
//    every product below fits 64 bits; the two that have no limit, a tensor's elements and bytes,
//    are computed with __builtin_mul_overflow.
// 2. Subtract, don't add. Whether [offset, offset + size) is inside is asked as `size <= end` and
//    `offset <= end - size`: an offset of 2^64 - 32 plus a size of 64 would come out as 32.
// 3. One error, one line: the file, the field that was being read (where_), its value, the limit.
//
// Strings and arrays are not copied: the views lie in the mapping, so opening costs a walk over the
// metadata, whatever the weights' size.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "base/byte_sizes.h"
#include "base/log.h"
#include "base/narrow.h"
#include "gguf/gguf.h"

namespace weft::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read as it lies in memory");

// What a count of entries or tensors must at least be backed by. A file of 24 bytes that promises
// 65,536 entries is refused before a vector of that many is reserved.
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;  // key length, key, type, smallest value
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 0 + 4 + 8;  // name, n_dims, dims, type, offset

/// Bytes of one value of a fixed size; 0 for strings, arrays and unknown ids.
uint64_t fixed_size(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool:
      return 1;
    case ValueType::kU16:
    case ValueType::kI16:
      return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32:
      return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64:
      return 8;
    case ValueType::kString:
    case ValueType::kArray:
      break;
  }
  return 0;
}

/// Values lie at any address: a cast pointer would be undefined, and faults under UBSan.
template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

/// A value of a fixed size at `from`.
Value decode_fixed(ValueType type, const std::byte* from) {
  switch (type) {
    case ValueType::kU8:
      return {type, uint64_t{load<uint8_t>(from)}};
    case ValueType::kI8:
      return {type, int64_t{load<int8_t>(from)}};
    case ValueType::kU16:
      return {type, uint64_t{load<uint16_t>(from)}};
    case ValueType::kI16:
      return {type, int64_t{load<int16_t>(from)}};
    case ValueType::kU32:
      return {type, uint64_t{load<uint32_t>(from)}};
    case ValueType::kI32:
      return {type, int64_t{load<int32_t>(from)}};
    case ValueType::kF32:
      return {type, double{load<float>(from)}};
    case ValueType::kBool:
      return {type, load<uint8_t>(from) != 0};
    case ValueType::kU64:
      return {type, load<uint64_t>(from)};
    case ValueType::kI64:
      return {type, load<int64_t>(from)};
    case ValueType::kF64:
      return {type, load<double>(from)};
    case ValueType::kString:
    case ValueType::kArray:
      break;
  }
  WEFT_CHECK(false);
}

/// The string at `from`, its length before it; only over bytes that were checked.
std::string_view decode_string(const std::byte* from) {
  return {reinterpret_cast<const char*>(from) + 8, load<uint64_t>(from)};
}

/// The name of a type that other programs read and weft does not, or null. Such a file is in order
/// (kUnsupported, with the name to search for); an id in no list means that the file is damaged.
const char* foreign_type_name(uint32_t id) {
  struct Foreign {
    uint32_t id;
    const char* name;
  };
  static constexpr std::array kForeign{
      Foreign{15, "Q8_K"},  Foreign{16, "IQ2_XXS"}, Foreign{17, "IQ2_XS"}, Foreign{18, "IQ3_XXS"},
      Foreign{19, "IQ1_S"}, Foreign{21, "IQ3_S"},   Foreign{22, "IQ2_S"},  Foreign{24, "I8"},
      Foreign{25, "I16"},   Foreign{26, "I32"},     Foreign{27, "I64"},    Foreign{28, "F64"},
      Foreign{29, "IQ1_M"}, Foreign{34, "TQ1_0"},   Foreign{35, "TQ2_0"},  Foreign{40, "NVFP4"},
      Foreign{41, "Q1_0"},  Foreign{42, "Q2_0"},
  };
  for (const Foreign& foreign : kForeign) {
    if (foreign.id == id) return foreign.name;
  }
  return nullptr;
}

}  // namespace

const char* value_type_name(ValueType type) {
  static constexpr std::array kNames{"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                     "bool", "string", "array", "u64", "i64", "f64"};
  const size_t id = to_underlying(type);
  return id < kNames.size() ? kNames[id] : "unknown";
}

std::string printable(std::string_view text) {
  constexpr size_t kShown = 80;
  std::string out;
  for (const unsigned char c : text.substr(0, kShown)) {
    if (c >= 0x20 && c < 0x7f) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", c);
    }
  }
  if (text.size() > kShown) out += "...";
  return out;
}

// Reads without a check: parse_array went over the same bytes in the same order.
void for_each_element(const Array& array, uint64_t limit, FunctionRef<void(const Value&)> fn) {
  const uint64_t count = std::min(array.size, limit);
  const uint64_t stride = fixed_size(array.element_type);
  const std::byte* at = array.bytes.data();
  for (uint64_t i = 0; i < count; ++i) {
    if (array.element_type == ValueType::kString) {
      const std::string_view text = decode_string(at);
      fn({ValueType::kString, text});
      at += 8 + text.size();
    } else {
      fn(decode_fixed(array.element_type, at));
      at += stride;
    }
  }
}

/// Walks a file once from front to back: counts, metadata, tensor table. Nothing is read from the
/// bytes before it is known that they are there, and nothing is allocated that the bytes present
/// could not fill. After an error the File is half made and is dropped by File::make.
class Parser {
 public:
  explicit Parser(File& file) : file_(file), bytes_(file.parts_.front().bytes) {}

  Status parse() {
    WEFT_RETURN_IF_ERROR(parse_counts());
    for (uint64_t i = 0; i < n_entries_; ++i) WEFT_RETURN_IF_ERROR(parse_entry(i));
    WEFT_RETURN_IF_ERROR(read_alignment());
    for (uint64_t i = 0; i < n_tensors_; ++i) WEFT_RETURN_IF_ERROR(parse_tensor(i));
    WEFT_RETURN_IF_ERROR(place_tensors());
    return check_overlaps();
  }

 private:
  uint64_t left() const { return bytes_.size() - position_; }

  // position_ <= bytes_.size() always: it is only moved on by what need() has found to be there.

  /// kCorrupt, naming the file and where_.
  Status error(std::string_view what) const {
    return corrupt(fmt::format("{}: {}: {}", file_.path_, where_, what));
  }

  Status need(uint64_t n, const char* what) const {
    if (n <= left()) return Status::ok();
    return error(fmt::format("{} takes {} bytes at byte {}, but the file has {} left", what, n,
                             position_, left()));
  }

  template <class T>
  Status read(T& out, const char* what) {
    WEFT_RETURN_IF_ERROR(need(sizeof(T), what));
    out = load<T>(bytes_.data() + position_);
    position_ += sizeof(T);
    return Status::ok();
  }

  Status read_string(std::string_view& out, uint64_t max_bytes, const char* what) {
    uint64_t length = 0;
    WEFT_RETURN_IF_ERROR(read(length, what));
    if (length > max_bytes) {
      return error(fmt::format("{} has {} bytes, over the limit of {}", what, length, max_bytes));
    }
    WEFT_RETURN_IF_ERROR(need(length, what));
    out = {reinterpret_cast<const char*>(bytes_.data()) + position_, length};
    position_ += length;
    return Status::ok();
  }

  /// Magic, version, number of tensors, number of metadata entries. The version tells a big-endian
  /// file: 3 is then read as 0x03000000, whose low 16 bits are 0.
  Status parse_counts() {
    where_ = "header";
    if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) {
      return corrupt(file_.path_ + ": not a GGUF file (it does not begin with \"GGUF\")");
    }
    position_ = 4;
    WEFT_RETURN_IF_ERROR(read(file_.version_, "version"));
    if ((file_.version_ & 0xffffu) == 0) {
      return unsupported(file_.path_ +
                         ": header: version is byte-swapped: a big-endian GGUF; "
                         "convert the model for little-endian machines");
    }
    if (file_.version_ != 2 && file_.version_ != 3) {
      return unsupported(fmt::format("{}: header: version is {}; weft reads 2 and 3", file_.path_,
                                     file_.version_));
    }
    WEFT_RETURN_IF_ERROR(read(n_tensors_, "tensor count"));
    WEFT_RETURN_IF_ERROR(read(n_entries_, "metadata count"));
    WEFT_RETURN_IF_ERROR(check_count("metadata count", n_entries_, kMaxMetadata, kMinEntryBytes));
    WEFT_RETURN_IF_ERROR(check_count("tensor count", n_tensors_, kMaxTensors, kMinTensorBytes));
    file_.entries_.reserve(n_entries_);
    file_.entry_index_.reserve(n_entries_);
    file_.tensors_.reserve(n_tensors_);
    file_.tensor_index_.reserve(n_tensors_);
    return Status::ok();
  }

  /// The limit before the product: a count of 2^63 times 14 bytes wraps to 0, which any file has.
  Status check_count(const char* what, uint64_t count, uint64_t limit, uint64_t least_bytes) const {
    if (count > limit) {
      return error(fmt::format("{} is {}, over the limit of {}", what, count, limit));
    }
    if (count * least_bytes > left()) {
      return error(
          fmt::format("{} is {}, more than the {} bytes left can hold", what, count, left()));
    }
    return Status::ok();
  }

  Status parse_entry(uint64_t i) {
    // Errors before the key is read name the entry by number, those after by its key.
    where_ = fmt::format("metadata entry {}", i);
    Entry entry;
    WEFT_RETURN_IF_ERROR(read_string(entry.key, kMaxKeyBytes, "key"));
    if (entry.key.empty()) return error("empty key");
    where_ = fmt::format("key '{}'", printable(entry.key));
    if (!file_.entry_index_.emplace(entry.key, file_.entries_.size()).second) {
      return error("the key is in the file twice");
    }
    WEFT_RETURN_IF_ERROR(read_type(entry.value.type, "type"));
    WEFT_RETURN_IF_ERROR(parse_value(entry.value));
    file_.entries_.push_back(entry);
    return Status::ok();
  }

  Status read_type(ValueType& type, const char* what) {
    uint32_t id = 0;
    WEFT_RETURN_IF_ERROR(read(id, what));
    if (id > to_underlying(ValueType::kF64)) {
      return error(fmt::format("{} is {}, which is no GGUF value type (0 to 12)", what, id));
    }
    type = static_cast<ValueType>(id);
    return Status::ok();
  }

  Status parse_value(Value& value) {
    if (value.type == ValueType::kArray) return parse_array(value);
    if (value.type == ValueType::kString) {
      std::string_view text;
      WEFT_RETURN_IF_ERROR(read_string(text, kMaxStringBytes, "string"));
      value.data = text;
      return Status::ok();
    }
    const uint64_t size = fixed_size(value.type);
    WEFT_RETURN_IF_ERROR(need(size, "value"));
    if (value.type == ValueType::kBool) WEFT_RETURN_IF_ERROR(check_bools(1));
    value = decode_fixed(value.type, bytes_.data() + position_);
    position_ += size;
    return Status::ok();
  }

  /// Arrays within arrays, which the format allows, are refused: no model has them, and a parser
  /// that calls itself for each level can be made to run out of stack. An array of strings is
  /// walked, since its end is known in no other way; at least eight bytes each, so that a count
  /// which the file cannot hold ends before the walk.
  Status parse_array(Value& value) {
    Array array;
    WEFT_RETURN_IF_ERROR(read_type(array.element_type, "array element type"));
    if (array.element_type == ValueType::kArray) return error("arrays within arrays are not read");
    WEFT_RETURN_IF_ERROR(read(array.size, "array length"));
    if (array.size > kMaxArrayElements) {
      return error(fmt::format("array has {} elements, over the limit of {}", array.size,
                               kMaxArrayElements));
    }
    const size_t begin = position_;
    if (array.element_type == ValueType::kString) {
      WEFT_RETURN_IF_ERROR(need(array.size * 8, "array"));
      std::string_view text;
      for (uint64_t i = 0; i < array.size; ++i) {
        WEFT_RETURN_IF_ERROR(read_string(text, kMaxStringBytes, "string in an array"));
      }
    } else {
      const uint64_t size = array.size * fixed_size(array.element_type);
      WEFT_RETURN_IF_ERROR(need(size, "array"));
      if (array.element_type == ValueType::kBool) WEFT_RETURN_IF_ERROR(check_bools(array.size));
      position_ += size;
    }
    array.bytes = bytes_.subspan(begin, position_ - begin);
    value.data = array;
    return Status::ok();
  }

  /// The next n bytes, which are there, are all 0 or 1.
  Status check_bools(uint64_t n) const {
    for (const std::byte b : bytes_.subspan(position_, n)) {
      if (std::to_integer<int>(b) > 1) {
        return error(fmt::format("a bool is {}, neither 0 nor 1", std::to_integer<int>(b)));
      }
    }
    return Status::ok();
  }

  /// By the format any multiple of 8; a power of two is what the mapping can promise (it begins at
  /// a page), and what ggml asks for as well.
  Status read_alignment() {
    where_ = "key 'general.alignment'";
    const Value* value = file_.find("general.alignment");
    if (value == nullptr) return Status::ok();
    if (value->type != ValueType::kU32) {
      return error(fmt::format("is {}, wanted u32", value_type_name(value->type)));
    }
    const uint64_t alignment = std::get<uint64_t>(value->data);
    if (!std::has_single_bit(alignment) || alignment < kMinAlignment || alignment > kMaxAlignment) {
      return error(fmt::format("is {}, not a power of two from {} to {}", alignment, kMinAlignment,
                               kMaxAlignment));
    }
    file_.alignment_ = alignment;
    return Status::ok();
  }

  /// Name, dimensions, type, offset. Dimensions that are missing count as 1, so that a product over
  /// all four is the number of elements. Where the data lie is not known before the table's end.
  Status parse_tensor(uint64_t i) {
    where_ = fmt::format("tensor {}", i);
    TensorInfo tensor;
    WEFT_RETURN_IF_ERROR(read_string(tensor.name, kMaxTensorNameBytes, "name"));
    if (tensor.name.empty()) return error("empty name");
    where_ = fmt::format("tensor '{}'", printable(tensor.name));
    if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second) {
      return error("the name is in the file twice");
    }
    uint32_t n_dims = 0;
    WEFT_RETURN_IF_ERROR(read(n_dims, "number of dimensions"));
    if (n_dims > 4) return error(fmt::format("has {} dimensions, over the limit of 4", n_dims));
    tensor.n_dims = narrow<int>(n_dims);
    for (uint32_t d = 0; d < n_dims; ++d) {
      WEFT_RETURN_IF_ERROR(read(tensor.dims[d], "dimension"));
      if (tensor.dims[d] <= 0) {
        return error(fmt::format("dimension {} is {}, must be above 0", d, tensor.dims[d]));
      }
    }
    uint32_t type_id = 0;
    WEFT_RETURN_IF_ERROR(read(type_id, "type"));
    WEFT_RETURN_IF_ERROR(read(tensor.offset, "offset"));
    WEFT_RETURN_IF_ERROR(check_type(tensor, type_id));
    file_.tensors_.push_back(tensor);
    return Status::ok();
  }

  /// Sets the tensor's type and size. The product may wrap to something small: dimensions of 2^32,
  /// 2^32 and 8 are 0 elements in 64 bits, which would fit any file.
  Status check_type(TensorInfo& tensor, uint32_t type_id) const {
    const DTypeInfo* info = find_dtype(type_id);
    if (info == nullptr) {
      if (const char* name = foreign_type_name(type_id)) {
        return unsupported(fmt::format("{}: {}: type {} ({}) is not read by weft", file_.path_,
                                       where_, type_id, name));
      }
      return error(fmt::format("type {} is no GGUF tensor type", type_id));
    }
    tensor.dtype = info->dtype;
    if (tensor.dims[0] % info->block_elements != 0) {
      return error(fmt::format("rows of {} elements are not whole blocks of {} ({})",
                               tensor.dims[0], info->block_elements, info->name));
    }
    int64_t elements = 1;
    for (const int64_t dim : tensor.dims) {
      if (__builtin_mul_overflow(elements, dim, &elements)) {
        return error("the number of elements overflows 64 bits");
      }
    }
    const int64_t blocks = elements / info->block_elements;
    if (__builtin_mul_overflow(blocks, info->block_bytes, &tensor.size_bytes)) {
      return error("the number of bytes overflows 64 bits");
    }
    return Status::ok();
  }

  /// Offsets count from the first multiple of the alignment after the table, so the table must be
  /// read whole before a tensor can be placed.
  Status place_tensors() {
    const uint64_t padding = (file_.alignment_ - position_ % file_.alignment_) % file_.alignment_;
    // The file may end here, unpadded, when it has no tensors.
    file_.parts_.front().header = bytes_.first(position_ + std::min(padding, left()));
    const auto data = bytes_.subspan(file_.parts_.front().header.size());
    for (TensorInfo& tensor : file_.tensors_) {
      if (tensor.offset % file_.alignment_ != 0) {
        where_ = fmt::format("tensor '{}'", printable(tensor.name));
        return error(fmt::format("offset {} is not a multiple of the alignment {}", tensor.offset,
                                 file_.alignment_));
      }
      if (tensor.size_bytes > data.size() || tensor.offset > data.size() - tensor.size_bytes) {
        where_ = fmt::format("tensor '{}'", printable(tensor.name));
        return error(
            fmt::format("{} bytes at offset {} end past the {} bytes of data in the file: it is "
                        "incomplete, or damaged",
                        tensor.size_bytes, tensor.offset, data.size()));
      }
      tensor.data = data.data() + tensor.offset;
    }
    return Status::ok();
  }

  /// Two tensors over the same bytes are no danger to memory, since nothing is written there, but
  /// no writer makes them: one of the offsets is damaged, and the model would compute nonsense
  /// without a word. If any two of the tensors overlap, then two that are neighbours by offset do.
  /// The sum cannot wrap: place_tensors has bounded it by the file's size.
  Status check_overlaps() {
    std::vector<const TensorInfo*> by_offset;
    by_offset.reserve(file_.tensors_.size());
    for (const TensorInfo& tensor : file_.tensors_) by_offset.push_back(&tensor);
    std::sort(by_offset.begin(), by_offset.end(),
              [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < by_offset.size(); ++i) {
      const TensorInfo& before = *by_offset[i - 1];
      if (before.offset + before.size_bytes > by_offset[i]->offset) {
        where_ = fmt::format("tensor '{}'", printable(by_offset[i]->name));
        return error(fmt::format("offset {} lies within tensor '{}'", by_offset[i]->offset,
                                 printable(before.name)));
      }
    }
    return Status::ok();
  }

  File& file_;
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
  std::string where_;  // what is being read, for messages
  uint64_t n_entries_ = 0;
  uint64_t n_tensors_ = 0;
};

Result<std::shared_ptr<File>> File::make(std::unique_ptr<MappedFile> mapping,
                                         std::span<const std::byte> bytes, std::string path) {
  std::shared_ptr<File> file(new File);
  file->parts_.push_back({path, bytes, {}});
  file->path_ = std::move(path);
  if (mapping != nullptr) file->mappings_.push_back(std::move(mapping));
  WEFT_RETURN_IF_ERROR(Parser(*file).parse());
  return file;
}

Result<std::shared_ptr<File>> File::map(Env& env, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> mapping, env.map(path));
  const std::span<const std::byte> bytes = mapping->bytes();
  return make(std::move(mapping), bytes, path);
}

Result<std::shared_ptr<const File>> File::parse(std::span<const std::byte> bytes,
                                                std::string name) {
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<File> file, make(nullptr, bytes, std::move(name)));
  WEFT_ASSIGN_OR_RETURN(const uint64_t count, file->get_uint_or("split.count", 1));
  if (count > 1) {
    return unsupported(
        fmt::format("{}: key 'split.count': one of {} files of a model, without the "
                    "others",
                    file->path_, count));
  }
  return std::shared_ptr<const File>(std::move(file));
}

// A split.count of 0 or 1 says that there is nothing to join.
Result<std::shared_ptr<const File>> File::open(Env& env, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<File> file, map(env, path));
  WEFT_ASSIGN_OR_RETURN(const uint64_t count, file->get_uint_or("split.count", 1));
  if (count > 1) WEFT_RETURN_IF_ERROR(file->add_parts(env, count));
  if (logs_info()) {
    log_info(fmt::format("{}: {} mapped, {} tensors{}", path, size_text(file->size_bytes()),
                         file->tensors().size(),
                         count > 1 ? fmt::format(", {} files", count) : std::string()));
  }
  return std::shared_ptr<const File>(std::move(file));
}

}  // namespace weft::gguf
