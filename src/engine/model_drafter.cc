#include "engine/model_drafter.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/narrow.h"
#include "base/terminal_text.h"
#include "sampling/sampler.h"

namespace weft::engine {
namespace {

constexpr int32_t kEvidence = 4;  // as of a long n-gram, until it was seen how often it is right

}  // namespace

ModelDrafter::ModelDrafter(Engine& engine, int32_t vocab_size)
    : engine_(engine),
      n_common_tokens_(std::min(vocab_size, engine.model().config().vocab_size)),
      sequence_(engine.create_sequence()) {}

void ModelDrafter::add(std::span<const int32_t> tokens) {
  text_.insert(text_.end(), tokens.begin(), tokens.end());
  can_read_ = can_read_ &&
              std::ranges::all_of(tokens, [&](int32_t token) { return token < n_common_tokens_; });
}

int32_t ModelDrafter::evidence() {
  const bool has_room = std::ssize(text_) + spec::kMostDraftTokens < engine_.context_tokens();
  return has_room && can_read_ ? kEvidence : 0;
}

// So many as a draft may have are left to draft(), which runs what was guessed wrong last, too.
int64_t ModelDrafter::unread() const {
  const int64_t n_unread = std::ssize(text_) - std::ssize(held_);
  return n_unread <= spec::kMostDraftTokens ? 0 : n_unread - 1;
}

Status ModelDrafter::read(int64_t n_tokens, const FunctionRef<bool()>* cancelled) {
  const int64_t end = std::min(std::ssize(held_) + n_tokens, std::ssize(text_) - 1);
  return hold(narrow<int32_t>(end), cancelled).status();
}

// The last token is run again where the sequence has it: its logits are wanted. After an error the
// sequence is as it was before, or empty.
Result<std::vector<float>> ModelDrafter::hold(int32_t n_tokens,
                                              const FunctionRef<bool()>* cancelled) {
  const auto text = std::span(text_).first(n_tokens);
  const auto n_same = narrow<int32_t>(std::ranges::mismatch(held_, text).in1 - held_.begin());
  const int32_t n_kept = std::min(n_same, n_tokens - 1);
  if (n_kept < sequence_.length()) WEFT_RETURN_IF_ERROR(sequence_.truncate(n_kept));
  held_.resize(n_kept);
  const auto rest = text.subspan(n_kept);
  const model::RowKind kind = rest.size() == 1 ? model::RowKind::kDecode : model::RowKind::kPrompt;
  auto logits = engine_.append(
      sequence_, rest, {.kind = kind, .cancelled = cancelled, .what = "draft model, prompt"});
  if (logits.is_ok()) {
    held_.assign(text.begin(), text.end());
  } else {
    held_.resize(sequence_.length());
  }
  return logits;
}

Result<std::vector<int32_t>> ModelDrafter::draft(int32_t n) {
  std::vector<int32_t> out;
  WEFT_ASSIGN_OR_RETURN(std::vector<float> logits, hold(narrow<int32_t>(std::ssize(text_))));
  for (;;) {
    out.push_back(sampling::greedy_token(std::span(logits).first(n_common_tokens_)));
    if (std::ssize(out) == n) return out;
    const std::span<const int32_t> newest = std::span(out).last(1);
    WEFT_ASSIGN_OR_RETURN(logits,
                          engine_.append(sequence_, newest, {.kind = model::RowKind::kDecode}));
    held_.push_back(newest[0]);
  }
}

Status check_same_vocabulary(const Engine& target, const Engine& draft) {
  const text::Tokenizer &a = target.tokenizer(), &b = draft.tokenizer();
  const auto refuse = [&](const std::string& difference) {
    return invalid_argument(fmt::format(
        "--draft {}: its vocabulary is not that of {}, so what it drafts means something else: {}",
        draft.model().file().path(), target.model().file().path(), difference));
  };
  if (a.vocab_size() != b.vocab_size()) {
    return refuse(fmt::format("{} tokens, not {}", b.vocab_size(), a.vocab_size()));
  }
  const auto shown = [](const text::Tokenizer& tokenizer, int32_t id) {
    return terminal_text(one_line(std::string(tokenizer.token_bytes(id, true))));
  };
  for (int32_t id = 0; id < a.vocab_size(); ++id) {
    if (a.token_bytes(id, true) == b.token_bytes(id, true)) continue;
    return refuse(fmt::format("token {} is \"{}\", not \"{}\"", id, shown(b, id), shown(a, id)));
  }
  return Status::ok();
}

}  // namespace weft::engine
