// Texts and their making. How origins are stored was chosen for what templates do most: concatenate
// a few long strings, of one origin each. An array of origins as long as the text would double
// memory and every copy; a list of stretches, as here, costs 4 bytes a change. Its worst case, a
// text that alternates at every byte, is what the corpus file `turns` does, so that adding a
// stretch is charged by itself (kPieceWork) beside its bytes.
//
// A text of one origin takes part in everything by views of its bytes; for_runs hides that there
// may be more than one.
#include "jinja/text.h"

#include <algorithm>
#include <utility>

#include "jinja/budget_internal.h"

namespace weft::jinja {

// Counting characters once here makes length() O(1), which `loop` and slices ask for again and
// again. Bytes that continue a character (10xxxxxx) are not counted.
Text::Rep::Rep(std::string b, Origin o, std::vector<uint32_t> t, Budget* budget_or_null)
    : bytes(std::move(b)), first(o), turns(std::move(t)), budget(budget_or_null) {
  length = std::count_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0xc0) != 0x80; });
  if (budget == nullptr) return;
  budget->step(2);
  budget->work(bytes.size() / 2);  // that were counted
  const size_t bytes_held = bytes.size() + turns.size() * sizeof(uint32_t) + sizeof(Rep);
  budget->hold(bytes_held);
  held = bytes_held;
}

Text::Rep::~Rep() {
  if (budget != nullptr) budget->release(held);
}

// The empty text has no Rep: it costs nothing, and has no origin.
Text::Text(std::string bytes, Origin origin, Budget* budget) {
  if (bytes.empty()) return;
  rep_ = std::make_shared<Rep>(std::move(bytes), origin, std::vector<uint32_t>{}, budget);
}

// Beyond ASCII this walks from the beginning. An index of every 64th character would make it
// faster, but templates index a text by character seldom, and slices by step collect the places
// once (access.cc).
size_t Text::byte_of(size_t index, Budget& budget) const {
  if (is_ascii()) return index;
  const std::string_view bytes = view();
  budget.work(2 * bytes.size());
  size_t at = 0;
  for (; at < bytes.size(); ++at) {
    if ((bytes[at] & 0xc0) == 0x80) continue;
    if (index == 0) return at;
    --index;
  }
  return at;
}

// The whole text is returned as it is, sharing the bytes: `s[:]`, and trim that finds nothing to
// trim.
Text Text::substr(size_t begin, size_t n, Budget* budget) const {
  if (n == 0) return {};
  if (n == n_bytes()) return *this;
  TextBuilder builder(budget);
  builder.add(*this, begin, n);
  return builder.finish();
}

Origin Text::origin_at(size_t byte) const {
  Origin found = Origin::kTemplate;
  for_runs(byte, 1, [&](std::string_view, Origin origin) { found = origin; });
  return found;
}

Origin Text::origin_of(size_t begin, size_t n) const {
  Origin found = Origin::kTemplate;
  for_runs(begin, n, [&](std::string_view, Origin origin) {
    if (origin == Origin::kInput) found = origin;
  });
  return found;
}

// A text with a turn has both origins, so its first byte and the turns tell without a walk.
bool Text::has_input() const {
  return rep_ && (rep_->first == Origin::kInput || !rep_->turns.empty());
}

namespace {

// The price of a stretch beside its bytes, which are only copied: text may consist of many short
// stretches. In 64ths of a step.
constexpr size_t kPieceWork = 32;

}  // namespace

TextBuilder::TextBuilder(Budget* budget, size_t max_bytes)
    : budget_(budget), max_bytes_(max_bytes) {
  if (max_bytes_ == 0) max_bytes_ = budget ? budget->limits().string_bytes : Limits{}.string_bytes;
}

// The sum is compared by subtraction, which cannot overflow: max_bytes_ is never below what there
// is. Only a change of origin adds a turn, so that neighbours of one origin melt into one stretch.
void TextBuilder::add(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  if (bytes.size() > max_bytes_ - bytes_.size()) {
    fail_limit("a string would be longer than " + std::to_string(max_bytes_) + " bytes");
  }
  if (budget_ != nullptr) budget_->work(bytes.size() / 4 + kPieceWork);
  if (bytes_.empty()) {
    first_ = origin;
  } else if (origin != last_) {
    turns_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
  last_ = origin;
  bytes_ += bytes;
}

void TextBuilder::add(const Text& text, size_t begin, size_t n) {
  text.for_runs(begin, n, [&](std::string_view piece, Origin origin) { add(piece, origin); });
}

Text TextBuilder::finish() {
  if (bytes_.empty()) return {};
  return Text(std::make_shared<const Text::Rep>(std::exchange(bytes_, {}), first_,
                                                std::exchange(turns_, {}), budget_));
}

// Cuts at every turn. The end is added as a last turn, so that the loop needs no case of its own.
std::vector<Segment> TextBuilder::finish_segments() {
  std::vector<Segment> segments;
  size_t at = 0;
  bool input = first_ == Origin::kInput;
  turns_.push_back(static_cast<uint32_t>(bytes_.size()));
  for (const uint32_t turn : turns_) {
    if (budget_ != nullptr) budget_->step();
    if (turn > at) segments.push_back({bytes_.substr(at, turn - at), input});
    at = turn;
    input = !input;
  }
  turns_.clear();
  bytes_.clear();
  return segments;
}

}  // namespace weft::jinja
