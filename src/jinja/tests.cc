// The tests: `value is name(arguments)`.
#include "jinja/runtime_internal.h"
#include "jinja/unicode_internal.h"

namespace weft::jinja {
namespace {

using TestFn = bool (*)(Runtime&, const Value&, const Args&);

void no_arguments(const Args& args) { const Bound bound(args, "the test", {}, 0); }

template <CompareOp kOp>
bool compares(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "the test", {""}, 1);
  return compare(kOp, value, bound[0], rt.budget);
}

bool divisible_by(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "divisibleby", {"num"}, 1);
  return !truthy(binary(BinaryOp::kMod, value, bound[0], rt.budget));
}

bool same_as(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "sameas", {"other"}, 1);
  const Value& other = bound[0];
  if (value.kind() != other.kind()) return false;
  const bool scalar = value.is_number() || value.is_none() || value.is_string();
  return scalar ? equals(value, other, rt.budget) : value.object() == other.object();
}

int64_t integer_of(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_int()) fail(std::string("odd and even are for int, not ") + type_name(value));
  return value.as_int();
}

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

template <bool (*kIs)(uint32_t), bool (*kIsOther)(uint32_t)>
bool is_cased(Runtime& rt, const Value& value) {
  const Text text = to_str(value, rt.budget);
  rt.budget.step(static_cast<int64_t>(text.n_bytes() / 8));
  bool any = false;
  for (size_t at = 0; at < text.n_bytes();) {
    const Character c = character_at(text.view(), at);
    if (kIsOther(c.code)) return false;
    any |= kIs(c.code);
    at += c.n_bytes;
  }
  return any;
}

template <bool (*kTest)(Runtime&, const Value&)>
bool simple(Runtime& rt, const Value& value, const Args& args) {
  no_arguments(args);
  return kTest(rt, value);
}

#define WEFT_JINJA_TEST(expression) \
  simple<[]([[maybe_unused]] Runtime& rt, const Value& v) -> bool { return expression; }>

bool names_filter(Runtime&, const Value& value, const Args& args) {
  no_arguments(args);
  return value.is_string() && is_filter(value.view());
}

bool names_test(Runtime&, const Value& value, const Args& args) {
  no_arguments(args);
  return value.is_string() && is_test(value.view());
}

TestFn find_test(std::string_view name) {
  static constexpr std::pair<std::string_view, TestFn> kTests[] = {
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
      {"lower", WEFT_JINJA_TEST((is_cased<is_lower, is_upper>(rt, v)))},
      {"upper", WEFT_JINJA_TEST((is_cased<is_upper, is_lower>(rt, v)))},
      {"divisibleby", divisible_by},
      {"sameas", same_as},
      {"filter", names_filter},
      {"test", names_test},
      {"in", compares<CompareOp::kIn>},
      {"==", compares<CompareOp::kEq>},
      {"eq", compares<CompareOp::kEq>},
      {"equalto", compares<CompareOp::kEq>},
      {"!=", compares<CompareOp::kNe>},
      {"ne", compares<CompareOp::kNe>},
      {">", compares<CompareOp::kGt>},
      {"gt", compares<CompareOp::kGt>},
      {"greaterthan", compares<CompareOp::kGt>},
      {"ge", compares<CompareOp::kGe>},
      {">=", compares<CompareOp::kGe>},
      {"<", compares<CompareOp::kLt>},
      {"lt", compares<CompareOp::kLt>},
      {"lessthan", compares<CompareOp::kLt>},
      {"<=", compares<CompareOp::kLe>},
      {"le", compares<CompareOp::kLe>},
  };
  for (const auto& [known, fn] : kTests) {
    if (known == name) return fn;
  }
  return nullptr;
}

#undef WEFT_JINJA_TEST

}  // namespace

bool is_test(std::string_view name) { return find_test(name) != nullptr; }

bool apply_test(Runtime& runtime, std::string_view name, const Value& value, const Args& args) {
  const TestFn fn = find_test(name);
  if (fn == nullptr) fail("No test named " + quoted(name));
  runtime.budget.step();
  return fn(runtime, value, args);
}

}  // namespace weft::jinja
