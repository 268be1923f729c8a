// Byte-level BPE as GPT-2 brought it: a word's bytes are its first symbols, and the pair of
// neighbours whose merge has the lowest rank is merged, again and again, until none is left. Done
// as it is said, by going through the word for each merge, that is quadratic. Here the pairs that
// can merge are in a heap and the symbols in a linked list, so a word of n bytes takes n log n: a
// megabyte of one letter is a single word to several pre-tokenizers, and a quadratic loop over it
// would take minutes (tokenizer_test.cc, LongRunIsNotQuadratic).
//
// A merge changes at most two pairs. Their old entries stay in the heap and are recognised when
// they come up, by the ids that they were made from (Candidate), which is cheaper than finding and
// removing them.
//
// Example, merges "a a" and "aa aa": aaaaaaa becomes aa aa aa a, then aaaa aa a.
#include "text/byte_level_bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>

#include "base/ascii.h"
#include "base/narrow.h"
#include "text/utf8.h"

namespace weft::text {
namespace {

// Lowest rank first, leftmost first among equals; std::push_heap keeps the largest on top.
bool comes_later(const ByteLevelBpe::Scratch::Candidate& a,
                 const ByteLevelBpe::Scratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

// The table's slots are a pair's hash, mixed because the ids of pairs differ in few of their bits.
uint64_t mix(uint64_t x) {  // splitmix64's finaliser
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

uint64_t pair_key(int32_t left_id, int32_t right_id) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left_id)) << 32 |
         static_cast<uint32_t>(right_id);
}

}  // namespace

// A byte's token must be an ordinary one: a control token of one letter must not come out of text.
// `is_whole_word_` is what llama-3's tokenizer calls ignore_merges: "abc" that is a token is this
// token, though no merge leads to it.
Result<ByteLevelBpe> ByteLevelBpe::create(const VocabData& vocab, const TokenIndex& index,
                                          bool ignore_merges) {
  ByteLevelBpe bpe;
  bpe.index_ = &index;
  for (size_t byte = 0; byte < 256; ++byte) {
    std::string letter;
    append_utf8(byte_level_alphabet()[byte], letter);
    const int32_t id = index.find(letter);
    const bool is_letter = id >= 0 && vocab.types[id] == TokenType::kNormal;
    bpe.byte_ids_[byte] = is_letter ? id : kNoToken;
  }
  if (ignore_merges) {
    bpe.is_whole_word_.reserve(vocab.types.size());
    for (const TokenType type : vocab.types) {
      bpe.is_whole_word_.push_back(type == TokenType::kNormal);
    }
  }
  WEFT_RETURN_IF_ERROR(bpe.add_merges(vocab));
  return bpe;
}

// Every merge is resolved to ids when the file is opened, so that a damaged one is an error with
// its number there and not a wrong token later. Most important first: its place is its rank.
Status ByteLevelBpe::add_merges(const VocabData& vocab) {
  if (vocab.merges.size() > kMaxVocab) {
    return corrupt(fmt::format("tokenizer.ggml.merges: {} merges, the limit is {}",
                               vocab.merges.size(), kMaxVocab));
  }
  // Added tokens may be the result of a merge, control tokens never are: text cannot become one.
  const auto find_text = [&](std::string_view text) {
    const int32_t id = index_->find(text);
    if (id < 0) return kNoToken;
    const TokenType type = vocab.types[id];
    return type == TokenType::kControl || type == TokenType::kUnknown ? kNoToken : id;
  };
  table_.resize(std::bit_ceil(2 * vocab.merges.size() + 2));
  std::string joined;
  for (size_t rank = 0; rank < vocab.merges.size(); ++rank) {
    const std::string_view merge = vocab.merges[rank];
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string_view::npos) {
      return corrupt(fmt::format(
          "tokenizer.ggml.merges[{}] is not two tokens with one space between them", rank));
    }
    joined.assign(merge.substr(0, space)).append(merge.substr(space + 1));
    const int32_t left = find_text(merge.substr(0, space));
    const int32_t right = find_text(merge.substr(space + 1));
    const int32_t merged = find_text(joined);
    if (left == kNoToken || right == kNoToken || merged == kNoToken) {
      return corrupt(
          fmt::format("tokenizer.ggml.merges[{}]: its parts or its result are no tokens", rank));
    }
    insert({pair_key(left, right), narrow<uint32_t>(rank), merged});
  }
  return Status::ok();
}

// The table is at most half full, so a free slot always ends the search.
void ByteLevelBpe::insert(const Merge& merge) {
  const size_t mask = table_.size() - 1;
  size_t slot = mix(merge.pair) & mask;
  while (table_[slot].pair != kEmptyPair) {
    if (table_[slot].pair == merge.pair) return;  // the first of two equal merges counts
    slot = (slot + 1) & mask;
  }
  table_[slot] = merge;
}

const ByteLevelBpe::Merge* ByteLevelBpe::find(int32_t left_id, int32_t right_id) const {
  const uint64_t pair = pair_key(left_id, right_id);
  const size_t mask = table_.size() - 1;
  for (size_t slot = mix(pair) & mask; table_[slot].pair != kEmptyPair; slot = (slot + 1) & mask) {
    if (table_[slot].pair == pair) return &table_[slot];
  }
  return nullptr;
}

// Queues the pair of the symbol `left` and its right neighbour, if it merges.
void ByteLevelBpe::push_pair(int32_t left, Scratch& scratch) const {
  const auto& symbols = scratch.symbols;
  const auto& left_symbol = symbols[left];
  if (left_symbol.next < 0) return;
  const int32_t right_id = symbols[left_symbol.next].id;
  const Merge* merge = find(left_symbol.id, right_id);
  if (merge == nullptr) return;
  scratch.queue.push_back({merge->rank, left, left_symbol.id, right_id, merge->merged_id});
}

// The token that the word is as a whole, in the vocabulary's own letters; for vocabularies that
// look there first.
int32_t ByteLevelBpe::find_whole_word(std::string_view word, std::string& letters) const {
  if (is_whole_word_.empty() || word.size() > kMaxTokenBytes) return kNoToken;
  letters.clear();
  for (const char c : word) {
    append_utf8(byte_level_alphabet()[byte_of(c)], letters);
  }
  const int32_t id = index_->find(letters);
  return id >= 0 && is_whole_word_[id] ? id : kNoToken;
}

// The heap is built at once, which is linear, and then grows by two pairs a merge at most. A symbol
// that was merged into its left neighbour has kNoToken for its id, which no candidate has, so stale
// entries that name it fail the comparison of ids.
void ByteLevelBpe::encode_word(std::string_view word, Scratch& scratch,
                               std::vector<int32_t>& out) const {
  const int32_t whole = find_whole_word(word, scratch.letters);
  if (whole != kNoToken) {
    out.push_back(whole);
    return;
  }
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;
  symbols.clear();
  queue.clear();
  int32_t index = 0;
  for (const char c : word) {
    const int32_t id = byte_ids_[byte_of(c)];
    if (id == kNoToken) continue;
    symbols.push_back({id, index - 1, index + 1});
    ++index;
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;
  for (int32_t i = 0; i + 1 < std::ssize(symbols); ++i) push_pair(i, scratch);
  std::make_heap(queue.begin(), queue.end(), comes_later);

  const auto push_heaped = [&](int32_t left) {
    const size_t before = queue.size();
    push_pair(left, scratch);
    if (queue.size() > before) std::push_heap(queue.begin(), queue.end(), comes_later);
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), comes_later);
    const Scratch::Candidate best = queue.back();
    queue.pop_back();
    auto& left = symbols[best.left];
    if (left.id != best.left_id || left.next < 0) continue;
    auto& right = symbols[left.next];
    if (right.id != best.right_id) continue;
    left.id = best.merged_id;
    left.next = right.next;
    right.id = kNoToken;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    if (left.previous >= 0) push_heaped(left.previous);
    push_heaped(best.left);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    out.push_back(symbols[i].id);
  }
}

}  // namespace weft::text
