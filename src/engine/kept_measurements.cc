// Lines of "key<TAB>value" in a file of the cache folder. It is a cache and treated as one: a
// damaged or missing file means measuring again, one that cannot be written is no error.
#include "engine/kept_measurements.h"

#include <fmt/format.h>

#include <filesystem>
#include <span>
#include <string_view>

#include "base/atomic_file.h"
#include "base/log.h"

namespace weft::engine {
namespace {

constexpr uint64_t kMaxKeptBytes = 64 * 1024;

}  // namespace

std::string cpu_name(Env& env) {
  constexpr std::string_view kField = "model name\t: ";
  const auto file = env.open_read("/proc/cpuinfo");  // reports no size: read until it ends
  if (!file.is_ok()) return "unknown CPU";
  std::string text(2048, '\0');
  for (size_t n = 0; n < text.size(); ++n) {
    if (!(*file)->read_at(n, std::as_writable_bytes(std::span(text).subspan(n, 1))).is_ok()) break;
  }
  const size_t begin = text.find(kField);
  if (begin == std::string::npos) return "unknown CPU";
  const size_t end = text.find('\n', begin);
  return text.substr(begin + kField.size(), end - begin - kField.size());
}

std::optional<std::string> find_kept(Env& env, const std::string& file, const std::string& key) {
  const auto kept = read_file(env, file, kMaxKeptBytes);
  if (!kept.is_ok()) return std::nullopt;
  std::optional<std::string> value;
  const std::string begins = key + "\t";
  for (size_t at = 0; at < kept->size();) {
    const size_t end = std::min(kept->find('\n', at), kept->size());
    const std::string_view line = std::string_view(*kept).substr(at, end - at);
    if (line.starts_with(begins)) value = line.substr(begins.size());
    at = end + 1;
  }
  return value;
}

void keep(Env& env, const std::string& file, const std::string& key, const std::string& value) {
  const auto kept = read_file(env, file, kMaxKeptBytes);
  const std::string line = fmt::format("{}\t{}\n", key, value);
  std::string lines = kept.is_ok() ? *kept : "";
  if (!lines.empty() && lines.back() != '\n') lines += '\n';
  if (lines.size() + line.size() > kMaxKeptBytes) lines.clear();
  const auto write = [&]() -> Status {
    WEFT_RETURN_IF_ERROR(env.make_dirs(std::filesystem::path(file).parent_path().string()));
    return write_file_durably(env, file, lines + line, {});
  };
  if (const Status status = write(); !status.is_ok()) {
    log_info("a measurement was not kept: " + status.message());
  }
}

}  // namespace weft::engine
