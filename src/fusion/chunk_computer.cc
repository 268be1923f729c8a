#include "fusion/chunk_computer.h"

#include <algorithm>
#include <utility>

#include "kernels/kv_codec.h"

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
  kv::OwnedSequence sequence(cache_);
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

/// Chunks that are computed together.
struct ChunkComputer::Step {
  model::Rows rows;                          // a group for each chunk
  std::vector<ChunkKv> chunks;               // each with room for all its layers
  std::vector<kv::OwnedSequence> sequences;  // their ends end the reservations, too
  std::vector<kv::Reservation> reservations;
};

/// Without giving up what the prefix index holds.
bool ChunkComputer::has_free_pages_for(size_t n_tokens) const {
  const auto page = static_cast<size_t>(cache_.page_tokens());
  const size_t in_anchors_last_page = anchor_.size() % page;  // of which each chunk gets a copy
  return (in_anchors_last_page + n_tokens + page - 1) / page <=
         static_cast<size_t>(cache_.free_page_count());
}

Status ChunkComputer::add_to(Step& step, std::span<const int32_t> tokens) {
  WEFT_ASSIGN_OR_RETURN(const kv::SequenceId forked, cache_.fork(*anchor_sequence_));
  kv::OwnedSequence sequence(cache_, forked);
  WEFT_ASSIGN_OR_RETURN(kv::Reservation reservation,
                        cache_.reserve(forked, static_cast<int32_t>(tokens.size())));
  step.sequences.push_back(std::move(sequence));
  step.reservations.push_back(std::move(reservation));
  step.rows.add(forked, tokens, static_cast<int32_t>(anchor_.size()));
  const model::ModelConfig& config = forward_.model().config();
  const auto n =
      static_cast<size_t>(row_bytes(kRecordType, std::ssize(tokens) * config.kv_width()));
  ChunkKv& chunk = step.chunks.emplace_back();
  chunk.n_tokens = static_cast<int32_t>(tokens.size());
  chunk.layers.resize(static_cast<size_t>(config.n_layers));
  for (std::vector<std::byte>& layer : chunk.layers) layer.resize(2 * n);
  return Status::ok();
}

Result<ChunkKv> ChunkComputer::compute(std::span<const int32_t> tokens) {
  WEFT_ASSIGN_OR_RETURN(std::vector<ChunkKv> chunks, compute_first({&tokens, 1}));
  return std::move(chunks.front());
}

Result<std::vector<ChunkKv>> ChunkComputer::compute_first(
    std::span<const std::span<const int32_t>> chunks, const model::Executor::Cancelled* cancelled) {
  WEFT_RETURN_IF_ERROR(ensure_anchor());
  Step step;
  for (const std::span<const int32_t> tokens : chunks) {
    const bool fits = step.rows.size() + std::ssize(tokens) <= kChunkStepRows;
    if (!step.chunks.empty() && !(fits && has_free_pages_for(tokens.size()))) break;
    WEFT_RETURN_IF_ERROR(add_to(step, tokens));
  }

  const model::ModelConfig& config = forward_.model().config();
  const std::vector<model::RowGroup> groups = step.rows.groups;
  size_t layer = 0;
  const auto keep = [&](int64_t row_begin, int64_t n_rows, const float* k, const float* v) {
    for (size_t i = 0; i < groups.size(); ++i) {
      const int64_t begin = std::max(row_begin, groups[i].row_begin);
      const int64_t end = std::min(row_begin + n_rows, groups[i].row_end);
      if (begin >= end) continue;
      const int64_t width = config.kv_width();
      const int64_t n = (end - begin) * width;
      std::vector<std::byte>& bytes = step.chunks[i].layers[layer];
      std::byte* const to_k =
          bytes.data() + row_bytes(kRecordType, (begin - groups[i].row_begin) * width);
      std::byte* const to_v = to_k + bytes.size() / 2;
      kernels::encode_kv(context_.isa, kRecordType, k + (begin - row_begin) * width, n, to_k);
      kernels::encode_kv(context_.isa, kRecordType, v + (begin - row_begin) * width, n, to_v);
    }
    if (row_begin + n_rows == groups.back().row_end) ++layer;
  };
  const model::LayerHooks::KvSink sink(keep);
  model::RowsPass pass(forward_, cache_, std::move(step.rows), {.kv_sink = &sink});
  WEFT_RETURN_IF_ERROR(model::Executor(forward_).run(pass, cancelled));
  return std::move(step.chunks);
}

}  // namespace weft::fusion
