// Which path is fastest depends on the CPU (AMX, AVX-512 BF16, VNNI, or none of them), and no table
// of CPUs stays right. So it is measured, on one product of 512 rows, and kept: a machine must not
// choose differently from run to run, or the same prompt would give other bits.
#include "engine/compute_choice.h"

#include <fmt/format.h>

#include "engine/kept_measurements.h"
#include "kernels/matmul.h"
#include "kernels/matmul_prefill.h"

namespace weft::engine {

using kernels::MatmulPath;

namespace {

bool runs_here(MatmulPath path) {
  return path != MatmulPath::kBf16 || kernels::onednn_takes_bf16();
}

}  // namespace

std::vector<std::string> compute_names() {
  std::vector<std::string> names = kMatmulPaths.names();
  names.insert(names.begin(), kAutoPath);
  return names;
}

Result<MatmulPath> choose_matmul_path(Env& env, ThreadPool& pool, kernels::Isa isa, DType dtype,
                                      std::string_view name, const std::string& kept_file) {
  if (const auto path = kMatmulPaths.find(name)) {
    if (runs_here(*path)) return *path;
    return unsupported(fmt::format(
        "--compute {}: this CPU has no AVX-512, which it needs; auto, f32 and int8 do without",
        name));
  }
  if (name != kAutoPath) {
    return invalid_argument(fmt::format("--compute {}: must be {}", name, listed(compute_names())));
  }
  if (kept_file.empty()) return kernels::measure_matmul_path(pool, isa, dtype);

  const std::string key = fmt::format("{} / {} / {} threads / {} / 512 rows", cpu_name(env),
                                      kernels::isa_name(isa), pool.size(), dtype_info(dtype).name);
  const std::string kept = find_kept(env, kept_file, key).value_or("");
  if (const auto path = kMatmulPaths.find(kept); path && runs_here(*path)) return *path;
  const MatmulPath measured = kernels::measure_matmul_path(pool, isa, dtype);
  keep(env, kept_file, key, kMatmulPaths.name(measured));
  return measured;
}

}  // namespace weft::engine
