// Making values. Every container checks its number of items and its depth and is charged before it
// exists, so that no other file has to; what is made outside of a rendering (JSON, the turns of a
// conversation) has no budget and is held to the default limits.
//
// Dicts have no hash table. A hash that an attacker does not know would have to be keyed by a
// random number, and then two renderings of the same input could take different times; sorting
// needs none of it, charges what it compares, and small dicts need no order at all. The corpus
// files keys-one-prefix and keys-sorted, keys of one long prefix, are what comparing without a
// charge would make slow.
#include "jinja/value.h"

#include <algorithm>
#include <numeric>

#include "jinja/budget_internal.h"

namespace weft::jinja {
namespace {

// From this many items on, a dict is searched by its sorted keys. The objects of messages have
// fewer, as a rule.
constexpr size_t kIndexedItems = 12;

// Bytes that the object's destructor gives back to the budget.
void account(Object& object, size_t n_bytes, Budget* budget) {
  if (budget == nullptr) return;
  budget->hold(n_bytes);
  object.budget = budget;
  object.held = n_bytes;
}

// Called for every item that goes into a container, so the depth of a value is known without
// walking it, and the container that would be too deep is never made.
void raise_depth(Object& object, const Value& child, Budget* budget) {
  object.depth = std::max(object.depth, child.depth() + 1);
  const int limit = budget ? budget->limits().value_depth : Limits{}.value_depth;
  if (object.depth > limit) fail_limit("values are nested deeper than " + std::to_string(limit));
}

// Lists and tuples are one struct; only `kind` and how they print differ.
Value make_sequence(Kind kind, std::vector<Value> items, Budget* budget,
                    std::vector<std::string_view> names) {
  if (budget != nullptr) {
    budget->check_items(items.size());
    budget->step(2 + std::ssize(items));
  }
  auto sequence = std::make_shared<Sequence>();
  for (const Value& item : items) raise_depth(*sequence, item, budget);
  account(*sequence, items.size() * sizeof(Value) + sizeof(Sequence), budget);
  sequence->items = std::move(items);
  sequence->names = std::move(names);
  return Value::object(kind, std::move(sequence));
}

}  // namespace

Object::~Object() {
  if (budget != nullptr) budget->release(held);
}

Value Value::boolean(bool b, bool from_input) {
  Value value(Kind::kBool, from_input);
  value.int_ = b ? 1 : 0;
  return value;
}

Value Value::integer(int64_t i, bool from_input) {
  Value value(Kind::kInt, from_input);
  value.int_ = i;
  return value;
}

Value Value::number(double d, bool from_input) {
  Value value(Kind::kFloat, from_input);
  value.float_ = d;
  return value;
}

Value Value::string(Text text, bool markup) {
  Value value(Kind::kString, false);
  value.text_ = std::move(text);
  value.markup_ = markup;
  return value;
}

Value Value::string(std::string bytes, Origin origin) {
  return string(Text(std::move(bytes), origin));
}

Value Value::object(Kind kind, std::shared_ptr<Object> object) {
  Value value(kind, false);
  value.object_ = std::move(object);
  return value;
}

const std::vector<Value>& Value::items() const { return as<Sequence>().items; }
const Dict& Value::dict() const { return as<Dict>(); }

// by_key has all keys or is empty: a dict with a key that is no string has none, and is searched
// from the beginning, where such keys are passed over.
const Value* Dict::find(std::string_view key, Budget* charged) const {
  if (by_key.empty()) {
    if (charged != nullptr) charged->touch(items.size());
    for (const auto& [k, v] : items) {
      if (k.is_string() && same_text(k.view(), key, charged)) return &v;
    }
    return nullptr;
  }
  size_t low = 0;
  for (size_t high = by_key.size(); low < high;) {
    const size_t middle = (low + high) / 2;
    const auto& [k, v] = items[by_key[middle]];
    if (charged != nullptr) charged->touch(1);
    const int order = compare_text(k.view(), key, charged);
    if (order == 0) return &v;
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return nullptr;
}

Value make_list(std::vector<Value> items, Budget* budget) {
  return make_sequence(Kind::kList, std::move(items), budget, {});
}

Value make_tuple(std::vector<Value> items, Budget* budget, std::vector<std::string_view> names) {
  return make_sequence(Kind::kTuple, std::move(items), budget, std::move(names));
}

namespace {

using Items = std::vector<std::pair<Value, Value>>;

// Python's dict: an equal key keeps its first place and takes the last value, so {"b": 1, "a": 2,
// "b": 3} is {'b': 3, 'a': 2}. Leaves the sorted order of what remains in `order`.
//
// Sorting finds the equal keys in n log n comparisons; looking each key up among those before it
// would be quadratic (the corpus file json-same-keys). Places break ties, so that of equal keys the
// first comes first and the last comes last. When something was dropped the indices no longer fit,
// and the second call sorts what remains, where no two keys are equal.
void merge_equal_keys(Items& items, std::vector<uint32_t>& order, Budget* budget) {
  order.resize(items.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](uint32_t i) { return items[i].first.view(); };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (budget != nullptr) budget->touch(1);
    const int by_text = compare_text(key(a), key(b), budget);
    return by_text != 0 ? by_text < 0 : a < b;
  });
  std::vector<bool> drop(items.size());
  bool any = false;
  for (size_t i = 0; i < order.size();) {
    size_t last = i;
    while (last + 1 < order.size() && same_text(key(order[last + 1]), key(order[i]), budget)) {
      ++last;
    }
    if (last > i) {
      items[order[i]].second = items[order[last]].second;
      for (size_t j = i + 1; j <= last; ++j) drop[order[j]] = true;
      any = true;
    }
    i = last + 1;
  }
  if (!any) return;
  Items kept;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!drop[i]) kept.push_back(std::move(items[i]));
  }
  items = std::move(kept);
  merge_equal_keys(items, order, budget);
}

}  // namespace

// Keys that are no strings are as their maker left them: evaluate_dict merges those of a literal as
// it goes, and neither JSON nor the functions have any.
Value make_dict(Items items, Budget* budget) {
  if (budget != nullptr) {
    budget->check_items(items.size());
    budget->step(2 + std::ssize(items) * 2);
  }
  auto dict = std::make_shared<Dict>();
  const bool all_strings = std::all_of(items.begin(), items.end(),
                                       [](const auto& item) { return item.first.is_string(); });
  if (all_strings && items.size() > 1) {
    merge_equal_keys(items, dict->by_key, budget);
    if (items.size() < kIndexedItems) dict->by_key = {};
  }
  for (const auto& [key, value] : items) {
    raise_depth(*dict, key, budget);
    raise_depth(*dict, value, budget);
  }
  account(*dict, items.size() * (2 * sizeof(Value) + 4) + sizeof(Dict), budget);
  dict->items = std::move(items);
  return Value::object(Kind::kDict, std::move(dict));
}

Value make_undefined(std::string message) {
  auto info = std::make_shared<UndefinedInfo>();
  info->message = std::move(message);
  return Value::object(Kind::kUndefined, std::move(info));
}

// Python's names where it has one, because messages are compared with Python's.
const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kView:
      return "dict view";
    case Kind::kIterator:
      return "generator";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kFunction:
      return "function";
    case Kind::kMethod:
      return "method";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
  }
  return "object";
}

}  // namespace weft::jinja
