#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/narrow.h"
#include "fusion/fusion_pass_internal.h"
#include "fusion/selection.h"
#include "kernels/kv_codec.h"

namespace weft::fusion {
namespace {

/// For each of the model's RoPEs.
std::vector<kernels::RopeTable> ropes_at(const model::ModelConfig& config,
                                         std::span<const int32_t> positions) {
  std::vector<kernels::RopeTable> tables;
  for (const kernels::RopeParams& rope : config.ropes) {
    tables.push_back(kernels::make_rope_table(rope, positions));
  }
  return tables;
}

std::vector<kernels::RopeTable> ropes_of_slots(const model::ModelConfig& config,
                                               const kv::Cache& cache, kv::SequenceId sequence,
                                               int32_t begin, int32_t end) {
  std::vector<int32_t> positions;
  for (int32_t slot = begin; slot < end; ++slot)
    positions.push_back(cache.position(sequence, slot));
  return ropes_at(config, positions);
}

/// v-deviation recomputes everything below its first check, so nothing is loaded there.
int32_t first_loaded_layer(const FusionOptions& options, const std::vector<CheckLayer>& checks) {
  return traits_of(options.mode).recomputes_chunks && !checks.empty() && checks.front().ratio > 0
             ? checks.front().layer
             : 0;
}

}  // namespace

FusionPass::FusionPass(Inputs inputs, const Machine& machine, Stopwatch& watch, Report& report)
    : prompt_(inputs.prompt),
      options_(inputs.options),
      checks_(std::move(inputs.checks)),
      sequence_(inputs.sequence),
      found_prefix_(inputs.found_prefix),
      forward_(machine.forward),
      cache_(machine.cache),
      context_(machine.context),
      report_(report),
      watch_(watch),
      deviation_floor_(inputs.deviation_floor),
      n_layers_(machine.forward.model().config().n_layers),
      chunks_begin_(inputs.prompt.chunk_begin(0)),
      chunks_end_(inputs.prompt.chunk_begin(inputs.prompt.chunks.size())),
      tokens_(inputs.prompt.tokens()),
      ropes_(ropes_of_slots(machine.forward.model().config(), cache_, sequence_, chunks_begin_,
                            chunks_end_)),
      placed_layers_(first_loaded_layer(inputs.options, checks_)),
      sources_(inputs.sources),
      shifts_(inputs.prompt.chunks.size(), machine.forward.model().config().kv_width()) {}

Result<std::optional<model::LayerRun>> FusionPass::next() {
  if (phase_ == Phase::kBegin) WEFT_RETURN_IF_ERROR(begin());
  watch_.charge(*part_);
  if (phase_ == Phase::kLook && layer_ > scoring_layers_.back())
    WEFT_RETURN_IF_ERROR(select_by_attention());
  if (layer_ == n_layers_) return std::optional<model::LayerRun>();
  switch (phase_) {
    case Phase::kLook:
      return look();
    case Phase::kDeviation:
      return check();
    case Phase::kBegin:
    case Phase::kRows:
      break;
  }
  return layer(has_chunk_rows_);
}

Status FusionPass::begin() {
  WEFT_ASSIGN_OR_RETURN(pipeline_, LoadPipeline::start(sources_, placed_layers_, n_layers_));
  const double ratio = checks_.empty() ? options_.ratio : checks_.front().ratio;
  if (!traits_of(options_.mode).recomputes_chunks || ratio <= 0) {
    return run_rows({}, report_.timings.prefill_ms);
  }
  part_ = &report_.timings.select_ms;
  std::vector<int64_t> first_rows;
  switch (options_.selector) {
    case SelectorKind::kQueryAttention:
      phase_ = Phase::kLook;
      scoring_layers_ = query_attention_layers(forward_.model().config());
      received_.assign(chunks_end_, 0.0f);
      break;
    case SelectorKind::kVDeviation:
      phase_ = Phase::kDeviation;
      first_rows.resize(chunks_end_ - chunks_begin_);
      std::iota(first_rows.begin(), first_rows.end(), chunks_begin_);
      break;
  }
  WEFT_CHECK(phase_ != Phase::kBegin);
  return start(first_rows);
}

/// The text that is no chunk and the selected chunk tokens, through all layers.
Status FusionPass::run_rows(std::span<const int64_t> selected, double& part) {
  phase_ = Phase::kRows;
  layer_ = 0;
  part_ = &part;
  has_chunk_rows_ = !selected.empty();
  return start(selected);
}

/// Query attention, first phase: the text that is no chunk runs over the reused KV up to the last
/// layer that is looked at. What it writes at the text's own positions, the second phase overwrites
/// before it reads it.
Result<std::optional<model::LayerRun>> FusionPass::look() {
  WEFT_RETURN_IF_ERROR(load_layer(layer_));
  place_layer(layer_);
  model::LayerRun run{.batch = &*batch_, .layer = layer_};
  if (std::ranges::find(scoring_layers_, layer_) != scoring_layers_.end())
    run.hooks.received = received_;
  if (layer_ == scoring_layers_.back()) run.part = model::LayerRun::Part::kLook;
  ++layer_;
  return std::optional(run);
}

/// What the answer loses by a token is about the attention it gets times how far it is off; the
/// tokens where that is largest are recomputed, with the text, from layer 0.
Status FusionPass::select_by_attention() {
  const auto expected_errors = std::span(received_).subspan(chunks_begin_);
  weigh_by_deviation(prompt_, deviation_floor_, expected_errors);
  std::vector<int64_t> selected = select_tokens(
      prompt_, expected_errors, selected_count(options_.ratio, std::ssize(expected_errors)));
  for (int64_t& position : selected) position += chunks_begin_;
  count_recomputed(selected);
  report_.recomputed_share = 1.0 * selected.size() / expected_errors.size();
  watch_.charge(report_.timings.select_ms);
  return run_rows(selected, report_.timings.recompute_ms);
}

/// CacheBlend: all rows up to the first check layer, then fewer and fewer of the chunks' rows.
Result<std::optional<model::LayerRun>> FusionPass::check() {
  if (next_check_ < checks_.size() && checks_[next_check_].layer == layer_) {
    WEFT_RETURN_IF_ERROR(load_layer(layer_));
    place_layer(layer_);
    forward_.keep_rows(*batch_, select_by_deviation(layer_, checks_[next_check_].ratio));
    std::vector<int64_t> positions;
    for (const int32_t position : batch_->rows().slots) {
      if (is_chunk_position(position)) positions.push_back(position);
    }
    if (next_check_ == 0) count_recomputed(positions);
    has_chunk_rows_ = !positions.empty();
    active_ = std::ssize(positions);
    ++next_check_;
    watch_.charge(report_.timings.select_ms);
  }
  if (next_check_ == 0) {  // every row of the chunks runs, so nothing of them is reused
    model::LayerRun run{.batch = &*batch_, .layer = layer_++};
    return std::optional(run);
  }
  part_ = &report_.timings.recompute_ms;
  active_sum_ += active_;
  report_.recomputed_share =
      1.0 * active_sum_ / (n_layers_ - checks_.front().layer) / (chunks_end_ - chunks_begin_);
  return layer(has_chunk_rows_);
}

/// Rows to keep at a check layer: all that are no chunk's, and the `ratio` of the chunks' tokens
/// whose V, computed in context, is farthest from the reused one in squared L2.
std::vector<int64_t> FusionPass::select_by_deviation(int32_t layer, double ratio) {
  const model::Rows& rows = batch_->rows();
  const int64_t width = kv_width();
  std::vector<float> values(rows.size() * width);
  const MatrixView<float> computed(values, width);
  forward_.values(*batch_, layer, computed);

  std::vector<int64_t> kept;
  std::vector<int64_t> candidates;  // rows
  std::vector<float> deviations;    // of the candidates
  std::vector<float> reused(width);
  size_t chunk = 0;
  for (int64_t row = 0; row < rows.size(); ++row) {
    const int32_t position = rows.slots[row];
    if (!is_chunk_position(position)) {
      kept.push_back(row);
      continue;
    }
    while (position >= prompt_.chunk_begin(chunk + 1)) ++chunk;
    const int64_t token = position - prompt_.chunk_begin(chunk);
    const kernels::KvRecord stored = record_of(chunk);
    kernels::decode_kv(context_.isa, stored.type, stored.v + row_bytes(stored.type, width) * token,
                       reused);
    const std::span<const float> own = computed.row(row);
    float deviation = 0;
    for (int64_t i = 0; i < width; ++i) {
      const float difference = own[i] - reused[i];
      deviation += difference * difference;
    }
    candidates.push_back(row);
    deviations.push_back(deviation);
  }
  const int64_t n = selected_count(ratio, chunks_end_ - chunks_begin_);
  for (const int64_t i : top_k(deviations, n)) kept.push_back(candidates[i]);
  std::sort(kept.begin(), kept.end());
  return kept;
}

/// One layer over KV that is in the pages already, or comes there now. Where the step has rows of
/// chunks, what they show of the context is given to the chunks' other tokens before any row
/// attends; at layer 0 K and V do not depend on context. Of the last layer only the prompt's last
/// row is wanted.
Result<std::optional<model::LayerRun>> FusionPass::layer(bool has_chunk_rows) {
  const int32_t layer = layer_++;
  const bool propagates = has_chunk_rows && options_.propagate > 0 && layer > 0;
  const bool is_placed = layer < placed_layers_;
  if (!is_placed) WEFT_RETURN_IF_ERROR(load_layer(layer));
  model::LayerRun run{.batch = &*batch_, .layer = layer};
  if (layer + 1 == n_layers_) {
    last_row_ = batch_->n_rows() - 1;
    run.part = model::LayerRun::Part::kLast;
    run.wanted = {&last_row_, 1};
  }
  if (propagates) {
    is_placed&& loaded_layer_ != layer ? read_from_pages(layer) : read_from_bytes();
    run.hooks = {.kv_sink = &on_changes_, .sink_first = true};
  } else if (!is_placed) {
    place_layer(layer);
  }
  return std::optional(run);
}

/// K and V of some of the batch's rows, as they are computed.
void FusionPass::TakeChanges::operator()(int64_t row_begin, MatrixView<const float> k,
                                         MatrixView<const float> v) {
  const int32_t layer = pass->layer_ - 1;
  pass->measure_changes(row_begin, k, v);
  pass->watch_.charge(*pass->part_);
  if (row_begin + k.rows < pass->batch_->n_rows()) return;
  pass->shifts_.finish(pass->options_.propagate);
  layer < pass->placed_layers_ ? pass->shift_layer(layer)
                               : pass->place_layer(layer, &pass->shifts_);
}

void FusionPass::finish() {
  const int64_t n_vocab = forward_.model().config().vocab_size;
  logits_.resize(n_vocab);
  const int64_t last[] = {batch_->n_rows() - 1};
  forward_.logits(*batch_, last, {logits_, n_vocab});
  watch_.charge(*part_);
}

/// Which of the step's rows are chunks' tokens.
void FusionPass::list_chunk_rows() {
  chunk_rows_.clear();
  size_t chunk = 0;
  const std::vector<int32_t>& positions = batch_->rows().slots;
  for (int64_t row = 0; row < std::ssize(positions); ++row) {
    if (!is_chunk_position(positions[row])) continue;
    while (positions[row] >= prompt_.chunk_begin(chunk + 1)) ++chunk;
    chunk_rows_.push_back(
        {row, chunk, positions[row], positions[row] - prompt_.chunk_begin(chunk)});
  }
}

/// The recomputed tokens' stored K and V, from the layer's bytes.
void FusionPass::read_from_bytes() {
  list_chunk_rows();
  const int64_t width = kv_width();
  stored_k_.resize(chunk_rows_.size() * width);
  stored_v_.resize(chunk_rows_.size() * width);
  const MatrixView<float> k(stored_k_, width), v(stored_v_, width);
  for (size_t i = 0; i < chunk_rows_.size(); ++i) {
    const ChunkRow& row = chunk_rows_[i];
    const kernels::KvRecord stored = record_of(row.chunk);
    const int64_t at = row_bytes(stored.type, width) * row.token;
    kernels::decode_kv(context_.isa, stored.type, stored.k + at, k.row(i));
    kernels::decode_kv(context_.isa, stored.type, stored.v + at, v.row(i));
  }
}

/// The same of a layer that query attention placed before it knew what to recompute: its bytes are
/// gone, K is turned back. (To keep the bytes of those layers cost 10 ms of 400.)
void FusionPass::read_from_pages(int32_t layer) {
  const model::ModelConfig& config = forward_.model().config();
  if (ropes_back_.empty()) {
    list_chunk_rows();
    std::vector<int32_t> back;
    for (const ChunkRow& row : chunk_rows_) back.push_back(-cache_.position(sequence_, row.slot));
    ropes_back_ = ropes_at(config, back);
  }
  const int64_t width = kv_width();
  stored_k_.resize(chunk_rows_.size() * width);
  stored_v_.resize(chunk_rows_.size() * width);
  const MatrixView<float> k(stored_k_, width), v(stored_v_, width);
  std::vector<int32_t> slots;
  for (const ChunkRow& row : chunk_rows_) slots.push_back(row.slot);
  kernels::read_kv(context_, cache_.layer(layer), cache_.layer_table(sequence_, layer).data(),
                   slots, k, v);
  kernels::apply_rope(context_, ropes_back_[rope_of(layer)], 0, k, config.head_dim);
  const kernels::RopeParams& rope = config.rope_of(layer);
  if (rope.magnitude == 1.0F) return;
  const MatrixView<float> heads = k.in_rows_of(config.head_dim);
  for (int64_t i = 0; i < heads.rows; ++i) {
    for (float& turned : heads.row(i).first(rope.n_dims)) turned /= rope.magnitude * rope.magnitude;
  }
}

/// Of the rows from row_begin on of the step, whose K and V these are.
void FusionPass::measure_changes(int64_t row_begin, MatrixView<const float> k,
                                 MatrixView<const float> v) {
  if (row_begin == 0) shifts_.clear(chunk_rows_.size());
  const MatrixView<const float> stored_k(stored_k_, k.columns), stored_v(stored_v_, v.columns);
  for (size_t i = 0; i < chunk_rows_.size(); ++i) {
    const ChunkRow& row = chunk_rows_[i];
    if (row.row < row_begin || row.row >= row_begin + k.rows) continue;
    const int64_t at = row.row - row_begin;
    shifts_.add(row.chunk, row.token, k.row(at), v.row(at), stored_k.row(i), stored_v.row(i));
  }
}

/// Waits for the layer's bytes.
Status FusionPass::load_layer(int32_t layer) {
  WEFT_CHECK(layer == placed_layers_);
  layer_bytes_ = pipeline_->next();
  loaded_layer_ = layer;
  watch_.charge(report_.timings.load_wait_ms);
  for (const auto& chunk : layer_bytes_) report_.loaded_bytes += chunk.size_bytes();
  failed_ = layer_bytes_.empty();
  return failed_ ? pipeline_->failure().status : Status::ok();
}

/// A chunk's part of the layer's bytes.
kernels::KvRecord FusionPass::record_of(size_t chunk) const {
  const std::span<const std::byte> bytes = layer_bytes_[chunk];
  return {.type = sources_[chunk].type(), .k = bytes.data(), .v = bytes.data() + bytes.size() / 2};
}

/// Rotates the layer's K to where the chunks lie and copies its V, both as `shifts` correct them.
void FusionPass::place_layer(int32_t layer, const ChunkShifts* shifts) {
  const int32_t* block_table = cache_.layer_table(sequence_, layer).data();
  const kernels::PagedKv kv = cache_.layer(layer);
  const kernels::RopeTable& rope = ropes_[rope_of(layer)];
  for (size_t chunk = 0; chunk < prompt_.chunks.size(); ++chunk) {
    const int32_t begin = prompt_.chunk_begin(chunk);
    kernels::rotate_into_pages(context_, rope, begin - chunks_begin_, record_of(chunk),
                               std::ssize(prompt_.chunks[chunk]), begin, block_table, kv,
                               shifts != nullptr ? shifts->of(chunk) : kernels::KvShift());
  }
  placed_layers_ = layer + 1;
  watch_.charge(report_.timings.rotate_ms);
}

/// The same for a layer that is placed already, in its pages.
void FusionPass::shift_layer(int32_t layer) {
  const kernels::RopeTable& rope = ropes_[rope_of(layer)];
  for (size_t chunk = 0; chunk < prompt_.chunks.size(); ++chunk) {
    const int32_t begin = prompt_.chunk_begin(chunk);
    kernels::shift_in_pages(context_, rope, begin - chunks_begin_, shifts_.of(chunk),
                            std::ssize(prompt_.chunks[chunk]), begin,
                            cache_.layer_table(sequence_, layer).data(), cache_.layer(layer));
  }
  watch_.charge(report_.timings.rotate_ms);
}

/// A batch of the text that is no chunk and the selected chunk tokens.
Status FusionPass::start(std::span<const int64_t> selected) {
  model::Rows rows;
  const auto add = [&](int32_t position) {
    rows.slots.push_back(position);
    rows.tokens.push_back(tokens_[position]);
  };
  for (int32_t p = found_prefix_; p < chunks_begin_; ++p) add(p);
  for (const int64_t position : selected) add(narrow<int32_t>(position));
  for (int32_t p = chunks_end_; p < std::ssize(tokens_); ++p) add(p);
  rows.groups = {{.sequence = sequence_, .row_begin = 0, .row_end = rows.size()}};
  batch_.reset();  // the first phase's: the two are never there together
  WEFT_ASSIGN_OR_RETURN(batch_, forward_.start(cache_, std::move(rows)));
  return Status::ok();
}

void FusionPass::count_recomputed(std::span<const int64_t> selected) {
  for (ChunkReport& chunk : report_.chunks) chunk.recomputed_tokens = 0;
  size_t chunk = 0;
  for (const int64_t position : selected) {
    while (position >= prompt_.chunk_begin(chunk + 1)) ++chunk;
    report_.chunks[chunk].recomputed_tokens++;
  }
}

}  // namespace weft::fusion
