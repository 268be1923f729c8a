// Walks the syntax tree and writes the output. One Interpreter is one rendering: it owns the scopes
// and namespaces that values may point to, and everything that a rendering changes. Throws Failure;
// position() tells where.
//
// Two kinds of thing can refer to themselves: a namespace that holds itself (`{% set n.me = n %}`),
// and a scope with a macro whose scope it is. Values own everything else by shared_ptr, which would
// leak such a cycle. So scopes and namespaces lie in deques that the Interpreter owns, values only
// point to them, and the destructor empties all of them at once.
#pragma once

#include <deque>
#include <vector>

#include "jinja/ast.h"
#include "jinja/runtime_internal.h"

namespace weft::jinja {

/// Variables of a loop, macro or block; the template's own are in Interpreter::globals_. A scope
/// has few of them, so they are searched one after the other, and look_up charges the search.
///
/// As in jinja2, `set` inside a loop makes a variable of the iteration and does not reach the one
/// outside:
///   {% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}   gives 231
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<int, Value>> variables;
  bool captured = false;  // a macro or loop may still look things up in it
};

class Interpreter : public Runtime {
 public:
  /// The tree, the options and the budget must outlive it. Variables win over the global functions
  /// of the same name.
  Interpreter(const Ast& ast, const Variables& variables, const RenderOptions& options,
              Budget& budget);
  ~Interpreter() override;

  /// Renders the whole template; once per Interpreter.
  std::vector<Segment> run();
  /// The expression or statement that is being evaluated: where a Failure without a place happened.
  Position position() const { return at_; }

  Value call(const Value& callee, const Args& args) override;
  Value make_namespace(std::vector<std::pair<Text, Value>> attributes) override;

 private:
  /// How a body ended: kBreak and kContinue travel up to the innermost loop.
  enum class Flow { kNext, kBreak, kContinue };
  class Deeper;
  class NewScope;
  class Capture;

  // statements, interpreter.cc
  Flow run_body(const Body& body);
  Flow run_statement(const Stmt& stmt);
  Flow run_if(const Stmt& stmt);
  void run_for(const Stmt& stmt);
  std::vector<Value> filtered(const Stmt& stmt, std::vector<Value> items);
  bool run_loop(const Stmt& stmt, std::vector<Value> items, int nesting);
  void run_call_block(const Stmt& stmt);
  void run_with(const Stmt& stmt);
  void run_filter_block(const Stmt& stmt);
  void run_set_block(const Stmt& stmt);
  void assign(const Target& target, const Value& value);
  Text body_text(const Body& body);
  Value make_macro(const MacroDef& def);
  Value call_macro(const Macro& macro, const Args& args);
  void bind_parameters(const MacroDef& def, const Args& args);
  void bind_extras(const MacroDef& def, const Args& args);
  Value call_loop(const Value& callee, const Args& args);
  void capture_scopes();

  Value look_up(int name);
  void define(int name, Value value);

  // expressions, evaluate.cc
  Value evaluate(const Expr& expr);
  Value evaluate_list(const Expr& expr);
  Value evaluate_dict(const Expr& expr);
  Value evaluate_attribute(const Expr& expr);
  Value evaluate_item(const Expr& expr);
  Value evaluate_slice(const Expr& expr);
  Value evaluate_call(const Expr& expr);
  Value evaluate_filter(const Expr& expr);
  Value evaluate_test(const Expr& expr);
  Value evaluate_unary(const Expr& expr);
  Value evaluate_binary(const Expr& expr);
  Value evaluate_concat(const Expr& expr);
  Value evaluate_logic(const Expr& expr);
  Value evaluate_compare(const Expr& expr);
  Value evaluate_condition(const Expr& expr);
  Args evaluate_args(const CallArgs* call);
  Value filter_text(const Expr& filter, const Value& value);

  const Ast& ast_;
  Position at_;
  int depth_ = 0;
  // Names that the interpreter itself binds. The template's own names have numbers, so these are
  // looked up once and not in every iteration of a loop.
  int loop_name_ = -1;  // these names' numbers; -1 where the template does not mention them
  int caller_name_ = -1;
  int varargs_name_ = -1;
  int kwargs_name_ = -1;
  std::vector<Value> globals_;  // by name
  std::vector<bool> is_global_;
  std::deque<Scope> scopes_;
  std::vector<Scope*> free_scopes_;
  std::deque<Namespace> namespaces_;
  Scope* scope_ = nullptr;  // innermost; null at the template's own level
  TextBuilder* out_ = nullptr;
  const Value* extra_caller_ = nullptr;  // of the call block whose call is evaluated next
};

/// Counts nested evaluations: while it lives the rendering is one level deeper. The limit bounds
/// the stack that a rendering takes: a macro that calls itself without end is one line of error
/// (evaluate.cc says how a level stays small).
class Interpreter::Deeper {
 public:
  explicit Deeper(Interpreter& interpreter) : interpreter_(interpreter) {
    interpreter.budget.step();
    if (++interpreter.depth_ > interpreter.options.limits.depth) fail_depth();
  }
  ~Deeper() { --interpreter_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  [[noreturn]] void fail_depth();
  Interpreter& interpreter_;
};

}  // namespace weft::jinja
