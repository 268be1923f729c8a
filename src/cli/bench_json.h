// What the JSON of several benchmarks has in common.
#pragma once

#include "base/spread.h"
#include "cli/app.h"
#include "engine/compute_choice.h"
#include "engine/engine.h"

namespace weft::cli {

inline Json spread_json(const Spread& s) {
  return {{"median", s.median}, {"min", s.min}, {"max", s.max}};
}

inline Json engine_json(const engine::Engine& engine) {
  return {{"isa", kernels::isa_name(engine.context().isa)},
          {"compute", engine::kMatmulPaths.name(engine.context().matmul_path)},
          {"threads", engine.context().pool.size()}};
}

}  // namespace weft::cli
