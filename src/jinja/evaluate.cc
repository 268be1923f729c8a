// Expressions: one function for each kind, and evaluate(), which picks it.
//
// Each is kept out of line. evaluate() calls itself through them up to Limits::depth deep, and if
// the compiler inlined them all, every level would have the locals of all kinds on the stack at
// once: lists being built, argument vectors, texts. As it is a level takes evaluate()'s own frame
// and that of one kind.
//
// at_ is set after the parts have been evaluated and before the operation: in `a.b + c.d` an error
// of `+` names the place of the plus and not that of `d`. Operands are evaluated from left to
// right, once each, and an operator's second operand not at all where Python would not.
#include "jinja/interpreter_internal.h"

#define WEFT_OUT_OF_LINE [[gnu::noinline]]

namespace weft::jinja {

// Counts the level, charges a step, and dispatches. The switch has no default, so that the compiler
// names a kind that was forgotten.
Value Interpreter::evaluate(const Expr& expr) {
  const Deeper deeper(*this);
  at_ = expr.at;
  switch (expr.kind) {
    case ExprKind::kConst:
      return expr.constant;
    case ExprKind::kName:
      return look_up(expr.name);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return evaluate_list(expr);
    case ExprKind::kDict:
      return evaluate_dict(expr);
    case ExprKind::kAttr:
      return evaluate_attribute(expr);
    case ExprKind::kItem:
      return evaluate_item(expr);
    case ExprKind::kSlice:
      return evaluate_slice(expr);
    case ExprKind::kCall:
      return evaluate_call(expr);
    case ExprKind::kFilter:
      return evaluate_filter(expr);
    case ExprKind::kTest:
      return evaluate_test(expr);
    case ExprKind::kNot:
    case ExprKind::kNegative:
    case ExprKind::kPositive:
      return evaluate_unary(expr);
    case ExprKind::kBinary:
      return evaluate_binary(expr);
    case ExprKind::kConcat:
      return evaluate_concat(expr);
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return evaluate_logic(expr);
    case ExprKind::kCompare:
      return evaluate_compare(expr);
    case ExprKind::kCond:
      return evaluate_condition(expr);
  }
  return {};
}

WEFT_OUT_OF_LINE Value Interpreter::evaluate_list(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.parts.size());
  for (const ExprPtr& part : expr.parts) items.push_back(evaluate(*part));
  return expr.kind == ExprKind::kList ? make_list(std::move(items), &budget)
                                      : make_tuple(std::move(items), &budget);
}

// A dict literal. Keys that are all strings are merged by make_dict, in n log n; from the first
// other key on each is compared with those before it, since numbers of two types can be equal: {1:
// 'a', true: 'b'} is {1: 'b'}. Lists and dicts are no keys, as in Python.
WEFT_OUT_OF_LINE Value Interpreter::evaluate_dict(const Expr& expr) {
  std::vector<std::pair<Value, Value>> items;
  bool all_strings = true;
  for (size_t i = 0; i < expr.parts.size(); i += 2) {
    Value key = evaluate(*expr.parts[i]);
    Value value = evaluate(*expr.parts[i + 1]);
    if (key.is(Kind::kList) || key.is(Kind::kDict)) {
      fail(std::string("unhashable type: '") + type_name(key) + "'");
    }
    all_strings = all_strings && key.is_string();
    if (!all_strings) {
      auto same = items.begin();  // equals charges each
      while (same != items.end() && !equals(same->first, key, budget)) ++same;
      if (same != items.end()) {
        same->second = std::move(value);
        continue;
      }
    }
    items.emplace_back(std::move(key), std::move(value));
  }
  return make_dict(std::move(items), &budget);
}

// a.b
WEFT_OUT_OF_LINE Value Interpreter::evaluate_attribute(const Expr& expr) {
  const Value value = evaluate(*expr.parts[0]);
  at_ = expr.at;
  return get_attribute(value, expr.attribute.view(), budget);
}

// a[b]
WEFT_OUT_OF_LINE Value Interpreter::evaluate_item(const Expr& expr) {
  const Value value = evaluate(*expr.parts[0]);
  const Value key = evaluate(*expr.parts[1]);
  at_ = expr.at;
  return get_item(value, key, budget);
}

// a[b:c:d]; a part that is missing is none, as in Python's slice objects.
WEFT_OUT_OF_LINE Value Interpreter::evaluate_slice(const Expr& expr) {
  const Value value = evaluate(*expr.parts[0]);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    bounds[i] = expr.parts[i + 1] ? evaluate(*expr.parts[i + 1]) : Value::none();
  }
  at_ = expr.at;
  return get_slice(value, bounds[0], bounds[1], bounds[2], budget);
}

// Arguments in the order that they are written. Names from ** are compared with those that are
// written out, of which there are 256 at most, and not with each other: a dict's keys are distinct.
// Comparing all with all would be quadratic in the dict (corpus: dict-unpacked).
Args Interpreter::evaluate_args(const CallArgs* call) {
  Args args;
  if (call == nullptr) return args;
  for (const ExprPtr& argument : call->positional) args.positional.push_back(evaluate(*argument));
  for (const NamedExpr& argument : call->named) {
    args.named.emplace_back(argument.name, evaluate(*argument.value));
  }
  if (call->star) {
    for (Value& value : to_items(evaluate(*call->star), budget)) {
      args.positional.push_back(std::move(value));
    }
  }
  if (call->star_star) {
    const Value more = evaluate(*call->star_star);
    if (!more.is(Kind::kDict)) fail("argument after ** must be a mapping");
    const size_t n_written = args.named.size();  // the dict's own keys are distinct
    for (const auto& [key, value] : more.dict().items) {
      if (!key.is_string()) fail("keywords must be strings");
      budget.step();
      budget.touch(n_written);
      for (size_t i = 0; i < n_written; ++i) {
        if (same_text(args.named[i].first.view(), key.view(), &budget)) {
          fail("got multiple values for keyword argument " + quoted(key.view()));
        }
      }
      args.named.emplace_back(key.text(), value);
    }
  }
  return args;
}

// extra_caller_ is taken before anything is evaluated, so that calls among the arguments do not see
// it.
WEFT_OUT_OF_LINE Value Interpreter::evaluate_call(const Expr& expr) {
  const Value* caller = std::exchange(extra_caller_, nullptr);
  const Value callee = evaluate(*expr.parts[0]);
  Args args = evaluate_args(expr.call.get());
  if (caller != nullptr) args.named.emplace_back(Text("caller", Origin::kTemplate), *caller);
  at_ = expr.at;
  return call(callee, args);
}

// value | name(arguments)
WEFT_OUT_OF_LINE Value Interpreter::evaluate_filter(const Expr& expr) {
  const Value value = evaluate(*expr.parts[0]);
  const Args args = evaluate_args(expr.call.get());
  at_ = expr.at;
  return apply_filter(*this, expr.word, value, args);
}

// A chain of filters whose innermost value is `value`, for blocks, where it is not an expression
// but what the body wrote: {% filter f|g %} is g(f(text)).
Value Interpreter::filter_text(const Expr& filter, const Value& value) {
  const Deeper deeper(*this);
  const Value input = filter.parts[0] ? filter_text(*filter.parts[0], value) : value;
  const Args args = evaluate_args(filter.call.get());
  at_ = filter.at;
  return apply_filter(*this, filter.word, input, args);
}

// value is name(arguments); `is not` is a kNot round it.
WEFT_OUT_OF_LINE Value Interpreter::evaluate_test(const Expr& expr) {
  const Value value = evaluate(*expr.parts[0]);
  const Args args = evaluate_args(expr.call.get());
  at_ = expr.at;
  return Value::boolean(apply_test(*this, expr.word, value, args));
}

WEFT_OUT_OF_LINE Value Interpreter::evaluate_unary(const Expr& expr) {
  const Value value = evaluate(*expr.parts[0]);
  at_ = expr.at;
  if (expr.kind == ExprKind::kNot) return Value::boolean(!truthy(value));
  return expr.kind == ExprKind::kNegative ? negative(value) : positive(value);
}

WEFT_OUT_OF_LINE Value Interpreter::evaluate_binary(const Expr& expr) {
  const Value left = evaluate(*expr.parts[0]);
  const Value right = evaluate(*expr.parts[1]);
  at_ = expr.at;
  return binary(expr.op, left, right, budget);
}

// a ~ b ~ c, each as str() writes it. The result is never marked safe, though markupsafe would
// escape the others where one operand is, in an autoescaping template, which these are not.
WEFT_OUT_OF_LINE Value Interpreter::evaluate_concat(const Expr& expr) {
  TextBuilder out(&budget);
  for (const ExprPtr& part : expr.parts) {
    const Value value = evaluate(*part);
    at_ = expr.at;
    add_str(out, value, budget);
  }
  return Value::string(out.finish());
}

// `and` and `or` give one of their operands, not a bool: `none or 'x'` is 'x'.
WEFT_OUT_OF_LINE Value Interpreter::evaluate_logic(const Expr& expr) {
  Value left = evaluate(*expr.parts[0]);
  if (truthy(left) == (expr.kind == ExprKind::kOr)) return left;
  return evaluate(*expr.parts[1]);
}

// a < b < c: stops at the first that does not hold, before the next operand is evaluated.
WEFT_OUT_OF_LINE Value Interpreter::evaluate_compare(const Expr& expr) {
  Value left = evaluate(*expr.parts[0]);
  for (size_t i = 0; i < expr.compare_ops.size(); ++i) {
    Value right = evaluate(*expr.parts[i + 1]);
    at_ = expr.at;
    if (!compare(expr.compare_ops[i], left, right, budget)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

// a if b else c: the condition first, then only the branch that it picks.
WEFT_OUT_OF_LINE Value Interpreter::evaluate_condition(const Expr& expr) {
  if (truthy(evaluate(*expr.parts[1]))) return evaluate(*expr.parts[0]);
  at_ = expr.at;
  if (expr.parts[2]) return evaluate(*expr.parts[2]);
  return make_undefined("the inline if-expression evaluated to false and no else was given");
}

}  // namespace weft::jinja
