// value.name, value[key] and value[begin:end:step], by the rules of jinja2's Environment.getattr
// and getitem: a name after a dot is an attribute first and then an item, a key in brackets an item
// first and then an attribute. Messages need both, since an object may have a key named as a
// method: with {"items": 1} as d, d['items'] is 1 and d.items the method.
//
// What is not there is undefined and not an error, and only using it fails: `x.y is defined` is
// False and `x.y.z` an error that names y. Names with leading underscores, which the sandbox hides,
// do not exist here in the first place: nothing has them but namespaces.
#include "jinja/runtime_internal.h"
#include "jinja/unicode_internal.h"

namespace weft::jinja {
namespace {

[[noreturn]] void fail_unhashable(const Value& key) {
  fail(std::string("unhashable type: '") + type_name(key) + "'");
}

// The undefined value with Python's message. Making the text is charged, as templates ask for what
// may be missing in every iteration (`message.tool_calls is defined`).
Value missing(const Value& value, std::string_view name, Budget& budget) {
  budget.step(4);
  return make_undefined(std::string("'") + type_name(value) + " object' has no attribute " +
                        quoted(name));
}

// Attributes that are data, and methods; undefined where there is none. Names that begin with an
// underscore are hidden in namespaces, as the sandbox does it.
Value find_attribute(const Value& value, std::string_view name, Budget& budget) {
  if (value.is(Kind::kNamespace)) {
    if (const Value* found = value.as<Namespace>().find(name, budget)) {
      return name.starts_with('_') ? missing(value, name, budget) : *found;
    }
    return {};
  }
  if (value.is(Kind::kTuple)) {
    const auto& names = value.as<Sequence>().names;
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == name) return value.items()[i];
    }
  }
  if (value.is(Kind::kLoop)) return loop_attribute(value, name);
  if (value.is(Kind::kMacro) && name == "name") {
    return Value::string(value.as<Macro>().def->name);
  }
  if (value.is(Kind::kCycler) && name == "current") {
    const auto& cycler = value.as<Cycler>();
    return cycler.items[cycler.at];
  }
  if (value.is(Kind::kRange)) {
    const auto& range = value.as<Range>();
    if (name == "start") return Value::integer(range.start, range.from_input);
    if (name == "stop") return Value::integer(range.stop, range.from_input);
    if (name == "step") return Value::integer(range.step, range.from_input);
  }
  budget.step(2);  // a table is searched and an object made
  return find_method(value, name);
}

// value[key] where Python would not raise; undefined otherwise. Strings give a character, negative
// indices count from the end, and a list as key of a dict is nothing to find.
Value find_item(const Value& value, const Value& key, Budget& budget) {
  if (value.is(Kind::kDict)) {
    if (key.is(Kind::kList) || key.is(Kind::kDict)) return {};
    const Value* found = find_key(value.dict(), key, budget);
    return found == nullptr ? Value() : *found;
  }
  if (!key.is_int()) return {};
  int64_t index = key.as_int();
  if (value.is_string()) {
    const int64_t n = value.text().length();
    if (index < 0) index += n;
    if (index < 0 || index >= n) return {};
    const size_t at = value.text().byte_of(index, budget);
    const size_t n_bytes = character_at(value.view(), at).n_bytes;
    return Value::string(value.text().substr(at, n_bytes, &budget), value.is_markup());
  }
  if (value.is_list() || value.is(Kind::kRange)) {
    const int64_t n = length_of(value);
    if (index < 0) index += n;
    if (index < 0 || index >= n) return {};
    if (value.is(Kind::kRange)) return value.as<Range>().at(index);
    return value.items()[index];
  }
  return {};
}

}  // namespace

// From the beginning; their number is bounded by the interpreter (check_attributes).
Value* Namespace::find(std::string_view name, Budget& charged) {
  charged.touch(attributes.size());
  for (auto& [key, value] : attributes) {
    if (same_text(key.view(), name, &charged)) return &value;
  }
  return nullptr;
}

// By text where the key is a string. Others are compared one by one, which finds 1 under 1.0 and
// true; in a dict whose keys are all strings there are none of them.
const Value* find_key(const Dict& dict, const Value& key, Budget& budget) {
  budget.step();
  if (key.is_string()) return dict.find(key.view(), &budget);
  if (key.is(Kind::kList) || key.is(Kind::kDict)) fail_unhashable(key);
  if (!dict.by_key.empty()) return nullptr;  // all keys are strings
  for (const auto& [other, value] : dict.items) {
    if (equals(other, key, budget)) return &value;
  }
  return nullptr;
}

// `found.object()` tells an undefined value with a message, as for `append`, from none at all: that
// message must not be replaced by an item's.
Value get_attribute(const Value& value, std::string_view name, Budget& budget) {
  budget.step();
  if (value.is_undefined()) fail_undefined(value);
  Value found = find_attribute(value, name, budget);
  if (!found.is_undefined() || found.object()) return found;
  if (value.is(Kind::kDict)) {
    if (const Value* item = value.dict().find(name, &budget)) return *item;
  }
  return missing(value, name, budget);
}

Value get_item(const Value& value, const Value& key, Budget& budget) {
  budget.step();
  if (value.is_undefined()) fail_undefined(value);
  Value found = find_item(value, key, budget);
  if (!found.is_undefined() || found.object()) return found;
  if (key.is_string()) {
    found = find_attribute(value, key.view(), budget);
    if (!found.is_undefined() || found.object()) return found;
    return missing(value, key.view(), budget);
  }
  budget.step(4);
  if (key.is_int()) {
    return make_undefined(std::string(type_name(value)) + " object has no element " +
                          std::to_string(key.as_int()));
  }
  return make_undefined(std::string(type_name(value)) + " object has no such element");
}

namespace {

struct SliceRange {
  int64_t begin = 0;
  int64_t step = 1;
  int64_t count = 0;
};

// One bound of a slice as an index: absent ones are `fallback`, negative ones count from the end,
// and what lies outside is brought to the nearest end, so [-2**63:] is no overflow.
int64_t clamp_bound(const Value& bound, int64_t n, int64_t lowest, int64_t highest,
                    int64_t fallback) {
  if (bound.is_none()) return fallback;
  if (!bound.is_int()) {
    if (bound.is_undefined()) fail_undefined(bound);
    fail("slice indices must be integers or None");
  }
  int64_t at = bound.as_int();
  if (at < 0) at = at < -n ? lowest : at + n;
  return std::min(std::max(at, lowest), highest);
}

// Python's slice.indices: where to begin, by how much to step, how many items. The lowest step
// becomes -INT64_MAX, whose negative exists. [::-1] begins at n - 1 and ends before -1.
SliceRange slice_range(const Value& begin, const Value& end, const Value& step, int64_t n) {
  SliceRange range;
  if (!step.is_none()) {
    if (!step.is_int()) fail("slice indices must be integers or None");
    range.step = step.as_int();
    if (range.step == 0) fail("slice step cannot be zero");
    range.step = std::max<int64_t>(range.step, -INT64_MAX);
  }
  const bool forward = range.step > 0;
  const int64_t lowest = forward ? 0 : -1;
  const int64_t highest = forward ? n : n - 1;
  range.begin = clamp_bound(begin, n, lowest, highest, forward ? 0 : n - 1);
  const int64_t stop = clamp_bound(end, n, lowest, highest, forward ? n : -1);
  const int64_t distance = forward ? stop - range.begin : range.begin - stop;
  const int64_t size = forward ? range.step : -range.step;
  range.count = distance <= 0 ? 0 : (distance - 1) / size + 1;
  return range;
}

// A step of 1 is one piece of the text. Others collect the places of all characters first, so that
// each is found at once; without it "é…"[::2] would walk from the beginning for each character.
Value slice_string(const Value& value, const SliceRange& range, Budget& budget) {
  const Text& text = value.text();
  if (range.count == 0) return Value::string(Text(), value.is_markup());
  if (range.step == 1) {
    const size_t from = text.byte_of(range.begin, budget);
    const size_t to = text.byte_of(range.begin + range.count, budget);
    return Value::string(text.substr(from, to - from, &budget), value.is_markup());
  }
  budget.step(range.count);
  std::vector<size_t> starts;  // of each character, where they take more than a byte
  if (!text.is_ascii()) {
    budget.step(text.length());
    for (size_t at = 0; at < text.n_bytes(); at += character_at(text.view(), at).n_bytes) {
      starts.push_back(at);
    }
  }
  TextBuilder out(&budget);
  for (int64_t i = 0; i < range.count; ++i) {
    const int64_t index = range.begin + i * range.step;
    const size_t at = starts.empty() ? index : starts[index];
    out.add(text, at, character_at(text.view(), at).n_bytes);
  }
  return Value::string(out.finish(), value.is_markup());
}

}  // namespace

// Ranges stay ranges, as in Python: range(10)[2:8:3] is range(2, 8, 3). Its numbers are computed in
// 128 bits, though a slice of what make_range allows always fits, but for the step of one item or
// none.
Value get_slice(const Value& value, const Value& begin, const Value& end, const Value& step,
                Budget& budget) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_string() && !value.is_list() && !value.is(Kind::kRange)) {
    fail(std::string("a ") + type_name(value) + " cannot be sliced");
  }
  const SliceRange range = slice_range(begin, end, step, length_of(value));
  if (value.is_string()) return slice_string(value, range, budget);
  if (value.is(Kind::kRange)) {
    const auto& whole = value.as<Range>();
    const int64_t first = whole.start + range.begin * whole.step;
    __int128 by = __int128{whole.step} * range.step;
    if (range.count <= 1) by = 1;  // no second number that a step would reach
    return make_range(first, static_cast<int64_t>(first + by * range.count),
                      static_cast<int64_t>(by), whole.from_input);
  }
  std::vector<Value> items;
  items.reserve(range.count);
  for (int64_t i = 0; i < range.count; ++i) {
    items.push_back(value.items()[range.begin + i * range.step]);
  }
  return value.is(Kind::kList) ? make_list(std::move(items), &budget)
                               : make_tuple(std::move(items), &budget);
}

}  // namespace weft::jinja
