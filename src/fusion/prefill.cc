// One prompt's way to its first logits, as a machine of five stages that rests after every layer:
// choose (counted work, no clock), gather (compute what is missing), then plain prefill or fusion,
// and done. A record that turns out damaged while it is fused sends it back to gather; nothing else
// goes back.
#include "fusion/prefill.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/byte_sizes.h"
#include "base/log.h"
#include "base/narrow.h"
#include "fusion/fusion_pass_internal.h"
#include "fusion/gathering_internal.h"
#include "fusion/with_memory_internal.h"
#include "model/context_shift.h"

namespace weft::fusion {

Prefill::Prefill(Fusor& fusor, Prompt prompt, FusionOptions options,
                 std::optional<std::vector<ChunkSource>> sources)
    : fusor_(fusor),
      prompt_(std::move(prompt)),
      tokens_(prompt_.tokens()),
      options_(std::move(options)),
      watch_(fusor.env_) {
  if (sources) sources_ = std::move(*sources);
  report_.prompt_tokens = prompt_.n_tokens();
}

Prefill::~Prefill() = default;

Result<int64_t> Prefill::advance() {
  return with_memory_for(std::ssize(tokens_), [&] { return advance_any(); });
}

Result<int64_t> Prefill::advance_any() {
  watch_.skip();  // what others did since the last call
  for (;;) {
    switch (stage_) {
      case Stage::kChoose:
        WEFT_RETURN_IF_ERROR(choose_way());
        break;
      case Stage::kGather: {
        WEFT_ASSIGN_OR_RETURN(const int64_t n_rows, gathering_->advance());
        watch_.charge(report_.timings.miss_ms);
        if (n_rows > 0) return n_rows;
        WEFT_RETURN_IF_ERROR(finish_gathering());
        break;
      }
      case Stage::kPlain:
      case Stage::kFuse: {
        const Result<int64_t> n_rows = model::Executor(fusor_.forward_).advance(*pass_);
        const LoadFailure* failure = charge_pass();
        if (failure != nullptr) {
          compute_anew(*failure);
          break;
        }
        if (!n_rows.is_ok() || *n_rows > 0) return n_rows;
        if (stage_ == Stage::kPlain && sequence_->length() < std::ssize(tokens_)) {
          WEFT_RETURN_IF_ERROR(start_plain_step(sequence_->id()));
          break;
        }
        finish();
        break;
      }
      case Stage::kDone:
        return 0;
    }
  }
}

/// Plain prefill or a fusion, and what has to be computed for that first.
Status Prefill::choose_way() {
  if (!reuses_chunks(options_.mode)) return start_plain();
  if (prompt_.chunks.empty()) {
    report_.notes.push_back("no chunks: plain prefill");
    options_.mode = ReuseMode::kPrefix;
    return start_plain();
  }
  ReuseCounts counts = fusor_.count(prompt_);
  const bool are_given = !sources_.empty();
  if (!are_given) {
    chunks_ = fusor_.named(prompt_);
    found_ = fusor_.look_up(chunks_);
    for (size_t i = 0; i < found_.size(); ++i) {
      if (found_[i]) continue;
      counts.hit_tokens -= std::ssize(prompt_.chunks[i]);
      counts.missed_tokens += std::ssize(prompt_.chunks[i]);
    }
  }
  // What was gathered is what is fused, but for auto's full prefill.
  if (are_given) options_.allow_plain = false;
  const model::ModelConfig& config = fusor_.forward_.model().config();
  Choice choice = choose(config, counts, options_);
  report_.predicted = choice.predicted;
  options_ = std::move(choice.options);
  options_.auto_ratio = false;
  options_.allow_plain = false;
  watch_.charge(report_.timings.lookup_ms);
  if (choice.is_plain) {
    found_.clear();
    report_.notes = std::move(choice.notes);
    options_.mode = ReuseMode::kPrefix;
    return start_plain();
  }
  report_.mode = options_.mode;
  if (traits_of(options_.mode).recomputes_chunks) {
    switch (options_.selector) {
      case SelectorKind::kVDeviation: {
        WEFT_ASSIGN_OR_RETURN(checks_, check_layers(options_, config.n_layers));
        break;
      }
      case SelectorKind::kQueryAttention:
        break;
    }
    report_.ratio = checks_.empty() ? options_.ratio : checks_.back().ratio;
  }
  if (are_given) return start_fusion();
  gathering_ = std::make_unique<Gathering>(fusor_, chunks_, found_);
  stage_ = Stage::kGather;
  return Status::ok();
}

Status Prefill::finish_gathering() {
  gathering_.reset();
  if (!damaged_.empty()) {
    for (size_t i = 0; i < damaged_.size(); ++i) sources_[damaged_[i]] = std::move(*found_[i]);
    damaged_.clear();
  } else {
    for (std::optional<ChunkSource>& source : found_) sources_.push_back(std::move(*source));
  }
  found_.clear();
  return start_fusion();
}

/// An empty sequence but for what the prefix index has of `prefix`.
Result<kv::OwnedSequence> Prefill::begin_sequence(std::span<const int32_t> prefix) {
  kv::OwnedSequence sequence(fusor_.cache_);
  WEFT_ASSIGN_OR_RETURN(found_prefix_,
                        fusor_.cache_.attach_prefix(sequence.id(), prefix, fusor_.scope_.salt));
  return sequence;
}

/// Slots up to `end`, all at the positions that the row in slot `row` sees.
Result<kv::Reservation> Prefill::reserve(kv::SequenceId id, int32_t row, int32_t end) {
  kv::Cache& cache = fusor_.cache_;
  const kv::SelfExtend& extend = fusor_.self_extend_;
  if (extend.is_on()) {
    WEFT_RETURN_IF_ERROR(model::set_positions(fusor_.context_, fusor_.forward_.model().config(),
                                              cache, id, extend.positions(row, end)));
  }
  return cache.reserve(id, end - cache.length(id),
                       extend.is_plain(row) ? kv::SlotKind::kPrompt : kv::SlotKind::kFused);
}

Status Prefill::start_plain() {
  // The last token has to run: its logits are what prefill is for.
  const bool may_share = traits_of(options_.mode).shares_prompt;
  WEFT_ASSIGN_OR_RETURN(
      kv::OwnedSequence sequence,
      begin_sequence(std::span(tokens_).first(may_share ? tokens_.size() - 1 : 0)));
  WEFT_RETURN_IF_ERROR(start_plain_step(sequence.id()));
  sequence_.emplace(std::move(sequence));
  stage_ = Stage::kPlain;
  watch_.charge(report_.timings.lookup_ms);
  return Status::ok();
}

/// All that is left, or with Self-Extend what comes before more of it is grouped.
Status Prefill::start_plain_step(kv::SequenceId id) {
  const int32_t begin = fusor_.cache_.length(id);
  const int32_t end =
      std::min(narrow<int32_t>(tokens_.size()), fusor_.self_extend_.next_change(begin));
  WEFT_ASSIGN_OR_RETURN(kv::Reservation reservation, reserve(id, begin, end));
  const auto rows = std::span(tokens_).subspan(begin, end - begin);
  model::RowsPass::Options options;
  if (end == std::ssize(tokens_)) options.wanted = {std::ssize(rows) - 1};
  pass_.reset();
  auto pass = std::make_unique<model::RowsPass>(fusor_.forward_, fusor_.cache_,
                                                model::Rows::of(id, rows, begin), options);
  pass->hold(std::move(reservation));
  rows_pass_ = pass.get();
  pass_ = std::move(pass);
  return Status::ok();
}

Status Prefill::start_fusion() {
  WEFT_ASSIGN_OR_RETURN(kv::OwnedSequence sequence, begin_sequence(prompt_.prefix));
  const auto n_tokens = narrow<int32_t>(tokens_.size());
  WEFT_ASSIGN_OR_RETURN(kv::Reservation reservation,
                        reserve(sequence.id(), n_tokens - 1, n_tokens));
  sequence_.emplace(std::move(sequence));
  reservation.mark_from(std::max(prompt_.chunk_begin(0), found_prefix_), kv::SlotKind::kFused);
  report_.chunks.clear();
  for (const ChunkSource& source : sources_) {
    report_.chunks.push_back({source.origin(), source.n_tokens(), 0});
  }
  watch_.charge(report_.timings.lookup_ms);
  const auto n_anchor = std::ssize(fusor_.computer_.anchor());
  auto pass = std::make_unique<FusionPass>(
      FusionPass::Inputs{.prompt = prompt_,
                         .options = options_,
                         .checks = checks_,
                         .sources = sources_,
                         .sequence = sequence_->id(),
                         .found_prefix = found_prefix_,
                         .deviation_floor = deviation_floor(n_anchor)},
      FusionPass::Machine{
          .forward = fusor_.forward_, .cache = fusor_.cache_, .context = fusor_.context_},
      watch_, report_);
  pass->hold(std::move(reservation));
  fusion_ = pass.get();
  pass_ = std::move(pass);
  stage_ = Stage::kFuse;
  return Status::ok();
}

/// The layer's time goes where it belongs. Returns what could not be loaded, or null.
const LoadFailure* Prefill::charge_pass() {
  if (stage_ == Stage::kPlain) {
    watch_.charge(report_.timings.prefill_ms);
    return nullptr;
  }
  fusion_->charge();
  return fusion_->failed() ? &fusion_->failure() : nullptr;
}

/// The step is rolled back; the chunk is planned anew, as a miss, and with it every other one whose
/// record cannot be read to its end. To find these one by one, at a fusion each, took 48 s where
/// ten records of 160 were damaged in their last layer. Each round leaves fewer records, so this
/// ends.
void Prefill::compute_anew(LoadFailure failure) {
  pass_.reset();
  sequence_.reset();
  mark_damaged(failure);
  mark_damaged_besides(failure.chunk);
  watch_.charge(report_.timings.load_wait_ms);
  chunks_.clear();
  for (const size_t chunk : damaged_) chunks_.push_back(fusor_.named(prompt_.chunks[chunk]));
  found_.clear();
  found_.resize(damaged_.size());
  gathering_ = std::make_unique<Gathering>(fusor_, chunks_, found_);
  stage_ = Stage::kGather;
}

/// The store has warned of the record already.
void Prefill::mark_damaged(const LoadFailure& failure) {
  report_.notes.push_back(
      fmt::format("chunk {} was computed anew: {}", failure.chunk + 1, failure.status.message()));
  damaged_.push_back(failure.chunk);
}

void Prefill::mark_damaged_besides(size_t failed) {
  store::AlignedBytes scratch;
  const int32_t n_layers = fusor_.forward_.model().config().n_layers;
  for (size_t chunk = 0; chunk < sources_.size(); ++chunk) {
    if (chunk == failed) continue;
    for (int32_t layer = 0; layer < n_layers; ++layer) {
      const auto bytes = sources_[chunk].load_layer(layer, scratch);
      if (bytes.is_ok()) continue;
      mark_damaged({chunk, bytes.status()});
      break;
    }
  }
}

/// The pass has ended: what others may find is published, and what became of each token counted.
void Prefill::finish() {
  if (stage_ == Stage::kFuse) {
    fusor_.cache_.publish(sequence_->id(), prompt_.prefix, fusor_.scope_.salt);
    logits_ = std::move(fusion_->logits());
    count_tokens();
    if (logs_info()) log_fused();
  } else {
    if (traits_of(options_.mode).shares_prompt) {
      fusor_.cache_.publish(sequence_->id(), tokens_, fusor_.scope_.salt);
    }
    logits_ = std::move(rows_pass_->logits());
    report_.mode = options_.mode;
    report_.reused_tokens = found_prefix_;
    report_.computed_tokens = report_.prompt_tokens - found_prefix_;
    if (logs_info()) {
      log_info(fmt::format("prompt: {} tokens in full, {} of them in the prefix cache, {:.0f} ms",
                           report_.prompt_tokens, found_prefix_, report_.timings.prefill_ms));
    }
  }
  pass_.reset();
  stage_ = Stage::kDone;
}

void Prefill::log_fused() const {
  const auto n_of = [&](ChunkOrigin origin) {
    return std::ranges::count(report_.chunks, origin, &ChunkReport::origin);
  };
  log_info(fmt::format(
      "prompt: {} tokens over {} records, {} from memory, {} from disk, {} computed "
      "({} read); {} tokens recomputed, {} of the prefix in the prefix cache",
      report_.prompt_tokens, report_.chunks.size(), n_of(ChunkOrigin::kMemory),
      n_of(ChunkOrigin::kDisk), n_of(ChunkOrigin::kComputed),
      size_text(narrow<uint64_t>(report_.loaded_bytes)), report_.recomputed_tokens, found_prefix_));
}

void Prefill::count_tokens() {
  report_.computed_tokens = prompt_.n_tokens() - prompt_.n_chunk_tokens() - found_prefix_;
  for (const ChunkReport& chunk : report_.chunks) {
    if (chunk.origin == ChunkOrigin::kComputed) {
      report_.computed_tokens += chunk.n_tokens;
    } else {
      report_.recomputed_tokens += chunk.recomputed_tokens;
    }
  }
  report_.reused_tokens =
      report_.prompt_tokens - report_.computed_tokens - report_.recomputed_tokens;
}

Prefilled Prefill::take() {
  return {std::move(*sequence_), std::move(logits_), std::move(report_)};
}

}  // namespace weft::fusion
