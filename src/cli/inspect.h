// What a GGUF file, a chunk record or a session holds, for people and for programs. Strings come
// from outside: bytes that are not UTF-8 become U+FFFD and control characters are escaped. Pure
// functions.
#pragma once

#include <string>

#include "engine/session.h"
#include "gguf/gguf.h"
#include "store/record.h"

namespace weft::cli {

/// Lines for a terminal; long strings and arrays are cut short. At the end, of a model that weft
/// runs, what the KV of a token and of contexts of 4K to 128K tokens takes in each type.
std::string gguf_text(const gguf::File& file);

/// One line of JSON: {"path","format","version","bytes","alignment","metadata":{KEY:VALUE,…},
/// "tensors":[{"name","dtype","dims","offset","bytes"},…],"parameters","tensor_bytes",
/// "dtypes":{DTYPE:{"tensors","parameters","bytes"},…},"kv_token_bytes":{TYPE:N,…}}. An array among
/// the metadata is
/// {"array":ELEMENT_TYPE,"size":N,"first":[up to 8]}; dims[0] is the contiguous dimension; offset
/// counts from the file's start.
std::string gguf_json(const gguf::File& file);

/// A record's head, its K and V being of `type` (fusion::record_type_name); the layers are not read
/// (`weft cache verify` does that).
std::string record_text(const std::string& path, uint64_t file_bytes, const store::RecordHead& head,
                        const std::string& type);
/// One line of JSON: {"path","format","version","bytes","key","identity_bytes","type","tokens",
/// "layers","layer_bytes","created_unix_ms"}.
std::string record_json(const std::string& path, uint64_t file_bytes, const store::RecordHead& head,
                        const std::string& type);

/// A session's file, which was read and checked whole.
std::string session_text(const engine::SavedSession& saved);
/// One line of JSON:
/// {"path","format","version","bytes","kind","model","fingerprint","arithmetic","compute","isa",
/// "tokens","slots","slot_kinds":{"prompt","decode","fused"},"layers","layer_groups","kv_heads",
/// "head_dim","k_type","v_type","kv_bytes","sampling":{…},"prompt_tokens","draws","turns"}.
/// prompt_tokens and draws are a text's, turns a chat's; the other ones are null.
std::string session_json(const engine::SavedSession& saved);

}  // namespace weft::cli
