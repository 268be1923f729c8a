// A chunk by itself has no start to attend to: its first tokens become attention sinks that they
// are not in the prompt (Xiao et al. 2023). So it is computed after an anchor, a short neutral text
// whose K and V are computed once and forked for each chunk. The anchor is a part of the chunk's
// key.
#include "fusion/chunk_computer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/narrow.h"
#include "kernels/kv_codec.h"

namespace weft::fusion {

ChunkComputer::ChunkComputer(model::ForwardPass& forward, kv::Cache& cache,
                             const kernels::Context& context, std::vector<int32_t> anchor,
                             DType type)
    : forward_(forward), cache_(cache), context_(context), anchor_(std::move(anchor)), type_(type) {
  WEFT_CHECK(check_record_type(forward.model().config(), type).is_ok());
}

ChunkComputer::~ChunkComputer() {
  if (anchor_sequence_ && cache_.contains(*anchor_sequence_)) {
    cache_.free_sequence(*anchor_sequence_);
  }
}

/// The anchor, which the computer has from the pass's end on.
class ChunkComputer::AnchorPass : public model::RowsPass {
 public:
  AnchorPass(ChunkComputer& computer, kv::OwnedSequence sequence)
      : RowsPass(computer.forward_, computer.cache_,
                 model::Rows::of(sequence.id(), computer.anchor_, 0), {}),
        computer_(computer),
        sequence_(std::move(sequence)) {}

  void finish() override {
    if (computer_.has_anchor()) return;  // another pass has made it meanwhile
    computer_.cache_.make_expendable(sequence_.id());
    computer_.anchor_sequence_ = sequence_.release();
  }

 private:
  ChunkComputer& computer_;
  kv::OwnedSequence sequence_;
};

Result<std::unique_ptr<model::Pass>> ChunkComputer::start_anchor() {
  kv::OwnedSequence sequence(cache_);
  WEFT_ASSIGN_OR_RETURN(kv::Reservation reservation,
                        cache_.reserve(sequence.id(), narrow<int32_t>(anchor_.size())));
  auto pass = std::make_unique<AnchorPass>(*this, std::move(sequence));
  pass->hold(std::move(reservation));
  return std::unique_ptr<model::Pass>(std::move(pass));
}

/// Without giving up what the prefix index holds.
bool ChunkComputer::has_free_pages_for(int64_t n_tokens) const {
  const int64_t page = cache_.page_tokens();
  const int64_t in_anchors_last_page = std::ssize(anchor_) % page;  // each chunk gets a copy of it
  return (in_anchors_last_page + n_tokens + page - 1) / page <= cache_.free_page_count();
}

Status ChunkPass::Step::add(ChunkComputer& computer, std::span<const int32_t> tokens) {
  kv::Cache& cache = computer.cache_;
  WEFT_ASSIGN_OR_RETURN(const kv::SequenceId forked, cache.fork(*computer.anchor_sequence_));
  kv::OwnedSequence sequence(cache, forked);
  const auto n_tokens = narrow<int32_t>(tokens.size());
  WEFT_ASSIGN_OR_RETURN(kv::Reservation reservation, cache.reserve(forked, n_tokens));
  sequences.push_back(std::move(sequence));
  reservations.push_back(std::move(reservation));
  rows.add(forked, tokens, narrow<int32_t>(computer.anchor_.size()));
  const model::ModelConfig& config = computer.forward_.model().config();
  const int64_t layer_bytes = record_layer_bytes(config, computer.type_, n_tokens);
  ChunkKv& chunk = chunks.emplace_back();
  chunk.type = computer.type_;
  chunk.n_tokens = n_tokens;
  chunk.layers.resize(config.n_layers);
  // Before the pass: no allocation may fail in the middle of a layer.
  for (std::vector<std::byte>& layer : chunk.layers) layer.resize(layer_bytes);
  return Status::ok();
}

ChunkPass::ChunkPass(ChunkComputer& computer, Step step)
    : RowsPass(computer.forward_, computer.cache_, step.rows, {.kv_sink = &sink_}),
      config_(computer.forward_.model().config()),
      isa_(computer.context_.isa),
      step_(std::move(step)),
      groups_(step_.rows.groups) {}

/// K and V of some of the rows of the layer that runs, as the records have them.
void ChunkPass::keep(int64_t row_begin, MatrixView<const float> k, MatrixView<const float> v) {
  for (size_t i = 0; i < groups_.size(); ++i) {
    const int64_t begin = std::max(row_begin, groups_[i].row_begin);
    const int64_t end = std::min(row_begin + k.rows, groups_[i].row_end);
    if (begin >= end) continue;
    const DType type = step_.chunks[i].type;
    std::vector<std::byte>& bytes = step_.chunks[i].layers[layer_];
    std::byte* const to_k =
        bytes.data() + row_bytes(type, (begin - groups_[i].row_begin) * k.columns);
    std::byte* const to_v = to_k + bytes.size() / 2;
    const auto of_chunk = [&](MatrixView<const float> rows) {
      return rows.row_range(begin - row_begin, end - begin).elements();
    };
    kernels::encode_kv(isa_, type, of_chunk(k), to_k);
    kernels::encode_kv(isa_, type, of_chunk(v), to_v);
  }
  if (row_begin + k.rows == groups_.back().row_end) ++layer_;
}

Result<std::unique_ptr<ChunkPass>> ChunkComputer::start_first(
    std::span<const std::span<const int32_t>> chunks) {
  // Without an anchor a chunk begins at position 0, in an empty sequence of its own.
  if (!anchor_sequence_) {
    WEFT_CHECK(anchor_.empty());
    anchor_sequence_ = cache_.create_sequence();
  }
  ChunkPass::Step step;
  for (const std::span<const int32_t> tokens : chunks) {
    const bool fits = step.rows.size() + std::ssize(tokens) <= kChunkStepRows;
    const bool goes_on = fits && has_anchor() && has_free_pages_for(std::ssize(tokens));
    if (!step.chunks.empty() && !goes_on) break;
    WEFT_RETURN_IF_ERROR(step.add(*this, tokens));
  }
  return std::unique_ptr<ChunkPass>(new ChunkPass(*this, std::move(step)));
}

Result<ChunkKv> ChunkComputer::compute(std::span<const int32_t> tokens) {
  WEFT_ASSIGN_OR_RETURN(std::vector<ChunkKv> chunks, compute_first({&tokens, 1}));
  return std::move(chunks.front());
}

Result<std::vector<ChunkKv>> ChunkComputer::compute_first(
    std::span<const std::span<const int32_t>> chunks, const model::Executor::Cancelled* cancelled) {
  model::Executor executor(forward_);
  if (!has_anchor()) {
    WEFT_ASSIGN_OR_RETURN(const auto anchor, start_anchor());
    WEFT_RETURN_IF_ERROR(executor.run(*anchor, cancelled));
  }
  WEFT_ASSIGN_OR_RETURN(const auto pass, start_first(chunks));
  WEFT_RETURN_IF_ERROR(executor.run(*pass, cancelled));
  return pass->take_chunks();
}

}  // namespace weft::fusion
