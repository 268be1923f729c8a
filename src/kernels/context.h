// What every op is given: which kernels to use and the workers to use them with. Declared once when
// a model is opened and never changed while a request runs, so that the same request always takes
// the same path. The workers are not owned.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "kernels/isa.h"
#include "kernels/workspace.h"

namespace weft::kernels {

/// How prefill-sized products are computed. For decode-sized ones of block types the path only says
/// how finely activations are rounded (matmul_decode.h).
enum class MatmulPath {
  kF32,   // weight panels expanded to f32, products in f32
  kBf16,  // panels and activations rounded to bf16, sums in f32
  kInt8,  // activations rounded to 8 bits per 32, outliers to 15 (quantise_activations.h), integer
          // dots, f32 sums (block types; floats take kF32)
};

/// Cheap to copy. Copies share the workspace, so one op at a time may run with any of them. isa
/// must be one that the CPU has (parse_isa, best_isa): nothing here checks it again.
struct Context {
  ThreadPool& pool;
  Isa isa = Isa::kBaseline;
  MatmulPath matmul_path = MatmulPath::kF32;
  std::shared_ptr<Workspace> workspace = std::make_shared<Workspace>(pool.size());
};

}  // namespace weft::kernels
