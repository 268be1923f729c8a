// Statements: one function a tag, over the expressions of expression_parser.cc. Tags are names like
// any other, so `if` can be a variable too, where the grammar lets it.
//
// A body is read up to a tag that begins with one of its end words, and whoever asked for it takes
// that tag: parse_if decides by the word whether a branch, an else or nothing follows. Bodies in
// bodies hold a Nested, so that 5,000 nested {% if %} are one line of error.
//
// Tags that would read other templates are refused by their name, not skipped: a template without
// its {% include %} would write a prompt that its model never saw.
#include "jinja/budget_internal.h"
#include "jinja/expression_parser_internal.h"
#include "jinja/parser_internal.h"

namespace weft::jinja {
namespace {

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  // Once per Parser.
  Ast run() {
    Ast ast;
    ast.body = parse_body({});
    if (current().kind != TokenKind::kEnd) unexpected("the end of the template");
    ast.names = std::move(names_);
    return ast;
  }

 private:
  using StmtPtr = std::unique_ptr<Stmt>;

  // Charged for the making and the freeing.
  StmtPtr make(StmtKind kind, Position at) {
    budget_.step(2);
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->at = at;
    return stmt;
  }

  // The words are few, and names as long as the template are told from them by their length first.
  bool at_end_word(const std::vector<std::string_view>& end_words) const {
    for (const std::string_view word : end_words) {
      if (is_name(word)) return true;
    }
    return false;
  }

  void end_block() {
    if (current().kind != TokenKind::kBlockEnd) unexpected("'%}'");
    next();
  }

  // Statements up to a tag that begins with one of the words, which is left as the current token.
  // Without end words it is the whole template, which ends at kEnd; elsewhere kEnd is an error that
  // names the last of the words, because that is the tag that closes: "expected {% endif %}".
  Body parse_body(const std::vector<std::string_view>& end_words) {
    const Nested nested(*this);
    Body body;
    for (;;) {
      const Token& token = current();
      if (token.kind == TokenKind::kData) {
        auto data = make(StmtKind::kData, token.at);
        data->constant = Value::string(source_text(token.text));
        body.push_back(std::move(data));
        next();
      } else if (token.kind == TokenKind::kPrintBegin) {
        auto print = make(StmtKind::kPrint, next().at);
        print->expr = parse_tuple({});
        if (current().kind != TokenKind::kPrintEnd) unexpected("'}}'");
        next();
        body.push_back(std::move(print));
      } else if (token.kind == TokenKind::kBlockBegin) {
        next();
        if (at_end_word(end_words)) return body;
        body.push_back(parse_statement());
      } else {
        if (!end_words.empty()) unexpected("{% " + std::string(end_words.back()) + " %}");
        return body;
      }
    }
  }

  // A body that ends with this one tag, which is consumed.
  Body parse_block(std::string_view end_word) {
    end_block();
    Body body = parse_body({end_word});
    next();
    end_block();
    return body;
  }

  // By the tag's name. `break` and `continue` need a loop round them in the same macro: n_loops_ is
  // 0 in a macro's body, whose calls may be anywhere, and within {% generation %}, which
  // transformers' extension turns into a call block.
  StmtPtr parse_statement() {
    const Token tag = expect_name();
    if (tag.text == "if") return parse_if(tag);
    if (tag.text == "for") return parse_for(tag);
    if (tag.text == "set") return parse_set(tag);
    if (tag.text == "macro") return parse_macro(tag);
    if (tag.text == "call") return parse_call_block(tag);
    if (tag.text == "filter") {
      auto stmt = make(StmtKind::kFilter, tag.at);
      stmt->filter = parse_filters(nullptr, true);
      stmt->body = parse_block("endfilter");
      return stmt;
    }
    if (tag.text == "with") return parse_with(tag);
    if (tag.text == "generation") {
      auto stmt = make(StmtKind::kGeneration, tag.at);
      const int loops = std::exchange(n_loops_, 0);
      stmt->body = parse_block("endgeneration");
      n_loops_ = loops;
      return stmt;
    }
    if (tag.text == "print") {
      auto stmt = make(StmtKind::kPrint, tag.at);
      stmt->expr = parse_tuple({});
      end_block();
      return stmt;
    }
    if (tag.text == "break" || tag.text == "continue") {
      if (n_loops_ == 0) fail_at(tag.at, std::string(tag.text) + " outside of a loop");
      auto stmt = make(tag.text == "break" ? StmtKind::kBreak : StmtKind::kContinue, tag.at);
      end_block();
      return stmt;
    }
    fail_at(tag.at, "the tag '" + std::string(tag.text.substr(0, 40)) + "' is not supported here");
  }

  // A long chain of elif is a list and not a tree, so its length needs no bound but the steps
  // (corpus: parse-elif).
  StmtPtr parse_if(const Token& tag) {
    auto stmt = make(StmtKind::kIf, tag.at);
    for (;;) {
      Branch branch;
      budget_.step();
      branch.condition = parse_tuple({.conditional = false});
      end_block();
      branch.body = parse_body({"elif", "else", "endif"});
      stmt->branches.push_back(std::move(branch));
      const Token word = next();
      if (word.text == "elif") continue;
      if (word.text == "else") {
        end_block();
        stmt->else_body = parse_body({"endif"});
        next();
      }
      end_block();
      return stmt;
    }
  }

  // `for target in items if filter recursive`. The else is outside of the loop, for `break` as
  // well: it runs when there was nothing to loop over.
  StmtPtr parse_for(const Token& tag) {
    auto stmt = make(StmtKind::kFor, tag.at);
    stmt->target = parse_target("in", false);
    if (!skip_name("in")) unexpected("'in'");
    stmt->expr = parse_tuple({.conditional = false, .end_word = "recursive"});
    if (skip_name("if")) stmt->filter = parse_expression();
    stmt->recursive = skip_name("recursive");
    end_block();
    ++n_loops_;
    stmt->body = parse_body({"else", "endfor"});
    --n_loops_;
    if (next().text == "else") {
      end_block();
      stmt->else_body = parse_body({"endfor"});
      next();
    }
    end_block();
    return stmt;
  }

  // `set x = value`, or a block whose output becomes the value, through filters if there are any.
  StmtPtr parse_set(const Token& tag) {
    Target target = parse_target({}, true);
    if (skip_op("=")) {
      auto stmt = make(StmtKind::kSet, tag.at);
      stmt->target = std::move(target);
      stmt->expr = parse_tuple({});
      end_block();
      return stmt;
    }
    auto stmt = make(StmtKind::kSetBlock, tag.at);
    stmt->target = std::move(target);
    stmt->filter = parse_filters(nullptr, false);
    stmt->body = parse_block("endset");
    return stmt;
  }

  // Only `set` may have attributes as its target, and only of a name: ns.x, not ns.x.y.
  Target parse_target(std::string_view end_word, bool may_be_attribute) {
    const ExprPtr expr = parse_target_items(end_word, may_be_attribute);
    return to_target(*expr);
  }

  // "name.attribute" is no primary, so it is taken here, before the tuple's rules see it. It comes
  // alone: in a tuple of targets an attribute is refused, which jinja2 3.1.6 takes.
  ExprPtr parse_target_items(std::string_view end_word, bool may_be_attribute) {
    if (may_be_attribute && current().kind == TokenKind::kName &&
        ahead().kind == TokenKind::kOperator && ahead().text == ".") {
      auto expr = std::make_unique<Expr>();
      expr->kind = ExprKind::kAttr;
      const Token name = next();
      next();
      expr->at = name.at;
      expr->name = name_id(name.text);
      expr->attribute = source_text(expect_name().text);
      return expr;
    }
    return parse_tuple({.simplified = true, .end_word = end_word});
  }

  // Targets are parsed as expressions and then turned, since whether `(a, b)` is a target is known
  // only after it: `1` or `f()` is an error here, and so is `(a.b)`, an attribute of an expression
  // and of no name. Its depth is the expression's, which is bounded.
  Target to_target(const Expr& expr) const {
    budget_.step();
    Target target;
    target.at = expr.at;
    const bool is_attribute = expr.kind == ExprKind::kAttr && expr.parts.empty();
    if (expr.kind == ExprKind::kName || is_attribute) {
      target.name = expr.name;
      target.attribute = expr.attribute;
    } else if (expr.kind == ExprKind::kTuple && !expr.parts.empty()) {
      for (const ExprPtr& part : expr.parts) target.parts.push_back(to_target(*part));
    } else {
      fail_at(expr.at, "this cannot be assigned to");
    }
    return target;
  }

  // Parameters with their defaults; as in Python none without a default may follow one that has it.
  void parse_signature(MacroDef& macro) {
    expect_op("(");
    while (!is_op(")")) {
      if (!macro.parameters.empty()) {
        expect_op(",");
        if (is_op(")")) break;
      }
      budget_.step();
      const Token name = expect_name();
      Parameter parameter;
      parameter.name = name_id(name.text);
      if (skip_op("=")) {
        parameter.default_value = parse_expression();
      } else if (!macro.parameters.empty() && macro.parameters.back().default_value) {
        fail_at(name.at, "a parameter without default after one with a default");
      }
      macro.parameters.push_back(std::move(parameter));
    }
    expect_op(")");
  }

  // The body of a macro or call block. Loops outside do not count within, and what it mentions the
  // macros round it mention too: in `macro a()` round `macro b()` round `caller()` both use it, as
  // jinja2's own search of the tree has it.
  void parse_macro_body(MacroDef& macro, std::string_view end_word) {
    const int loops = std::exchange(n_loops_, 0);
    MacroDef* const outer = std::exchange(macro_, &macro);
    macro.body = parse_block(end_word);
    macro_ = outer;
    if (outer != nullptr) {  // what a macro mentions, those round it mention
      outer->uses_caller |= macro.uses_caller;
      outer->uses_varargs |= macro.uses_varargs;
      outer->uses_kwargs |= macro.uses_kwargs;
    }
    n_loops_ = loops;
  }

  StmtPtr parse_macro(const Token& tag) {
    auto stmt = make(StmtKind::kMacro, tag.at);
    stmt->macro = std::make_unique<MacroDef>();
    const Token name = expect_name();
    stmt->name = name_id(name.text);
    stmt->macro->name = source_text(name.text);
    parse_signature(*stmt->macro);
    parse_macro_body(*stmt->macro, "endmacro");
    return stmt;
  }

  // {% call(x) f(1) %} … {% endcall %}: calls f(1) with the body as its `caller`.
  StmtPtr parse_call_block(const Token& tag) {
    auto stmt = make(StmtKind::kCall, tag.at);
    stmt->macro = std::make_unique<MacroDef>();
    stmt->macro->name = Text("caller", Origin::kTemplate);
    if (is_op("(")) parse_signature(*stmt->macro);
    stmt->expr = parse_expression();
    if (stmt->expr->kind != ExprKind::kCall) fail_at(stmt->expr->at, "expected a call");
    parse_macro_body(*stmt->macro, "endcall");
    return stmt;
  }

  // {% with a = 1, b = a %}: the values see what is outside, so this `a` of b is not the new one.
  StmtPtr parse_with(const Token& tag) {
    auto stmt = make(StmtKind::kWith, tag.at);
    while (current().kind != TokenKind::kBlockEnd) {
      if (!stmt->assignments.empty()) expect_op(",");
      budget_.step();
      Assignment assignment;
      assignment.target = parse_target({}, false);
      expect_op("=");
      assignment.value = parse_expression();
      stmt->assignments.push_back(std::move(assignment));
    }
    stmt->body = parse_block("endwith");
    return stmt;
  }

  int n_loops_ = 0;  // that `break` could leave
};

}  // namespace

Ast parse(std::string_view source, Budget& budget) {
  return Parser(tokenise(source, budget), budget).run();
}

}  // namespace weft::jinja
