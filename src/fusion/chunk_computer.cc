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
  const kv::SequenceId sequence = cache_.create_sequence();
  if (!anchor_.empty()) {
    auto reservation = cache_.reserve(sequence, static_cast<int32_t>(anchor_.size()));
    if (!reservation.is_ok()) {
      cache_.free_sequence(sequence);
      return reservation.status();
    }
    forward_.begin(model::Step::prompt(sequence, anchor_, 0));
    for (int32_t l = 0; l < forward_.model().config().n_layers; ++l) forward_.run_layer(l);
    reservation->commit();
  }
  anchor_sequence_ = sequence;
  return Status::ok();
}

Result<ChunkKv> ChunkComputer::compute(std::span<const int32_t> tokens) {
  WEFT_RETURN_IF_ERROR(ensure_anchor());
  WEFT_ASSIGN_OR_RETURN(const kv::SequenceId sequence, cache_.fork(*anchor_sequence_));
  auto reserved = cache_.reserve(sequence, static_cast<int32_t>(tokens.size()));
  if (!reserved.is_ok()) {
    cache_.free_sequence(sequence);
    return reserved.status();
  }

  const model::ModelConfig& config = forward_.model().config();
  const auto width = static_cast<size_t>(config.kv_width());
  ChunkKv chunk;
  chunk.n_tokens = static_cast<int32_t>(tokens.size());
  forward_.begin(model::Step::prompt(sequence, tokens, static_cast<int32_t>(anchor_.size())));
  for (int32_t l = 0; l < config.n_layers; ++l) {
    std::vector<uint16_t>& layer = chunk.layers.emplace_back(2 * tokens.size() * width);
    const auto keep = [&](int64_t row_begin, int64_t n_rows, const float* k, const float* v) {
      const size_t offset = static_cast<size_t>(row_begin) * width;
      const int64_t n = n_rows * config.kv_width();
      kernels::narrow_to_f16(context_.isa, k, n, layer.data() + offset);
      kernels::narrow_to_f16(context_.isa, v, n, layer.data() + tokens.size() * width + offset);
    };
    const model::LayerTap::KvSink sink(keep);
    forward_.run_layer(l, {.kv_sink = &sink});
  }
  cache_.free_sequence(sequence);  // ends the reservation: the record is what stays
  return chunk;
}

}  // namespace weft::fusion
