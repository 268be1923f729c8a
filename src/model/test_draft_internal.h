// A small llama model as a draft that tests spoil in one place and then parse, in memory, as the
// file it would be. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "gguf/writer.h"
#include "tensor/buffer.h"

namespace weft::model {

struct Draft {
  using Scalar = std::variant<uint32_t, int32_t, float, std::string, std::vector<int32_t>>;
  struct Tensor {
    std::string name;
    std::vector<int64_t> dims;  // GGML's order
    std::vector<float> values;  // empty: zeros
    DType dtype = DType::kF32;
  };
  static constexpr const char* kName = "draft.gguf";

  std::map<std::string, Scalar> keys;
  std::vector<Tensor> tensors;

  /// 2 layers, 4 heads of 8 over 2 KV heads, 48 tokens; a model that opens.
  static Draft good() {
    Draft d;
    d.keys = {
        {"general.architecture", "llama"},     {"llama.block_count", 2u},
        {"llama.context_length", 128u},        {"llama.embedding_length", 32u},
        {"llama.feed_forward_length", 64u},    {"llama.attention.head_count", 4u},
        {"llama.attention.head_count_kv", 2u}, {"llama.attention.layer_norm_rms_epsilon", 1e-5f},
        {"llama.rope.freq_base", 10000.0f}};
    d.tensors = {{"token_embd.weight", {32, 48}}, {"output_norm.weight", {32}}};
    for (const std::string prefix : {"blk.0.", "blk.1."}) {
      const auto add = [&](const char* part, std::vector<int64_t> dims) {
        d.tensors.push_back({prefix + part + ".weight", std::move(dims)});
      };
      add("attn_norm", {32});
      add("attn_q", {32, 32});
      add("attn_k", {32, 16});
      add("attn_v", {32, 16});
      add("attn_output", {32, 32});
      add("ffn_norm", {32});
      add("ffn_gate", {32, 64});
      add("ffn_up", {32, 64});
      add("ffn_down", {64, 32});
    }
    return d;
  }

  Tensor& tensor(const std::string& name) {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const Tensor& t) { return t.name == name; });
    WEFT_CHECK(found != tensors.end());
    return *found;
  }
  void drop(const std::string& name) {
    std::erase_if(tensors, [&](const Tensor& t) { return t.name == name; });
  }
};

/// The draft as a parsed file; the bytes live as long as this.
class DraftFile {
 public:
  explicit DraftFile(const Draft& draft) {
    gguf::HeaderBuilder header;
    for (const auto& [key, value] : draft.keys) add_key(header, key, value);
    std::vector<uint64_t> sizes;
    for (const Draft::Tensor& t : draft.tensors) {
      sizes.push_back(header.add_tensor(t.name, t.dtype, t.dims));
    }
    const std::string head = header.bytes();
    size_t total = head.size();
    for (const uint64_t size : sizes) total += padded(size);
    bytes_ = AlignedBuffer<std::byte>(total);
    std::memcpy(bytes_.data(), head.data(), head.size());
    size_t at = head.size();
    for (size_t i = 0; i < sizes.size(); ++i) {
      const std::vector<float>& values = draft.tensors[i].values;
      WEFT_CHECK(values.size() * sizeof(float) <= sizes[i]);
      if (!values.empty()) {
        std::memcpy(bytes_.data() + at, values.data(), values.size() * sizeof(float));
      }
      at += padded(sizes[i]);
    }
    auto parsed = gguf::File::parse(bytes_.span(), Draft::kName);
    EXPECT_TRUE(parsed.is_ok()) << parsed.status().message();
    file_ = *parsed;
  }

  const gguf::File& operator*() const { return *file_; }
  std::shared_ptr<const gguf::File> shared() const { return file_; }

 private:
  static size_t padded(uint64_t size) {
    return (size + gguf::kDefaultAlignment - 1) / gguf::kDefaultAlignment * gguf::kDefaultAlignment;
  }
  static void add_key(gguf::HeaderBuilder& header, const std::string& key,
                      const Draft::Scalar& value) {
    if (const auto* u = std::get_if<uint32_t>(&value)) header.add<uint32_t>(key, *u);
    if (const auto* i = std::get_if<int32_t>(&value)) header.add<int32_t>(key, *i);
    if (const auto* f = std::get_if<float>(&value)) header.add<float>(key, *f);
    if (const auto* s = std::get_if<std::string>(&value)) header.add_string(key, *s);
    if (const auto* a = std::get_if<std::vector<int32_t>>(&value)) {
      header.add_array<int32_t>(key, *a);
    }
  }

  AlignedBuffer<std::byte> bytes_;
  std::shared_ptr<const gguf::File> file_;
};

/// A change to the good draft and what the one line must then say besides the file's name.
struct BadDraft {
  friend void PrintTo(const BadDraft& bad, std::ostream* out) { *out << bad.name; }
  const char* name;
  void (*spoil)(Draft&);
  const char* names;   // the key or the tensor
  const char* detail;  // the value or the limit
  StatusCode code = StatusCode::kCorrupt;
};

inline void expect_one_line(const Status& status, const BadDraft& bad) {
  ASSERT_FALSE(status.is_ok());
  const std::string& message = status.message();
  EXPECT_EQ(status.code(), bad.code) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_EQ(message.rfind(Draft::kName, 0), 0u) << message;
  EXPECT_NE(message.find(bad.names), std::string::npos) << message;
  EXPECT_NE(message.find(bad.detail), std::string::npos) << message;
}

}  // namespace weft::model
