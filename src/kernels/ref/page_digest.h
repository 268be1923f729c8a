// Scalar twins of page_digest.h, in double and without rounding: what digests round is the kernels'
// affair, and the tests'.
#pragma once

#include <vector>

#include "kernels/page_digest.h"

namespace weft::kernels::ref {

/// What a digest of one page and KV head stands for, from the page's keys: [digest_elements].
std::vector<double> digest_of_keys(const PagedKv& kv, int32_t page, int32_t kv_head,
                                   DigestKind kind);
/// The same from its bytes, in K's order.
std::vector<double> digest_values(const PagedDigests& digests, int32_t page, int32_t kv_head);

/// scores [n_heads][pages.size()] by the digests' bytes; query.scores is not used.
std::vector<double> score_digests(const PagedDigests& digests, int32_t n_heads, double scale,
                                  const DigestQuery& query);

}  // namespace weft::kernels::ref
