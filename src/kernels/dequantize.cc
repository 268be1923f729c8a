// Expands with the kernels of the set that was asked for; all sets give the same bits, so this
// choice is about speed alone.
#include "kernels/dequantize.h"

#include "base/check.h"
#include "kernels/by_dtype_internal.h"
#include "kernels/dequantize_internal.h"

namespace weft::kernels {

void dequantize(Isa isa, DType dtype, const void* src, float* dst, int64_t n) {
  WEFT_CHECK(n >= 0 && n % dtype_info(dtype).block_elements == 0);
  pick_by_dtype(pick_dequantize_fns(isa), dtype)(src, dst, n);
}

}  // namespace weft::kernels
