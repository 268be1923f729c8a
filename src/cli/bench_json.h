// What the JSON of several benchmarks has in common.
#pragma once

#include "base/spread.h"
#include "cli/app.h"
#include "engine/compute_choice.h"
#include "engine/engine.h"

namespace weft::cli {

/// Of repeated runs. No mean: one run beside other work would decide it.
inline Json spread_json(const Spread& s) {
  return {{"median", s.median}, {"min", s.min}, {"max", s.max}};
}

/// What times depend on besides the machine: two reports that differ here are not to be compared.
inline Json engine_json(const engine::Engine& engine) {
  return {{"isa", kernels::isa_name(engine.context().isa)},
          {"compute", engine::kMatmulPaths.name(engine.context().matmul_path)},
          {"threads", engine.context().pool.size()}};
}

}  // namespace weft::cli
