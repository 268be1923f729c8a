// Turns tokens into text as they are generated, holding back the bytes of an unfinished UTF-8
// character until the rest arrives. It never decides when to stop. For one thread.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer.h"

namespace weft::text {

class StreamingDetokenizer {
 public:
  /// `tokenizer` must outlive this object. Control tokens add no text, or with `show_control`
  /// their name.
  explicit StreamingDetokenizer(const Tokenizer& tokenizer, bool show_control = false)
      : tokenizer_(&tokenizer), show_control_(show_control) {}

  /// The text that this token completes: whole characters, with bytes that cannot belong to one as
  /// they are. At most 3 bytes wait.
  std::string push(int32_t id);

  /// What was held back, as it is. The object then begins anew.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool show_control_;
  std::string pending_;
};

}  // namespace weft::text
