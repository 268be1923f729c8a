// A token is bytes, and a character may be spread over several: an emoji of four bytes is up to
// four tokens of byte-level BPE. Whoever prints what is generated must not print half of one, so
// the bytes of an unfinished character wait (at most 3). Bytes that can belong to none do not wait:
// they are given at once, as they are, and the printer decides what to show for them.
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
