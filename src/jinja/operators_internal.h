// What Python's operators and conversions do with values: str, repr, truth, equality, order,
// membership, iteration, arithmetic, attributes, items and slices. Work and memory are charged to
// the budget. Throws Failure. It calls nothing that a template defined.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/ast.h"
#include "jinja/budget_internal.h"
#include "jinja/value.h"

namespace weft::jinja {

// ---- Objects that only a rendering makes.

struct Range : Object {
  int64_t start = 0, step = 1, count = 0;
  int64_t stop = 0;
  bool from_input = false;  // any of its numbers is
  Value at(int64_t index) const { return Value::integer(start + index * step, from_input); }
};
struct View : Object {
  enum class What { kKeys, kValues, kItems };
  Value dict;
  What what = What::kKeys;
};
struct Iterator : Object {
  std::vector<Value> items;
  size_t at = 0;
};
struct Namespace : Object {
  std::vector<std::pair<Text, Value>> attributes;
  Value* find(std::string_view name, Budget& charged);
};
struct Cycler : Object {
  std::vector<Value> items;
  size_t at = 0;
};
struct Joiner : Object {
  Value separator;
  bool used = false;
};

Value make_iterator(std::vector<Value> items, Budget& budget);
Value make_range(int64_t start, int64_t stop, int64_t step, bool from_input);

// ---- convert.cc

bool truthy(const Value& value);
/// str(value), appended.
void add_str(TextBuilder& out, const Value& value, Budget& budget);
void add_repr(TextBuilder& out, const Value& value, Budget& budget);
Text to_str(const Value& value, Budget& budget);
std::string float_repr(double value);
/// For messages: at most 80 bytes, on one line.
std::string quoted(std::string_view text);
[[noreturn]] void fail_undefined(const Value& value);

// ---- compare.cc

bool equals(const Value& a, const Value& b, Budget& budget);
/// a < b; fails for what Python cannot order.
bool less(const Value& a, const Value& b, Budget& budget);
bool compare(CompareOp op, const Value& a, const Value& b, Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);
/// Byte of the first `needle` at or after `from`, or npos; linear time.
size_t find_text(std::string_view text, std::string_view needle, size_t from, Budget& budget);

// ---- iterate.cc

bool is_iterable(const Value& value);
/// list(value); walks an iterator to its end.
std::vector<Value> to_items(const Value& value, Budget& budget);
size_t length_of(const Value& value);
/// The characters of a string.
std::vector<Value> characters(const Value& value, Budget& budget);

// ---- arithmetic.cc

Value binary(BinaryOp op, const Value& a, const Value& b, Budget& budget);
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
const Value* find_key(const Dict& dict, const Value& key, Budget& budget);

}  // namespace weft::jinja
