#include "text/detokenizer.h"

#include <utility>

#include "text/utf8.h"

namespace weft::text {

std::string StreamingDetokenizer::push(int32_t id) {
  pending_ += tokenizer_->token_bytes(id, show_control_);
  const size_t whole = pending_.size() - utf8_unfinished_bytes(pending_);
  std::string out = pending_.substr(0, whole);
  pending_.erase(0, whole);
  return out;
}

std::string StreamingDetokenizer::finish() { return std::exchange(pending_, std::string()); }

}  // namespace weft::text
