// Missing chunks are computed in steps of several, after the anchor, which is computed once. Each
// is stored as soon as its step is done: a question that is stopped half way leaves what it has
// computed to the next one.
#include <utility>

#include "fusion/gathering_internal.h"

namespace weft::fusion {

Gathering::Gathering(Fusor& fusor, std::span<const Fusor::NamedChunk> chunks,
                     std::span<std::optional<ChunkSource>> found)
    : fusor_(fusor), chunks_(chunks), found_(found) {
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i]) continue;
    missing_.push_back(i);
    tokens_.push_back(chunks[i].tokens);
  }
}

Result<int64_t> Gathering::advance() {
  model::Executor executor(fusor_.forward_);
  while (n_done_ < missing_.size()) {
    if (!anchor_ && !pass_) WEFT_RETURN_IF_ERROR(start());
    WEFT_ASSIGN_OR_RETURN(const int64_t n_rows, executor.advance(pass_ ? *pass_ : *anchor_));
    if (n_rows > 0) return n_rows;
    if (pass_) keep();
    pass_.reset();
    anchor_.reset();
  }
  return 0;
}

Status Gathering::start() {
  ChunkComputer& computer = fusor_.computer_;
  if (!computer.has_anchor()) {
    WEFT_ASSIGN_OR_RETURN(anchor_, computer.start_anchor());
  } else {
    WEFT_ASSIGN_OR_RETURN(pass_, computer.start_first(std::span(tokens_).subspan(n_done_)));
  }
  return Status::ok();
}

void Gathering::keep() {
  for (ChunkKv& kv : pass_->take_chunks()) {
    const size_t i = missing_[n_done_++];
    // In the order of the prompt: start_first takes the first chunks of those that are left.
    found_[i] = fusor_.keep(chunks_[i], std::move(kv));
  }
}

}  // namespace weft::fusion
