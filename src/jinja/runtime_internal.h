// What filters, tests, methods and functions see of a rendering: the budget, the options, a way to
// call a template's own macros, and their arguments. They do not see scopes or output, so a filter
// cannot depend on where it is called. Internal to the room. Throws Failure.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/operators_internal.h"
#include "jinja/template.h"

namespace weft::jinja {

/// A call's arguments, evaluated. A name is a Text as any other: ** makes names of what the input
/// says, and in `dict(**x)` they become keys that can be printed.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<Text, Value>> named;
};

/// Arguments by parameter; absent ones are null. The rules are Python's for a function with these
/// parameters: positional ones in order, then by name, no parameter twice, none unknown. A
/// parameter named "" can be given by position only, as those of most methods of str.
///
/// It points into the Args, which must outlive it.
class Bound {
 public:
  /// Fails where an argument has no parameter, or one of the first `required` has no argument.
  /// `what` names the callee in messages.
  Bound(const Args& args, std::string_view what, std::initializer_list<std::string_view> parameters,
        size_t required);

  bool has(size_t i) const { return values_[i] != nullptr; }
  /// The argument must be there (has).
  const Value& operator[](size_t i) const { return *values_[i]; }
  const Value* get(size_t i) const { return values_[i]; }
  bool flag(size_t i, bool fallback) const { return has(i) ? truthy(*values_[i]) : fallback; }
  /// None counts as absent.
  int64_t integer(size_t i, int64_t fallback) const;
  /// The argument must be a string.
  const Text& text(size_t i) const;
  bool is_none(size_t i) const { return !has(i) || values_[i]->is_none(); }

 private:
  std::string what_;
  std::vector<const Value*> values_;
};

/// One rendering as the library sees it; the Interpreter is the only one there is.
class Runtime {
 public:
  Runtime(Budget& b, const RenderOptions& o) : budget(b), options(o) {}
  virtual ~Runtime() = default;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// Calls what `callee(...)` would: functions, methods, macros, recursive loops, joiners.
  virtual Value call(const Value& callee, const Args& args) = 0;
  /// A namespace that lives as long as the rendering.
  virtual Value make_namespace(std::vector<std::pair<Text, Value>> attributes) = 0;

  Budget& budget;
  const RenderOptions& options;
};

/// How library functions look. They are plain function pointers in constexpr tables: nothing that a
/// template does can add one or change one.
using MethodFn = Value (*)(Runtime&, const Value& self, const Args&);
using FunctionFn = Value (*)(Runtime&, const Args&);

/// A method bound to its value, as `"abc".strip` without the call.
struct Method : Object {
  Value self;
  std::string_view name;
  MethodFn fn = nullptr;
};
/// A global function: range, namespace, raise_exception and the others of functions.cc.
struct Function : Object {
  std::string_view name;
  FunctionFn fn = nullptr;
};

struct Scope;

/// A macro, or the body of a call block; what it points to lives as long as the rendering: the
/// definition in the Ast, the scope in the Interpreter, which keeps it because it is captured.
struct Macro : Object {
  const MacroDef* def = nullptr;
  Scope* scope = nullptr;
};

/// The variable `loop`. All items are known when the loop begins, so length, last and revindex cost
/// nothing. `changed_from` could hold the loop itself, which would own itself then, so it is
/// emptied when the loop ends, and stays so. `stmt` and `scope` are for `loop(items)` in a
/// recursive loop.
struct Loop : Object {
  std::vector<Value> items;
  int64_t index = 0;
  int nesting = 0;
  bool active = true;
  bool has_changed = false;
  std::vector<Value> changed_from;
  const Stmt* stmt = nullptr;
  Scope* scope = nullptr;
};
/// loop.name; undefined where there is no such attribute. These are known: index, index0, revindex,
/// revindex0, first, last, length, depth, depth0, previtem, nextitem, cycle, changed.
Value loop_attribute(const Value& loop, std::string_view name);

/// Undefined where the kind has no such method.
Value find_method(const Value& self, std::string_view name);
/// Null where strings have no such method.
MethodFn find_string_method(std::string_view name);
/// Null where there is no global function of this name.
Value find_function(std::string_view name);

/// value | name(args)
Value apply_filter(Runtime& runtime, std::string_view name, const Value& value, const Args& args);
/// value is name(args)
bool apply_test(Runtime& runtime, std::string_view name, const Value& value, const Args& args);
bool is_filter(std::string_view name);
bool is_test(std::string_view name);

/// str.format
Value format_braces(Runtime& runtime, const Value& format, const Args& args);
/// transformers' tojson: json.dumps with ensure_ascii=False, not escaped for HTML.
Value to_json(Runtime& runtime, const Value& value, const Args& args);

// Used by methods and filters both (text_operations.cc). Each result byte keeps the origin of the
// byte that it was made from.
Value text_case(const Value& value, char to, Budget& budget);  // 'u', 'l'
Value strip(const Value& value, const Value* characters_or_none, bool left, bool right,
            Budget& budget);
Value replace(const Value& value, const Text& from, const Text& to, int64_t limit, Budget& budget);
Value join(const Text& separator, const std::vector<Value>& items, bool strings_only,
           Budget& budget);
std::vector<Text> split_lines(const Text& text, bool keep_ends, Budget& budget);

}  // namespace weft::jinja
