// What must always be true of the KV cache's metadata, as one pure function. It reports; it never
// repairs, and it looks at nothing but the snapshot.
#pragma once

#include <string>
#include <vector>

#include "kv/snapshot.h"

namespace weft::kv {

/// Every violation in the snapshot, one line each; empty when all is well. Any integers may be
/// in the snapshot: it is not trusted.
std::vector<std::string> violations(const Snapshot& snapshot);
/// The same of all groups of layers, which must also agree on which sequences there are, how long
/// they are and what made their slots.
std::vector<std::string> violations(const std::vector<Snapshot>& groups);

}  // namespace weft::kv
