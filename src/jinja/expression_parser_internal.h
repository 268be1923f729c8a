// The part of the parser that statements and expressions share: the token cursor, names, and the
// grammar of expressions. Throws Failure. Internal to parser.cc and expression_parser.cc.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/ast.h"
#include "jinja/lexer_internal.h"
#include "jinja/limits.h"

namespace weft::jinja {

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, Budget& budget)
      : tokens_(std::move(tokens)), budget_(budget), limits_(budget.limits()) {}

 protected:
  struct TupleRules {
    bool simplified = false;      // only primaries: assignment targets
    bool conditional = true;      // "a if b else c" may stand in it
    bool parenthesised = false;   // () is the empty tuple
    std::string_view end_word{};  // a name that ends it
  };

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token next() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_.back(); }
  bool is_op(std::string_view op) const {
    return current().kind == TokenKind::kOperator && current().text == op;
  }
  bool is_name(std::string_view name) const {
    return current().kind == TokenKind::kName && current().text == name;
  }
  bool skip_op(std::string_view op) { return is_op(op) && (next(), true); }
  bool skip_name(std::string_view name) { return is_name(name) && (next(), true); }
  void expect_op(std::string_view op);
  Token expect_name();
  [[noreturn]] void unexpected(std::string_view wanted) const;

  int name_id(std::string_view name);
  /// What the template's source says.
  Text source_text(std::string_view text) const;
  ExprPtr parse_tuple(TupleRules rules);
  ExprPtr parse_expression() { return parse_condition(); }
  ExprPtr parse_unary(bool with_filter);
  /// One filter and those after it, on `value` (null in filter blocks).
  ExprPtr parse_filters(ExprPtr value, bool inline_start);

  /// Guards recursion.
  class Nested {
   public:
    explicit Nested(ExpressionParser& parser);
    ~Nested() { --parser_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    ExpressionParser& parser_;
  };

  std::vector<Token> tokens_;
  size_t at_ = 0;
  Budget& budget_;
  const Limits& limits_;
  int depth_ = 0;
  std::vector<std::string> names_;
  MacroDef* macro_ = nullptr;  // the innermost whose body is being parsed

 private:
  ExprPtr node(ExprKind kind, Position at) const;
  ExprPtr node(ExprKind kind, Position at, ExprPtr a, ExprPtr b = nullptr) const;
  /// Takes `part`, which `expr` has got, into its depth.
  void deepen(Expr& expr, const ExprPtr& part) const;
  void check_depth(Expr& expr) const;
  void add_call(Expr& expr);
  ExprPtr parse_condition();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_primary();
  ExprPtr parse_postfix(ExprPtr value);
  ExprPtr parse_filter_chain(ExprPtr value);
  ExprPtr parse_subscript(ExprPtr value);
  ExprPtr parse_test(ExprPtr value);
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_strings();
  ExprPtr parse_number();
  ExprPtr parse_name();
  std::unique_ptr<CallArgs> parse_call_args();
  void parse_argument(CallArgs& args);

  // Ordered: a hash table's buckets are something that a template could aim at.
  std::map<std::string, int, std::less<>> name_ids_;
};

}  // namespace weft::jinja
