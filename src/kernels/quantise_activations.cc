// Row by row, since what an outlier is follows from the whole row (outlier_limit): rounding a row
// does not depend on the others, nor on whether it is rounded here or in parts by
// matmul_int8_cpu.cc.
#include "kernels/quantise_activations.h"

#include "base/check.h"
#include "kernels/quantise_activations_internal.h"
#include "tensor/matrix_view.h"

namespace weft::kernels {

void quantise_activations(Isa isa, MatrixView<const float> x, SecondBytes second_bytes,
                          const QuantisedRows& out) {
  const int64_t n = x.columns;
  WEFT_CHECK(n >= 0 && n % kActivationBlock == 0);
  const QuantiseActivationsFns& fns = pick_quantise_activations_fns(isa);
  const int64_t n_blocks = n / kActivationBlock;
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* row = x.row(r).data();
    const float limit =
        second_bytes == SecondBytes::kAll ? kAllOutliers : fns.outlier_limit(row, n);
    fns.row(row, n, limit,
            {out.q + r * n, out.residual + r * n, out.outlier + r * n_blocks,
             out.scale + r * n_blocks, out.sum + r * n_blocks});
  }
}

}  // namespace weft::kernels
