#include "engine/context_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/narrow.h"

namespace weft::engine {
namespace {

// As long a text as 32 bits count slots of, with room for what is reserved after it.
constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max() / 2;

/// At most `n_tokens`, and as many as keep within the positions that the model knows; at least
/// model_length. last_position() never falls, so that halves of the range can be left out.
int32_t longest_within(const kv::SelfExtend& extend, int32_t model_length, int32_t n_tokens) {
  int32_t fits = std::min(model_length, n_tokens);
  for (int32_t too_long = n_tokens; fits < too_long;) {
    const int32_t middle = too_long - (too_long - fits) / 2;
    if (extend.last_position(middle) < model_length) {
      fits = middle;
    } else {
      too_long = middle - 1;
    }
  }
  return fits;
}

/// kUsualNeighbourTokens, or a quarter of what the model knows, in whole groups.
kv::SelfExtend with_neighbours(kv::SelfExtend extend, int32_t model_length) {
  if (extend.neighbour_tokens != kv::kUsualNeighbours || extend.group_tokens < 1) return extend;
  const int32_t usual = std::min(kv::kUsualNeighbourTokens, model_length / 4);
  extend.neighbour_tokens =
      std::max(extend.group_tokens, usual / extend.group_tokens * extend.group_tokens);
  return extend;
}

}  // namespace

Result<ContextSize> context_size(const ContextRequest& request, int32_t model_length,
                                 int32_t usual_tokens) {
  const kv::SelfExtend extend = with_neighbours(request.self_extend, model_length);
  WEFT_RETURN_IF_ERROR(extend.check());
  const auto times = [](int32_t n, int32_t n_tokens) {
    return narrow<int32_t>(std::min(int64_t{n_tokens} * n, kMostTokens));
  };
  ContextSize size{.self_extend = extend};
  size.most_tokens =
      times(request.beyond_context ? kv::kMostGroupTokens : extend.group_tokens, model_length);
  size.tokens =
      request.context_tokens != 0
          ? request.context_tokens
          : longest_within(extend, model_length, times(extend.group_tokens, usual_tokens));
  if (size.tokens < 1 || size.tokens > size.most_tokens) {
    return invalid_argument(fmt::format(
        "-c {}: the model's context is 1 to {} tokens{}", size.tokens, size.most_tokens,
        extend.is_on()           ? fmt::format(" with --grp-attn-n {}", extend.group_tokens)
        : request.beyond_context ? ""
                                 : "; generate, chat, ask and perplexity take more with "
                                   "--grp-attn-n (Self-Extend)"));
  }
  const int32_t last_position = extend.last_position(size.tokens);
  size.model_tokens = std::min(model_length, last_position + 1);
  if (last_position < model_length) return size;
  size.note = fmt::format("-c {}: positions reach {}, the model was trained for {} tokens: {}",
                          size.tokens, last_position, model_length,
                          extend.is_on()
                              ? "a larger --grp-attn-n or a smaller --grp-attn-w keeps within them"
                              : "--grp-attn-n would keep within them");
  return size;
}

}  // namespace weft::engine
