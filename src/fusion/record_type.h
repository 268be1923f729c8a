// What type the K and V of chunk records are: the types that there are, what they take, and which
// one a record says it has. A store has one, settled by its first ingest (library/library.h); what
// the KV cache holds is no part of it. Thread-safe: free functions over their arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/names.h"
#include "base/status.h"
#include "model/config.h"
#include "store/record.h"
#include "tensor/dtype.h"

namespace weft::fusion {

/// As the command line and the index name them. A new one is a line here; it must be a type of
/// kernels/kv_codec.h.
inline constexpr Names kRecordTypes({Named{DType::kF16, "f16"}, Named{DType::kQ8_0, "q8_0"}});
/// Of a store whose ingest was told nothing, and of those made before there was a choice.
inline constexpr DType kUsualRecordType = DType::kF16;

/// By a name of kRecordTypes, upper or lower case; kInvalidArgument, with the list, for another.
Result<DType> parse_record_type(std::string_view name);
/// kUnsupported, naming type and head size, where a head of the model is no whole number of the
/// type's blocks.
Status check_record_type(const model::ModelConfig& config, DType type);

/// K and V of n_tokens tokens in one layer: all K, then all V. SmolLM2's 3 KV heads of 64 in f16:
/// 768 a token; in q8_0, 34 bytes for 32 elements: 408.
int64_t record_layer_bytes(const model::ModelConfig& config, DType type, int64_t n_tokens);
/// Of one token, all layers.
int64_t record_token_bytes(const model::ModelConfig& config, DType type);

/// The type that a record's identity (chunk_key.h) names. kCorrupt where that is none of
/// kRecordTypes, or where layers of info's bytes do not hold info's tokens in it.
Result<DType> record_type(std::span<const std::byte> identity, const store::RecordInfo& info);
/// The same by name, as store::StoreOptions::type_of takes it.
Result<std::string> record_type_name(std::span<const std::byte> identity,
                                     const store::RecordInfo& info);

}  // namespace weft::fusion
