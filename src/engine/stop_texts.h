// Finds the texts that end an answer (--stop) in a stream of pieces, wherever the pieces are cut,
// and holds back what may yet be the beginning of one. Each text is looked for by Knuth, Morris and
// Pratt: a byte is looked at once for each text, however often a beginning turns out to be none.
// For one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft::engine {

inline constexpr size_t kMaxStopTexts = 64;

/// kInvalidArgument for more than kMaxStopTexts, and for an empty one.
Status check_stop_texts(const std::vector<std::string>& texts);

class StopTexts {
 public:
  /// `texts` must pass check_stop_texts; none finds nothing and holds nothing back.
  explicit StopTexts(const std::vector<std::string>& texts);

  struct Certain {
    std::string text;      // that can be shown now
    bool stopped = false;  // a stop text followed it; what comes after that is dropped
  };
  /// Where several texts come, the one that ends first counts, of those that end together the
  /// longest. What is held back begins at a UTF-8 character's first byte. Not to be called after
  /// `stopped`.
  Certain push(std::string_view piece);

  /// What was held back: the answer ended otherwise.
  std::string finish();

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> borders;  // [text.size()], of each beginning the longest that also ends it
    size_t matched = 0;           // bytes of it that the stream ends with
    /// Whether the text is complete with this byte.
    bool take(char byte);
  };
  std::vector<Pattern> patterns_;
  std::string held_;
};

}  // namespace weft::engine
