// Any bytes, opened as a GGUF: an error or a file whose every key and tensor can be read.
// ./gguf_fuzz -max_len=4096 fuzz/corpus/gguf
#include <cstdlib>

#include "gguf/gguf.h"

namespace {

volatile uint64_t sink;

template <class T>
void touch(const weft::Result<T>& result) {
  if (!result.is_ok() && result.status().message().find('\n') != std::string::npos) std::abort();
}

void walk(const weft::gguf::File& file) {
  for (const auto& [key, value] : file.metadata()) {
    if (file.find(key) != &value) std::abort();
    touch(file.get_uint(key));
    touch(file.get_uint_or(key, 1));
    touch(file.get_float(key));
    touch(file.get_bool_or(key, true));
    touch(file.get_string(key));
    touch(file.get_float_array(key));
    touch(file.get_int_array(key));
    const auto strings = file.get_string_array(key);
    touch(strings);
    if (!strings.is_ok()) continue;
    for (const std::string_view text : *strings) {
      if (!text.empty()) sink = sink + static_cast<uint64_t>(text.front() + text.back());
    }
  }
  const std::span<const std::byte> bytes = file.parts().front().bytes;
  const std::byte* end = bytes.data() + bytes.size();
  for (const weft::gguf::TensorInfo& tensor : file.tensors()) {
    if (file.find_tensor(tensor.name) != &tensor) std::abort();
    if (tensor.size_bytes > static_cast<uint64_t>(end - tensor.data)) std::abort();
    if (tensor.n_rows() * weft::row_bytes(tensor.dtype, tensor.dims[0]) !=
        static_cast<int64_t>(tensor.size_bytes)) {
      std::abort();
    }
    sink = sink + static_cast<uint64_t>(tensor.data[0]) +
           static_cast<uint64_t>(tensor.data[tensor.size_bytes - 1]);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = weft::gguf::File::parse(std::as_bytes(std::span(data, size)), "fuzz.gguf");
  touch(file);
  if (file.is_ok()) walk(**file);
  return 0;
}
