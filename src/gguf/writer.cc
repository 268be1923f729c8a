// The header is composed in memory and written first, since its tensor table has every tensor's
// offset and size: they are known from shapes and types, before a single weight is. The tensors'
// bytes, which may be more than the machine's memory, then follow piece by piece. Numbers go into
// the file as they lie in memory: parser.cc asserts a little-endian machine.
#include "gguf/writer.h"

#include <array>
#include <bit>

#include "base/narrow.h"

namespace weft::gguf {
namespace {

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void put_string(std::string& out, std::string_view text) {
  put(out, uint64_t{text.size()});
  out += text;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Zeros after `size` bytes up to the next multiple: padding(33, 32) is 31, padding(32, 32) is 0.
uint64_t padding(uint64_t size, uint64_t alignment) {
  return (alignment - size % alignment) % alignment;
}

}  // namespace

HeaderBuilder::HeaderBuilder(uint32_t alignment) : alignment_(alignment) {
  WEFT_CHECK(std::has_single_bit(alignment));
  if (alignment != kDefaultAlignment) add<uint32_t>("general.alignment", alignment);
}

void HeaderBuilder::add_raw(std::string_view key, ValueType type,
                            std::span<const std::byte> value) {
  put_string(entries_, key);
  put(entries_, type);
  entries_ += as_text(value);
  ++n_entries_;
}

void HeaderBuilder::add_array_raw(std::string_view key, ValueType type, uint64_t count,
                                  std::span<const std::byte> values) {
  std::string value;
  put(value, type);
  put(value, count);
  value += as_text(values);
  add_raw(key, ValueType::kArray, std::as_bytes(std::span(value)));
}

void HeaderBuilder::add_string(std::string_view key, std::string_view value) {
  std::string raw;
  put_string(raw, value);
  add_raw(key, ValueType::kString, std::as_bytes(std::span(raw)));
}

// The File holds every unsigned type as uint64_t and so on; `type` says what the file had, and the
// same bytes come out again. narrow cannot fail for a value that was read as that type.
void HeaderBuilder::add_value(std::string_view key, const Value& value) {
  switch (value.type) {
    case ValueType::kU8:
      return add<uint8_t>(key, narrow<uint8_t>(std::get<uint64_t>(value.data)));
    case ValueType::kI8:
      return add<int8_t>(key, narrow<int8_t>(std::get<int64_t>(value.data)));
    case ValueType::kU16:
      return add<uint16_t>(key, narrow<uint16_t>(std::get<uint64_t>(value.data)));
    case ValueType::kI16:
      return add<int16_t>(key, narrow<int16_t>(std::get<int64_t>(value.data)));
    case ValueType::kU32:
      return add<uint32_t>(key, narrow<uint32_t>(std::get<uint64_t>(value.data)));
    case ValueType::kI32:
      return add<int32_t>(key, narrow<int32_t>(std::get<int64_t>(value.data)));
    case ValueType::kF32:
      return add<float>(key, std::get<double>(value.data));
    case ValueType::kBool:
      return add<bool>(key, std::get<bool>(value.data));
    case ValueType::kString:
      return add_string(key, std::get<std::string_view>(value.data));
    case ValueType::kArray: {
      const auto& array = std::get<Array>(value.data);
      return add_array_raw(key, array.element_type, array.size, array.bytes);
    }
    case ValueType::kU64:
      return add<uint64_t>(key, std::get<uint64_t>(value.data));
    case ValueType::kI64:
      return add<int64_t>(key, std::get<int64_t>(value.data));
    case ValueType::kF64:
      return add<double>(key, std::get<double>(value.data));
  }
}

void HeaderBuilder::add_strings(std::string_view key, std::span<const std::string> values) {
  std::string raw;
  for (const std::string& value : values) put_string(raw, value);
  add_array_raw(key, ValueType::kString, values.size(), std::as_bytes(std::span(raw)));
}

// The table's line: name, number of dimensions, dimensions, type, offset. Each tensor begins at a
// multiple of the alignment after the one before; the last is padded too.
uint64_t HeaderBuilder::add_tensor(std::string_view name, DType dtype,
                                   std::span<const int64_t> dims) {
  WEFT_CHECK(!dims.empty() && dims.size() <= 4);
  auto size = narrow<uint64_t>(row_bytes(dtype, dims[0]));
  put_string(table_, name);
  put(table_, narrow<uint32_t>(dims.size()));
  for (const int64_t dim : dims) put(table_, dim);
  for (const int64_t dim : dims.subspan(1)) size *= narrow<uint64_t>(dim);
  put(table_, dtype);
  put(table_, data_bytes_);
  data_bytes_ += size + padding(size, alignment_);
  tensor_bytes_.push_back(size);
  return size;
}

std::string HeaderBuilder::bytes() const {
  std::string out = "GGUF";
  put(out, uint32_t{3});
  put(out, uint64_t{tensor_bytes_.size()});
  put(out, n_entries_);
  out += entries_;
  out += table_;
  out.append(padding(out.size(), alignment_), '\0');
  return out;
}

Result<Writer> Writer::create(Env& env, const std::string& path, const HeaderBuilder& header) {
  WEFT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(env, path, {}));
  Writer writer(std::move(file));
  writer.alignment_ = header.alignment();
  writer.tensor_bytes_.assign(header.tensor_bytes().begin(), header.tensor_bytes().end());
  const std::string bytes = header.bytes();
  WEFT_RETURN_IF_ERROR(writer.file_.append(std::as_bytes(std::span(bytes))));
  return writer;
}

// The padding belongs to the tensor before it, and is written as soon as that is complete, after
// the last one too.
Status Writer::append(std::span<const std::byte> bytes) {
  if (bytes.empty()) return Status::ok();
  WEFT_CHECK(tensor_ < tensor_bytes_.size());
  WEFT_CHECK(bytes.size() <= tensor_bytes_[tensor_] - written_);
  WEFT_RETURN_IF_ERROR(file_.append(bytes));
  written_ += bytes.size();
  if (written_ < tensor_bytes_[tensor_]) return Status::ok();
  const std::vector<std::byte> zeros(padding(written_, alignment_));
  ++tensor_;
  written_ = 0;
  return file_.append(zeros);
}

Status Writer::finish() {
  WEFT_CHECK(tensor_ == tensor_bytes_.size());
  return file_.commit();
}

}  // namespace weft::gguf
