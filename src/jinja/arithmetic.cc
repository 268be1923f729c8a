// + - * / // % ** as Python has them. Three things differ from C's:
//   -7 // 2 is -4 and -7 % 3 is 2    quotients are rounded down, remainders have the divisor's sign
//   10 / 4 is 2.5                    a division of integers is a float
//   2 ** -1 is 0.5                   and so is a negative power
// Integers have 64 bits where Python's have any number. Beyond, it is an error: going on in floats
// would print another number, and wrapping round one that is plainly wrong.
#include <algorithm>
#include <cmath>

#include "jinja/operators_internal.h"
#include "jinja/unicode_internal.h"

namespace weft::jinja {
namespace {

// As Python's messages write them, in the order of BinaryOp.
constexpr const char* kNames[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void fail_operands(BinaryOp op, const Value& a, const Value& b) {
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  fail(std::string("unsupported operand type(s) for ") + kNames[static_cast<int>(op)] + ": '" +
       type_name(a) + "' and '" + type_name(b) + "'");
}

[[noreturn]] void fail_overflow() { fail("an integer does not fit 64 bits"); }

// Rounded down, where C++ cuts toward zero. b is neither 0 nor -1.
int64_t floor_div(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

// By squaring: 63 rounds at most. The base is not squared after the last bit, where it may overflow
// without being needed.
int64_t int_pow(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return result;
}

// INT64_MIN / -1 is the one quotient that does not fit, and on x86 it traps.
Value integers(BinaryOp op, int64_t a, int64_t b, bool input) {
  int64_t out = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &out)) fail_overflow();
      break;
    case BinaryOp::kSub:
      if (__builtin_sub_overflow(a, b, &out)) fail_overflow();
      break;
    case BinaryOp::kMul:
      if (__builtin_mul_overflow(a, b, &out)) fail_overflow();
      break;
    case BinaryOp::kDiv:
      if (b == 0) fail("division by zero");
      return Value::number(1.0 * a / b, input);
    case BinaryOp::kFloorDiv:
    case BinaryOp::kMod:
      if (b == 0) fail("integer division or modulo by zero");
      if (b == -1) {  // INT64_MIN / -1 overflows
        if (op == BinaryOp::kMod) break;
        if (__builtin_sub_overflow(int64_t{0}, a, &out)) fail_overflow();
        break;
      }
      out = op == BinaryOp::kFloorDiv ? floor_div(a, b) : a - floor_div(a, b) * b;
      break;
    case BinaryOp::kPow:
      if (b < 0) {
        if (a == 0) fail("0.0 cannot be raised to a negative power");
        return Value::number(std::pow(a, b), input);
      }
      out = a == 1 || a == 0 ? (b == 0 ? 1 : a) : a == -1 ? (b % 2 == 0 ? 1 : -1) : int_pow(a, b);
      break;
  }
  return Value::integer(out, input);
}

// Python's float_divmod for // and %: the remainder comes first and the quotient is made from it,
// so that a == (a // b) * b + a % b holds as nearly as it can: -7.5 % 2 is 0.5. Zeros take their
// signs from there too. Python raises where IEEE arithmetic divides by zero, and ** where a result
// is complex or too large; + - * / give inf.
Value floats(BinaryOp op, double a, double b, bool input) {
  double out = 0;
  switch (op) {
    case BinaryOp::kAdd:
      out = a + b;
      break;
    case BinaryOp::kSub:
      out = a - b;
      break;
    case BinaryOp::kMul:
      out = a * b;
      break;
    case BinaryOp::kDiv:
      if (b == 0) fail("float division by zero");
      out = a / b;
      break;
    case BinaryOp::kFloorDiv:
    case BinaryOp::kMod: {
      if (b == 0) fail("float floor division or modulo by zero");
      double remainder = std::fmod(a, b);
      if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
      if (remainder == 0) remainder = std::copysign(0.0, b);
      out = remainder;
      if (op == BinaryOp::kFloorDiv) {
        const double quotient = (a - remainder) / b;
        out = std::floor(quotient);
        if (quotient - out > 0.5) out += 1;
        if (quotient == 0) out = std::copysign(0.0, a / b);
      }
      break;
    }
    case BinaryOp::kPow:
      if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
      if (a < 0 && std::isfinite(b) && b != std::floor(b)) fail("a power that is no real number");
      out = std::pow(a, b);
      if (std::isinf(out) && std::isfinite(a) && std::isfinite(b)) fail("a power is too large");
      break;
  }
  return Value::number(out, input);
}

// Numbers are done already. A string marked safe escapes the other one, as markupsafe does:
// ('<a>'|safe) + '<b>' is <a>&lt;b&gt;.
Value add(const Value& a, const Value& b, Budget& budget) {
  if (a.is_string() && b.is_string()) {
    const bool markup = a.is_markup() || b.is_markup();
    TextBuilder out(&budget);
    out.add(markup ? escape_markup(a, budget) : a.text());
    out.add(markup ? escape_markup(b, budget) : b.text());
    return Value::string(out.finish(), markup);
  }
  if (a.is_list() && a.kind() == b.kind()) {
    budget.check_items(a.items().size() + b.items().size());
    budget.step(a.items().size() + b.items().size());
    std::vector<Value> items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.is(Kind::kList) ? make_list(std::move(items), &budget)
                             : make_tuple(std::move(items), &budget);
  }
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (a.is_string() || a.is_list()) {
    fail(std::string("can only concatenate ") + type_name(a) + " (not \"" + type_name(b) +
         "\") to " + type_name(a));
  }
  fail_operands(BinaryOp::kAdd, a, b);
}

// 'ab' * 3, 3 * [0]. The size is checked before anything is made; each copy is charged, also when
// the repeated text is short.
Value repeat(const Value& a, const Value& b, Budget& budget) {
  const Value& what = a.is_int() ? b : a;
  const Value& times = a.is_int() ? a : b;
  if (!times.is_int() || (!what.is_string() && !what.is_list())) {
    fail_operands(BinaryOp::kMul, a, b);
  }
  const int64_t n = std::max<int64_t>(0, times.as_int());
  const int64_t size = what.is_string() ? what.text().n_bytes() : what.items().size();
  int64_t total = 0;
  if (__builtin_mul_overflow(n, size, &total)) total = INT64_MAX;
  if (what.is_string()) {
    budget.check_string(total);
    budget.step(total == 0 ? 0 : n);
    TextBuilder out(&budget);
    for (int64_t i = 0; total > 0 && i < n; ++i) out.add(what.text());
    return Value::string(out.finish(), what.is_markup());
  }
  budget.check_items(total);
  budget.step(total == 0 ? 0 : n);
  std::vector<Value> items;
  items.reserve(total);
  for (int64_t i = 0; total > 0 && i < n; ++i) {
    items.insert(items.end(), what.items().begin(), what.items().end());
  }
  return what.is(Kind::kList) ? make_list(std::move(items), &budget)
                              : make_tuple(std::move(items), &budget);
}

}  // namespace

// % of a string is formatting, whatever is on its right.
Value binary(BinaryOp op, const Value& a, const Value& b, Budget& budget) {
  const bool input = a.from_input() || b.from_input();
  if (a.is_int() && b.is_int()) return integers(op, a.as_int(), b.as_int(), input);
  if (a.is_number() && b.is_number()) {
    // A remainder takes a step of a long division for each bit between the exponents.
    if (op == BinaryOp::kMod || op == BinaryOp::kFloorDiv) budget.step(128);
    if (op == BinaryOp::kPow) budget.step(8);
    return floats(op, a.as_double(), b.as_double(), input);
  }
  if (op == BinaryOp::kAdd) return add(a, b, budget);
  if (op == BinaryOp::kMul) return repeat(a, b, budget);
  if (op == BinaryOp::kMod && a.is_string()) return format_percent(a, b, budget);
  fail_operands(op, a, b);
}

// Through the subtraction, which checks that -(-2**63) does not fit.
Value negative(const Value& value) {
  if (value.is_int()) {
    return integers(BinaryOp::kSub, 0, value.as_int(), value.from_input());
  }
  if (value.is(Kind::kFloat)) return Value::number(-value.as_double(), value.from_input());
  if (value.is_undefined()) fail_undefined(value);
  fail(std::string("bad operand type for unary -: '") + type_name(value) + "'");
}

Value positive(const Value& value) {
  if (value.is_int()) return Value::integer(value.as_int(), value.from_input());
  if (value.is(Kind::kFloat)) return value;
  if (value.is_undefined()) fail_undefined(value);
  fail(std::string("bad operand type for unary +: '") + type_name(value) + "'");
}

namespace {

// markupsafe's five, in its spelling.
std::string_view entity(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '\'':
      return "&#39;";
    case '"':
      return "&#34;";
    default:
      return {};
  }
}

}  // namespace

// Each entity has the origin of its character. In parts, so that `escaped` stays small.
Text escape_markup(const Value& value, Budget& budget) {
  const Text text = to_str(value, budget);
  if (value.is_markup()) return text;
  budget.touch(text.n_bytes());
  TextBuilder out(&budget);
  text.for_runs(0, text.n_bytes(), [&](std::string_view piece, Origin origin) {
    for_parts(piece, [&](std::string_view part) {
      std::string escaped;
      for (const char c : part) {
        const std::string_view name = entity(c);
        if (name.empty()) {
          escaped += c;
        } else {
          escaped += name;
        }
      }
      out.add(escaped, origin);
    });
  });
  return out.finish();
}

}  // namespace weft::jinja
