#include "engine/compute_choice.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/atomic_file.h"
#include "base/log.h"
#include "kernels/matmul.h"

namespace weft::engine {
namespace {

using kernels::MatmulPath;

constexpr MatmulPath kPaths[] = {MatmulPath::kF32, MatmulPath::kBf16, MatmulPath::kInt8};
constexpr uint64_t kMaxKeptBytes = 64 * 1024;

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

/// A line of the file: key, tab, path.
std::string kept_line(const std::string& key, MatmulPath path) {
  return fmt::format("{}\t{}\n", key, matmul_path_name(path));
}

void keep(Env& env, const std::string& file, const std::string& lines) {
  const auto write = [&]() -> Status {
    WEFT_RETURN_IF_ERROR(env.make_dirs(std::filesystem::path(file).parent_path().string()));
    return write_file_durably(env, file, lines, {});
  };
  if (const Status status = write(); !status.is_ok()) {
    log_info("the compute measurement was not kept: " + status.message());
  }
}

}  // namespace

const char* matmul_path_name(MatmulPath path) {
  switch (path) {
    case MatmulPath::kF32:
      return "f32";
    case MatmulPath::kBf16:
      return "bf16";
    case MatmulPath::kInt8:
      return "int8";
  }
  return "unknown";
}

Result<MatmulPath> choose_matmul_path(Env& env, ThreadPool& pool, kernels::Isa isa, DType dtype,
                                      std::string_view name, const std::string& kept_file) {
  for (const MatmulPath path : kPaths) {
    if (name == matmul_path_name(path)) return path;
  }
  if (name != "auto") {
    return invalid_argument(fmt::format("--compute {}: must be auto, f32, bf16 or int8", name));
  }
  if (kept_file.empty()) return kernels::measure_matmul_path(pool, isa, dtype);

  const std::string key = fmt::format("{} / {} / {} threads / {}", cpu_name(env),
                                      kernels::isa_name(isa), pool.size(), dtype_info(dtype).name);
  const auto kept = read_file(env, kept_file, kMaxKeptBytes);
  const std::string lines = kept.is_ok() ? *kept : "";
  for (const MatmulPath path : kPaths) {
    if (lines.find(kept_line(key, path)) != std::string::npos) return path;
  }
  const MatmulPath measured = kernels::measure_matmul_path(pool, isa, dtype);
  keep(env, kept_file, lines + kept_line(key, measured));
  return measured;
}

}  // namespace weft::engine
