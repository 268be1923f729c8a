// The list of types that K and V may have, and what does not belong to one type. K and V are read
// in every step and written once, so decode pays for their bytes: one row's attention over 4,096
// keys takes 94 us in f16, 89 in bf16 and 132 in f32 (SmolLM2's shape, one thread, AVX-512; a 1B
// model's 335, 280 and 512). f16 is the default: three more bits than bf16 at nearly the same
// speed, and what chunks are stored in unless a store says q8_0.
//
// The tables are one a type and instruction set, found by kv_codec() once an op and called through
// pointers a block of keys at a time; with a call for every vector decode was slower than before
// there were types.
#include "kernels/kv_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/ascii.h"
#include "base/check.h"
#include "base/names.h"
#include "base/narrow.h"
#include "kernels/kv_codec_internal.h"

namespace weft::kernels {
namespace {

constexpr int64_t kRowsPerTask = 32;

/// The types, as they are named on the command line. A new one is a line here (CONTRIBUTING.md).
struct KvType {
  DType type;
  std::string_view name;
  const KvCodecFns& (*codec)(Isa);
};
constexpr KvType kTypes[] = {{DType::kF32, "f32", pick_kv_codec_f32_fns},
                             {DType::kF16, "f16", pick_kv_codec_f16_fns},
                             {DType::kBF16, "bf16", pick_kv_codec_bf16_fns},
                             {DType::kQ8_0, "q8_0", pick_kv_codec_q8_0_fns},
                             {DType::kQ4_0, "q4_0", pick_kv_codec_q4_0_fns}};

const KvType* find_type(DType type) {
  const auto found = std::ranges::find(kTypes, type, &KvType::type);
  return found == std::end(kTypes) ? nullptr : found;
}

}  // namespace

const KvCodecFns& kv_codec(Isa isa, DType type) {
  const KvType* found = find_type(type);
  WEFT_CHECK(found != nullptr);
  return found->codec(isa);
}

bool is_kv_type(DType type) { return find_type(type) != nullptr; }

std::vector<std::string> kv_type_names() {
  std::vector<std::string> names;
  for (const KvType& type : kTypes) names.emplace_back(type.name);
  return names;
}

Result<DType> parse_kv_type(std::string_view name) {
  const std::string lower = ascii_lower(name);
  const auto found = std::ranges::find(kTypes, lower, &KvType::name);
  if (found != std::end(kTypes)) return found->type;
  return invalid_argument(fmt::format("must be {}", listed(kv_type_names())));
}

// Head sizes are multiples of 8: attention_cpu.cc transposes four dimensions at a time and makes
// eight sums at once. Pages have 16 slots or more, a power of two, so that runs of slots within a
// block of keys begin at its first key or at a multiple of 16: decode's scores come by fours and
// must not run over the block's end.
Status check_kv_layout(const KvLayout& kv) {
  if (!is_kv_type(kv.k_type) || !is_kv_type(kv.v_type)) {
    return unsupported(fmt::format("KV cache: K and V must be {}", listed(kv_type_names())));
  }
  if (kv.n_kv_heads <= 0) {
    return invalid_argument(
        fmt::format("KV cache: {} KV heads: must be at least 1", kv.n_kv_heads));
  }
  if (kv.page_tokens < 16 || kv.page_tokens > 256 ||
      !std::has_single_bit(narrow<uint32_t>(kv.page_tokens))) {
    return unsupported(fmt::format(
        "KV cache: pages of {} tokens; a power of two from 16 to 256 is needed", kv.page_tokens));
  }
  if (kv.head_dim < 8 || kv.head_dim > kMaxHeadDim || kv.head_dim % 8 != 0) {
    return unsupported(fmt::format("KV cache: head size {}; a multiple of 8 up to {} is needed",
                                   kv.head_dim, kMaxHeadDim));
  }
  for (const DType type : {kv.k_type, kv.v_type}) {
    const int32_t block = dtype_info(type).block_elements;
    if (kv.head_dim % block == 0) continue;
    return unsupported(
        fmt::format("KV cache: {}: this model's head size {} is no multiple of its block of {}; "
                    "take f16 or bf16",
                    find_type(type)->name, kv.head_dim, block));
  }
  return Status::ok();
}

int64_t kv_token_bytes(const KvLayout& kv) {
  return kv.n_kv_heads * (row_bytes(kv.k_type, kv.head_dim) + row_bytes(kv.v_type, kv.head_dim));
}

PagedKv make_paged_kv(const KvLayout& layout, std::byte* pages) {
  WEFT_CHECK(check_kv_layout(layout).is_ok() && pages != nullptr);
  return {.layout = layout,
          .pages = reinterpret_cast<uint8_t*>(pages),
          .k_bytes = narrow<int32_t>(row_bytes(layout.k_type, layout.head_dim)),
          .v_bytes = narrow<int32_t>(row_bytes(layout.v_type, layout.head_dim))};
}

void encode_kv(Isa isa, DType type, std::span<const float> src, std::byte* dst) {
  kv_codec(isa, type).store(src.data(), std::ssize(src), reinterpret_cast<uint8_t*>(dst));
}

void decode_kv(Isa isa, DType type, const std::byte* src, std::span<float> dst) {
  kv_codec(isa, type).load(reinterpret_cast<const uint8_t*>(src), std::ssize(dst), dst.data());
}

// For what compares a sequence's K and V with others, as fusion does; attention reads the pages
// itself.
void read_kv(const Context& context, const PagedKv& kv, const int32_t* block_table,
             std::span<const int32_t> slots, MatrixView<float> k, MatrixView<float> v) {
  const KvCodecFns& k_codec = kv_codec(context.isa, kv.layout.k_type);
  const KvCodecFns& v_codec = kv_codec(context.isa, kv.layout.v_type);
  const int64_t head_dim = kv.layout.head_dim, n_slots = std::ssize(slots);
  WEFT_CHECK(k.rows == n_slots && k.columns == kv.layout.n_kv_heads * head_dim && same_shape(k, v));
  const int64_t n_tasks = (n_slots + kRowsPerTask - 1) / kRowsPerTask;
  context.pool.run(n_tasks, [&](int64_t task, int) {
    const int64_t end = std::min(n_slots, (task + 1) * kRowsPerTask);
    for (int64_t i = task * kRowsPerTask; i < end; ++i) {
      for (int32_t head = 0; head < kv.layout.n_kv_heads; ++head) {
        const int64_t at = head * head_dim;
        k_codec.load(k_at(kv, block_table, slots[i], head), head_dim, &k.row(i)[at]);
        v_codec.load(v_at(kv, block_table, slots[i], head), head_dim, &v.row(i)[at]);
      }
    }
  });
}

}  // namespace weft::kernels
