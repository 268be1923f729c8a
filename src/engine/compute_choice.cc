#include "engine/compute_choice.h"

#include <fmt/format.h>

#include "engine/kept_measurements.h"
#include "kernels/matmul.h"

namespace weft::engine {

using kernels::MatmulPath;

std::vector<std::string> compute_names() {
  std::vector<std::string> names = kMatmulPaths.names();
  names.insert(names.begin(), kAutoPath);
  return names;
}

Result<MatmulPath> choose_matmul_path(Env& env, ThreadPool& pool, kernels::Isa isa, DType dtype,
                                      std::string_view name, const std::string& kept_file) {
  if (const auto path = kMatmulPaths.find(name)) return *path;
  if (name != kAutoPath) {
    return invalid_argument(fmt::format("--compute {}: must be {}", name, listed(compute_names())));
  }
  if (kept_file.empty()) return kernels::measure_matmul_path(pool, isa, dtype);

  const std::string key = fmt::format("{} / {} / {} threads / {} / 512 rows", cpu_name(env),
                                      kernels::isa_name(isa), pool.size(), dtype_info(dtype).name);
  const std::string kept = find_kept(env, kept_file, key).value_or("");
  if (const auto path = kMatmulPaths.find(kept)) return *path;
  const MatmulPath measured = kernels::measure_matmul_path(pool, isa, dtype);
  keep(env, kept_file, key, kMatmulPaths.name(measured));
  return measured;
}

}  // namespace weft::engine
