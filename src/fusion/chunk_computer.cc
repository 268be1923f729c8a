#include "fusion/chunk_computer.h"

#include "kernels/kv_codec.h"
#include "model/executor.h"

namespace weft::fusion {

int64_t record_token_bytes(const model::ModelConfig& config) {
  return config.n_layers * kernels::kv_token_bytes(config.kv_layout({kRecordType, kRecordType}));
}

ChunkComputer::ChunkComputer(model::ForwardPass& forward, kv::Cache& cache,
                             const kernels::Context& context, std::vector<int32_t> anchor)
    : forward_(forward), cache_(cache), context_(context), anchor_(std::move(anchor)) {}

ChunkComputer::~ChunkComputer() { drop_anchor(); }

void ChunkComputer::drop_anchor() {
  if (anchor_sequence_) cache_.free_sequence(*anchor_sequence_);
  anchor_sequence_.reset();
}

Status ChunkComputer::ensure_anchor() {
  if (anchor_sequence_) return Status::ok();
  kv::OwnedSequence sequence(cache_, cache_.create_sequence());
  if (!anchor_.empty()) {
    WEFT_ASSIGN_OR_RETURN(kv::Reservation reservation,
                          cache_.reserve(sequence.id(), static_cast<int32_t>(anchor_.size())));
    model::RowsPass pass(forward_, cache_, model::Rows::of(sequence.id(), anchor_, 0), {});
    pass.hold(std::move(reservation));
    WEFT_RETURN_IF_ERROR(model::Executor(forward_).run(pass));
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
  const auto chunk_bytes =
      static_cast<size_t>(row_bytes(kRecordType, std::ssize(tokens) * config.kv_width()));
  ChunkKv chunk;
  chunk.n_tokens = static_cast<int32_t>(tokens.size());
  const auto keep = [&](int64_t row_begin, int64_t n_rows, const float* k, const float* v) {
    if (row_begin == 0) chunk.layers.emplace_back(2 * chunk_bytes);
    std::byte* const layer =
        chunk.layers.back().data() + row_bytes(kRecordType, row_begin * config.kv_width());
    const int64_t n = n_rows * config.kv_width();
    kernels::encode_kv(context_.isa, kRecordType, k, n, layer);
    kernels::encode_kv(context_.isa, kRecordType, v, n, layer + chunk_bytes);
  };
  const model::LayerHooks::KvSink sink(keep);
  const auto begin = static_cast<int32_t>(anchor_.size());
  model::RowsPass pass(forward_, cache_, model::Rows::of(sequence.id(), tokens, begin),
                       {.kv_sink = &sink});
  WEFT_RETURN_IF_ERROR(model::Executor(forward_).run(pass));
  return chunk;
}

}  // namespace weft::fusion
