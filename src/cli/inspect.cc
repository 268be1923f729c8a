// A GGUF comes from anywhere and may say anything, in names as in values: a key of a megabyte, a
// string of escape sequences, a float that is not a number, an array of a million strings. Text
// escapes what a terminal may not show, JSON is valid whatever the file says, and arrays are cut at
// eight elements in both.
#include "cli/inspect.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "base/terminal_text.h"
#include "base/utf8.h"
#include "cli/app.h"

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
    // The shortest number that is this float: 1e-05, not 9.999999747378752e-06.
    const auto number = static_cast<float>(std::get<double>(value.data));
    if (std::isfinite(number)) return std::strtod(fmt::format("{}", number).c_str(), nullptr);
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
  return out;
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
               {"dtypes", std::move(dtypes)}});
}

/// The key is the hash of the identity, as the record's file is named.
std::string record_text(const std::string& path, uint64_t file_bytes,
                        const store::RecordHead& head) {
  const store::RecordInfo& info = head.info;
  return fmt::format(
      "{}: chunk record version {}, {} bytes ({})\n"
      "  key           {}\n"
      "  identity      {} bytes\n"
      "  tokens        {}\n"
      "  layers        {} of {} bytes\n"
      "  created       {} UTC\n",
      one_line(path), store::kRecordVersion, file_bytes, megabytes(file_bytes),
      hash128(head.identity).to_hex(), head.identity.size(), info.n_tokens, info.n_layers,
      info.layer_bytes, date_of(info.created_unix_ms));
}

std::string record_json(const std::string& path, uint64_t file_bytes,
                        const store::RecordHead& head) {
  const store::RecordInfo& info = head.info;
  return dump({{"path", path},
               {"format", "chunk"},
               {"version", store::kRecordVersion},
               {"bytes", file_bytes},
               {"key", hash128(head.identity).to_hex()},
               {"identity_bytes", head.identity.size()},
               {"tokens", info.n_tokens},
               {"layers", info.n_layers},
               {"layer_bytes", info.layer_bytes},
               {"created_unix_ms", info.created_unix_ms}});
}

}  // namespace weft::cli
