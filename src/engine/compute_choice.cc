#include "engine/compute_choice.h"

#include <fmt/format.h>

#include "engine/kept_measurements.h"
#include "kernels/matmul.h"

namespace weft::engine {
namespace {

using kernels::MatmulPath;

constexpr MatmulPath kPaths[] = {MatmulPath::kF32, MatmulPath::kBf16, MatmulPath::kInt8};

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

  const std::string key = fmt::format("{} / {} / {} threads / {} / 512 rows", cpu_name(env),
                                      kernels::isa_name(isa), pool.size(), dtype_info(dtype).name);
  const std::string kept = find_kept(env, kept_file, key).value_or("");
  for (const MatmulPath path : kPaths) {
    if (kept == matmul_path_name(path)) return path;
  }
  const MatmulPath measured = kernels::measure_matmul_path(pool, isa, dtype);
  keep(env, kept_file, key, matmul_path_name(measured));
  return measured;
}

}  // namespace weft::engine
