// Which way prefill-sized products are computed: forced by name, or what one short measurement
// found best on this CPU. The measurement is kept in a file, so that every later run takes the same
// path.
#pragma once

#include <string>
#include <string_view>

#include "base/env.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "kernels/context.h"
#include "tensor/dtype.h"

namespace weft::engine {

/// "f32", "bf16", "int8".
const char* matmul_path_name(kernels::MatmulPath path);

/// `name` is auto, f32, bf16 or int8. For auto: what `kept_file` says for this CPU, instruction
/// set, thread count and type of weights, else a measurement, which is then kept there beside the
/// others; an empty kept_file keeps nothing.
Result<kernels::MatmulPath> choose_matmul_path(Env& env, ThreadPool& pool, kernels::Isa isa,
                                               DType dtype, std::string_view name,
                                               const std::string& kept_file);

}  // namespace weft::engine
