// Text, so that people can read it. The checksum comes first and covers all lines after it, so a
// damaged file and one that was edited by hand are both refused, and never half understood. Only
// the three bytes that would break a line (backslash, line feed, carriage return) are escaped; all
// others are kept as they are, so a value may be any bytes.
#include "store/properties.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>

#include "base/hash.h"

namespace weft::store {
namespace {

constexpr std::string_view kFirstWord = "weft-store ";
constexpr std::string_view kVersion = "1 ";
constexpr size_t kChecksumDigits = 16;

std::string checksum_hex(std::string_view text) {
  return fmt::format("{:016x}", hash64(std::as_bytes(std::span(text))));
}

std::string escape(std::string_view value) {
  std::string escaped;
  for (const char c : value) {
    if (c == '\\') {
      escaped += "\\\\";
    } else if (c == '\n') {
      escaped += "\\n";
    } else if (c == '\r') {
      escaped += "\\r";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::optional<std::string> unescape(std::string_view escaped) {
  std::string value;
  for (size_t i = 0; i < escaped.size(); ++i) {
    if (escaped[i] != '\\') {
      value += escaped[i];
      continue;
    }
    if (++i == escaped.size()) return std::nullopt;
    if (escaped[i] == '\\') {
      value += '\\';
    } else if (escaped[i] == 'n') {
      value += '\n';
    } else if (escaped[i] == 'r') {
      value += '\r';
    } else {
      return std::nullopt;
    }
  }
  return value;
}

}  // namespace

Status check_property_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
  };
  if (name.empty() || name.size() > 64 || !std::all_of(name.begin(), name.end(), allowed)) {
    return invalid_argument(
        fmt::format("property name of {} bytes: must be 1 to 64 of [a-z0-9_.-]", name.size()));
  }
  return Status::ok();
}

std::string encode_properties(const Properties& properties) {
  std::string lines;
  for (const auto& [name, value] : properties) lines += name + "=" + escape(value) + "\n";
  return fmt::format("{}{}{}\n{}", kFirstWord, kVersion, checksum_hex(lines), lines);
}

Result<Properties> decode_properties(std::string_view text, std::string_view file) {
  if (!text.starts_with(kFirstWord)) {
    return corrupt(fmt::format("{}: line 1 is not that of a weft store", file));
  }
  text.remove_prefix(kFirstWord.size());
  if (!text.starts_with(kVersion)) {
    return unsupported(
        fmt::format("{}: store of another version, this weft reads version 1", file));
  }
  text.remove_prefix(kVersion.size());
  if (text.size() <= kChecksumDigits || text[kChecksumDigits] != '\n') {
    return corrupt(fmt::format("{}: line 1 lacks its checksum", file));
  }
  const std::string_view checksum = text.substr(0, kChecksumDigits);
  text.remove_prefix(kChecksumDigits + 1);
  if (checksum != checksum_hex(text)) {
    return corrupt(fmt::format("{}: checksum differs: damaged", file));
  }
  Properties properties;
  for (int line = 2; !text.empty(); ++line) {
    const size_t end = text.find('\n');
    const std::string_view entry = text.substr(0, end);
    const size_t equals = entry.find('=');
    if (end == std::string_view::npos || equals == std::string_view::npos ||
        !check_property_name(entry.substr(0, equals)).is_ok()) {
      return corrupt(fmt::format("{}: line {} is not name=value", file, line));
    }
    auto value = unescape(entry.substr(equals + 1));
    if (!value) return corrupt(fmt::format("{}: line {} has an unknown escape", file, line));
    properties[std::string(entry.substr(0, equals))] = std::move(*value);
    text.remove_prefix(end + 1);
  }
  return properties;
}

}  // namespace weft::store
