#include "kv/usage.h"

#include <algorithm>
#include <vector>

#include "base/narrow.h"

namespace weft::kv {

// A page's slots fill from its first on, so of several sequences that hold it the one that goes
// furthest into it says how many have a token.
PageUse page_use(const Snapshot& snapshot) {
  struct Holders {
    int32_t n = 0;
    int64_t tokens = 0;
  };
  const int32_t page_tokens = snapshot.page_tokens;
  std::vector<Holders> holders(snapshot.pages.size());
  for (const Snapshot::NamedSequence& one : snapshot.sequences) {
    const Sequence& sequence = one.sequence;
    for (int32_t i = sequence.first_page; i < std::ssize(sequence.pages); ++i) {
      Holders& page = holders[sequence.pages[i]];
      const int64_t tokens = int64_t{sequence.length} - int64_t{i} * page_tokens;
      ++page.n;
      page.tokens = std::max(page.tokens, std::clamp<int64_t>(tokens, 0, page_tokens));
    }
    // Held for the rollback of an open reservation, with what they had.
    for (const ReplacedPage& replaced : sequence.replaced) {
      Holders& page = holders[replaced.old_page.page];
      ++page.n;
      const int64_t tokens = int64_t{sequence.length} - int64_t{replaced.slot} * page_tokens;
      page.tokens = std::max(page.tokens, std::clamp<int64_t>(tokens, 0, page_tokens));
    }
  }
  PageUse use{.page_tokens = page_tokens, .pages = narrow<int32_t>(snapshot.pages.size())};
  for (size_t page = 0; page < holders.size(); ++page) {
    if (holders[page].n > 0) {
      ++use.held;
      if (holders[page].n > 1) ++use.shared;
      use.tokens += holders[page].tokens;
    } else if (snapshot.pages[page].ref_count > 0) {
      ++use.cached;
    } else {
      ++use.free;
    }
  }
  return use;
}

}  // namespace weft::kv
