// Builds the GGUF of a small model in memory, so that tests can break it in one place and parse it
// as the file it would be.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "tensor/buffer.h"
#include "tensor/dtype.h"

namespace weft::test {

/// Keys and tensors of a model's file.
struct GgufBuilder {
  using Scalar = std::variant<uint32_t, int32_t, float, std::string, std::vector<int32_t>>;
  struct Tensor {
    std::string name;
    std::vector<int64_t> dims;  // GGML's order
    std::vector<float> values;  // empty: zeros
    DType dtype = DType::kF32;
  };
  static constexpr const char* kName = "built.gguf";

  std::map<std::string, Scalar> keys;
  std::vector<Tensor> tensors;

  /// 2 layers, 4 heads of 8 over 2 KV heads, 48 tokens; a model that opens.
  static GgufBuilder small_llama();

  /// The tensor of that name, which must be there.
  Tensor& tensor(const std::string& name);
  void remove_tensor(const std::string& name);
};

/// What was built as a parsed file; the bytes live as long as this.
class BuiltGguf {
 public:
  explicit BuiltGguf(const GgufBuilder& builder);

  const gguf::File& operator*() const { return *file_; }
  std::shared_ptr<const gguf::File> shared() const { return file_; }

 private:
  AlignedBuffer<std::byte> bytes_;
  std::shared_ptr<const gguf::File> file_;
};

/// A change that breaks small_llama(), and what the one line must then say besides the file's name.
struct BrokenGguf {
  friend void PrintTo(const BrokenGguf& broken, std::ostream* out) { *out << broken.name; }
  const char* name;
  void (*break_it)(GgufBuilder&);
  const char* names;   // the key or the tensor
  const char* detail;  // the value or the limit
  StatusCode code = StatusCode::kCorrupt;
};

/// The status is that error, in one line.
void expect_one_line(const Status& status, const BrokenGguf& broken);

}  // namespace weft::test
