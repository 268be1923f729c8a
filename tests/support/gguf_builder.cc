#include "support/gguf_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "gguf/writer.h"

namespace weft::test {
namespace {

size_t padded(uint64_t size) {
  return (size + gguf::kDefaultAlignment - 1) / gguf::kDefaultAlignment * gguf::kDefaultAlignment;
}

void add_key(gguf::HeaderBuilder& header, const std::string& key,
             const GgufBuilder::Scalar& value) {
  if (const auto* u = std::get_if<uint32_t>(&value)) header.add<uint32_t>(key, *u);
  if (const auto* i = std::get_if<int32_t>(&value)) header.add<int32_t>(key, *i);
  if (const auto* f = std::get_if<float>(&value)) header.add<float>(key, *f);
  if (const auto* s = std::get_if<std::string>(&value)) header.add_string(key, *s);
  if (const auto* a = std::get_if<std::vector<int32_t>>(&value)) {
    header.add_array<int32_t>(key, *a);
  }
}

}  // namespace

GgufBuilder GgufBuilder::small_llama() {
  GgufBuilder built;
  built.keys = {
      {"general.architecture", "llama"},     {"llama.block_count", 2u},
      {"llama.context_length", 128u},        {"llama.embedding_length", 32u},
      {"llama.feed_forward_length", 64u},    {"llama.attention.head_count", 4u},
      {"llama.attention.head_count_kv", 2u}, {"llama.attention.layer_norm_rms_epsilon", 1e-5f},
      {"llama.rope.freq_base", 10000.0f}};
  built.tensors = {{"token_embd.weight", {32, 48}}, {"output_norm.weight", {32}}};
  for (const std::string prefix : {"blk.0.", "blk.1."}) {
    const auto add = [&](const char* part, std::vector<int64_t> dims) {
      built.tensors.push_back({prefix + part + ".weight", std::move(dims)});
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
  return built;
}

GgufBuilder::Tensor& GgufBuilder::tensor(const std::string& name) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.name == name; });
  WEFT_CHECK(found != tensors.end());
  return *found;
}

void GgufBuilder::remove_tensor(const std::string& name) {
  std::erase_if(tensors, [&](const Tensor& t) { return t.name == name; });
}

BuiltGguf::BuiltGguf(const GgufBuilder& builder) {
  gguf::HeaderBuilder header;
  for (const auto& [key, value] : builder.keys) add_key(header, key, value);
  std::vector<uint64_t> sizes;
  for (const GgufBuilder::Tensor& t : builder.tensors) {
    sizes.push_back(header.add_tensor(t.name, t.dtype, t.dims));
  }
  const std::string head = header.bytes();
  size_t total = head.size();
  for (const uint64_t size : sizes) total += padded(size);
  bytes_ = AlignedBuffer<std::byte>(total);
  std::memcpy(bytes_.data(), head.data(), head.size());
  size_t at = head.size();
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::vector<float>& values = builder.tensors[i].values;
    WEFT_CHECK(values.size() * sizeof(float) <= sizes[i]);
    if (!values.empty()) {
      std::memcpy(bytes_.data() + at, values.data(), values.size() * sizeof(float));
    }
    at += padded(sizes[i]);
  }
  auto parsed = gguf::File::parse(bytes_.span(), GgufBuilder::kName);
  EXPECT_TRUE(parsed.is_ok()) << parsed.status().message();
  file_ = *parsed;
}

void expect_one_line(const Status& status, const BrokenGguf& broken) {
  ASSERT_FALSE(status.is_ok());
  const std::string& message = status.message();
  EXPECT_EQ(status.code(), broken.code) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_EQ(message.rfind(GgufBuilder::kName, 0), 0u) << message;
  EXPECT_NE(message.find(broken.names), std::string::npos) << message;
  EXPECT_NE(message.find(broken.detail), std::string::npos) << message;
}

}  // namespace weft::test
