// Walks the syntax tree and writes the output. One Interpreter is one rendering: it owns the scopes
// and namespaces that values may point to. Throws Failure; position() tells where.
#pragma once

#include <deque>
#include <vector>

#include "jinja/ast.h"
#include "jinja/runtime_internal.h"

namespace weft::jinja {

/// Variables of a loop, macro or block; the template's own stand in Interpreter::globals_.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<int, Value>> variables;
  bool captured = false;  // a macro or loop may still look things up in it
};

class Interpreter : public Runtime {
 public:
  Interpreter(const Ast& ast, const Variables& variables, const RenderOptions& options,
              Budget& budget);
  ~Interpreter() override;

  std::vector<Segment> run();
  Position position() const { return at_; }

  Value call(const Value& callee, const Args& args) override;
  Value make_namespace(std::vector<std::pair<Text, Value>> attributes) override;

 private:
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

/// Counts nested evaluations.
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
