// Two types and not all that the KV cache may have: a store is kept for long, so each is one whose
// answers were measured (docs/measurements.md). q8_0 takes 0.53 of f16's disk, memory tier and
// reading.
#include "fusion/record_type.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ascii.h"
#include "base/check.h"
#include "fusion/chunk_key.h"

namespace weft::fusion {

Result<DType> parse_record_type(std::string_view name) {
  if (const auto type = kRecordTypes.find(ascii_lower(name))) return *type;
  return invalid_argument("must be " + kRecordTypes.listed());
}

Status check_record_type(const model::ModelConfig& config, DType type) {
  const int block = dtype_info(type).block_elements;
  if (config.head_dim % block == 0) return Status::ok();
  return unsupported(fmt::format(
      "records of type {}: this model's head size {} is no multiple of its block of "
      "{}; take {}",
      kRecordTypes.name(type), config.head_dim, block, kRecordTypes.name(kUsualRecordType)));
}

int64_t record_layer_bytes(const model::ModelConfig& config, DType type, int64_t n_tokens) {
  return 2 * row_bytes(type, n_tokens * config.kv_width());
}

int64_t record_token_bytes(const model::ModelConfig& config, DType type) {
  return config.n_layers * record_layer_bytes(config, type, 1);
}

Result<DType> record_type(std::span<const std::byte> identity, const store::RecordInfo& info) {
  const auto id = record_type_id(identity);
  const DTypeInfo* type = id ? find_dtype(*id) : nullptr;
  const auto is_type = [&](const auto& known) { return type && known.value == type->dtype; };
  if (std::ranges::none_of(kRecordTypes, is_type)) {
    return corrupt(fmt::format("its KV has the type {}, which is none of {}: damaged",
                               id ? std::to_string(*id) : "nothing", kRecordTypes.listed()));
  }
  const uint64_t block = type->block_bytes, half = info.layer_bytes / 2;
  const bool is_whole = info.layer_bytes % 2 == 0 && info.n_tokens > 0 &&
                        half % info.n_tokens == 0 && half / info.n_tokens % block == 0;
  if (is_whole) return type->dtype;
  return corrupt(fmt::format("layers of {} bytes are not K and V of {} tokens in {}: damaged",
                             info.layer_bytes, info.n_tokens, kRecordTypes.name(type->dtype)));
}

Result<std::string> record_type_name(std::span<const std::byte> identity,
                                     const store::RecordInfo& info) {
  WEFT_ASSIGN_OR_RETURN(const DType type, record_type(identity, info));
  return std::string(kRecordTypes.name(type));
}

}  // namespace weft::fusion
