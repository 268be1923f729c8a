// Which way prefill-sized products are computed: forced by name, or what one short measurement
// found best on this CPU. The measurement is kept in a file, so that every later run takes the same
// path.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/names.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "kernels/context.h"
#include "tensor/dtype.h"

namespace weft::engine {

inline constexpr Names kMatmulPaths({
    Named{kernels::MatmulPath::kF32, "f32"},
    Named{kernels::MatmulPath::kBf16, "bf16"},
    Named{kernels::MatmulPath::kInt8, "int8"},
});
inline constexpr const char* kAutoPath = "auto";
/// What choose_matmul_path takes: kAutoPath, then the paths' names.
std::vector<std::string> compute_names();

/// `name` is one of compute_names(). For auto: what `kept_file` says for this CPU, instruction
/// set, thread count and type of weights, else a measurement, which is then kept there beside the
/// others; an empty kept_file keeps nothing.
Result<kernels::MatmulPath> choose_matmul_path(Env& env, ThreadPool& pool, kernels::Isa isa,
                                               DType dtype, std::string_view name,
                                               const std::string& kept_file);

}  // namespace weft::engine
