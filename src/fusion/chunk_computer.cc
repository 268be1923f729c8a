#include "fusion/chunk_computer.h"

#include "kernels/elementwise.h"

namespace weft::fusion {

ChunkComputer::ChunkComputer(model::ForwardPass& forward, kv::Cache& cache,
                             const kernels::Context& context, std::vector<int32_t> anchor)
    : forward_(forward), cache_(cache), context_(context), anchor_(std::move(anchor)) {}

ChunkComputer::~ChunkComputer() {
  if (anchor_sequence_) cache_.free_sequence(*anchor_sequence_);
}

Status ChunkComputer::ensure_anchor() {
  if (anchor_sequence_) return Status::ok();
  kv::OwnedSequence sequence(cache_, cache_.create_sequence());
  if (!anchor_.empty()) {
    WEFT_ASSIGN_OR_RETURN(kv::Reservation reservation,
                          cache_.reserve(sequence.id(), static_cast<int32_t>(anchor_.size())));
    WEFT_ASSIGN_OR_RETURN(model::Batch batch,
                          forward_.start(cache_, model::Rows::of(sequence.id(), anchor_, 0)));
    const int32_t last = forward_.model().config().n_layers - 1;
    for (int32_t l = 0; l < last; ++l) forward_.run_layer(batch, l);
    forward_.run_last_layer(batch, {});
    reservation.commit();
  }
  anchor_sequence_ = sequence.release();
  return Status::ok();
}

Result<ChunkKv> ChunkComputer::compute(std::span<const int32_t> tokens) {
  WEFT_RETURN_IF_ERROR(ensure_anchor());
  WEFT_ASSIGN_OR_RETURN(const kv::SequenceId forked, cache_.fork(*anchor_sequence_));
  // Its end ends the reservation, too: the record is what stays.
  const kv::OwnedSequence sequence(cache_, forked);
  WEFT_ASSIGN_OR_RETURN(const kv::Reservation reservation,
                        cache_.reserve(sequence.id(), static_cast<int32_t>(tokens.size())));

  const model::ModelConfig& config = forward_.model().config();
  const auto width = static_cast<size_t>(config.kv_width());
  ChunkKv chunk;
  chunk.n_tokens = static_cast<int32_t>(tokens.size());
  WEFT_ASSIGN_OR_RETURN(
      model::Batch batch,
      forward_.start(cache_,
                     model::Rows::of(sequence.id(), tokens, static_cast<int32_t>(anchor_.size()))));
  for (int32_t l = 0; l < config.n_layers; ++l) {
    std::vector<uint16_t>& layer = chunk.layers.emplace_back(2 * tokens.size() * width);
    const auto keep = [&](int64_t row_begin, int64_t n_rows, const float* k, const float* v) {
      const size_t offset = static_cast<size_t>(row_begin) * width;
      const int64_t n = n_rows * config.kv_width();
      kernels::narrow_to_f16(context_.isa, k, n, layer.data() + offset);
      kernels::narrow_to_f16(context_.isa, v, n, layer.data() + tokens.size() * width + offset);
    };
    const model::LayerHooks::KvSink sink(keep);
    if (l + 1 < config.n_layers) {
      forward_.run_layer(batch, l, {.kv_sink = &sink});
    } else {
      forward_.run_last_layer(batch, {}, {.kv_sink = &sink});
    }
  }
  return chunk;
}

}  // namespace weft::fusion
