// Scalar twins of token_labels.h, in double and without rounding but the labels' own.
#pragma once

#include <vector>

#include "kernels/token_labels.h"

namespace weft::kernels::ref {

/// What the label of a token and KV head stands for, from its bytes and its page's digest:
/// [head_dim].
std::vector<double> label_values(const PagedDigests& digests, const PagedLabels& labels,
                                 LabelDepth depth, int32_t page, int32_t kv_head, int32_t token);
/// The same from the key, the digest being right: what the label should stand for. Of kChannels
/// without its rounding.
std::vector<double> label_of_key(const PagedKv& kv, const PagedDigests& digests,
                                 const PagedLabels& labels, LabelDepth depth, int32_t page,
                                 int32_t kv_head, int32_t token);

/// scores [n_heads][places[].size()][parts of a page] by the labels' bytes; query.scores is not
/// used.
std::vector<double> score_labels(const PagedDigests& digests, const PagedLabels& labels,
                                 LabelDepth depth, int32_t n_heads, double scale,
                                 const LabelQuery& query);

}  // namespace weft::kernels::ref
