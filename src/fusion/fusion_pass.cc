#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "fusion/fusion_pass_internal.h"
#include "fusion/selection.h"
#include "kernels/elementwise.h"

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

std::vector<kernels::RopeTable> ropes_of_range(const model::ModelConfig& config, int32_t begin,
                                               int32_t end) {
  std::vector<int32_t> positions(static_cast<size_t>(end - begin));
  std::iota(positions.begin(), positions.end(), begin);
  return ropes_at(config, positions);
}

/// v-deviation recomputes everything below its first check, so nothing is loaded there.
int32_t first_loaded_layer(const FusionOptions& options, const std::vector<CheckLayer>& checks) {
  return options.mode == ReuseMode::kBlend && !checks.empty() && checks.front().ratio > 0
             ? checks.front().layer
             : 0;
}

}  // namespace

FusionPass::FusionPass(const Prompt& prompt, const FusionOptions& options,
                       std::vector<CheckLayer> checks, std::span<ChunkSource> sources,
                       kv::SequenceId sequence, int32_t found_prefix, model::ForwardPass& forward,
                       kv::Cache& cache, const kernels::Context& context, Env& env,
                       float deviation_floor, Report& report)
    : prompt_(prompt),
      options_(options),
      checks_(std::move(checks)),
      sequence_(sequence),
      found_prefix_(found_prefix),
      forward_(forward),
      cache_(cache),
      context_(context),
      report_(report),
      watch_(env),
      deviation_floor_(deviation_floor),
      n_layers_(forward.model().config().n_layers),
      chunks_begin_(prompt.chunk_begin(0)),
      chunks_end_(prompt.chunk_begin(prompt.chunks.size())),
      tokens_(prompt.tokens()),
      ropes_(ropes_of_range(forward.model().config(), chunks_begin_, chunks_end_)),
      placed_layers_(first_loaded_layer(options, checks_)),
      sources_(sources),
      shifts_(prompt.chunks.size(), static_cast<size_t>(forward.model().config().kv_width())) {}

Result<bool> FusionPass::run() {
  WEFT_ASSIGN_OR_RETURN(pipeline_, LoadPipeline::start(sources_, placed_layers_, n_layers_));
  const double ratio = checks_.empty() ? options_.ratio : checks_.front().ratio;
  if (options_.mode == ReuseMode::kFull || ratio <= 0) {
    return run_rows({}, report_.timings.prefill_ms);
  }
  return options_.selector == SelectorKind::kQueryAttention ? run_query_attention()
                                                            : run_v_deviation();
}

/// The text that is no chunk runs over the reused KV up to the last layer that is looked at. What
/// the answer loses by a token is about the attention it gets times how far it is off; the tokens
/// where that is largest are then recomputed, with the text, from layer 0. What the first phase
/// writes at the text's own positions, the second overwrites before it reads it.
Result<bool> FusionPass::run_query_attention() {
  const std::vector<int32_t> looks = query_attention_layers(forward_.model().config());
  std::vector<float> mass(static_cast<size_t>(chunks_end_), 0.0f);
  WEFT_RETURN_IF_ERROR(start({}));
  watch_.charge(report_.timings.select_ms);
  for (int32_t layer = 0; layer <= looks.back(); ++layer) {
    WEFT_RETURN_IF_ERROR(options_.check_cancelled());
    if (!load_layer(layer)) return false;
    place_layer(layer);
    const bool look = std::find(looks.begin(), looks.end(), layer) != looks.end();
    if (layer == looks.back()) {
      forward_.look(*batch_, layer, mass);
    } else {
      forward_.run_layer(*batch_, layer,
                         {.mass = look ? std::span<float>(mass) : std::span<float>()});
    }
    watch_.charge(report_.timings.select_ms);
  }

  const auto losses = std::span(mass).subspan(static_cast<size_t>(chunks_begin_));
  weigh_by_deviation(prompt_, deviation_floor_, losses);
  std::vector<int64_t> selected =
      select_tokens(prompt_, losses, selected_count(options_.ratio, std::ssize(losses)));
  for (int64_t& position : selected) position += chunks_begin_;
  count_recomputed(selected);
  report_.recomputed_share =
      static_cast<double>(selected.size()) / static_cast<double>(losses.size());
  watch_.charge(report_.timings.select_ms);
  return run_rows(selected, report_.timings.recompute_ms);
}

/// CacheBlend: all rows up to the first check layer, then fewer and fewer of the chunks' rows.
Result<bool> FusionPass::run_v_deviation() {
  std::vector<int64_t> all(static_cast<size_t>(chunks_end_ - chunks_begin_));
  std::iota(all.begin(), all.end(), chunks_begin_);
  WEFT_RETURN_IF_ERROR(start(all));
  watch_.charge(report_.timings.select_ms);
  double active_sum = 0;  // chunk rows that run, summed over the layers from the first check
  int64_t active = 0;
  size_t next_check = 0;
  for (int32_t layer = 0; layer < n_layers_; ++layer) {
    WEFT_RETURN_IF_ERROR(options_.check_cancelled());
    const bool checks = next_check < checks_.size() && checks_[next_check].layer == layer;
    if (checks) {
      if (!load_layer(layer)) return false;
      place_layer(layer);
      const std::vector<int64_t> kept = select_by_deviation(layer, checks_[next_check].ratio);
      forward_.keep_rows(*batch_, kept);
      std::vector<int64_t> positions;
      for (const int32_t position : batch_->rows().positions) {
        if (is_chunk_position(position)) positions.push_back(position);
      }
      if (next_check == 0) count_recomputed(positions);
      active = static_cast<int64_t>(positions.size());
      ++next_check;
      watch_.charge(report_.timings.select_ms);
    }
    if (next_check == 0) {  // every row of the chunks runs, so nothing of them is reused
      run_layer_of_batch(layer);
      watch_.charge(report_.timings.select_ms);
      continue;
    }
    active_sum += static_cast<double>(active);
    if (!run_layer(layer, active > 0, report_.timings.recompute_ms)) return false;
  }
  report_.recomputed_share = active_sum / (n_layers_ - checks_.front().layer) /
                             static_cast<double>(chunks_end_ - chunks_begin_);
  return true;
}

/// Rows to keep at a check layer: all that are no chunk's, and the `ratio` of the chunks' tokens
/// whose V, computed in context, is farthest from the reused one in squared L2.
std::vector<int64_t> FusionPass::select_by_deviation(int32_t layer, double ratio) {
  const model::Rows& rows = batch_->rows();
  const auto width = static_cast<size_t>(forward_.model().config().kv_width());
  std::vector<float> computed(rows.positions.size() * width);
  forward_.values(*batch_, layer, computed.data());

  std::vector<int64_t> kept;
  std::vector<int64_t> candidates;  // rows
  std::vector<float> deviations;    // of the candidates
  std::vector<float> reused(width);
  size_t chunk = 0;
  for (size_t row = 0; row < rows.positions.size(); ++row) {
    const int32_t position = rows.positions[row];
    if (!is_chunk_position(position)) {
      kept.push_back(static_cast<int64_t>(row));
      continue;
    }
    while (position >= prompt_.chunk_begin(chunk + 1)) ++chunk;
    const size_t token = static_cast<size_t>(position - prompt_.chunk_begin(chunk));
    const size_t v_begin = (prompt_.chunks[chunk].size() + token) * width;
    kernels::widen_from_f16(context_.isa, layer_bytes_[chunk].data() + v_begin,
                            static_cast<int64_t>(width), reused.data());
    float deviation = 0;
    for (size_t i = 0; i < width; ++i) {
      const float difference = computed[row * width + i] - reused[i];
      deviation += difference * difference;
    }
    candidates.push_back(static_cast<int64_t>(row));
    deviations.push_back(deviation);
  }
  const int64_t n = selected_count(ratio, chunks_end_ - chunks_begin_);
  for (const int64_t i : top_k(deviations, n)) kept.push_back(candidates[static_cast<size_t>(i)]);
  std::sort(kept.begin(), kept.end());
  return kept;
}

/// All layers over the text that is no chunk and the selected chunk tokens.
Result<bool> FusionPass::run_rows(std::span<const int64_t> selected, double& part) {
  WEFT_RETURN_IF_ERROR(start(selected));
  watch_.charge(part);
  for (int32_t layer = 0; layer < n_layers_; ++layer) {
    WEFT_RETURN_IF_ERROR(options_.check_cancelled());
    if (!run_layer(layer, !selected.empty(), part)) return false;
  }
  return true;
}

/// One layer over KV that is in the pages already, or comes there now. Where the step has rows of
/// chunks, what they show of the context is given to the chunks' other tokens before any row
/// attends; at layer 0 K and V do not depend on context.
bool FusionPass::run_layer(int32_t layer, bool has_chunk_rows, double& part) {
  const bool propagates = has_chunk_rows && options_.propagate > 0 && layer > 0;
  const bool is_placed = layer < placed_layers_;
  if (!is_placed && !load_layer(layer)) return false;
  if (!propagates) {
    if (!is_placed) place_layer(layer);
    run_layer_of_batch(layer);
    watch_.charge(part);
    return true;
  }
  if (is_placed && loaded_layer_ != layer) {
    read_from_pages(layer);
  } else {
    read_from_bytes();
  }
  const int64_t n_rows = batch_->n_rows();
  const auto take_changes = [&](int64_t row_begin, int64_t n, const float* k, const float* v) {
    measure_changes(row_begin, n, k, v);
    watch_.charge(part);
    if (row_begin + n < n_rows) return;
    shifts_.finish(options_.propagate);
    is_placed ? shift_layer(layer) : place_layer(layer, &shifts_);
  };
  const model::LayerHooks::KvSink sink(take_changes);
  run_layer_of_batch(layer, {.kv_sink = &sink, .sink_first = true});
  watch_.charge(part);
  return true;
}

/// Which of the step's rows are chunks' tokens.
void FusionPass::list_chunk_rows() {
  chunk_rows_.clear();
  size_t chunk = 0;
  const std::vector<int32_t>& positions = batch_->rows().positions;
  for (size_t row = 0; row < positions.size(); ++row) {
    if (!is_chunk_position(positions[row])) continue;
    while (positions[row] >= prompt_.chunk_begin(chunk + 1)) ++chunk;
    chunk_rows_.push_back({static_cast<int64_t>(row), chunk, positions[row],
                           positions[row] - prompt_.chunk_begin(chunk)});
  }
}

/// The recomputed tokens' stored K and V, from the layer's bytes.
void FusionPass::read_from_bytes() {
  list_chunk_rows();
  const auto width = static_cast<size_t>(forward_.model().config().kv_width());
  stored_k_.resize(chunk_rows_.size() * width);
  stored_v_.resize(chunk_rows_.size() * width);
  for (size_t i = 0; i < chunk_rows_.size(); ++i) {
    const ChunkRow& row = chunk_rows_[i];
    const uint16_t* k = layer_bytes_[row.chunk].data() + static_cast<size_t>(row.token) * width;
    const uint16_t* v = k + prompt_.chunks[row.chunk].size() * width;
    const auto n = static_cast<int64_t>(width);
    kernels::widen_from_f16(context_.isa, k, n, stored_k_.data() + i * width);
    kernels::widen_from_f16(context_.isa, v, n, stored_v_.data() + i * width);
  }
}

/// The same of a layer that query attention placed before it knew what to recompute: its bytes are
/// gone, K is turned back. (To keep the bytes of those layers cost 10 ms of 400.)
void FusionPass::read_from_pages(int32_t layer) {
  const model::ModelConfig& config = forward_.model().config();
  if (ropes_back_.empty()) {
    list_chunk_rows();
    std::vector<int32_t> back;
    for (const ChunkRow& row : chunk_rows_) back.push_back(-row.position);
    ropes_back_ = ropes_at(config, back);
  }
  const auto width = static_cast<size_t>(config.kv_width());
  stored_k_.resize(chunk_rows_.size() * width);
  stored_v_.resize(chunk_rows_.size() * width);
  const int32_t* block_table = cache_.block_table(sequence_).data();
  const kernels::PagedKv kv = cache_.layer(layer);
  for (size_t i = 0; i < chunk_rows_.size(); ++i) {
    for (int32_t head = 0; head < kv.n_kv_heads; ++head) {
      const int64_t from = kv_offset(kv, block_table, chunk_rows_[i].position, head);
      const size_t to = i * width + static_cast<size_t>(head) * static_cast<size_t>(kv.head_dim);
      kernels::widen_from_f16(context_.isa, kv.k + from, kv.head_dim, stored_k_.data() + to);
      kernels::widen_from_f16(context_.isa, kv.v + from, kv.head_dim, stored_v_.data() + to);
    }
  }
  const auto rope = static_cast<size_t>(config.layers[static_cast<size_t>(layer)].rope);
  const auto n_rows = static_cast<int64_t>(chunk_rows_.size());
  kernels::apply_rope(context_, ropes_back_[rope], 0, stored_k_.data(), n_rows, config.n_kv_heads,
                      config.head_dim);
  const float magnitude = config.ropes[rope].magnitude;
  if (magnitude == 1.0F) return;
  const auto head_dim = static_cast<size_t>(config.head_dim);
  const auto n_turned = static_cast<size_t>(config.ropes[rope].n_dims);
  for (size_t i = 0; i < stored_k_.size(); ++i) {
    if (i % head_dim < n_turned) stored_k_[i] /= magnitude * magnitude;
  }
}

/// Of the rows [row_begin, row_begin + n_rows) of the step, whose K and V these are.
void FusionPass::measure_changes(int64_t row_begin, int64_t n_rows, const float* k,
                                 const float* v) {
  if (row_begin == 0) shifts_.clear();
  const auto width = static_cast<size_t>(forward_.model().config().kv_width());
  for (size_t i = 0; i < chunk_rows_.size(); ++i) {
    const ChunkRow& row = chunk_rows_[i];
    if (row.row < row_begin || row.row >= row_begin + n_rows) continue;
    const auto at = static_cast<size_t>(row.row - row_begin) * width;
    shifts_.add(row.chunk, row.token, k + at, v + at, stored_k_.data() + i * width,
                stored_v_.data() + i * width);
  }
}

/// Waits for the layer's bytes.
bool FusionPass::load_layer(int32_t layer) {
  WEFT_CHECK(layer == placed_layers_);
  layer_bytes_ = pipeline_->next();
  loaded_layer_ = layer;
  watch_.charge(report_.timings.load_wait_ms);
  for (const auto& chunk : layer_bytes_) report_.loaded_bytes += chunk.size_bytes();
  return !layer_bytes_.empty();
}

/// Rotates the layer's K to where the chunks stand and copies its V, both as `shifts` correct them.
void FusionPass::place_layer(int32_t layer, const ChunkShifts* shifts) {
  const auto width = static_cast<size_t>(forward_.model().config().kv_width());
  const int32_t* block_table = cache_.block_table(sequence_).data();
  const kernels::PagedKv kv = cache_.layer(layer);
  const int32_t rope = forward_.model().config().layers[static_cast<size_t>(layer)].rope;
  for (size_t chunk = 0; chunk < prompt_.chunks.size(); ++chunk) {
    const size_t n_tokens = prompt_.chunks[chunk].size();
    const int32_t begin = prompt_.chunk_begin(chunk);
    const uint16_t* k = layer_bytes_[chunk].data();
    kernels::rotate_into_pages(context_, ropes_[static_cast<size_t>(rope)], begin - chunks_begin_,
                               k, k + n_tokens * width, static_cast<int64_t>(n_tokens), begin,
                               block_table, kv,
                               shifts != nullptr ? shifts->of(chunk) : kernels::KvShift());
  }
  placed_layers_ = layer + 1;
  watch_.charge(report_.timings.rotate_ms);
}

/// The same for a layer that is placed already, in its pages.
void FusionPass::shift_layer(int32_t layer) {
  const int32_t rope = forward_.model().config().layers[static_cast<size_t>(layer)].rope;
  for (size_t chunk = 0; chunk < prompt_.chunks.size(); ++chunk) {
    const int32_t begin = prompt_.chunk_begin(chunk);
    kernels::shift_in_pages(context_, ropes_[static_cast<size_t>(rope)], begin - chunks_begin_,
                            shifts_.of(chunk), std::ssize(prompt_.chunks[chunk]), begin,
                            cache_.block_table(sequence_).data(), cache_.layer(layer));
  }
  watch_.charge(report_.timings.rotate_ms);
}

/// A batch of the text that is no chunk and the selected chunk tokens.
Status FusionPass::start(std::span<const int64_t> selected) {
  model::Rows rows;
  const auto add = [&](int64_t position) {
    rows.positions.push_back(static_cast<int32_t>(position));
    rows.tokens.push_back(tokens_[static_cast<size_t>(position)]);
  };
  for (int32_t p = found_prefix_; p < chunks_begin_; ++p) add(p);
  for (const int64_t position : selected) add(position);
  for (int32_t p = chunks_end_; p < static_cast<int32_t>(tokens_.size()); ++p) add(p);
  rows.groups = {{.sequence = sequence_, .row_begin = 0, .row_end = rows.size()}};
  WEFT_ASSIGN_OR_RETURN(batch_, forward_.start(cache_, std::move(rows)));
  return Status::ok();
}

/// Of the last layer only the prompt's last row is wanted.
void FusionPass::run_layer_of_batch(int32_t layer, const model::LayerHooks& hooks) {
  if (layer + 1 < n_layers_) return forward_.run_layer(*batch_, layer, hooks);
  const int64_t last[] = {batch_->n_rows() - 1};
  forward_.run_last_layer(*batch_, last, hooks);
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
