#include <charconv>
#include <cmath>

#include "jinja/budget_internal.h"
#include "jinja/expression_parser_internal.h"
#include "jinja/operators_internal.h"
#include "jinja/unicode_internal.h"

namespace weft::jinja {

ExpressionParser::Nested::Nested(ExpressionParser& parser) : parser_(parser) {
  if (++parser.depth_ > parser.limits_.syntax_depth) {
    --parser.depth_;
    fail_at(parser.current().at,
            "nested deeper than " + std::to_string(parser.limits_.syntax_depth) + " levels");
  }
}

void ExpressionParser::unexpected(std::string_view wanted) const {
  const Token& token = current();
  std::string got = "the end of the template";
  if (token.kind == TokenKind::kPrintEnd || token.kind == TokenKind::kBlockEnd) {
    got = "the end of the tag";
  } else if (token.kind != TokenKind::kEnd) {
    got = "'" + std::string(utf8_prefix(token.text, 40)) + "'";
  }
  fail_at(token.at, "expected " + std::string(wanted) + ", got " + got);
}

void ExpressionParser::expect_op(std::string_view op) {
  if (!skip_op(op)) unexpected("'" + std::string(op) + "'");
}

Token ExpressionParser::expect_name() {
  if (current().kind != TokenKind::kName) unexpected("a name");
  return next();
}

int ExpressionParser::name_id(std::string_view name) {
  constexpr size_t kComparisons = 20;  // log2 of the names that a template can have
  budget_.work(name.size() * kComparisons);
  budget_.step(2);
  const auto found = name_ids_.find(name);
  if (found != name_ids_.end()) return found->second;
  const int id = static_cast<int>(names_.size());
  name_ids_.emplace(name, id);
  names_.emplace_back(name);
  return id;
}

Text ExpressionParser::source_text(std::string_view text) const {
  budget_.step();
  budget_.work(text.size());
  return Text(std::string(text), Origin::kTemplate);
}

ExprPtr ExpressionParser::node(ExprKind kind, Position at) const {
  budget_.step(4);
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->at = at;
  return expr;
}

ExprPtr ExpressionParser::node(ExprKind kind, Position at, ExprPtr a, ExprPtr b) const {
  ExprPtr expr = node(kind, at);
  expr->parts.push_back(std::move(a));
  if (b) expr->parts.push_back(std::move(b));
  check_depth(*expr);
  return expr;
}

void ExpressionParser::deepen(Expr& expr, const ExprPtr& part) const {
  budget_.touch(1);
  if (part) expr.depth = std::max(expr.depth, part->depth + 1);
  if (expr.depth > limits_.syntax_depth) {
    fail_at(expr.at, "an expression is nested deeper than " + std::to_string(limits_.syntax_depth) +
                         " levels");
  }
}

void ExpressionParser::check_depth(Expr& expr) const {
  for (const ExprPtr& part : expr.parts) deepen(expr, part);
}

// Arguments count as parts do: each could be as deep as the limit, and theirs again.
void ExpressionParser::add_call(Expr& expr) {
  expr.call = parse_call_args();
  for (const ExprPtr& argument : expr.call->positional) deepen(expr, argument);
  for (const NamedExpr& argument : expr.call->named) deepen(expr, argument.value);
  deepen(expr, expr.call->star);
  deepen(expr, expr.call->star_star);
}

ExprPtr ExpressionParser::parse_tuple(TupleRules rules) {
  const Position at = current().at;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) expect_op(",");
    const TokenKind kind = current().kind;
    if (kind == TokenKind::kPrintEnd || kind == TokenKind::kBlockEnd || is_op(")") ||
        (!rules.end_word.empty() && is_name(rules.end_word))) {
      break;
    }
    items.push_back(rules.simplified    ? parse_primary()
                    : rules.conditional ? parse_condition()
                                        : parse_or());
    if (!is_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items.front());
    if (!rules.parenthesised) unexpected("an expression");
  }
  ExprPtr tuple = node(ExprKind::kTuple, at);
  tuple->parts = std::move(items);
  check_depth(*tuple);
  return tuple;
}

ExprPtr ExpressionParser::parse_condition() {
  const Nested nested(*this);
  ExprPtr value = parse_or();
  while (is_name("if")) {
    const Position at = next().at;
    ExprPtr condition = parse_or();
    ExprPtr other = skip_name("else") ? parse_condition() : nullptr;
    value = node(ExprKind::kCond, at, std::move(value), std::move(condition));
    value->parts.push_back(std::move(other));
    check_depth(*value);
  }
  return value;
}

ExprPtr ExpressionParser::parse_or() {
  ExprPtr left = parse_and();
  while (is_name("or")) {
    const Position at = next().at;
    ExprPtr right = parse_and();
    left = node(ExprKind::kOr, at, std::move(left), std::move(right));
  }
  return left;
}

ExprPtr ExpressionParser::parse_and() {
  ExprPtr left = parse_not();
  while (is_name("and")) {
    const Position at = next().at;
    ExprPtr right = parse_not();
    left = node(ExprKind::kAnd, at, std::move(left), std::move(right));
  }
  return left;
}

ExprPtr ExpressionParser::parse_not() {
  if (!is_name("not")) return parse_compare();
  const Nested nested(*this);
  const Position at = next().at;
  return node(ExprKind::kNot, at, parse_not());
}

ExprPtr ExpressionParser::parse_compare() {
  static constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEq}, {"!=", CompareOp::kNe}, {"<", CompareOp::kLt},
      {"<=", CompareOp::kLe}, {">", CompareOp::kGt},  {">=", CompareOp::kGe}};
  const Position at = current().at;
  ExprPtr left = parse_sum();
  ExprPtr compare;
  for (;;) {
    std::optional<CompareOp> op;
    for (const auto& [text, value] : kOps) {
      if (is_op(text)) op = value;
    }
    if (is_name("in")) op = CompareOp::kIn;
    if (is_name("not") && ahead().kind == TokenKind::kName && ahead().text == "in") {
      next();
      op = CompareOp::kNotIn;
    }
    if (!op) break;
    next();
    if (!compare) compare = node(ExprKind::kCompare, at, std::move(left));
    compare->compare_ops.push_back(*op);
    compare->parts.push_back(parse_sum());
    deepen(*compare, compare->parts.back());
  }
  return compare ? std::move(compare) : std::move(left);
}

ExprPtr ExpressionParser::parse_sum() {
  ExprPtr left = parse_concat();
  while (is_op("+") || is_op("-")) {
    const Token op = next();
    ExprPtr right = parse_concat();
    left = node(ExprKind::kBinary, op.at, std::move(left), std::move(right));
    left->op = op.text == "+" ? BinaryOp::kAdd : BinaryOp::kSub;
  }
  return left;
}

ExprPtr ExpressionParser::parse_concat() {
  ExprPtr left = parse_product();
  if (!is_op("~")) return left;
  ExprPtr concat = node(ExprKind::kConcat, current().at, std::move(left));
  while (skip_op("~")) concat->parts.push_back(parse_product());
  check_depth(*concat);
  return concat;
}

ExprPtr ExpressionParser::parse_product() {
  ExprPtr left = parse_power();
  while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
    const Token op = next();
    ExprPtr right = parse_power();
    left = node(ExprKind::kBinary, op.at, std::move(left), std::move(right));
    left->op = op.text == "*"    ? BinaryOp::kMul
               : op.text == "/"  ? BinaryOp::kDiv
               : op.text == "//" ? BinaryOp::kFloorDiv
                                 : BinaryOp::kMod;
  }
  return left;
}

// jinja2 takes powers from the left, unlike Python.
ExprPtr ExpressionParser::parse_power() {
  ExprPtr left = parse_unary(true);
  while (is_op("**")) {
    const Position at = next().at;
    ExprPtr right = parse_unary(true);
    left = node(ExprKind::kBinary, at, std::move(left), std::move(right));
    left->op = BinaryOp::kPow;
  }
  return left;
}

ExprPtr ExpressionParser::parse_unary(bool with_filter) {
  const Nested nested(*this);
  ExprPtr value;
  if (is_op("-") || is_op("+")) {
    const Token op = next();
    value =
        node(op.text == "-" ? ExprKind::kNegative : ExprKind::kPositive, op.at, parse_unary(false));
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filter ? parse_filter_chain(std::move(value)) : std::move(value);
}

ExprPtr ExpressionParser::parse_primary() {
  const Nested nested(*this);
  switch (current().kind) {
    case TokenKind::kName:
      return parse_name();
    case TokenKind::kString:
      return parse_strings();
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return parse_number();
    default:
      break;
  }
  if (skip_op("(")) {
    ExprPtr tuple = parse_tuple({.parenthesised = true});
    expect_op(")");
    return tuple;
  }
  if (is_op("[")) return parse_list();
  if (is_op("{")) return parse_dict();
  unexpected("an expression");
}

ExprPtr ExpressionParser::parse_name() {
  const Token token = next();
  ExprPtr expr = node(ExprKind::kConst, token.at);
  if (token.text == "true" || token.text == "True") {
    expr->constant = Value::boolean(true);
  } else if (token.text == "false" || token.text == "False") {
    expr->constant = Value::boolean(false);
  } else if (token.text == "none" || token.text == "None") {
    expr->constant = Value::none();
  } else {
    expr->kind = ExprKind::kName;
    expr->name = name_id(token.text);
    if (macro_ != nullptr) {
      macro_->uses_caller |= token.text == "caller";
      macro_->uses_varargs |= token.text == "varargs";
      macro_->uses_kwargs |= token.text == "kwargs";
    }
  }
  return expr;
}

ExprPtr ExpressionParser::parse_strings() {
  ExprPtr expr = node(ExprKind::kConst, current().at);
  std::string text;
  while (current().kind == TokenKind::kString) {
    const Token token = next();
    std::string error;
    if (!unescape(token.text.substr(1, token.text.size() - 2), text, error)) {
      fail_at(token.at, error);
    }
  }
  budget_.touch(text.size());
  expr->constant = Value::string(std::move(text), Origin::kTemplate);
  return expr;
}

ExprPtr ExpressionParser::parse_number() {
  const Token token = next();
  ExprPtr expr = node(ExprKind::kConst, token.at);
  std::string digits;
  for (const char c : token.text) {
    if (c != '_') digits += c;
  }
  if (token.kind == TokenKind::kFloat) {
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error == std::errc::result_out_of_range) {
      value = std::strtod(digits.c_str(), nullptr);
    }
    expr->constant = Value::number(value);
    return expr;
  }
  int base = 10;
  const char mark = digits.size() > 1 ? static_cast<char>(digits[1] | 0x20) : '0';
  if (mark == 'x' || mark == 'o' || mark == 'b') {
    base = mark == 'x' ? 16 : mark == 'o' ? 8 : 2;
    digits = digits.substr(2);
  } else if (digits.size() > 1 && digits[0] == '0' &&
             digits.find_first_not_of('0') != std::string::npos) {
    fail_at(token.at, "an integer may not begin with 0");
  }
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, base);
  if (error != std::errc() || stop != end) {
    fail_at(token.at, "an integer that does not fit 64 bits");
  }
  expr->constant = Value::integer(value);
  return expr;
}

ExprPtr ExpressionParser::parse_list() {
  ExprPtr list = node(ExprKind::kList, next().at);
  while (!is_op("]")) {
    if (!list->parts.empty()) {
      expect_op(",");
      if (is_op("]")) break;
    }
    list->parts.push_back(parse_expression());
  }
  expect_op("]");
  check_depth(*list);
  return list;
}

ExprPtr ExpressionParser::parse_dict() {
  ExprPtr dict = node(ExprKind::kDict, next().at);
  while (!is_op("}")) {
    if (!dict->parts.empty()) {
      expect_op(",");
      if (is_op("}")) break;
    }
    dict->parts.push_back(parse_expression());
    expect_op(":");
    dict->parts.push_back(parse_expression());
  }
  expect_op("}");
  check_depth(*dict);
  return dict;
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr value) {
  for (;;) {
    if (is_op(".") || is_op("[")) {
      value = parse_subscript(std::move(value));
    } else if (is_op("(")) {
      value = node(ExprKind::kCall, current().at, std::move(value));
      add_call(*value);
    } else {
      return value;
    }
  }
}

ExprPtr ExpressionParser::parse_filter_chain(ExprPtr value) {
  for (;;) {
    if (is_op("|")) {
      value = parse_filters(std::move(value), false);
    } else if (is_name("is")) {
      value = parse_test(std::move(value));
    } else if (is_op("(")) {
      value = node(ExprKind::kCall, current().at, std::move(value));
      add_call(*value);
    } else {
      return value;
    }
  }
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr value) {
  const Token open = next();
  if (open.text == ".") {
    const Token attribute = next();
    if (attribute.kind == TokenKind::kName) {
      ExprPtr expr = node(ExprKind::kAttr, attribute.at, std::move(value));
      expr->attribute = source_text(attribute.text);
      return expr;
    }
    if (attribute.kind != TokenKind::kInteger) {
      --at_;
      unexpected("a name or a number after '.'");
    }
    --at_;
    ExprPtr index = parse_number();
    return node(ExprKind::kItem, attribute.at, std::move(value), std::move(index));
  }
  if (is_op("]")) unexpected("an expression");
  ExprPtr bounds[3];
  bool is_slice = false;
  int part = 0;
  while (!is_op("]")) {
    if (is_op(":") && part < 2) {
      next();
      ++part;
      is_slice = true;
      continue;
    }
    if (bounds[part]) unexpected("']'");
    bounds[part] = parse_expression();
  }
  expect_op("]");
  if (!is_slice) {
    return node(ExprKind::kItem, open.at, std::move(value), std::move(bounds[0]));
  }
  ExprPtr expr = node(ExprKind::kSlice, open.at, std::move(value));
  for (ExprPtr& bound : bounds) expr->parts.push_back(std::move(bound));
  check_depth(*expr);
  return expr;
}

void ExpressionParser::parse_argument(CallArgs& args) {
  const Position at = current().at;
  const auto ensure = [&](bool holds) {
    if (!holds) fail_at(at, "arguments stand in the wrong order");
  };
  if (skip_op("*")) {
    ensure(!args.star && !args.star_star);
    args.star = parse_expression();
  } else if (skip_op("**")) {
    ensure(!args.star_star);
    args.star_star = parse_expression();
  } else if (current().kind == TokenKind::kName && ahead().kind == TokenKind::kOperator &&
             ahead().text == "=") {
    ensure(!args.star_star);
    Text name = source_text(next().text);
    next();
    if (args.named.size() >= 256) fail_at(at, "more than 256 named arguments");
    budget_.touch(args.named.size());
    for (const NamedExpr& other : args.named) {
      if (same_text(other.name.view(), name.view(), &budget_)) {
        fail_at(at, "the argument " + quoted(name.view()) + " is given twice");
      }
    }
    args.named.push_back({std::move(name), parse_expression()});
  } else {
    ensure(!args.star && !args.star_star && args.named.empty());
    args.positional.push_back(parse_expression());
  }
}

std::unique_ptr<CallArgs> ExpressionParser::parse_call_args() {
  const Nested nested(*this);
  expect_op("(");
  auto args = std::make_unique<CallArgs>();
  bool first = true;
  while (!is_op(")")) {
    if (!first) {
      expect_op(",");
      if (is_op(")")) break;
    }
    first = false;
    parse_argument(*args);
  }
  expect_op(")");
  return args;
}

ExprPtr ExpressionParser::parse_filters(ExprPtr value, bool inline_start) {
  while (is_op("|") || inline_start) {
    if (!inline_start) next();
    inline_start = false;
    const Token name = expect_name();
    ExprPtr filter = node(ExprKind::kFilter, name.at, std::move(value));
    filter->word = std::string(name.text);
    while (skip_op(".")) filter->word += "." + std::string(expect_name().text);
    if (is_op("(")) add_call(*filter);
    value = std::move(filter);
  }
  return value;
}

ExprPtr ExpressionParser::parse_test(ExprPtr value) {
  const Position at = next().at;
  const bool negated = skip_name("not");
  ExprPtr test = node(ExprKind::kTest, at, std::move(value));
  test->word = std::string(expect_name().text);
  while (skip_op(".")) test->word += "." + std::string(expect_name().text);
  const TokenKind kind = current().kind;
  if (is_op("(")) {
    add_call(*test);
  } else if ((kind == TokenKind::kName || kind == TokenKind::kString ||
              kind == TokenKind::kInteger || kind == TokenKind::kFloat || is_op("[") ||
              is_op("{")) &&
             !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) fail_at(current().at, "tests cannot be chained with 'is'");
    test->call = std::make_unique<CallArgs>();
    ExprPtr argument = parse_primary();
    test->call->positional.push_back(parse_postfix(std::move(argument)));
    deepen(*test, test->call->positional.back());
  }
  if (negated) test = node(ExprKind::kNot, at, std::move(test));
  return test;
}

}  // namespace weft::jinja
