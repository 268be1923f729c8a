// Steps: rows after what sequences hold, run and committed, tried and kept in part, or scored.
// Longer ones are divided, which changes no bit: a row depends on what its sequence holds and not
// on the rows beside it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/narrow.h"
#include "base/out_of_memory.h"
#include "engine/engine.h"

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

int64_t Engine::rows_of_step(const Appended& all) const {
  const int32_t begin = all.sequence->length();
  return std::min<int64_t>(
      {std::ssize(all.tokens), step_rows_, int64_t{self_extend_.next_change(begin)} - begin});
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
    const bool is_long = appended.size() == 1 &&
                         rows_of_step(appended.front()) < std::ssize(appended.front().tokens);
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
    const auto n_rows = narrow<size_t>(rows_of_step({all.sequence, rest}));
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
                                                         model::RowKind kind,
                                                         LogitRows logit_rows) {
  model::Rows rows = rows_of(appended, kind);
  WEFT_ASSIGN_OR_RETURN(std::vector<kv::Reservation> reservations, reserve(appended, kind));
  std::vector<int64_t> wanted;
  for (const model::RowGroup& group : rows.groups) {
    if (logit_rows == LogitRows::kNone) break;
    for (int64_t row = logit_rows == LogitRows::kAll ? group.row_begin : group.row_end - 1;
         row < group.row_end; ++row) {
      wanted.push_back(row);
    }
  }
  auto pass = std::make_unique<model::RowsPass>(
      *forward_, *cache_, std::move(rows), model::RowsPass::Options{.wanted = std::move(wanted)});
  for (kv::Reservation& reservation : reservations) pass->hold(std::move(reservation));
  return pass;
}

Result<std::vector<float>> Engine::append_in_one_step(std::span<const Appended> appended,
                                                      const AppendOptions& options,
                                                      LogitRows logit_rows) {
  WEFT_ASSIGN_OR_RETURN(const auto pass, pass_of(appended, options.kind, logit_rows));
  WEFT_RETURN_IF_ERROR(model::Executor(*forward_).run(*pass, options.cancelled));
  give_back_memory();
  return std::move(pass->logits());
}

Result<TriedRows> Engine::try_rows(std::span<const Appended> appended) {
  return with_memory_for(appended, [&]() -> Result<TriedRows> {
    WEFT_ASSIGN_OR_RETURN(const auto pass,
                          pass_of(appended, model::RowKind::kVerify, LogitRows::kAll));
    pass->leave_open();
    WEFT_RETURN_IF_ERROR(model::Executor(*forward_).run(*pass));
    return TriedRows{std::move(pass->logits()), pass->take_reservations()};
  });
}

void Engine::accept(TriedRows rows, std::span<const int32_t> n_tokens) {
  WEFT_CHECK(rows.reservations.size() == n_tokens.size());
  for (size_t i = 0; i < n_tokens.size(); ++i) rows.reservations[i].commit(n_tokens[i]);
  if (forward_->on_commit()) forward_->on_commit()();
  give_back_memory();
}

int64_t Engine::tried_rows(const kv::OwnedSequence& sequence) const {
  const int32_t begin = sequence.length();
  return std::min<int64_t>({int64_t{context_tokens_} - begin, step_rows_,
                            int64_t{self_extend_.next_change(begin)} - begin});
}

Status Engine::score(std::span<const Appended> appended, std::span<const int64_t> wanted,
                     FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits,
                     const FunctionRef<bool()>* cancelled) {
  if (!self_extend_.is_on()) return score_in_one_step(appended, wanted, on_logits, cancelled);
  int64_t begin = 0;  // rows that were run
  for (const Appended& one : appended) {
    for (std::span<const int32_t> rest = one.tokens; !rest.empty();) {
      const int64_t n_rows = rows_of_step({one.sequence, rest});
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
