// The tests: `value is name(arguments)`, all of jinja2's. A test says yes or no, which counts as
// the template's whatever the value was: what only compares tells nothing of the input's text.
//
// Two kinds of row: most look at the value only, and any argument is an error; the others bind
// their own. Names such as == are there for select: |selectattr('role', '==', 'user').
#include "jinja/runtime_internal.h"
#include "jinja/unicode_internal.h"

namespace weft::jinja {
namespace {

using TestFn = bool (*)(Runtime&, const Value&, const Args&);

// The operators as tests, and `in`.
template <CompareOp kOp>
bool compares(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "the test", {""}, 1);
  return compare(kOp, value, bound[0], rt.budget);
}

bool divisible_by(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "divisibleby", {"num"}, 1);
  return !truthy(binary(BinaryOp::kMod, value, bound[0], rt.budget));
}

// Python's `is`. Scalars have no identity here, so equal ones of one kind are the same, as true,
// false and none are in Python.
bool same_as(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "sameas", {"other"}, 1);
  const Value& other = bound[0];
  if (value.kind() != other.kind()) return false;
  const bool scalar = value.is_number() || value.is_none() || value.is_string();
  return scalar ? equals(value, other, rt.budget) : value.object() == other.object();
}

// odd and even, of bools too.
int64_t integer_of(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_int()) fail(std::string("odd and even are for int, not ") + type_name(value));
  return value.as_int();
}

// What has a length and items by number in jinja2's eyes; dicts are among it, generators are not.
bool is_sequence(const Value& value) {
  switch (value.kind()) {
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kUndefined:
      return true;
    default:
      return false;
  }
}

bool is_callable(const Value& value) {
  switch (value.kind()) {
    case Kind::kFunction:
    case Kind::kMethod:
    case Kind::kMacro:
    case Kind::kLoop:
    case Kind::kJoiner:
    case Kind::kUndefined:
      return true;
    default:
      return false;
  }
}

// str.islower and str.isupper of the value's text, whatever the value is.
template <bool (*kIs)(uint32_t), bool (*kIsOther)(uint32_t)>
bool is_cased(Runtime& rt, const Value& value) {
  const Text text = to_str(value, rt.budget);
  rt.budget.touch(3 * text.n_bytes());
  bool any = false;
  for (size_t at = 0; at < text.n_bytes();) {
    const Character c = character_at(text.view(), at);
    if (kIsOther(c.code)) return false;
    any |= kIs(c.code);
    at += c.n_bytes;
  }
  return any;
}

/// A test without arguments, or one with.
struct Row {
  std::string_view name;
  bool (*plain)(Runtime&, const Value&) = nullptr;
  TestFn with_arguments = nullptr;
};

#define WEFT_JINJA_TEST(expression) [](Runtime&, const Value& v) -> bool { return expression; }

const Row* find_test(std::string_view name) {
  static constexpr Row kTests[] = {
      {"defined", WEFT_JINJA_TEST(!v.is_undefined())},
      {"undefined", WEFT_JINJA_TEST(v.is_undefined())},
      {"none", WEFT_JINJA_TEST(v.is_none())},
      {"boolean", WEFT_JINJA_TEST(v.is(Kind::kBool))},
      {"true", WEFT_JINJA_TEST(v.is(Kind::kBool) && v.as_bool())},
      {"false", WEFT_JINJA_TEST(v.is(Kind::kBool) && !v.as_bool())},
      {"integer", WEFT_JINJA_TEST(v.is(Kind::kInt))},
      {"float", WEFT_JINJA_TEST(v.is(Kind::kFloat))},
      {"number", WEFT_JINJA_TEST(v.is_number())},
      {"string", WEFT_JINJA_TEST(v.is_string())},
      {"mapping", WEFT_JINJA_TEST(v.is(Kind::kDict))},
      {"sequence", WEFT_JINJA_TEST(is_sequence(v))},
      {"iterable", WEFT_JINJA_TEST(is_iterable(v))},
      {"callable", WEFT_JINJA_TEST(is_callable(v))},
      {"escaped", WEFT_JINJA_TEST(v.is_string() && v.is_markup())},
      {"odd", WEFT_JINJA_TEST(integer_of(v) % 2 != 0)},
      {"even", WEFT_JINJA_TEST(integer_of(v) % 2 == 0)},
      {"lower", is_cased<is_lower, is_upper>},
      {"upper", is_cased<is_upper, is_lower>},
      {"divisibleby", nullptr, divisible_by},
      {"sameas", nullptr, same_as},
      {"filter", WEFT_JINJA_TEST(v.is_string() && is_filter(v.view()))},
      {"test", WEFT_JINJA_TEST(v.is_string() && is_test(v.view()))},
      {"in", nullptr, compares<CompareOp::kIn>},
      {"==", nullptr, compares<CompareOp::kEq>},
      {"eq", nullptr, compares<CompareOp::kEq>},
      {"equalto", nullptr, compares<CompareOp::kEq>},
      {"!=", nullptr, compares<CompareOp::kNe>},
      {"ne", nullptr, compares<CompareOp::kNe>},
      {">", nullptr, compares<CompareOp::kGt>},
      {"gt", nullptr, compares<CompareOp::kGt>},
      {"greaterthan", nullptr, compares<CompareOp::kGt>},
      {"ge", nullptr, compares<CompareOp::kGe>},
      {">=", nullptr, compares<CompareOp::kGe>},
      {"<", nullptr, compares<CompareOp::kLt>},
      {"lt", nullptr, compares<CompareOp::kLt>},
      {"lessthan", nullptr, compares<CompareOp::kLt>},
      {"<=", nullptr, compares<CompareOp::kLe>},
      {"le", nullptr, compares<CompareOp::kLe>},
  };
  for (const Row& row : kTests) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

#undef WEFT_JINJA_TEST

}  // namespace

bool is_test(std::string_view name) { return find_test(name) != nullptr; }

// The name is checked first: an unknown test is an error for every value.
bool apply_test(Runtime& runtime, std::string_view name, const Value& value, const Args& args) {
  const Row* row = find_test(name);
  if (row == nullptr) fail("No test named " + quoted(name));
  runtime.budget.step(2);  // the table is searched
  if (row->with_arguments != nullptr) return row->with_arguments(runtime, value, args);
  const Bound bound(args, "the test", {}, 0);
  return row->plain(runtime, value);
}

}  // namespace weft::jinja
