#include "base/byte_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/ascii.h"
#include "base/parse_number.h"

namespace weft {
namespace {

constexpr std::array<const char*, 7> kUnits{"B", "KB", "MB", "GB", "TB", "PB", "EB"};
constexpr std::array<const char*, 7> kBinaryUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

/// Bytes of a unit in capitals without spaces: "", "MB", "MIB", "M".
std::optional<uint64_t> unit_bytes(std::string_view unit) {
  if (unit.empty() || unit == "B") return 1;
  constexpr std::string_view kPrefixes = "KMGTPE";
  const size_t power = kPrefixes.find(unit.front());
  if (power == std::string_view::npos) return std::nullopt;
  unit.remove_prefix(1);
  if (unit != "" && unit != "B" && unit != "I" && unit != "IB") return std::nullopt;
  const uint64_t base = unit == "B" ? 1000 : 1024;
  uint64_t bytes = base;
  for (size_t i = 0; i < power; ++i) bytes *= base;
  return bytes;
}

/// The largest unit that `bytes` is a whole number of.
std::pair<uint64_t, size_t> whole_units(uint64_t bytes, uint64_t base) {
  size_t unit = 0;
  for (; bytes > 0 && bytes % base == 0 && unit + 1 < kUnits.size(); ++unit) bytes /= base;
  return {bytes, unit};
}

}  // namespace

std::optional<ByteSize> parse_byte_size(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string unit;
  for (const char c : text.substr(std::min(text.find_first_not_of(' ', digits), text.size()))) {
    unit += ascii_upper(c);
  }
  if (unit.empty() && digits < text.size()) return std::nullopt;  // spaces alone
  const std::optional<uint64_t> one = unit_bytes(unit);
  if (!one) return std::nullopt;
  const std::string_view number = text.substr(0, digits);
  if (const auto whole = parse_number<uint64_t>(number)) {
    if (*whole > std::numeric_limits<uint64_t>::max() / *one) return std::nullopt;
    return ByteSize{*whole * *one, !unit.empty()};
  }
  const auto fraction = parse_number<double>(number);
  const bool is_decimal = !number.starts_with('.') && !number.ends_with('.');
  if (!fraction || !is_decimal || *one == 1) return std::nullopt;
  const double bytes = std::round(*fraction * *one);
  if (!(bytes < 0x1p64)) return std::nullopt;
  return ByteSize{static_cast<uint64_t>(bytes), !unit.empty()};
}

std::string size_text(uint64_t bytes) {
  constexpr size_t kLargestUnit = 4;  // TB
  size_t unit = 0;
  double value = bytes;
  while (value >= 999.5 && unit < kLargestUnit) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, unit > 0 && value < 9.95 ? 1 : 0, kUnits[unit]);
}

std::string size_flag(uint64_t bytes) {
  const auto [decimal, decimal_unit] = whole_units(bytes, 1000);
  const auto [binary, binary_unit] = whole_units(bytes, 1024);
  return binary < decimal ? fmt::format("{}{}", binary, kBinaryUnits[binary_unit])
                          : fmt::format("{}{}", decimal, kUnits[decimal_unit]);
}

std::string size_flag_for(uint64_t bytes) {
  bytes = std::min(bytes, uint64_t{1} << 63);  // no flag takes more
  uint64_t step = 1;                           // of the third digit
  while (bytes / step >= 1000) step *= 10;
  uint64_t digits = bytes / step + (bytes % step == 0 ? 0 : 1);  // 1000 at most
  size_t unit = 0;
  uint64_t one = 1;
  for (; unit + 1 < kUnits.size() && digits * step / 1000 >= one; ++unit) one *= 1000;
  const std::string number = fmt::format("{}", 1.0 * digits * step / one);
  return number + kUnits[unit];
}

}  // namespace weft
