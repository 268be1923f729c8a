// Steps: rows after what sequences hold, run and committed, tried and kept in part, or scored.
// Longer ones are divided, which changes no bit: a row depends on what its sequence holds and not
// on the rows beside it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/narrow.h"
#include "base/out_of_memory.h"
#include "engine/engine.h"
#include "kernels/kv_codec.h"
#include "sampling/sampler.h"
#include "sparse/selector.h"

namespace weft::engine {

Status Engine::check_fits(const Appended& one) const {
  WEFT_CHECK(one.sequence->is_of(*cache_));
  const int64_t n_tokens = int64_t{one.sequence->length()} + std::ssize(one.tokens);
  if (n_tokens <= context_tokens_) return Status::ok();
  return resource_exhausted(
      fmt::format("{} tokens do not fit the context of {}", n_tokens, context_tokens_));
}

Result<std::vector<kv::Reservation>> Engine::reserve(std::span<const Appended> appended,
                                                     model::RowKind kind) {
  std::vector<kv::Growth> growths;
  for (const Appended& one : appended) {
    WEFT_RETURN_IF_ERROR(check_fits(one));
    // What grouped positions made is not what another text's prefix is.
    const bool is_grouped = !self_extend_.is_plain(one.sequence->length());
    growths.push_back({one.sequence->id(), narrow<int32_t>(one.tokens.size()),
                       is_grouped ? kv::SlotKind::kFused : model::slot_kind(kind)});
  }
  if (self_extend_.is_on()) WEFT_RETURN_IF_ERROR(set_positions(appended));
  return cache_->reserve_all(growths);
}

/// As the rows that come see what is there already.
Status Engine::set_positions(std::span<const Appended> appended) {
  for (const Appended& one : appended) {
    const int32_t begin = one.sequence->length();
    const int32_t end = begin + narrow<int32_t>(one.tokens.size());
    if (end > self_extend_.next_change(begin)) {
      return unsupported("Self-Extend (--grp-attn-n): rows of one step are in different groups");
    }
    WEFT_RETURN_IF_ERROR(model::set_positions(context_, model_->config(), *cache_,
                                              one.sequence->id(),
                                              self_extend_.positions(begin, end)));
  }
  return Status::ok();
}

int64_t Engine::rows_of_step(const Appended& all, model::RowKind kind) const {
  const int32_t begin = all.sequence->length();
  int64_t n = std::min<int64_t>(
      {std::ssize(all.tokens), step_rows_, int64_t{self_extend_.next_change(begin)} - begin});
  if (kind != model::RowKind::kPrompt) n = std::min(n, rows_before_checkpoint(*all.sequence));
  return n;
}

bool Engine::has_dense_checkpoints() const {
  return selector_ != nullptr && sparse_.lock.is_on() && !answers_dense() &&
         sparse_.lock.checkpoint == sparse::Checkpoint::kDense;
}

/// Rows up to the next dense checkpoint; it is one row by itself, as the rows after it read what it
/// finds.
int64_t Engine::rows_before_checkpoint(const kv::OwnedSequence& sequence) const {
  if (!has_dense_checkpoints()) return INT32_MAX;
  const int32_t slot = sequence.length();
  const sparse::SelectionLocks& locks = *selector_->locks();
  if (locks.checkpoint_from(*cache_, sequence.id(), slot)) return 1;
  return locks.last_before_checkpoint(*cache_, sequence.id(), slot) - slot + 1;
}

// The rows of a checkpoint see all pages, and so are those of dense decoding but for what they read
// of rows that were not run again: those whose tokens are not known, after a session was opened or
// the context was shifted. A prompt's rows come after all that is pending, and are never run again:
// another prompt may begin with them.
Result<std::vector<Engine::Rewritten>> Engine::begin_dense_passes(
    std::span<const Appended> appended, model::RowKind kind) {
  std::vector<Rewritten> rewritten;
  if (!has_dense_checkpoints()) return rewritten;
  sparse::SelectionLocks& locks = *selector_->locks();
  for (const Appended& one : appended) {
    const kv::SequenceId id = one.sequence->id();
    const int32_t slot = one.sequence->length();
    const bool is_prompt = kind == model::RowKind::kPrompt;
    const auto first = is_prompt ? locks.pending_from(*cache_, id, slot)
                                 : locks.checkpoint_from(*cache_, id, slot);
    if (!first) continue;
    const RecentTokens::Known known = recent_.of(*cache_, id, *first, slot);
    if (is_prompt && known.tokens.empty()) continue;
    Rewritten pass{.sequence = id,
                   .first_slot = known.first_slot,
                   .tokens = {known.tokens.begin(), known.tokens.end()},
                   .keys = {}};
    pass.keys = keys_of(pass);
    rewritten.push_back(std::move(pass));
    WEFT_RETURN_IF_ERROR(cache_->make_writable(id, rewritten.back().first_slot, slot));
    locks.begin_dense_pass(*cache_, id);
    recent_.keep(*cache_, id);
  }
  return rewritten;
}

/// In front of a prompt's rows.
Status Engine::rewrite_pending(std::span<const Appended> appended) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Rewritten> rewritten,
                        begin_dense_passes(appended, model::RowKind::kPrompt));
  if (rewritten.empty()) return Status::ok();
  model::Rows rows;
  for (const Rewritten& one : rewritten) {
    rows.add(one.sequence, one.tokens, one.first_slot, model::RowKind::kDense);
  }
  model::RowsPass pass(*forward_, *cache_, std::move(rows), {});
  WEFT_RETURN_IF_ERROR(model::Executor(*forward_).run(pass));
  end_dense_passes(rewritten);
  return Status::ok();
}

/// Of rows that are committed.
void Engine::remember(kv::SequenceId sequence, int32_t slot,
                      std::span<const int32_t> tokens) noexcept {
  try {
    recent_.add(*cache_, sequence, slot, tokens);
  } catch (const std::bad_alloc&) {
    recent_.forget(sequence);
  }
}

std::vector<float> Engine::keys_of(const Rewritten& one) {
  const kernels::KvLayout& layout = cache_->layout();
  const int64_t width = int64_t{layout.n_kv_heads} * layout.head_dim;
  const int64_t n = std::ssize(one.tokens);
  std::vector<float> keys(cache_->n_layers() * n * width), values(n * width);
  std::vector<int32_t> slots(n);
  std::iota(slots.begin(), slots.end(), one.first_slot);
  for (int32_t layer = 0; layer < cache_->n_layers() && n > 0; ++layer) {
    kernels::read_kv(context_, cache_->layer(layer),
                     cache_->layer_table(one.sequence, layer).data(), slots,
                     {keys.data() + layer * n * width, n, width}, {values, width});
  }
  return keys;
}

void Engine::end_dense_passes(std::span<const Rewritten> rewritten) {
  for (const Rewritten& one : rewritten) {
    const std::vector<float> now = keys_of(one);
    double difference = 0, all = 0;
    for (size_t i = 0; i < now.size(); ++i) {
      difference += (now[i] - one.keys[i]) * (now[i] - one.keys[i]);
      all += now[i] * now[i];
    }
    selector_->add_rewritten(std::ssize(one.tokens), all > 0 ? std::sqrt(difference / all) : 0);
  }
}

namespace {

/// A group of rows for each, from where its sequence ends.
model::Rows rows_of(std::span<const Appended> appended, model::RowKind kind) {
  model::Rows rows;
  for (const Appended& one : appended) {
    rows.add(one.sequence->id(), one.tokens, one.sequence->length(), kind);
  }
  return rows;
}

/// std::bad_alloc of `fn` as an error that says what was tried and what to do.
template <class Fn>
auto with_memory_for(std::span<const Appended> appended, const Fn& fn) -> decltype(fn()) {
  int64_t n_tokens = 0;
  for (const Appended& one : appended) n_tokens += std::ssize(one.tokens);
  return or_out_of_memory(fmt::format("running {} tokens", n_tokens),
                          "take a shorter prompt, or a smaller context (-c)", fn);
}

}  // namespace

Result<std::vector<float>> Engine::append_all(std::span<const Appended> appended,
                                              const AppendOptions& options) {
  const LogitRows wanted = options.every_row ? LogitRows::kAll : LogitRows::kLast;
  return with_memory_for(appended, [&]() -> Result<std::vector<float>> {
    const bool is_long = appended.size() == 1 && rows_of_step(appended.front(), options.kind) <
                                                     std::ssize(appended.front().tokens);
    const int64_t begin_ns = env_.monotonic_ns();
    auto logits = is_long && !options.every_row ? append_in_steps(appended.front(), options)
                                                : append_in_one_step(appended, options, wanted);
    if (options.kind == model::RowKind::kPrompt && logits.is_ok() && logs_info()) {
      log_prompt(appended, options.what, env_.ms_since(begin_ns));
    }
    return logits;
  });
}

void Engine::log_prompt(std::span<const Appended> appended, const char* what, double ms) const {
  int64_t n_tokens = 0, n_before = 0;
  for (const Appended& one : appended) {
    n_tokens += std::ssize(one.tokens);
    n_before += one.sequence->length() - std::ssize(one.tokens);
  }
  log_info(fmt::format("{}: {} tokens after {} in {:.0f} ms ({:.1f} tokens/s)", what, n_tokens,
                       n_before, ms, n_tokens * 1e3 / std::max(ms, 1e-3)));
}

// The bits are those of one step: a row depends on what its sequence holds and not on the rows
// beside it. Only the last step's logits are computed.
Result<std::vector<float>> Engine::append_in_steps(const Appended& all,
                                                   const AppendOptions& options) {
  const int32_t n_before = all.sequence->length();
  WEFT_RETURN_IF_ERROR(check_fits(all));
  Result<std::vector<float>> logits = std::vector<float>();
  for (std::span<const int32_t> rest = all.tokens; !rest.empty() && logits.is_ok();) {
    const auto n_rows = narrow<size_t>(rows_of_step({all.sequence, rest}, options.kind));
    const Appended some[] = {{all.sequence, rest.first(n_rows)}};
    rest = rest.subspan(n_rows);
    logits = append_in_one_step(some, options, rest.empty() ? LogitRows::kLast : LogitRows::kNone);
  }
  if (!logits.is_ok()) {
    const kv::SequenceId id = all.sequence->id();
    WEFT_RETURN_IF_ERROR(cache_->truncate(id, cache_->longest_cut(id, n_before)));
  }
  return logits;
}

Result<std::unique_ptr<model::RowsPass>> Engine::pass_of(std::span<const Appended> appended,
                                                         model::RowKind kind, LogitRows logit_rows,
                                                         std::span<const Rewritten> rewritten) {
  model::Rows rows;
  std::vector<int64_t> wanted;
  for (const Appended& one : appended) {
    const auto before = std::ranges::find(rewritten, one.sequence->id(), &Rewritten::sequence);
    const bool is_checkpoint = before != rewritten.end();
    if (is_checkpoint && !before->tokens.empty()) {
      rows.add(before->sequence, before->tokens, before->first_slot, model::RowKind::kDense);
    }
    const int64_t begin = rows.size();
    rows.add(one.sequence->id(), one.tokens, one.sequence->length(),
             is_checkpoint ? model::RowKind::kDense : kind_of(kind));
    if (logit_rows == LogitRows::kNone) continue;
    for (int64_t row = logit_rows == LogitRows::kAll ? begin : rows.size() - 1; row < rows.size();
         ++row) {
      wanted.push_back(row);
    }
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<kv::Reservation> reservations, reserve(appended, kind));
  auto pass = std::make_unique<model::RowsPass>(
      *forward_, *cache_, std::move(rows), model::RowsPass::Options{.wanted = std::move(wanted)});
  for (kv::Reservation& reservation : reservations) pass->hold(std::move(reservation));
  return pass;
}

// A step that writes committed slots is not cancelled between layers: some would have their new K
// and V, and others not.
Result<std::vector<float>> Engine::append_in_one_step(std::span<const Appended> appended,
                                                      const AppendOptions& options,
                                                      LogitRows logit_rows) {
  std::vector<Rewritten> rewritten;
  if (options.kind == model::RowKind::kPrompt) {
    WEFT_RETURN_IF_ERROR(rewrite_pending(appended));
  } else {
    WEFT_ASSIGN_OR_RETURN(rewritten, begin_dense_passes(appended, options.kind));
  }
  WEFT_ASSIGN_OR_RETURN(const auto pass, pass_of(appended, options.kind, logit_rows, rewritten));
  WEFT_RETURN_IF_ERROR(
      model::Executor(*forward_).run(*pass, rewritten.empty() ? options.cancelled : nullptr));
  end_dense_passes(rewritten);
  if (options.kind != model::RowKind::kPrompt && has_dense_checkpoints()) {
    for (const Appended& one : appended) {
      remember(one.sequence->id(), one.sequence->length() - narrow<int32_t>(one.tokens.size()),
               one.tokens);
    }
  }
  give_back_memory();
  return std::move(pass->logits());
}

Result<TriedRows> Engine::try_rows(std::span<const Appended> appended) {
  return with_memory_for(appended, [&]() -> Result<TriedRows> {
    WEFT_ASSIGN_OR_RETURN(const std::vector<Rewritten> rewritten,
                          begin_dense_passes(appended, model::RowKind::kVerify));
    WEFT_ASSIGN_OR_RETURN(const auto pass,
                          pass_of(appended, model::RowKind::kVerify, LogitRows::kAll, rewritten));
    TriedRows tried;
    if (has_dense_checkpoints()) {
      for (const Appended& one : appended) {
        tried.tokens.emplace_back(one.tokens.begin(), one.tokens.end());
      }
    }
    pass->leave_open();
    WEFT_RETURN_IF_ERROR(model::Executor(*forward_).run(*pass));
    end_dense_passes(rewritten);
    tried.logits = std::move(pass->logits());
    tried.reservations = pass->take_reservations();
    return tried;
  });
}

// Row by row in slots that are reserved and given back: the step that verifies the draft reserves
// them again, and writes what is the text's. What a page had of the draft's is forgotten then.
Result<std::vector<int32_t>> Engine::draft_rows(const kv::OwnedSequence& sequence, int32_t newest,
                                                int32_t n, const FunctionRef<bool()>* cancelled) {
  std::vector<int32_t> tokens{newest};
  const std::vector<int32_t> some(n, newest);
  const Appended appended[] = {{&sequence, some}};
  return with_memory_for(appended, [&]() -> Result<std::vector<int32_t>> {
    const int32_t begin = sequence.length();
    WEFT_ASSIGN_OR_RETURN(const std::vector<kv::Reservation> reservations,
                          reserve(appended, model::RowKind::kVerify));
    sparse::SelectionLocks* locks = selector_ == nullptr ? nullptr : selector_->locks();
    // Rows that verify over all pages have no selection to be compared with the draft's.
    if (locks != nullptr && !answers_dense()) locks->begin_speculation(sequence.id(), n);
    for (int32_t i = 0; i < n; ++i) {
      model::RowsPass pass(*forward_, *cache_,
                           model::Rows::of(sequence.id(), std::span(tokens).last(1), begin + i,
                                           model::RowKind::kDraft),
                           {.wanted = {0}});
      pass.leave_open();
      WEFT_RETURN_IF_ERROR(model::Executor(*forward_).run(pass, cancelled));
      tokens.push_back(sampling::greedy_token(pass.logits()));
    }
    tokens.erase(tokens.begin());
    return tokens;
  });
}

void Engine::accept(TriedRows rows, std::span<const int32_t> n_tokens) {
  WEFT_CHECK(rows.reservations.size() == n_tokens.size());
  for (size_t i = 0; i < n_tokens.size(); ++i) {
    kv::Reservation& rows_of_one = rows.reservations[i];
    end_speculation(rows_of_one.sequence(), n_tokens[i] == rows_of_one.end() - rows_of_one.begin());
    rows_of_one.commit(n_tokens[i]);
    if (rows.tokens.empty()) continue;
    remember(rows_of_one.sequence(), rows_of_one.begin(),
             std::span(rows.tokens[i]).first(n_tokens[i]));
  }
  if (forward_->on_commit()) forward_->on_commit()();
  give_back_memory();
}

// A selection whose draft was wrong is made anew, but for one that the dense pass, which was that
// draft's, has just made.
void Engine::end_speculation(kv::SequenceId sequence, bool all_accepted) {
  const bool drafts_itself = draft_.kind == spec::DrafterKind::kSelf && selector_ != nullptr;
  if (!drafts_itself || selector_->locks() == nullptr) return;
  const bool may_unlock = answers_dense() && sparse_.lock.checkpoint == sparse::Checkpoint::kSelect;
  selector_->locks()->end_speculation(sequence, all_accepted || !may_unlock);
}

int64_t Engine::tried_rows(const kv::OwnedSequence& sequence) const {
  const int32_t begin = sequence.length();
  return std::min<int64_t>({int64_t{context_tokens_} - begin, step_rows_,
                            int64_t{self_extend_.next_change(begin)} - begin,
                            rows_before_checkpoint(sequence)});
}

Status Engine::score(std::span<const Appended> appended, std::span<const int64_t> wanted,
                     FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits,
                     const FunctionRef<bool()>* cancelled) {
  if (!self_extend_.is_on()) return score_in_one_step(appended, wanted, on_logits, cancelled);
  int64_t begin = 0;  // rows that were run
  for (const Appended& one : appended) {
    for (std::span<const int32_t> rest = one.tokens; !rest.empty();) {
      const int64_t n_rows = rows_of_step({one.sequence, rest}, model::RowKind::kPrompt);
      std::vector<int64_t> rows;
      for (const int64_t row : wanted) {
        if (row >= begin && row < begin + n_rows) rows.push_back(row - begin);
      }
      const Appended some[] = {{one.sequence, rest.first(n_rows)}};
      WEFT_RETURN_IF_ERROR(score_in_one_step(
          some, rows,
          [&](int64_t row, std::span<const float> logits) { on_logits(begin + row, logits); },
          cancelled));
      rest = rest.subspan(n_rows);
      begin += n_rows;
    }
  }
  return Status::ok();
}

Status Engine::score_in_one_step(
    std::span<const Appended> appended, std::span<const int64_t> wanted,
    FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits,
    const FunctionRef<bool()>* cancelled) {
  constexpr size_t kRowsAtOnce = kScoredRowsAtOnce;
  return with_memory_for(appended, [&]() -> Status {
    model::Rows rows = rows_of(appended, model::RowKind::kPrompt);
    WEFT_ASSIGN_OR_RETURN(std::vector<kv::Reservation> reservations,
                          reserve(appended, model::RowKind::kPrompt));
    model::RowsPass pass(*forward_, *cache_, std::move(rows), {.keep_all_rows = true});
    for (kv::Reservation& reservation : reservations) pass.hold(std::move(reservation));
    WEFT_RETURN_IF_ERROR(model::Executor(*forward_).run(pass, cancelled));
    give_back_memory();
    const int64_t n_vocab = model_->config().vocab_size;
    std::vector<float> memory(std::min(kRowsAtOnce, wanted.size()) * n_vocab);
    for (size_t begin = 0; begin < wanted.size(); begin += kRowsAtOnce) {
      const auto some = wanted.subspan(begin, std::min(kRowsAtOnce, wanted.size() - begin));
      const MatrixView<float> logits(memory.data(), std::ssize(some), n_vocab);
      forward_->logits(pass.batch(), some, logits, kernels::KernelClass::kPrefill);
      for (int64_t i = 0; i < logits.rows; ++i) on_logits(some[i], logits.row(i));
    }
    return Status::ok();
  });
}

}  // namespace weft::engine
