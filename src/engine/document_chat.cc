#include "engine/document_chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/narrow.h"
#include "base/out_of_memory.h"

namespace weft::engine {
namespace {

using Chunks = std::vector<std::vector<int32_t>>;

int64_t total(const Chunks& chunks) {
  int64_t n = 0;
  for (const std::vector<int32_t>& chunk : chunks) n += std::ssize(chunk);
  return n;
}

int64_t total(const RagPrompt::Frame& frame) {
  return std::ssize(frame.prefix) + std::ssize(frame.suffix);
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

void DocumentChat::set_exchanges(std::vector<Exchange> exchanges) {
  exchanges_ = std::move(exchanges);
  first_ = 0;
}

Status DocumentChat::set_system(std::optional<std::string> system) {
  if (system) WEFT_RETURN_IF_ERROR(rag_.frame(system, {}, "?").status());
  system_ = std::move(system);
  return Status::ok();
}

Result<RagPrompt::Frame> DocumentChat::frame_from(size_t first, const std::string& question) const {
  return rag_.frame(system_, std::span(exchanges_).subspan(first), question);
}

/// What the question before had as its prefix, as far as this prompt begins with it. That follows
/// from the conversation alone: what the prefix index has by now does not matter, so that the ratio
/// which is chosen by it is the same when the conversation is loaded from a file.
Result<int32_t> DocumentChat::history_tokens(const fusion::Prompt& prompt) const {
  if (exchanges_.size() <= first_) return 0;
  const auto before = std::span(exchanges_).subspan(first_, exchanges_.size() - first_ - 1);
  WEFT_ASSIGN_OR_RETURN(const RagPrompt::Frame frame,
                        rag_.frame(system_, before, exchanges_.back().question));
  const auto differs = std::ranges::mismatch(frame.prefix, prompt.prefix);
  const auto same = narrow<int32_t>(differs.in1 - frame.prefix.begin());
  return same - same % engine_.kv_usage().page_tokens;  // only whole pages are found again
}

Result<DocumentChat::Plan> DocumentChat::plan(const std::string& question, const Chunks& chunks,
                                              const GenerationOptions& generation) const {
  const int64_t context = engine_.context_tokens();
  const int64_t room = room_for_answer(generation, engine_.context_tokens());
  Plan out{{}, first_, 0};
  WEFT_ASSIGN_OR_RETURN(RagPrompt::Frame frame, frame_from(first_, question));
  const int64_t wanted = total(chunks) + room;
  if (total(frame) + wanted > context && first_ < exchanges_.size()) {
    // The fewest to leave out, so that there is room to spare and the next question need not do so
    // again: each time the prefix is another, and is prefilled.
    size_t low = first_ + 1;
    size_t high = exchanges_.size();
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      WEFT_ASSIGN_OR_RETURN(frame, frame_from(middle, question));
      if (total(frame) + wanted + context / 4 > context) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    out.first = low;
    WEFT_ASSIGN_OR_RETURN(frame, frame_from(low, question));
  }
  int64_t used = total(frame);
  for (const std::vector<int32_t>& chunk : chunks) {
    if (used + std::ssize(chunk) + room > context) break;
    used += std::ssize(chunk);
    out.prompt.chunks.push_back(chunk);
  }
  if (used + room > context || (out.prompt.chunks.empty() && !chunks.empty())) {
    const int64_t needed = used + (chunks.empty() ? 0 : std::ssize(chunks.front()));
    return resource_exhausted(fmt::format(
        "the question{} and an answer of up to {} tokens (-n) do not fit the context of {}; {}",
        chunks.empty() ? "" : " with one passage", room, context,
        engine_.way_to_hold(context_for(generation, needed))));
  }
  out.prompt.prefix = std::move(frame.prefix);
  out.prompt.suffix = std::move(frame.suffix);
  WEFT_ASSIGN_OR_RETURN(out.history_tokens, history_tokens(out.prompt));
  return out;
}

Result<DocumentAnswer> DocumentChat::run(fusion::Fusor& fusor, const Plan& plan,
                                         const fusion::FusionOptions& options,
                                         const GenerationOptions& generation,
                                         const DocumentChatCallbacks& callbacks) {
  DocumentAnswer out;
  out.n_chunks = plan.prompt.chunks.size();
  out.history_tokens = plan.history_tokens;
  out.n_dropped = narrow<int32_t>(plan.first - first_);
  const int64_t begin_ns = engine_.env().monotonic_ns();
  WEFT_ASSIGN_OR_RETURN(fusion::Prefilled prefilled, fusor.prefill(plan.prompt, options));
  out.ttft_ms = engine_.env().ms_since(begin_ns);
  out.report = std::move(prefilled.report);
  const auto on_text = [&](std::string_view piece) {
    return !callbacks.on_text || callbacks.on_text(piece);
  };
  const std::vector<int32_t> tokens = plan.prompt.tokens();
  WEFT_ASSIGN_OR_RETURN(
      out.generation, generate(engine_, prefilled.sequence, std::move(prefilled.logits), generation,
                               on_text, tokens));
  if (out.generation.stop_reason == StopReason::kCancelled && is_blank(out.generation.text)) {
    return cancelled("stopped");
  }
  return out;
}

Result<DocumentAnswer> DocumentChat::ask(fusion::Fusor& fusor, const std::string& question,
                                         const Chunks& chunks, fusion::FusionOptions options,
                                         const GenerationOptions& generation,
                                         const DocumentChatCallbacks& callbacks) {
  WEFT_RETURN_IF_ERROR(check_options(generation));
  return or_out_of_memory(
      "answering", "take a smaller context (-c), or begin anew", [&]() -> Result<DocumentAnswer> {
        WEFT_ASSIGN_OR_RETURN(const Plan planned, plan(question, chunks, generation));
        options.history_tokens = planned.history_tokens;
        if (planned.first > first_ && callbacks.on_dropped) {
          callbacks.on_dropped(narrow<int32_t>(planned.first - first_));
        }
        WEFT_ASSIGN_OR_RETURN(DocumentAnswer answer,
                              run(fusor, planned, options, generation, callbacks));
        if (!is_blank(answer.generation.text)) {
          exchanges_.push_back({question, answer.generation.text});
        }
        first_ = planned.first;
        return answer;
      });
}

}  // namespace weft::engine
