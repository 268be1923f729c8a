// Statements, scopes and calls: the half of the Interpreter that writes output. Expressions are in
// evaluate.cc.
//
// Scopes are jinja2's: the template's own variables are global; an iteration of a loop, a macro, a
// block, a `with`, `call`, `filter` or `generation` body each has a scope of its own, in which
// `set` makes a new variable and look-ups go outwards. `if` has none. What a template wants to
// carry out of a loop it keeps in a namespace.
//
// Output goes to `out_`, a text that keeps origins; macros and blocks put a text of their own in
// its place while they run (Capture), so that what they write is a value with origins like any
// other. What must be undone when a limit unwinds the stack is undone by destructors: NewScope,
// Capture, Deeper.
#include <algorithm>
#include <map>

#include "jinja/interpreter_internal.h"

namespace weft::jinja {

// The constructor's failure runs no destructor, so the level is taken back here.
void Interpreter::Deeper::fail_depth() {
  --interpreter_.depth_;
  fail_limit("the template nests deeper than " + std::to_string(interpreter_.options.limits.depth) +
             " levels when it runs");
}

/// A scope inside of `parent`, for as long as this object lives. Scopes are reused, because a loop
/// of 100,000 iterations would make as many, but not those that a macro or a recursive loop has
/// captured: such a macro may be called after its scope has ended, and must still find its
/// variables:
///   {% for i in [1] %}{% macro m() %}{{ i }}{% endmacro %}{% set n.m = m %}{% endfor %}{{ n.m() }}
/// (which is 1; jinja2 has lost the variable by then and prints "missing"). Those stay until the
/// rendering ends, charged as memory that never comes back.
class Interpreter::NewScope {
 public:
  NewScope(Interpreter& interpreter, Scope* parent) : in_(interpreter), outer_(interpreter.scope_) {
    if (in_.free_scopes_.empty()) {
      in_.budget.hold(sizeof(Scope));
      in_.scopes_.emplace_back();
      in_.free_scopes_.push_back(&in_.scopes_.back());
    }
    mine_ = in_.free_scopes_.back();
    in_.free_scopes_.pop_back();
    mine_->parent = parent;
    in_.scope_ = mine_;
  }
  ~NewScope() {
    in_.scope_ = outer_;
    if (mine_->captured) return;
    mine_->variables.clear();
    in_.free_scopes_.push_back(mine_);
  }
  NewScope(const NewScope&) = delete;
  NewScope& operator=(const NewScope&) = delete;

 private:
  Interpreter& in_;
  Scope* outer_;
  Scope* mine_;
};

/// Output goes to a text of its own, for as long as this object lives.
class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& interpreter)
      : in_(interpreter), outer_(interpreter.out_), mine_(&interpreter.budget) {
    in_.out_ = &mine_;
  }
  ~Capture() { in_.out_ = outer_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  Text finish() { return mine_.finish(); }

 private:
  Interpreter& in_;
  TextBuilder* outer_;
  TextBuilder mine_;
};

// Binds each name that the template mentions, once: variables first, then global functions.
// Variables that it does not mention cost a place in the map and no more, and a second look-up by
// text is never needed.
Interpreter::Interpreter(const Ast& ast, const Variables& variables, const RenderOptions& opts,
                         Budget& b)
    : Runtime(b, opts), ast_(ast) {
  globals_.resize(ast.names.size());
  is_global_.resize(ast.names.size());
  // Ordered: a hash table's buckets are something that a request's names could aim at.
  std::map<std::string_view, const Value*> given;
  for (const auto& [name, value] : variables) given[name] = &value;
  for (int i = 0; i < std::ssize(ast.names); ++i) {
    const std::string& name = ast.names[i];
    const auto found = given.find(name);
    globals_[i] = found == given.end() ? find_function(name) : *found->second;
    is_global_[i] = !globals_[i].is_undefined();
    if (name == "loop") loop_name_ = i;
    if (name == "caller") caller_name_ = i;
    if (name == "varargs") varargs_name_ = i;
    if (name == "kwargs") kwargs_name_ = i;
  }
}

// Values may point to each other through namespaces and scopes without owning them: all go at once,
// before the deques, so that no value sees a scope or namespace that is gone already.
Interpreter::~Interpreter() {
  for (Namespace& space : namespaces_) space.attributes.clear();
  for (Scope& scope : scopes_) scope.variables.clear();
}

// The outermost text has the limit of the output in place of a string's.
std::vector<Segment> Interpreter::run() {
  TextBuilder out(&budget, options.limits.output_bytes);
  out_ = &out;
  run_body(ast_.body);
  return out.finish_segments();
}

// From the innermost scope outwards, then the template's own variables. What there is none of is
// undefined with the message that Python's jinja2 has, made only then, and charged, because a
// template can ask for it in every iteration.
Value Interpreter::look_up(int name) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    budget.touch(1 + scope->variables.size() / 2);
    for (const auto& [id, value] : scope->variables) {
      if (id == name) return value;
    }
  }
  if (is_global_[name]) return globals_[name];
  budget.step(4);
  return make_undefined(quoted(ast_.names[name]) + " is undefined");
}

// Always in the innermost scope: a variable of the same name further out is hidden, not changed.
void Interpreter::define(int name, Value value) {
  if (scope_ == nullptr) {
    globals_[name] = std::move(value);
    is_global_[name] = true;
    return;
  }
  budget.touch(1 + scope_->variables.size() / 2);
  for (auto& [id, old] : scope_->variables) {
    if (id == name) {
      old = std::move(value);
      return;
    }
  }
  scope_->variables.emplace_back(name, std::move(value));
}

namespace {

// A namespace's attributes are searched one after the other, so there may not be many; templates
// keep a handful of flags in them.
void check_attributes(size_t n) {
  constexpr size_t kMaxAttributes = 1000;
  if (n > kMaxAttributes) fail_limit("a namespace of more than 1000 attributes");
}

}  // namespace

// To a name, an attribute of a namespace, or names in a tuple (nested ones as well), where the
// numbers of values and names must agree. Only namespaces can be set; anything else is a value that
// others may share.
void Interpreter::assign(const Target& target, const Value& value) {
  if (!target.parts.empty()) {
    const std::vector<Value> items = to_items(value, budget);
    if (value.is_undefined() || items.size() != target.parts.size()) {
      fail_at(target.at, "cannot unpack " + std::to_string(items.size()) + " values into " +
                             std::to_string(target.parts.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
    return;
  }
  if (target.attribute.empty()) return define(target.name, value);
  const Value space = look_up(target.name);
  if (!space.is(Kind::kNamespace)) {
    fail_at(target.at, "cannot assign attribute on non-namespace object");
  }
  auto& object = space.as<Namespace>();
  if (Value* old = object.find(target.attribute.view(), budget)) {
    *old = value;
  } else {
    check_attributes(object.attributes.size() + 1);
    budget.hold(sizeof(Value) + target.attribute.n_bytes());
    object.attributes.emplace_back(target.attribute, value);
  }
}

// Charged for as long as the rendering lasts, whatever becomes of the value.
Value Interpreter::make_namespace(std::vector<std::pair<Text, Value>> attributes) {
  check_attributes(attributes.size());
  budget.hold(sizeof(Namespace));
  for (const auto& [name, value] : attributes) budget.hold(sizeof(Value) + name.n_bytes());
  Namespace& space = namespaces_.emplace_back();
  space.attributes = std::move(attributes);
  // Not owned by the value: namespaces may hold themselves.
  return Value::object(Kind::kNamespace, std::shared_ptr<Object>(std::shared_ptr<void>(), &space));
}

// Stops at the first break or continue, which the innermost loop takes.
Interpreter::Flow Interpreter::run_body(const Body& body) {
  const Deeper deeper(*this);
  for (const auto& stmt : body) {
    const Flow flow = run_statement(*stmt);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

// at_ is set again after an expression, because printing what it gave can fail too, and that is
// this statement's place and not the one where the expression's evaluation ended.
Interpreter::Flow Interpreter::run_statement(const Stmt& stmt) {
  budget.step();
  at_ = stmt.at;
  switch (stmt.kind) {
    case StmtKind::kData:
      out_->add(stmt.constant.text());
      break;
    case StmtKind::kPrint: {
      const Value value = evaluate(*stmt.expr);
      at_ = stmt.at;
      add_str(*out_, value, budget);
      break;
    }
    case StmtKind::kIf:
      return run_if(stmt);
    case StmtKind::kFor:
      run_for(stmt);
      break;
    case StmtKind::kSet:
      assign(stmt.target, evaluate(*stmt.expr));
      break;
    case StmtKind::kSetBlock:
      run_set_block(stmt);
      break;
    case StmtKind::kMacro:
      define(stmt.name, make_macro(*stmt.macro));
      break;
    case StmtKind::kCall:
      run_call_block(stmt);
      break;
    case StmtKind::kFilter:
      run_filter_block(stmt);
      break;
    case StmtKind::kWith:
      run_with(stmt);
      break;
    case StmtKind::kGeneration: {
      const NewScope scope(*this, scope_);
      run_body(stmt.body);
      break;
    }
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_if(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches) {
    if (truthy(evaluate(*branch.condition))) return run_body(branch.body);
  }
  return run_body(stmt.else_body);
}

// The items for which the loop's `if` holds, with the target bound to each in a scope of its own.
// They are chosen before the first iteration, so that loop.length and loop.last count only those,
// as jinja2 has it; the filter cannot see this `loop`.
std::vector<Value> Interpreter::filtered(const Stmt& stmt, std::vector<Value> items) {
  if (!stmt.filter) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    const NewScope scope(*this, scope_);
    assign(stmt.target, item);
    if (truthy(evaluate(*stmt.filter))) kept.push_back(std::move(item));
  }
  return kept;
}

// The items are evaluated outside of the loop's scope: {% for x in x %} walks the outer x.
void Interpreter::run_for(const Stmt& stmt) {
  const Value iterated = evaluate(*stmt.expr);
  at_ = stmt.expr->at;
  if (run_loop(stmt, filtered(stmt, to_items(iterated, budget)), 0)) return;
  const NewScope scope(*this, scope_);
  run_body(stmt.else_body);
}

// Runs all iterations, and says whether there was anything to loop over. Each has a scope of its
// own. The list that is made and dropped charges the items and knows how deep they are nested,
// which the loop object counts as its own depth. `End` makes sure that a loop object that outlives
// its loop (kept in a namespace) holds nothing that could hold it.
bool Interpreter::run_loop(const Stmt& stmt, std::vector<Value> items, int nesting) {
  budget.step(2);
  const auto loop = std::make_shared<Loop>();
  loop->depth = make_list(items, &budget).depth();
  loop->items = std::move(items);
  loop->nesting = nesting;
  loop->stmt = &stmt;
  loop->scope = scope_;
  if (stmt.recursive) capture_scopes();
  struct End {
    Loop& loop;
    ~End() {
      loop.active = false;
      loop.changed_from.clear();
    }
  } const end{*loop};
  for (; loop->index < std::ssize(loop->items); ++loop->index) {
    const NewScope scope(*this, loop->scope);
    if (loop_name_ >= 0) define(loop_name_, Value::object(Kind::kLoop, loop));
    at_ = stmt.at;
    assign(stmt.target, loop->items[loop->index]);
    if (run_body(stmt.body) == Flow::kBreak) return true;
  }
  if (loop->items.empty()) return false;
  loop->index = std::ssize(loop->items) - 1;
  return true;
}

// `loop(items)` in a recursive loop: the same body over other items, its output as a string. The
// scope is the one round the loop, not that of the calling iteration.
Value Interpreter::call_loop(const Value& callee, const Args& args) {
  auto& loop = callee.as<Loop>();
  if (loop.stmt == nullptr || !loop.stmt->recursive) {
    fail("The loop must have the 'recursive' marker to be called recursively.");
  }
  const Bound bound(args, "loop", {""}, 1);
  const Deeper deeper(*this);
  const NewScope scope(*this, loop.scope);
  Capture capture(*this);
  std::vector<Value> items = filtered(*loop.stmt, to_items(bound[0], budget));
  if (!run_loop(*loop.stmt, std::move(items), loop.nesting + 1)) run_body(loop.stmt->else_body);
  return Value::string(capture.finish());
}

// From here outwards; further out than the first captured one all are captured already.
void Interpreter::capture_scopes() {
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) {
    scope->captured = true;
  }
}

// A macro remembers the scope of its definition, not that of its call.
Value Interpreter::make_macro(const MacroDef& def) {
  auto macro = std::make_shared<Macro>();
  macro->def = &def;
  macro->scope = scope_;
  capture_scopes();
  budget.step(2);
  return Value::object(Kind::kMacro, std::move(macro));
}

// The body becomes a macro named caller, which evaluate_call adds to the arguments of the block's
// own call and of no other: extra_caller_ is taken by the first call that is evaluated.
void Interpreter::run_call_block(const Stmt& stmt) {
  const NewScope scope(*this, scope_);
  const Value caller = make_macro(*stmt.macro);
  extra_caller_ = &caller;
  const Value result = evaluate(*stmt.expr);
  at_ = stmt.at;
  add_str(*out_, result, budget);
}

// All values first, outside of the new scope: {% with a = 1, b = a %} has the outer a in b.
void Interpreter::run_with(const Stmt& stmt) {
  std::vector<Value> values;
  for (const Assignment& assignment : stmt.assignments) {
    values.push_back(evaluate(*assignment.value));
  }
  const NewScope scope(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(stmt.assignments[i].target, values[i]);
  run_body(stmt.body);
}

// What a body writes, in place of writing it.
Text Interpreter::body_text(const Body& body) {
  const NewScope scope(*this, scope_);
  Capture capture(*this);
  run_body(body);
  return capture.finish();
}

void Interpreter::run_filter_block(const Stmt& stmt) {
  const Value text = Value::string(body_text(stmt.body));
  add_str(*out_, filter_text(*stmt.filter, text), budget);
}

void Interpreter::run_set_block(const Stmt& stmt) {
  Value value = Value::string(body_text(stmt.body));
  if (stmt.filter) value = filter_text(*stmt.filter, value);
  assign(stmt.target, value);
}

// By position, then by name, then by default, which may use the parameters before it; what is left
// is undefined and says so when it is used, since jinja2 lets a macro be called with too few
// arguments. With `kwargs` in its body a macro takes a parameter given twice: jinja2 keeps the
// second value in kwargs then, here it is dropped.
void Interpreter::bind_parameters(const MacroDef& def, const Args& args) {
  for (size_t i = 0; i < def.parameters.size(); ++i) {
    const Parameter& parameter = def.parameters[i];
    const std::string& name = ast_.names[parameter.name];
    budget.step();
    budget.touch(args.named.size());
    const auto named = std::find_if(
        args.named.begin(), args.named.end(),
        [&](const auto& argument) { return same_text(argument.first.view(), name, &budget); });
    if (i < args.positional.size()) {
      if (named != args.named.end() && !def.uses_kwargs) {
        fail("macro " + quoted(def.name.view()) + " got multiple values for argument " +
             quoted(name));
      }
      define(parameter.name, args.positional[i]);
    } else if (named != args.named.end()) {
      define(parameter.name, named->second);
    } else if (parameter.default_value) {
      define(parameter.name, evaluate(*parameter.default_value));
    } else {
      define(parameter.name, make_undefined("parameter " + quoted(name) + " was not provided"));
    }
  }
}

// Binds caller, varargs and kwargs, where the macro mentions them; arguments that fit no parameter
// and none of these fail, as in Python.
void Interpreter::bind_extras(const MacroDef& def, const Args& args) {
  const size_t n = def.parameters.size();
  if (def.uses_varargs) {
    const size_t given = std::min(n, args.positional.size());
    define(varargs_name_,
           make_tuple({args.positional.begin() + given, args.positional.end()}, &budget));
  } else if (args.positional.size() > n) {
    fail("macro " + quoted(def.name.view()) + " takes not more than " + std::to_string(n) +
         " argument(s)");
  }
  Value caller = make_undefined("No caller defined");
  std::vector<std::pair<Value, Value>> rest;
  for (const auto& argument : args.named) {
    const Text& name = argument.first;
    budget.touch(def.parameters.size());
    const bool known = std::any_of(
        def.parameters.begin(), def.parameters.end(),
        [&](const Parameter& p) { return same_text(ast_.names[p.name], name.view(), &budget); });
    if (known) continue;
    if (def.uses_caller && name.view() == "caller") {
      caller = argument.second;
    } else {
      rest.emplace_back(Value::string(name), argument.second);
    }
  }
  if (def.uses_caller) define(caller_name_, std::move(caller));
  if (def.uses_kwargs) {
    define(kwargs_name_, make_dict(std::move(rest), &budget));
  } else if (!rest.empty()) {
    fail("macro " + quoted(def.name.view()) + " takes no keyword argument " +
         quoted(rest.front().first.view()));
  }
}

// The extra names come first: a parameter may have the name of one and wins then.
Value Interpreter::call_macro(const Macro& macro, const Args& args) {
  const Deeper deeper(*this);
  budget.step(2);
  const NewScope scope(*this, macro.scope);
  bind_extras(*macro.def, args);
  bind_parameters(*macro.def, args);
  Capture capture(*this);
  run_body(macro.def->body);
  return Value::string(capture.finish());
}

// What can be called. Types are not among it: `str(x)` is an undefined name in jinja2, too.
Value Interpreter::call(const Value& callee, const Args& args) {
  switch (callee.kind()) {
    case Kind::kFunction:
      return callee.as<Function>().fn(*this, args);
    case Kind::kMethod: {
      const auto& method = callee.as<Method>();
      return method.fn(*this, method.self, args);
    }
    case Kind::kMacro:
      return call_macro(callee.as<Macro>(), args);
    case Kind::kLoop:
      return call_loop(callee, args);
    case Kind::kJoiner: {
      const Bound bound(args, "joiner", {}, 0);
      auto& joiner = callee.as<Joiner>();
      if (joiner.used) return joiner.separator;
      joiner.used = true;
      return Value::string(Text());
    }
    case Kind::kUndefined:
      fail_undefined(callee);
    default:
      fail(std::string("'") + type_name(callee) + "' object is not callable");
  }
}

}  // namespace weft::jinja
