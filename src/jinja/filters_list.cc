// Filters over lists, dicts and whatever else can be walked, as jinja2's filters.py has them. What
// jinja2 makes a generator is an iterator here (map, select, batch, slice, unique, reverse): it
// prints no list and has no length until |list makes a list of it.
//
// Keys are computed once an item and sorted beside it (Keyed), not again in every comparison. No
// filter hashes: unique and groupby compare, and the comparisons are charged, so that the worst
// input costs steps and not time.
#include <algorithm>

#include "jinja/filters_internal.h"

namespace weft::jinja {
namespace {

// sort, unique, min, max, groupby and dictsort ignore case unless told otherwise.
Value lowered(const Value& value, Budget& budget) {
  return value.is_string() ? text_case(value, 'l', budget) : value;
}

/// jinja2's attribute getter: "a.b.0" looks up a, then b, then element 0, so
/// |map(attribute='a.b.0') of [{'a': {'b': [7]}}] is [7]. Without an attribute it gives the item. A
/// part that is missing is `fallback`, where there is one; else it is undefined, and a part after
/// it fails.
class Getter {
 public:
  Getter(Runtime& rt, const Value* attribute, const Value* fallback, bool ignore_case)
      : rt_(rt), fallback_(fallback), ignore_case_(ignore_case) {
    if (attribute == nullptr || attribute->is_none()) return;
    if (!attribute->is_string()) {
      keys_.push_back(*attribute);
      return;
    }
    add_path(attribute->text());
  }

  Value operator()(const Value& item) const {
    rt_.budget.step();
    Value value = item;
    for (const Value& key : keys_) {
      value = get_item(value, key, rt_.budget);
      if (fallback_ != nullptr && !fallback_->is_none() && value.is_undefined()) {
        value = *fallback_;
      }
    }
    return ignore_case_ ? lowered(value, rt_.budget) : value;
  }

 private:
  // Digits are an element's number, as in jinja2, and keep their origin as it. At most 64 parts,
  // which every item would be taken through.
  void add_path(const Text& path) {
    const std::string_view all = path.view();
    rt_.budget.touch(all.size());
    for (size_t at = 0; at <= all.size();) {
      const size_t dot = std::min(all.find('.', at), all.size());
      const std::string_view part = all.substr(at, dot - at);
      const bool digits = !part.empty() && part.size() < 10 &&
                          part.find_first_not_of("0123456789") == std::string_view::npos;
      const Origin origin = path.origin_of(at, part.size());
      keys_.push_back(digits
                          ? Value::integer(std::stoll(std::string(part)), origin == Origin::kInput)
                          : Value::string(path.substr(at, part.size(), &rt_.budget)));
      at = dot + 1;
      if (keys_.size() > 64) fail("an attribute of more than 64 parts");
    }
  }

  Runtime& rt_;
  std::vector<Value> keys_;
  const Value* fallback_;
  bool ignore_case_;
};

// An item with what it is sorted by.
struct Keyed {
  Value key;
  Value item;
};

std::vector<Keyed> keyed(const std::vector<Value>& items, const Getter& getter) {
  std::vector<Keyed> out;
  out.reserve(items.size());
  for (const Value& item : items) out.push_back({getter(item), item});
  return out;
}

// Stable, and reversed by comparing the other way round, so that equal items keep their order in
// both, as in Python.
void sort_by_key(std::vector<Keyed>& items, bool reverse, Budget& budget) {
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(b.key, a.key, budget) : less(a.key, b.key, budget);
  });
}

std::vector<Value> items_of(std::vector<Keyed>&& sorted) {
  std::vector<Value> out;
  out.reserve(sorted.size());
  for (Keyed& entry : sorted) out.push_back(std::move(entry.item));
  return out;
}

// len; |count is another name of it.
Value length(Runtime&, const Value& value, const Args& args) {
  const Bound bound(args, "length", {}, 0);
  return Value::integer(length_of(value));
}

// Takes one from an iterator, and leaves it the rest.
Value first(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "first", {}, 0);
  if (value.is(Kind::kIterator)) {
    auto& iterator = value.as<Iterator>();
    if (iterator.at < iterator.items.size()) return iterator.items[iterator.at++];
  } else if (value.is_list() || value.is_string() || value.is(Kind::kRange)) {
    if (length_of(value) > 0) return get_item(value, Value::integer(0), rt.budget);
  } else {
    const std::vector<Value> items = to_items(value, rt.budget);
    if (!items.empty()) return items.front();
  }
  return make_undefined("No first item, sequence was empty.");
}

// Python cannot reverse a generator and says so; what else there is, is walked.
Value last(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "last", {}, 0);
  if (value.is(Kind::kIterator)) fail("'generator' object is not reversible");
  const std::vector<Value> items = to_items(value, rt.budget);
  if (!items.empty()) return items.back();
  return make_undefined("No last item, sequence was empty.");
}

// |join(', ', attribute='name'); numbers are written as str writes them, unlike str.join.
Value join_filter(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "join", {"d", "attribute"}, 0);
  std::vector<Value> items = to_items(value, rt.budget);
  if (!bound.is_none(1)) {
    const Getter getter(rt, bound.get(1), nullptr, false);
    for (Value& item : items) item = getter(item);
  }
  const Text separator = bound.has(0) ? to_str(bound[0], rt.budget) : Text();
  return join(separator, items, false, rt.budget);
}

Value list(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "list", {}, 0);
  return make_list(to_items(value, rt.budget), &rt.budget);
}

// Pairs of a dict, and none of undefined: {% for k, v in params.properties|items %}.
Value items(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "items", {}, 0);
  if (value.is_undefined()) return make_iterator({}, rt.budget);
  if (!value.is(Kind::kDict)) fail("Can only get item pairs from a mapping.");
  return make_iterator(
      to_items(find_method(value, "items").as<Method>().fn(rt, value, {}), rt.budget), rt.budget);
}

// A string reversed is a string. A list becomes an iterator, as in Python.
Value reverse(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "reverse", {}, 0);
  if (value.is_string()) {
    return get_slice(value, Value::none(), Value::none(), Value::integer(-1), rt.budget);
  }
  std::vector<Value> reversed = to_items(value, rt.budget);
  std::reverse(reversed.begin(), reversed.end());
  if (value.is(Kind::kIterator)) return make_list(std::move(reversed), &rt.budget);
  return make_iterator(std::move(reversed), rt.budget);
}

// By the item, by an attribute, or by several with commas between, of which lists are compared:
// |sort(attribute='a,b').
Value sort(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "sort", {"reverse", "case_sensitive", "attribute"}, 0);
  const bool ignore_case = !bound.flag(1, false);
  std::vector<Value> all = to_items(value, rt.budget);
  std::vector<Keyed> sorted;
  if (!bound.is_none(2) && bound[2].is_string() &&
      bound[2].view().find(',') != std::string_view::npos) {
    std::vector<Getter> getters;
    const Text& paths = bound[2].text();
    for (size_t at = 0; at < paths.n_bytes();) {
      const size_t comma = std::min(paths.view().find(',', at), paths.n_bytes());
      const Value part = Value::string(paths.substr(at, comma - at, &rt.budget));
      getters.emplace_back(rt, &part, nullptr, ignore_case);
      at = comma + 1;
      if (getters.size() > 64) fail("a sort by more than 64 attributes");
    }
    for (const Value& item : all) {
      std::vector<Value> keys;
      for (const Getter& getter : getters) keys.push_back(getter(item));
      sorted.push_back({make_list(std::move(keys), &rt.budget), item});
    }
  } else {
    sorted = keyed(all, Getter(rt, bound.get(2), nullptr, ignore_case));
  }
  sort_by_key(sorted, bound.flag(0, false), rt.budget);
  return make_list(items_of(std::move(sorted)), &rt.budget);
}

// Pairs sorted by key or value: {'b': 1, 'a': 2} gives [('a', 2), ('b', 1)].
Value dictsort(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "dictsort", {"case_sensitive", "by", "reverse"}, 0);
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is(Kind::kDict)) fail(std::string("dictsort of ") + type_name(value));
  const std::string_view by = bound.has(1) ? bound.text(1).view() : "key";
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  const bool ignore_case = !bound.flag(0, false);
  std::vector<Keyed> sorted;
  for (const auto& [key, item] : value.dict().items) {
    const Value& sort_key = by == "key" ? key : item;
    sorted.push_back({ignore_case ? lowered(sort_key, rt.budget) : sort_key,
                      make_tuple({key, item}, &rt.budget)});
  }
  sort_by_key(sorted, bound.flag(2, false), rt.budget);
  return make_list(items_of(std::move(sorted)), &rt.budget);
}

// The first of equal items stays: ['a', 'A'] gives ['a']. Quadratic where all differ, and charged
// so; a set would need a hash.
Value unique(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "unique", {"case_sensitive", "attribute"}, 0);
  const Getter getter(rt, bound.get(1), nullptr, !bound.flag(0, false));
  std::vector<Value> seen;
  std::vector<Value> kept;
  for (const Value& item : to_items(value, rt.budget)) {
    Value key = getter(item);
    if (key.is(Kind::kList) || key.is(Kind::kDict)) {
      fail(std::string("unhashable type: '") + type_name(key) + "'");
    }
    const bool known = std::any_of(seen.begin(), seen.end(), [&](const Value& other) {
      return equals(other, key, rt.budget);
    });
    if (known) continue;
    seen.push_back(std::move(key));
    kept.push_back(item);
  }
  return make_iterator(std::move(kept), rt.budget);
}

template <bool kMax>
// The first of the largest or smallest; undefined for an empty list.
Value extreme(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, kMax ? "max" : "min", {"case_sensitive", "attribute"}, 0);
  const Getter getter(rt, bound.get(1), nullptr, !bound.flag(0, false));
  const std::vector<Keyed> all = keyed(to_items(value, rt.budget), getter);
  if (all.empty()) return make_undefined("No aggregated item, sequence was empty.");
  const Keyed* best = &all[0];
  for (const Keyed& entry : all) {
    const bool better =
        kMax ? less(best->key, entry.key, rt.budget) : less(entry.key, best->key, rt.budget);
    if (better) best = &entry;
  }
  return best->item;
}

// Adds from `start` on, left to right. Strings are refused, as Python does.
Value sum(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "sum", {"attribute", "start"}, 0);
  const Getter getter(rt, bound.get(0), nullptr, false);
  Value total = bound.has(1) ? bound[1] : Value::integer(0);
  if (total.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : to_items(value, rt.budget)) {
    total = binary(BinaryOp::kAdd, total, getter(item), rt.budget);
  }
  return total;
}

// Lines of `linecount` items, the last one filled up: [1, 2, 3]|batch(2, 0) is [[1, 2], [3, 0]].
Value batch(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "batch", {"linecount", "fill_with"}, 1);
  const int64_t size = bound.integer(0, 1);
  std::vector<Value> out;
  std::vector<Value> line;
  for (const Value& item : to_items(value, rt.budget)) {
    if (std::ssize(line) == size) {
      out.push_back(make_list(std::exchange(line, {}), &rt.budget));
    }
    line.push_back(item);
  }
  if (!line.empty()) {
    if (!bound.is_none(1) && size > std::ssize(line)) {
      rt.budget.check_items(size);
      line.resize(size, bound[1]);
    }
    out.push_back(make_list(std::move(line), &rt.budget));
  }
  return make_iterator(std::move(out), rt.budget);
}

// `slices` lists of nearly equal length, the longer ones first: of seven items in three, 3, 2 and
// 2. A filler goes into each shorter one.
Value slice(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "slice", {"slices", "fill_with"}, 1);
  const int64_t slices = bound.integer(0, 1);
  if (slices <= 0) fail("slice: the number of slices must be positive");
  rt.budget.check_items(slices);
  const std::vector<Value> all = to_items(value, rt.budget);
  const int64_t n = std::ssize(all);
  std::vector<Value> out;
  for (int64_t i = 0; i < slices; ++i) {
    const int64_t extra = n % slices;
    const auto begin = all.begin() + i * (n / slices) + std::min(i, extra);
    std::vector<Value> part(begin, begin + n / slices + (i < extra ? 1 : 0));
    if (!bound.is_none(1) && i >= extra) part.push_back(bound[1]);
    out.push_back(make_list(std::move(part), &rt.budget));
  }
  return make_iterator(std::move(out), rt.budget);
}

// Sorted by the attribute, then cut where it changes; each group is a pair with the names grouper
// and list. The grouper is the first member's own, not the one with small letters that it was
// compared by.
Value groupby(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = bound.flag(2, false);
  const Getter getter(rt, bound.get(0), bound.get(1), !case_sensitive);
  const Getter exact(rt, bound.get(0), bound.get(1), false);
  std::vector<Keyed> sorted = keyed(to_items(value, rt.budget), getter);
  sort_by_key(sorted, false, rt.budget);
  std::vector<Value> groups;
  for (size_t i = 0; i < sorted.size();) {
    std::vector<Value> members;
    size_t end = i;
    while (end < sorted.size() && equals(sorted[end].key, sorted[i].key, rt.budget)) {
      members.push_back(sorted[end++].item);
    }
    end = std::max(end, i + 1);  // NaN equals nothing, not even itself
    if (members.empty()) members.push_back(sorted[i].item);
    Value grouper = exact(members.front());
    groups.push_back(make_tuple({std::move(grouper), make_list(std::move(members), &rt.budget)},
                                &rt.budget, {"grouper", "list"}));
    i = end;
  }
  return make_list(std::move(groups), &rt.budget);
}

// By an attribute, or through a filter with its arguments: |map(attribute='x'), |map('upper').
Value map(Runtime& rt, const Value& value, const Args& args) {
  std::vector<Value> out;
  if (!truthy(value)) return make_iterator(std::move(out), rt.budget);
  if (args.positional.empty()) {
    const Bound bound(args, "map", {"attribute", "default"}, 1);
    const Getter getter(rt, bound.get(0), bound.get(1), false);
    for (const Value& item : to_items(value, rt.budget)) out.push_back(getter(item));
    return make_iterator(std::move(out), rt.budget);
  }
  if (!args.positional[0].is_string()) fail("map: the filter's name must be a string");
  const std::string_view name = args.positional[0].view();
  const Args rest{{args.positional.begin() + 1, args.positional.end()}, args.named};
  for (const Value& item : to_items(value, rt.budget)) {
    out.push_back(apply_filter(rt, name, item, rest));
  }
  return make_iterator(std::move(out), rt.budget);
}

template <bool kByAttribute, bool kKeep>
// select, reject, selectattr and rejectattr: the item or an attribute of it, by a test with its
// arguments or by truth. kKeep: those for which it holds stay.
Value select(Runtime& rt, const Value& value, const Args& args) {
  std::vector<Value> out;
  if (!truthy(value)) return make_iterator(std::move(out), rt.budget);
  const size_t skip = kByAttribute ? 1 : 0;
  if (args.positional.size() < skip) fail("Missing parameter for attribute name");
  const Getter getter(rt, kByAttribute ? &args.positional[0] : nullptr, nullptr, false);
  std::string_view test;
  Args rest;
  if (args.positional.size() > skip) {
    if (!args.positional[skip].is_string()) fail("the test's name must be a string");
    test = args.positional[skip].view();
    rest.positional.assign(args.positional.begin() + skip + 1, args.positional.end());
    rest.named = args.named;
  }
  for (const Value& item : to_items(value, rt.budget)) {
    const Value looked_at = getter(item);
    const bool holds = test.empty() ? truthy(looked_at) : apply_test(rt, test, looked_at, rest);
    if (holds == kKeep) out.push_back(item);
  }
  return make_iterator(std::move(out), rt.budget);
}

// For undefined, and with `true` as second argument for everything false: none|default('x') is
// none, none|default('x', true) is 'x'.
Value default_value(Runtime&, const Value& value, const Args& args) {
  const Bound bound(args, "default", {"default_value", "boolean"}, 0);
  const bool missing = value.is_undefined() || (bound.flag(1, false) && !truthy(value));
  if (!missing) return value;
  return bound.has(0) ? bound[0] : Value::string(Text());
}

// value.name without items: {'a': 1}|attr('a') is undefined.
Value attr(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "attr", {"name"}, 1);
  const std::string_view name = bound.text(0).view();
  if (value.is_undefined()) fail_undefined(value);
  // Attributes only, never items: what a dict holds under the name does not count.
  rt.budget.step(4);
  if (value.is(Kind::kDict) && find_method(value, name).is_undefined()) {
    return make_undefined("'dict object' has no attribute " + quoted(name));
  }
  return get_attribute(value, name, rt.budget);
}

}  // namespace

FilterFn find_list_filter(std::string_view name) {
  static constexpr std::pair<std::string_view, FilterFn> kFilters[] = {
      {"length", length},
      {"count", length},
      {"first", first},
      {"last", last},
      {"join", join_filter},
      {"list", list},
      {"items", items},
      {"reverse", reverse},
      {"sort", sort},
      {"dictsort", dictsort},
      {"unique", unique},
      {"min", extreme<false>},
      {"max", extreme<true>},
      {"sum", sum},
      {"batch", batch},
      {"slice", slice},
      {"groupby", groupby},
      {"map", map},
      {"select", select<false, true>},
      {"reject", select<false, false>},
      {"selectattr", select<true, true>},
      {"rejectattr", select<true, false>},
      {"default", default_value},
      {"d", default_value},
      {"attr", attr},
  };
  for (const auto& [known, fn] : kFilters) {
    if (known == name) return fn;
  }
  return nullptr;
}

}  // namespace weft::jinja
