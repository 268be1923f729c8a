// The part of the parser that statements and expressions share: the token cursor, names, and the
// grammar of expressions. Throws Failure. Internal to parser.cc and expression_parser.cc.
//
// It is a base class rather than an object that the statement parser holds, because the two recurse
// into each other's state: the cursor, the nesting depth, the numbers of names, and the innermost
// macro, which notes whether an expression in its body mentions `caller`.
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
  /// Where a tuple ends and what its items may be, which differs by the tag that it appears in:
  /// `for a, b in x` must not read `b in x` as a comparison, and `for i in a if b` must not read `a
  /// if b` as a condition.
  struct TupleRules {
    bool simplified = false;      // only primaries: assignment targets
    bool conditional = true;      // "a if b else c" may be in it
    bool parenthesised = false;   // () is the empty tuple
    std::string_view end_word{};  // a name that ends it
  };

  // The cursor. The last token is kEnd and is never passed, so that looking ahead needs no check.
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
  /// These fail at the current token, with "expected …, got …".
  void expect_op(std::string_view op);
  Token expect_name();
  [[noreturn]] void unexpected(std::string_view wanted) const;

  /// The number of a variable's name, given at its first appearance.
  int name_id(std::string_view name);
  /// A Text of what the template's source says, for names and data that the tree keeps.
  Text source_text(std::string_view text) const;
  /// One expression, or several with commas between as a tuple.
  ExprPtr parse_tuple(TupleRules rules);
  ExprPtr parse_expression() { return parse_condition(); }
  /// A sign or a primary with its subscripts and calls; `with_filter` also the filters and tests
  /// after it. After a sign there are none, so that `-1|abs` is the filter of -1.
  ExprPtr parse_unary(bool with_filter);
  /// One filter and those after it, on `value` (null in filter blocks).
  ExprPtr parse_filters(ExprPtr value, bool inline_start);

  /// Guards recursion: while it lives the parser is one level deeper, and beyond
  /// Limits::syntax_depth it fails. Every cycle of functions has one in it, so that 5,000 opening
  /// brackets are one line of error and not a stack overflow.
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
  /// A new node; charged for its making, its destruction and the tokens that led to it. The second
  /// form takes `a` and `b` (which may be null) as its parts.
  ExprPtr node(ExprKind kind, Position at) const;
  ExprPtr node(ExprKind kind, Position at, ExprPtr a, ExprPtr b = nullptr) const;
  /// Raises expr's depth above that of `part`, which is its part now (null: nothing to do).
  void deepen(Expr& expr, const ExprPtr& part) const;
  void check_depth(Expr& expr) const;
  void add_call(Expr& expr);
  // One function for each level of precedence, loosest first; each calls the next tighter one for
  // its operands. The levels are those of jinja2's parser.py.
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
