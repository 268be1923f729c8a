// Equality, order, `in`, and searching. Equality is Python's: 1 == 1.0 == true, (1,) != [1], dicts
// by content. Order is defined for numbers, strings, and lists or tuples among themselves; anything
// else is the error that Python raises, because a template that sorts messages by a missing field
// should say so.
//
// Comparing walks both values and charges every pair, so a list that holds itself twice, 60 levels
// deep, which has 2^60 pairs to look at, ends at the limit (template_test.cc,
// TemplateBounds.WorkEndsAtTheStepLimit).
#include <cstring>

#include "jinja/operators_internal.h"

namespace weft::jinja {
namespace {

// Negative, zero or positive; 2 when one is not a number (NaN). A long double holds both exactly on
// x86 (64 bits of mantissa): 9007199254740993 == 9007199254740992.0 is false, as in Python, where
// comparing as doubles would say true.
int compare_numbers(const Value& a, const Value& b) {
  if (a.is_int() && b.is_int()) return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int();
  const auto exact = [](const Value& v) -> long double {
    if (v.is_int()) return v.as_int();
    return v.as_double();
  };
  const long double x = exact(a);
  const long double y = exact(b);
  return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

// Item by item, so the recursion is as deep as the values are.
bool equal_sequences(const std::vector<Value>& a, const std::vector<Value>& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equals(a[i], b[i], budget)) return false;
  }
  return true;
}

// The order of keys does not count.
bool equal_dicts(const Dict& a, const Dict& b, Budget& budget) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = find_key(b, key, budget);
    if (other == nullptr || !equals(value, *other, budget)) return false;
  }
  return true;
}

// By the numbers that they have: range(0) == range(5, 2), and of one number no step is compared.
bool equal_ranges(const Range& a, const Range& b) {
  if (a.count != b.count) return false;
  return a.count == 0 || (a.start == b.start && (a.count == 1 || a.step == b.step));
}

[[noreturn]] void fail_order(const char* op, const Value& a, const Value& b) {
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  fail(std::string("'") + op + "' not supported between instances of '" + type_name(a) + "' and '" +
       type_name(b) + "'");
}

// Of lists the first items that differ decide, then the lengths. NaN is neither less nor greater.
bool ordered(CompareOp op, const Value& a, const Value& b, Budget& budget, const char* name) {
  budget.step();
  const auto holds = [op](int order) {
    if (order == 2) return false;
    return op == CompareOp::kLt   ? order < 0
           : op == CompareOp::kLe ? order <= 0
           : op == CompareOp::kGt ? order > 0
                                  : order >= 0;
  };
  if (a.is_number() && b.is_number()) return holds(compare_numbers(a, b));
  if (a.is_string() && b.is_string()) {
    return holds(compare_text(a.view(), b.view(), &budget));  // UTF-8 sorts as code points do
  }
  if (a.is_list() && a.kind() == b.kind()) {
    const auto& x = a.items();
    const auto& y = b.items();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!equals(x[i], y[i], budget)) return ordered(op, x[i], y[i], budget, name);
    }
    return holds(x.size() < y.size() ? -1 : x.size() > y.size());
  }
  fail_order(name, a, b);
}

}  // namespace

// Undefined equals undefined, and functions, macros and loops equal only themselves.
bool equals(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return same_text(a.view(), b.view(), &budget);
    case Kind::kList:
    case Kind::kTuple:
      return equal_sequences(a.items(), b.items(), budget);
    case Kind::kDict:
      return equal_dicts(a.dict(), b.dict(), budget);
    case Kind::kRange:
      return equal_ranges(a.as<Range>(), b.as<Range>());
    default:
      return a.object() == b.object();
  }
}

bool less(const Value& a, const Value& b, Budget& budget) {
  return ordered(CompareOp::kLt, a, b, budget, "<");
}

bool compare(CompareOp op, const Value& a, const Value& b, Budget& budget) {
  switch (op) {
    case CompareOp::kEq:
      return equals(a, b, budget);
    case CompareOp::kNe:
      return !equals(a, b, budget);
    case CompareOp::kIn:
      return contains(b, a, budget);
    case CompareOp::kNotIn:
      return !contains(b, a, budget);
    case CompareOp::kLt:
      return ordered(op, a, b, budget, "<");
    case CompareOp::kLe:
      return ordered(op, a, b, budget, "<=");
    case CompareOp::kGt:
      return ordered(op, a, b, budget, ">");
    case CompareOp::kGe:
      return ordered(op, a, b, budget, ">=");
  }
  return false;
}

// Linear at worst, which a search that a template can repeat must be: 'aaa…ab' in 'aaa…' costs a
// naive search the product of the lengths.
size_t find_text(std::string_view text, std::string_view needle, size_t from, Budget& budget) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const std::string_view rest = text.substr(from);
  // glibc's memmem is linear (two-way), where std::string_view::find is quadratic at worst.
  const void* found = memmem(rest.data(), rest.size(), needle.data(), needle.size());
  const size_t at =
      found == nullptr ? std::string_view::npos : static_cast<const char*>(found) - text.data();
  budget.step();
  // Bytes that nearly match cost memmem several times what others do.
  budget.work(5 * ((found == nullptr ? text.size() : at) - from + needle.size()));
  return at;
}

// Keys of a dict, text of a string, items of everything else.
bool contains(const Value& container, const Value& item, Budget& budget) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString:
      if (!item.is_string()) {
        fail(std::string("'in <string>' requires string as left operand, not ") + type_name(item));
      }
      return find_text(container.view(), item.view(), 0, budget) != std::string_view::npos;
    case Kind::kDict:
      return find_key(container.dict(), item, budget) != nullptr;
    case Kind::kView:
      if (container.as<View>().what == View::What::kKeys) {
        return find_key(container.as<View>().dict.dict(), item, budget) != nullptr;
      }
      break;
    case Kind::kIterator: {
      auto& iterator = container.as<Iterator>();
      while (iterator.at < iterator.items.size()) {
        if (equals(iterator.items[iterator.at++], item, budget)) return true;
      }
      return false;
    }
    default:
      if (!is_iterable(container)) {
        fail(std::string("argument of type '") + type_name(container) + "' is not iterable");
      }
  }
  if (container.is_list()) {
    for (const Value& other : container.items()) {
      if (equals(other, item, budget)) return true;
    }
    return false;
  }
  for (const Value& other : to_items(container, budget)) {
    if (equals(other, item, budget)) return true;
  }
  return false;
}

}  // namespace weft::jinja
