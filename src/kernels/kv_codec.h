// The types that K and V may have: what the pages and the records hold, and how rows go in and come
// out. A type is one file, kv_codec_<type>_cpu.cc, and a line in kv_codec.cc; attention and RoPE
// take them as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "kernels/context.h"
#include "kernels/paged_kv.h"
#include "tensor/dtype.h"
#include "tensor/matrix_view.h"

namespace weft::kernels {

/// Whether K and V may be of this type: plain floats, f16 the default everywhere, or GGUF's blocks
/// of 32 elements, which need a head size of whole blocks.
bool is_kv_type(DType type);
/// One of kv_type_names(); kInvalidArgument with the list for another name.
Result<DType> parse_kv_type(std::string_view name);
/// "f32", "f16", … as in kv_codec.cc's table.
std::vector<std::string> kv_type_names();

/// f16 unless something else is asked for.
struct KvTypes {
  DType k = DType::kF16;
  DType v = DType::kF16;
  bool operator==(const KvTypes&) const = default;
};

/// kUnsupported for numbers or types that the kernels do not take.
Status check_kv_layout(const KvLayout& layout);
/// Of one token of one layer: K and V of all KV heads. SmolLM2 in f16, 3 KV heads of 64: 768.
int64_t kv_token_bytes(const KvLayout& layout);
/// A layer whose pages begin there; `layout` as check_kv_layout takes it.
PagedKv make_paged_kv(const KvLayout& layout, std::byte* pages);

/// dst = src in the type, each rounded once, to nearest even (q4_0 as GGML rounds); and back: as
/// many bytes as the type takes for so many elements, a whole number of its blocks.
void encode_kv(Isa isa, DType type, std::span<const float> src, std::byte* dst);
void decode_kv(Isa isa, DType type, const std::byte* src, std::span<float> dst);

/// Reads slots of a sequence as f32: k, v [slots.size(), n_kv_heads * head_dim]. K comes as it lies
/// there, rotated to its position.
void read_kv(const Context& context, const PagedKv& kv, const int32_t* block_table,
             std::span<const int32_t> slots, MatrixView<float> k, MatrixView<float> v);

}  // namespace weft::kernels
