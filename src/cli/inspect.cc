// A GGUF comes from anywhere and may say anything, in names as in values: a key of a megabyte, a
// string of escape sequences, a float that is not a number, an array of a million strings. Text
// escapes what a terminal may not show, JSON is valid whatever the file says, and arrays are cut at
// eight elements in both.
#include "cli/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "base/byte_sizes.h"
#include "base/counts_text.h"
#include "base/terminal_text.h"
#include "base/utf8.h"
#include "cli/app.h"
#include "engine/kv_size.h"
#include "kernels/kv_codec.h"
#include "model/config.h"

namespace weft::cli {
namespace {

constexpr uint64_t kShownElements = 8;
constexpr size_t kShownStringBytes = 72;

/// What tensors of one type take together.
struct Total {
  int64_t tensors = 0;
  int64_t parameters = 0;
  uint64_t bytes = 0;
};

std::map<std::string_view, Total> totals_by_dtype(const gguf::File& file) {
  std::map<std::string_view, Total> totals;
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    Total& total = totals[dtype_info(tensor.dtype).name];
    total.tensors += 1;
    total.parameters += tensor.n_elements();
    total.bytes += tensor.size_bytes;
  }
  return totals;
}

Total sum(const std::map<std::string_view, Total>& totals) {
  Total all;
  for (const auto& [dtype, total] : totals) {
    all.tensors += total.tensors;
    all.parameters += total.parameters;
    all.bytes += total.bytes;
  }
  return all;
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

/// The shortest number that is this float: 1e-05, not 9.999999747378752e-06.
double shortest(float number) { return std::strtod(fmt::format("{}", number).c_str(), nullptr); }

/// An infinity or NaN has no JSON: dump() writes null for it.
Json to_json(const gguf::Value& value) {
  if (const auto* array = std::get_if<gguf::Array>(&value.data)) {
    Json first = Json::array();
    gguf::for_each_element(*array, kShownElements,
                           [&](const gguf::Value& element) { first.push_back(to_json(element)); });
    return {{"array", gguf::value_type_name(array->element_type)},
            {"size", array->size},
            {"first", std::move(first)}};
  }
  if (value.type == gguf::ValueType::kF32) {
    const auto number = static_cast<float>(std::get<double>(value.data));
    if (std::isfinite(number)) return shortest(number);
  }
  return std::visit(
      [](const auto& data) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(data)>, std::string_view>) {
          return std::string(data);
        } else if constexpr (std::is_same_v<std::decay_t<decltype(data)>, gguf::Array>) {
          return nullptr;  // handled above
        } else {
          return data;
        }
      },
      value.data);
}

/// As JSON, which escapes C0 controls, with all else that a terminal may not show escaped too.
/// A character above U+FFFF is two escapes in JSON, a surrogate pair: U+E0041 is "\udb40\udc41".
std::string terminal_safe(const Json& json) {
  const std::string text = dump(json);
  TerminalChars chars;
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t n = utf8_char_bytes(text, at);  // what dump() wrote is UTF-8
    const char32_t c = decode_utf8_char(text, at, n);
    if (chars.may_show(c)) {
      out.append(text, at, n);
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", uint32_t{c});
    } else {
      const uint32_t above = c - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (above >> 10), 0xdc00 + (above & 0x3ff));
    }
    at += n;
  }
  return out;
}

/// At most kShownStringBytes of it, whole UTF-8 characters.
/// Goes back over continuation bytes, but no further than a character of UTF-8 is long.
std::string quoted(std::string_view text) {
  if (text.size() <= kShownStringBytes) return terminal_safe(std::string(text));
  size_t end = kShownStringBytes;
  while (end > kShownStringBytes - 4 && (text[end] & 0xc0) == 0x80) --end;
  return fmt::format("{}... ({} bytes)", terminal_safe(std::string(text.substr(0, end))),
                     text.size());
}

/// "3 x str ["a", "b", "c"]", and of a long array its first eight with "...".
std::string shown(const gguf::Value& value) {
  if (const auto* text = std::get_if<std::string_view>(&value.data)) return quoted(*text);
  const auto* array = std::get_if<gguf::Array>(&value.data);
  if (array == nullptr) {
    const auto* number = std::get_if<double>(&value.data);
    return number != nullptr && !std::isfinite(*number) ? fmt::format("{}", *number)
                                                        : dump(to_json(value));
  }
  std::string elements;
  gguf::for_each_element(*array, kShownElements, [&](const gguf::Value& element) {
    elements += (elements.empty() ? "" : ", ") + shown(element);
  });
  if (array->size > kShownElements) elements += ", ...";
  return fmt::format("{} x {} [{}]", array->size, gguf::value_type_name(array->element_type),
                     elements);
}

std::string megabytes(uint64_t bytes) { return fmt::format("{:.2f} MB", bytes * 1e-6); }

/// "576 x 49152", the contiguous dimension first, as GGUF has it.
std::string dims_text(const gguf::TensorInfo& tensor) {
  std::string out = fmt::format("{}", tensor.dims[0]);
  for (int d = 1; d < tensor.n_dims; ++d) out += fmt::format(" x {}", tensor.dims[d]);
  return out;
}

/// A key or name without quotes.
std::string bare(std::string_view text) {
  const std::string in_quotes = terminal_safe(std::string(text));
  return in_quotes.substr(1, in_quotes.size() - 2);
}

}  // namespace

namespace {

constexpr int32_t kContexts[] = {4, 8, 16, 32, 64, 128};  // of 1,024 tokens

/// A type of K and V, and the bytes that a token takes with it, all layers.
struct KvSize {
  std::string type;
  int64_t token_bytes = 0;
  std::vector<int64_t> rolling_bytes;  // of each of kContexts, where layers have windows that roll
};

std::vector<int64_t> rolling_bytes(const model::ModelConfig& config,
                                   const kernels::KvTypes& types) {
  std::vector<int64_t> all;
  if (std::ranges::count(config.group_windows(), 0) == std::ssize(config.group_windows()))
    return all;
  for (const int32_t context : kContexts) {
    const engine::KvRequest request{
        .context_tokens = context * 1024, .types = types, .rolls_windows = true};
    const auto cache = engine::kv_cache_options(request, config);
    if (cache.is_ok())
      all.push_back(engine::kv_cache_bytes(*cache, request.context_tokens / engine::kKvPageTokens));
  }
  return all;
}

/// Of the types that the model's heads take; empty where weft does not run the model.
std::vector<KvSize> kv_sizes(const gguf::File& file) {
  const auto config = model::read_config(file);
  if (!config.is_ok()) return {};
  std::vector<KvSize> sizes;
  for (const std::string& name : kernels::kv_type_names()) {
    const DType type = *kernels::parse_kv_type(name);
    const kernels::KvLayout layout = config->kv_layout({type, type});
    if (!kernels::check_kv_layout(layout).is_ok()) continue;
    sizes.push_back({name, config->n_layers * kernels::kv_token_bytes(layout),
                     rolling_bytes(*config, {type, type})});
  }
  return sizes;
}

std::string kv_text(const gguf::File& file) {
  const std::vector<KvSize> sizes = kv_sizes(file);
  if (sizes.empty()) return "";
  std::string out = fmt::format("\nKV cache\n  {:<6} {:>13}", "type", "bytes a token");
  for (const int32_t context : kContexts) out += fmt::format(" {:>9}", fmt::format("{}K", context));
  for (const KvSize& size : sizes) {
    out += fmt::format("\n  {:<6} {:>13}", size.type, grouped_digits(size.token_bytes));
    for (const int32_t context : kContexts) {
      out += fmt::format(" {:>9}", size_text(size.token_bytes * context * 1024));
    }
    if (size.rolling_bytes.empty()) continue;
    out += fmt::format("\n  {:<6} {:>13}", "", "windows roll");
    for (const int64_t n_bytes : size.rolling_bytes)
      out += fmt::format(" {:>9}", size_text(n_bytes));
  }
  return out + "\n";
}

}  // namespace

std::string gguf_text(const gguf::File& file) {
  std::string out = fmt::format("{}: GGUF version {}, {} bytes ({}), alignment {}\n",
                                one_line(file.path()), file.version(), file.size_bytes(),
                                megabytes(file.size_bytes()), file.alignment());
  if (file.parts().size() > 1) {
    out += fmt::format("\nparts: {}\n", file.parts().size());
    for (const gguf::FilePart& part : file.parts()) {
      out += fmt::format("  {} ({})\n", one_line(part.path), megabytes(part.bytes.size()));
    }
  }
  out += fmt::format("\nmetadata: {} entries\n", file.metadata().size());
  for (const auto& [key, value] : file.metadata()) {
    out += fmt::format("  {:<42} {:<7} {}\n", bare(key), gguf::value_type_name(value.type),
                       shown(value));
  }
  out += fmt::format("\ntensors: {}\n", file.tensors().size());
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    out +=
        fmt::format("  {:<36} {:<5} {:>20} {:>14}\n", bare(tensor.name),
                    dtype_info(tensor.dtype).name, dims_text(tensor), megabytes(tensor.size_bytes));
  }
  const auto totals = totals_by_dtype(file);
  const auto line = [&out](std::string_view name, const Total& total) {
    out += fmt::format("  {:<6} {:>6} tensors {:>14} parameters {:>14}\n", name, total.tensors,
                       total.parameters, megabytes(total.bytes));
  };
  out += "\nby type\n";
  for (const auto& [dtype, total] : totals) line(dtype, total);
  line("all", sum(totals));
  return out + kv_text(file);
}

std::string gguf_json(const gguf::File& file) {
  Json::object_t metadata;  // appended to: operator[] would search all keys, which are distinct
  for (const auto& [key, value] : file.metadata()) {
    metadata.emplace_back(std::string(key), to_json(value));
  }
  Json tensors = Json::array();
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    Json dims = Json::array();
    for (int d = 0; d < tensor.n_dims; ++d) dims.push_back(tensor.dims[d]);
    tensors.push_back({{"name", std::string(tensor.name)},
                       {"dtype", dtype_info(tensor.dtype).name},
                       {"dims", std::move(dims)},
                       {"part", tensor.part},
                       {"offset", file.parts()[tensor.part].header.size() + tensor.offset},
                       {"bytes", tensor.size_bytes}});
  }
  const auto totals = totals_by_dtype(file);
  Json dtypes = Json::object();
  for (const auto& [dtype, total] : totals) {
    dtypes[std::string(dtype)] = {
        {"tensors", total.tensors}, {"parameters", total.parameters}, {"bytes", total.bytes}};
  }
  const Total all = sum(totals);
  Json parts = Json::array();
  for (const gguf::FilePart& part : file.parts()) {
    parts.push_back({{"path", part.path}, {"bytes", part.bytes.size()}});
  }
  Json token_bytes = Json::object(), rolling = Json::object();
  for (const KvSize& size : kv_sizes(file)) {
    token_bytes[size.type] = size.token_bytes;
    for (size_t i = 0; i < size.rolling_bytes.size(); ++i) {
      rolling[size.type][std::to_string(kContexts[i] * 1024)] = size.rolling_bytes[i];
    }
  }
  return dump({{"path", file.path()},
               {"format", "gguf"},
               {"parts", std::move(parts)},
               {"version", file.version()},
               {"bytes", file.size_bytes()},
               {"alignment", file.alignment()},
               {"metadata", std::move(metadata)},
               {"tensors", std::move(tensors)},
               {"parameters", all.parameters},
               {"tensor_bytes", all.bytes},
               {"dtypes", std::move(dtypes)},
               {"kv_token_bytes", std::move(token_bytes)},
               {"kv_rolling_bytes", std::move(rolling)}});
}

/// The key is the hash of the identity, as the record's file is named.
std::string record_text(const std::string& path, uint64_t file_bytes, const store::RecordHead& head,
                        const std::string& type) {
  const store::RecordInfo& info = head.info;
  return fmt::format(
      "{}: chunk record version {}, {} bytes ({})\n"
      "  key           {}\n"
      "  identity      {} bytes\n"
      "  K and V       {}\n"
      "  tokens        {}\n"
      "  layers        {} of {} bytes\n"
      "  created       {} UTC\n",
      one_line(path), store::kRecordVersion, file_bytes, megabytes(file_bytes),
      hash128(head.identity).to_hex(), head.identity.size(), type, info.n_tokens, info.n_layers,
      info.layer_bytes, date_of(info.created_unix_ms));
}

std::string record_json(const std::string& path, uint64_t file_bytes, const store::RecordHead& head,
                        const std::string& type) {
  const store::RecordInfo& info = head.info;
  return dump({{"path", path},
               {"format", "chunk"},
               {"version", store::kRecordVersion},
               {"bytes", file_bytes},
               {"key", hash128(head.identity).to_hex()},
               {"identity_bytes", head.identity.size()},
               {"type", type},
               {"tokens", info.n_tokens},
               {"layers", info.n_layers},
               {"layer_bytes", info.layer_bytes},
               {"created_unix_ms", info.created_unix_ms}});
}

namespace {

/// Slots by what made them.
std::map<kv::SlotKind, int32_t> slots_by_kind(const engine::SavedSession& saved) {
  std::map<kv::SlotKind, int32_t> counts;
  int32_t begin = 0;
  for (const kv::SlotRun& run : saved.file().kinds()) {
    counts[run.kind] += run.end - begin;
    begin = run.end;
  }
  return counts;
}

int64_t kv_bytes(const engine::SavedSession& saved) {
  const kv::SessionHead& head = saved.file().head();
  return head.layer_bytes() * std::ssize(head.layer_groups);
}

int32_t n_groups(const engine::SavedSession& saved) {
  return std::ranges::max(saved.file().head().layer_groups) + 1;
}

}  // namespace

std::string session_text(const engine::SavedSession& saved) {
  const kv::SessionHead& head = saved.file().head();
  const engine::Session& session = saved.session();
  const engine::SessionOrigin& origin = saved.origin();
  const sampling::SamplingOptions& s = session.sampling;
  auto kinds = slots_by_kind(saved);
  const bool is_chat = session.kind == engine::SessionKind::kChat;
  const std::string content =
      is_chat ? fmt::format("  turns         {}, the first {} no longer seen\n",
                            session.turns.size(), session.first_turn)
              : fmt::format("  prompt        {} tokens, the answer {}; {} random numbers drawn\n",
                            session.prompt_tokens, session.tokens.size() - session.prompt_tokens,
                            session.n_draws);
  return fmt::format(
      "{}: {} session version {}, {} bytes ({})\n"
      "  model         {} ({})\n"
      "  computed      --compute {} --isa {}, arithmetic of revision {}\n"
      "  tokens        {}, {} of them with KV ({} prompt rows, {} decoded)\n"
      "  layers        {}, layer groups {}, {} KV heads of {}\n"
      "  KV            K {}, V {}, {} bytes ({})\n"
      "  settings      temp {}, top-k {}, top-p {}, min-p {}, repeat-penalty {}, repeat-last-n {}, "
      "presence-penalty {}, frequency-penalty {}, seed {}\n{}",
      one_line(saved.path()), engine::kSessionKinds.name(session.kind), kv::kSessionVersion,
      saved.file().size_bytes(), megabytes(saved.file().size_bytes()), one_line(origin.model_name),
      origin.model_fingerprint.to_hex(), one_line(origin.compute), one_line(origin.isa),
      origin.arithmetic, head.n_tokens, head.n_slots, kinds[kv::SlotKind::kPrompt],
      kinds[kv::SlotKind::kDecode], head.layer_groups.size(), n_groups(saved),
      head.layout.n_kv_heads, head.layout.head_dim,
      ascii_lower(dtype_info(head.layout.k_type).name),
      ascii_lower(dtype_info(head.layout.v_type).name), kv_bytes(saved), megabytes(kv_bytes(saved)),
      s.temperature, s.top_k, s.top_p, s.min_p, s.penalties.repeat, s.penalties.repeat_last_n,
      s.penalties.presence, s.penalties.frequency, s.seed, content);
}

std::string session_json(const engine::SavedSession& saved) {
  const kv::SessionHead& head = saved.file().head();
  const engine::Session& session = saved.session();
  const engine::SessionOrigin& origin = saved.origin();
  const sampling::SamplingOptions& s = session.sampling;
  auto kinds = slots_by_kind(saved);
  const bool is_chat = session.kind == engine::SessionKind::kChat;
  return dump({{"path", saved.path()},
               {"format", "session"},
               {"version", kv::kSessionVersion},
               {"bytes", saved.file().size_bytes()},
               {"kind", engine::kSessionKinds.name(session.kind)},
               {"model", origin.model_name},
               {"fingerprint", origin.model_fingerprint.to_hex()},
               {"arithmetic", origin.arithmetic},
               {"compute", origin.compute},
               {"isa", origin.isa},
               {"tokens", head.n_tokens},
               {"slots", head.n_slots},
               {"slot_kinds",
                {{"prompt", kinds[kv::SlotKind::kPrompt]},
                 {"decode", kinds[kv::SlotKind::kDecode]},
                 {"fused", kinds[kv::SlotKind::kFused]}}},
               {"layers", head.layer_groups.size()},
               {"layer_groups", n_groups(saved)},
               {"kv_heads", head.layout.n_kv_heads},
               {"head_dim", head.layout.head_dim},
               {"k_type", ascii_lower(dtype_info(head.layout.k_type).name)},
               {"v_type", ascii_lower(dtype_info(head.layout.v_type).name)},
               {"kv_bytes", kv_bytes(saved)},
               {"sampling",
                {{"temp", shortest(s.temperature)},
                 {"top_k", s.top_k},
                 {"top_p", shortest(s.top_p)},
                 {"min_p", shortest(s.min_p)},
                 {"repeat_penalty", shortest(s.penalties.repeat)},
                 {"repeat_last_n", s.penalties.repeat_last_n},
                 {"presence_penalty", shortest(s.penalties.presence)},
                 {"frequency_penalty", shortest(s.penalties.frequency)},
                 {"seed", s.seed}}},
               {"prompt_tokens", is_chat ? Json() : Json(session.prompt_tokens)},
               {"draws", is_chat ? Json() : Json(session.n_draws)},
               {"turns", is_chat ? Json(session.turns.size()) : Json()}});
}

}  // namespace weft::cli
