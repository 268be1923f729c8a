// What can be walked, and how long it is. Everything is walked as a vector of items that is made at
// once, charged by its length: a loop over it cannot see a change, and what a template can walk is
// bounded by collection_items anyway. Generators, which Python makes lazily, are computed whole
// when they are made, so that `x|map('f')|first` runs f for every item; that shows only in steps,
// and in errors that Python would not have reached.
#include "jinja/operators_internal.h"
#include "jinja/unicode_internal.h"

namespace weft::jinja {

Value make_iterator(std::vector<Value> items, Budget& budget) {
  // A list of the same items checks and charges what an iterator over them takes.
  const Value list = make_list(std::move(items), &budget);
  auto iterator = std::make_shared<Iterator>();
  iterator->depth = list.depth();
  iterator->items = list.items();
  return Value::object(Kind::kIterator, std::move(iterator));
}

// At most 100,000 numbers. The count is taken in 128 bits: range(-2**63, 2**63 - 1) has a distance
// that 64 bits do not hold. Steps and ends beyond the last number are kept as they were given,
// since they print: range(0, 5, 10).
Value make_range(int64_t start, int64_t stop, int64_t step, bool from_input) {
  constexpr int64_t kMaxRange = 100'000;  // jinja2's sandbox
  if (step == 0) fail("range() arg 3 must not be zero");
  auto range = std::make_shared<Range>();
  range->start = start;
  range->stop = stop;
  range->step = step;
  range->from_input = from_input;
  const __int128 distance = __int128{step > 0 ? stop : start} - (step > 0 ? start : stop);
  const __int128 size = step > 0 ? step : -__int128{step};
  const __int128 count = distance <= 0 ? 0 : (distance + size - 1) / size;
  if (count > kMaxRange) fail("range() of more than " + std::to_string(kMaxRange) + " numbers");
  range->count = static_cast<int64_t>(count);
  return Value::object(Kind::kRange, std::move(range));
}

// A loop object can be walked in jinja2; here it says so and fails when it is (to_items).
bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kView:
    case Kind::kIterator:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

// Each character is a string with the origin of its bytes, which are never of two.
std::vector<Value> characters(const Value& value, Budget& budget) {
  const Text& text = value.text();
  budget.check_items(text.length());
  std::vector<Value> out;
  out.reserve(text.length());
  text.for_runs(0, text.n_bytes(), [&](std::string_view piece, Origin origin) {
    for (size_t at = 0; at < piece.size();) {
      const size_t n = character_at(piece, at).n_bytes;
      out.push_back(Value::string(Text(std::string(piece.substr(at, n)), origin, &budget),
                                  value.is_markup()));
      at += n;
    }
  });
  return out;
}

namespace {

// Pairs of items() are tuples, which each take memory and are charged when they are made.
std::vector<Value> view_items(const View& view, Budget& budget) {
  const auto& pairs = view.dict.dict().items;
  std::vector<Value> out;
  out.reserve(pairs.size());
  budget.step(std::ssize(pairs));
  for (const auto& [key, value] : pairs) {
    switch (view.what) {
      case View::What::kKeys:
        out.push_back(key);
        break;
      case View::What::kValues:
        out.push_back(value);
        break;
      case View::What::kItems:
        out.push_back(make_tuple({key, value}, &budget));
        break;
    }
  }
  return out;
}

}  // namespace

// A copy of the items; an iterator is at its end afterwards, so that a second walk finds nothing.
std::vector<Value> to_items(const Value& value, Budget& budget) {
  std::vector<Value> out;
  switch (value.kind()) {
    case Kind::kUndefined:
      return out;
    case Kind::kString:
      return characters(value, budget);
    case Kind::kList:
    case Kind::kTuple:
      budget.step(std::ssize(value.items()));
      return value.items();
    case Kind::kDict:
      budget.step(std::ssize(value.dict().items));
      for (const auto& [key, item] : value.dict().items) out.push_back(key);
      return out;
    case Kind::kRange: {
      const auto& range = value.as<Range>();
      budget.step(range.count);
      for (int64_t i = 0; i < range.count; ++i) out.push_back(range.at(i));
      return out;
    }
    case Kind::kView:
      return view_items(value.as<View>(), budget);
    case Kind::kIterator: {
      auto& iterator = value.as<Iterator>();
      budget.step(iterator.items.size() - iterator.at);
      out.assign(iterator.items.begin() + iterator.at, iterator.items.end());
      iterator.at = iterator.items.size();
      return out;
    }
    default:
      fail(std::string("'") + type_name(value) + "' object is not iterable");
  }
}

// Characters of a string, items of the others. O(1) for all.
int64_t length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return value.text().length();
    case Kind::kList:
    case Kind::kTuple:
      return value.items().size();
    case Kind::kDict:
      return value.dict().items.size();
    case Kind::kRange:
      return value.as<Range>().count;
    case Kind::kView:
      return value.as<View>().dict.dict().items.size();
    default:
      fail(std::string("object of type '") + type_name(value) + "' has no len()");
  }
}

}  // namespace weft::jinja
