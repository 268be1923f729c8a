// How much memory attention takes of the workspace, before a step is planned. Pure functions.
#pragma once

#include <cstdint>

#include "kernels/isa.h"
#include "kernels/paged_kv.h"
#include "kernels/workspace_size.h"

namespace weft::kernels {

/// The attention of up to this many rows of a block.
struct AttentionShape {
  KvLayout layout;
  int32_t n_heads = 0;
  int64_t n_slots = 0;        // that a sequence may have
  int32_t window_tokens = 0;  // of which a row sees so many; 0: all
  int64_t n_prompt_rows = 0;  // of prefill's kernels
  int64_t n_decode_rows = 0;
  bool receives = false;  // attention_received() follows
};

/// What attention() and attention_received() take of the workspace at most.
void count_attention(Isa isa, const AttentionShape& shape, WorkspaceSize& size);
/// The tasks and rows of an AttentionPlan of that shape, without what a vector takes beyond them.
int64_t attention_plan_bytes(const AttentionShape& shape);

}  // namespace weft::kernels
