// A string that remembers, for every byte, whether it comes from the template or from the input
// (the conversation). Immutable, cheap to copy, always valid UTF-8. Where all bytes have one
// origin, which is nearly always, it costs one flag. It knows nothing of Jinja's values. Thread
// safety: as std::shared_ptr<const T>.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft::jinja {

class Budget;

enum class Origin : uint8_t { kTemplate, kInput };

/// What a rendering consists of: text of one origin.
struct Segment {
  std::string text;
  bool from_input = false;
  bool operator==(const Segment&) const = default;
};

class Text {
 public:
  Text() = default;
  Text(std::string bytes, Origin origin, Budget* budget = nullptr);

  std::string_view view() const { return rep_ ? std::string_view(rep_->bytes) : ""; }
  size_t n_bytes() const { return rep_ ? rep_->bytes.size() : 0; }
  bool empty() const { return n_bytes() == 0; }

  /// Characters (code points); O(1), counted when the string was made.
  size_t length() const { return rep_ ? rep_->length : 0; }
  bool is_ascii() const { return length() == n_bytes(); }
  /// The byte at which character `index` <= length() begins; O(n), charged, unless ASCII.
  size_t byte_of(size_t index, Budget& budget) const;

  /// Bytes [begin, begin + n), which must not cut a character.
  Text substr(size_t begin, size_t n, Budget* budget) const;

  /// The origin of one byte.
  Origin origin_at(size_t byte) const;
  /// Whether any byte is the input's.
  bool has_input() const;
  /// Of what is made of the whole text and not of its bytes: the input's if any byte is.
  Origin origin() const { return has_input() ? Origin::kInput : Origin::kTemplate; }
  /// The same for bytes [begin, begin + n).
  Origin origin_of(size_t begin, size_t n) const;
  /// Calls fn(piece, origin) for every stretch of one origin within [begin, begin + n).
  template <class Fn>
  void for_runs(size_t begin, size_t n, Fn fn) const;

 private:
  friend class TextBuilder;
  struct Rep {
    Rep(std::string b, Origin o, std::vector<uint32_t> t, Budget* budget_or_null);
    ~Rep();
    Rep(const Rep&) = delete;
    Rep& operator=(const Rep&) = delete;
    const std::string bytes;
    const Origin first;                 // of the first byte
    const std::vector<uint32_t> turns;  // bytes at which the origin changes, ascending
    size_t length = 0;
    Budget* const budget;
    size_t held = 0;
  };
  explicit Text(std::shared_ptr<const Rep> rep) : rep_(std::move(rep)) {}

  std::shared_ptr<const Rep> rep_;  // null: empty
};

/// Puts texts together within the budget's limits.
class TextBuilder {
 public:
  /// `budget` may be null; `max_bytes` 0 is the budget's longest string.
  explicit TextBuilder(Budget* budget, size_t max_bytes = 0);

  void add(std::string_view bytes, Origin origin);
  void add(const Text& text) { add(text, 0, text.n_bytes()); }
  void add(const Text& text, size_t begin, size_t n);

  size_t n_bytes() const { return bytes_.size(); }
  Text finish();
  std::vector<Segment> finish_segments();

 private:
  Budget* budget_;
  size_t max_bytes_;
  std::string bytes_;
  Origin first_ = Origin::kTemplate;
  Origin last_ = Origin::kTemplate;
  std::vector<uint32_t> turns_;
};

template <class Fn>
void Text::for_runs(size_t begin, size_t n, Fn fn) const {
  if (n == 0) return;
  const std::string_view all(rep_->bytes);
  const auto& turns = rep_->turns;
  size_t lo = 0;
  for (size_t hi = turns.size(); lo < hi;) {  // the first turn after `begin`
    const size_t mid = (lo + hi) / 2;
    if (turns[mid] <= begin) {
      lo = mid + 1;
    } else {
      hi = mid;
    }
  }
  bool flipped = lo % 2 == 1;
  const size_t end = begin + n;
  for (size_t at = begin; at < end; ++lo, flipped = !flipped) {
    const size_t stop = lo < turns.size() ? std::min<size_t>(turns[lo], end) : end;
    const bool input = (rep_->first == Origin::kInput) != flipped;
    fn(all.substr(at, stop - at), input ? Origin::kInput : Origin::kTemplate);
    at = stop;
  }
}

}  // namespace weft::jinja
