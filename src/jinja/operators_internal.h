// What Python's operators and conversions do with values: str, repr, truth, equality, order,
// membership, iteration, arithmetic, attributes, items and slices. Work and memory are charged to
// the budget. Throws Failure. It calls nothing that a template defined, so its recursion is bounded
// by the values' own depth (Limits::value_depth).
//
// The measure of rightness is CPython with jinja2 3.1, down to the text of error messages where a
// template could show it; tools/compare_templates.py compares whole renderings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/ast.h"
#include "jinja/budget_internal.h"
#include "jinja/value.h"

namespace weft::jinja {

// ---- Objects that only a rendering makes.

/// range(): numbers are computed when asked for. `count` is at most 100,000, as jinja2's sandbox
/// has it.
struct Range : Object {
  int64_t start = 0, step = 1, count = 0;
  int64_t stop = 0;
  bool from_input = false;  // any of its numbers is
  Value at(int64_t index) const { return Value::integer(start + index * step, from_input); }
};
/// What dict.keys(), values() and items() give. It points to the dict, as Python's views do, which
/// never shows here because no dict changes.
struct View : Object {
  enum class What { kKeys, kValues, kItems };
  Value dict;
  What what = What::kKeys;
};
/// A generator, as map, select and their like give: the items are computed at once, but walked
/// once. `at` is the next one. It is true even when empty and has no length, as in Python.
struct Iterator : Object {
  std::vector<Value> items;
  size_t at = 0;
};
/// namespace(): the only value whose contents a template can set, and the only way out of a loop's
/// scope.
struct Namespace : Object {
  std::vector<std::pair<Text, Value>> attributes;
  Value* find(std::string_view name, Budget& charged);
};
/// cycler(): `at` is the item that next() will give.
struct Cycler : Object {
  std::vector<Value> items;
  size_t at = 0;
};
/// joiner(): "" at the first call, the separator at each later one.
struct Joiner : Object {
  Value separator;
  bool used = false;
};

Value make_iterator(std::vector<Value> items, Budget& budget);
Value make_range(int64_t start, int64_t stop, int64_t step, bool from_input);

// ---- convert.cc

/// bool(value): false for undefined, none, zero, and what is empty and has a length.
bool truthy(const Value& value);
/// str(value), appended. Lists and dicts are written as repr writes them, and if anything in them
/// is the input's, then so is the whole. Undefined writes nothing.
void add_str(TextBuilder& out, const Value& value, Budget& budget);
/// repr(value), appended; each piece keeps its origin. Fails for what Python would print with an
/// address in memory: functions, macros, iterators.
void add_repr(TextBuilder& out, const Value& value, Budget& budget);
/// str(value) as a text of its own; a string is returned as it is, without copying.
Text to_str(const Value& value, Budget& budget);
/// repr(float): 0.1, 1e+16, 1e-05, inf, nan, -0.0.
std::string float_repr(double value);
/// For messages: at most 80 bytes, on one line.
std::string quoted(std::string_view text);
/// With the message that the undefined value carries: "'x' is undefined".
[[noreturn]] void fail_undefined(const Value& value);

// ---- compare.cc

/// a == b. Numbers compare by value (1 == 1.0 == true), everything else only within its own kind;
/// what has no value of its own, such as a macro, is equal to itself.
bool equals(const Value& a, const Value& b, Budget& budget);
/// a < b; fails for what Python cannot order.
bool less(const Value& a, const Value& b, Budget& budget);
bool compare(CompareOp op, const Value& a, const Value& b, Budget& budget);
/// item in container; walks an iterator up to the item, as Python does.
bool contains(const Value& container, const Value& item, Budget& budget);
/// Byte of the first `needle` at or after `from`, or npos; linear time.
size_t find_text(std::string_view text, std::string_view needle, size_t from, Budget& budget);

// ---- iterate.cc

/// Whether `for` can walk it. Undefined is an empty list.
bool is_iterable(const Value& value);
/// list(value); walks an iterator to its end.
std::vector<Value> to_items(const Value& value, Budget& budget);
/// len(value); characters of a string. Fails for what Python gives no length, iterators among them.
int64_t length_of(const Value& value);
/// The characters of a string.
std::vector<Value> characters(const Value& value, Budget& budget);

// ---- arithmetic.cc

/// a op b for numbers, strings, lists and tuples. Integers are 64 bits: beyond, it fails, where
/// Python would go on; a result is the input's if either number is.
Value binary(BinaryOp op, const Value& a, const Value& b, Budget& budget);
/// -value and +value; of a bool they are an int.
Value negative(const Value& value);
Value positive(const Value& value);
/// "%s" % value, in format.cc.
Value format_percent(const Value& format, const Value& arguments, Budget& budget);
/// Escapes &, <, >, ' and " as markupsafe does.
Text escape_markup(const Value& value, Budget& budget);

// ---- access.cc

/// value.name, as jinja2 does it: attributes and methods first, then items.
Value get_attribute(const Value& value, std::string_view name, Budget& budget);
/// value[key]: items first, then attributes.
Value get_item(const Value& value, const Value& key, Budget& budget);
/// Each bound is an int or none.
Value get_slice(const Value& value, const Value& begin, const Value& end, const Value& step,
                Budget& budget);
/// The value under a key by Python's equality; null if there is none. Fails for a list or dict as
/// key ("unhashable").
const Value* find_key(const Dict& dict, const Value& key, Budget& budget);

}  // namespace weft::jinja
