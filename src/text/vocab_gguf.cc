// read_vocab and Tokenizer::open: the keys `tokenizer.ggml.*` of a GGUF (its format page names
// them), with the values that each kind of model has where a key is missing.
#include <fmt/format.h>

#include <algorithm>

#include "base/ascii.h"
#include "gguf/gguf.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

namespace weft::text {
namespace {

constexpr uint64_t kNoTokenInFile = 0xFFFFFFFF;  // how files write "none" into a u32

Status in_file(const gguf::File& file, const Status& status) {
  return {status.code(), fmt::format("{}: {}", file.path(), status.message())};
}

// The id under tokenizer.ggml.<name>_token_id, `fallback` when the key is missing.
Result<int32_t> read_id(const gguf::File& file, const char* name, int32_t fallback,
                        size_t n_vocab) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
  if (file.find(key) == nullptr) {
    return fallback >= 0 && static_cast<size_t>(fallback) < n_vocab ? fallback : kNoToken;
  }
  WEFT_ASSIGN_OR_RETURN(const uint64_t id, file.get_uint(key));
  if (id == kNoTokenInFile) return kNoToken;
  if (id >= n_vocab) {
    return corrupt(fmt::format("{}: {}: {} is outside the vocabulary of {} tokens", file.path(),
                               key, id, n_vocab));
  }
  return static_cast<int32_t>(id);
}

Status read_ids(const gguf::File& file, VocabData& vocab) {
  const bool is_llama = vocab.model == "llama";
  const size_t n = vocab.tokens.size();
  WEFT_ASSIGN_OR_RETURN(vocab.bos_id, read_id(file, "bos", is_llama ? 1 : kNoToken, n));
  WEFT_ASSIGN_OR_RETURN(vocab.eos_id, read_id(file, "eos", is_llama ? 2 : kNoToken, n));
  WEFT_ASSIGN_OR_RETURN(vocab.unk_id, read_id(file, "unknown", is_llama ? 0 : kNoToken, n));
  WEFT_ASSIGN_OR_RETURN(vocab.eot_id, read_id(file, "eot", kNoToken, n));
  WEFT_ASSIGN_OR_RETURN(vocab.eom_id, read_id(file, "eom", kNoToken, n));
  // Not used, but an id outside the vocabulary means a damaged file.
  for (const char* name : {"padding", "seperator", "mask"}) {
    WEFT_RETURN_IF_ERROR(read_id(file, name, kNoToken, n).status());
  }
  return Status::ok();
}

Status read_types(const gguf::File& file, VocabData& vocab) {
  vocab.types.assign(vocab.tokens.size(), TokenType::kNormal);
  if (file.find("tokenizer.ggml.token_type") == nullptr) return Status::ok();
  WEFT_ASSIGN_OR_RETURN(const auto types, file.get_int_array("tokenizer.ggml.token_type"));
  vocab.types.clear();
  for (size_t id = 0; id < types.size(); ++id) {
    if (types[id] < 0 || types[id] > static_cast<int64_t>(TokenType::kByte)) {
      return corrupt(fmt::format("{}: tokenizer.ggml.token_type[{}]: {} is no token type (0 to 6)",
                                 file.path(), id, types[id]));
    }
    vocab.types.push_back(static_cast<TokenType>(types[id]));
  }
  return Status::ok();
}

bool is_phi3(std::string_view model_name) {
  const std::string lower = ascii_lower(model_name);
  return lower.find("phi-3") != std::string::npos || lower.find("phi3") != std::string::npos;
}

}  // namespace

Result<VocabData> read_vocab(const gguf::File& file) {
  VocabData vocab;
  WEFT_ASSIGN_OR_RETURN(vocab.model, file.get_string("tokenizer.ggml.model"));
  const bool is_llama = vocab.model == "llama";
  if (!is_llama && vocab.model != "gpt2") {
    return unsupported(
        fmt::format("{}: tokenizer.ggml.model '{}' is not supported; known are: "
                    "llama, gpt2",
                    file.path(), gguf::printable(vocab.model)));
  }
  WEFT_ASSIGN_OR_RETURN(vocab.pre, file.get_string_or("tokenizer.ggml.pre", "default"));
  WEFT_ASSIGN_OR_RETURN(const auto tokens, file.get_string_array("tokenizer.ggml.tokens"));
  vocab.tokens.assign(tokens.begin(), tokens.end());
  WEFT_RETURN_IF_ERROR(read_types(file, vocab));
  bool adds_bos = is_llama;
  if (is_llama) {
    WEFT_ASSIGN_OR_RETURN(vocab.scores, file.get_float_array("tokenizer.ggml.scores"));
  } else {
    WEFT_ASSIGN_OR_RETURN(const auto merges, file.get_string_array("tokenizer.ggml.merges"));
    vocab.merges.assign(merges.begin(), merges.end());
    const Result<PreTokenizer> pre_tokenizer = PreTokenizer::create(vocab.pre);
    if (!pre_tokenizer.is_ok()) return in_file(file, pre_tokenizer.status());
    adds_bos = pre_tokenizer->adds_bos();
  }
  WEFT_RETURN_IF_ERROR(read_ids(file, vocab));
  WEFT_ASSIGN_OR_RETURN(vocab.add_bos, file.get_bool_or("tokenizer.ggml.add_bos_token", adds_bos));
  WEFT_ASSIGN_OR_RETURN(vocab.add_eos, file.get_bool_or("tokenizer.ggml.add_eos_token", false));
  if (is_llama) {
    WEFT_ASSIGN_OR_RETURN(vocab.add_space_prefix,
                          file.get_bool_or("tokenizer.ggml.add_space_prefix", true));
    constexpr const char* kRemoveSpaces = "tokenizer.ggml.remove_extra_whitespaces";
    WEFT_ASSIGN_OR_RETURN(const bool removes_spaces, file.get_bool_or(kRemoveSpaces, false));
    if (removes_spaces) {
      return unsupported(fmt::format("{}: {} is true: weft does not change a text's spaces",
                                     file.path(), kRemoveSpaces));
    }
  }
  WEFT_ASSIGN_OR_RETURN(const auto name, file.get_string_or("general.name", ""));
  vocab.strip_after_special = is_llama && is_phi3(name);
  const Status status = check_vocab(vocab);
  if (!status.is_ok()) return in_file(file, status);
  return vocab;
}

Result<Tokenizer> Tokenizer::open(const gguf::File& file) {
  WEFT_ASSIGN_OR_RETURN(VocabData vocab, read_vocab(file));
  Result<Tokenizer> tokenizer = create(std::move(vocab));
  if (!tokenizer.is_ok()) return in_file(file, tokenizer.status());
  return tokenizer;
}

}  // namespace weft::text
