// The syntax tree of a template: what parser.cc makes and interpreter_internal.h walks. It is plain
// data and never evaluates, prints or checks anything. It is immutable once it is parsed, so that
// one compiled Template can be rendered by many threads at once: everything that a rendering
// changes is in its Interpreter.
//
// The tree is walked as it is instead of being compiled to bytecode. A chat template is rendered
// once a prompt, which costs little beside its prefill, so a second form of the program would gain
// nothing, and each node keeps the place in the source that its error names.
//
// Its depth is bounded by Limits::syntax_depth when it is made, so that neither the interpreter nor
// the destructors can overflow the stack. Names of variables are numbers into Ast::names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "jinja/result.h"
#include "jinja/value.h"

namespace weft::jinja {

/// What an expression is, and with it which fields of Expr it uses. `parts` are its operands in the
/// order of the source, which is also the order in which they are evaluated, but for kCond.
enum class ExprKind : uint8_t {
  kConst,
  kName,
  kList,
  kTuple,
  kDict,    // parts: key, value, key, value …
  kAttr,    // parts[0].attribute
  kItem,    // parts[0][parts[1]]
  kSlice,   // parts[0][parts[1]:parts[2]:parts[3]], each may be null
  kCall,    // parts[0](call)
  kFilter,  // parts[0] | word(call); parts[0] null in filter blocks
  kTest,    // parts[0] is word(call)
  kNot,
  kNegative,
  kPositive,
  kBinary,  // parts[0] op parts[1]
  kConcat,  // all parts, joined by ~
  kAnd,
  kOr,
  kCompare,  // parts[0] ops[0] parts[1] ops[1] parts[2] …
  kCond,     // parts[0] if parts[1] else parts[2]; parts[2] may be null
};

enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

/// `name=value` among a call's arguments. The name is a Text because ** makes names of what the
/// input says, and both kinds meet in one list (Args, runtime_internal.h).
struct NamedExpr {
  Text name;
  ExprPtr value;
};

/// The arguments of a call, a filter or a test, in the order that Python prescribes: positional,
/// named, then *args and **kwargs. parse_argument refuses any other order.
struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<NamedExpr> named;
  ExprPtr star;       // *args
  ExprPtr star_star;  // **kwargs
};

/// One node. A single struct for all kinds wastes some bytes a node, but a template of 1 MB has a
/// bounded number of nodes, and a class per kind would need a visitor for each walk.
///
/// `depth` is 1 for a leaf and 1 + that of the deepest part otherwise, arguments of calls included:
/// it is what the parser compares with Limits::syntax_depth, because chains like `1 + 1 + 1 …` are
/// built by loops, which a count of the parser's own recursion does not see.
struct Expr {
  ExprKind kind = ExprKind::kConst;
  BinaryOp op = BinaryOp::kAdd;
  int depth = 1;
  int name = -1;
  Position at;
  Value constant;
  std::string word;  // a filter's or a test's name
  Text attribute;
  std::vector<ExprPtr> parts;
  std::vector<CompareOp> compare_ops;
  std::unique_ptr<CallArgs> call;
};

/// What a value is assigned to: a name, name.attribute of a namespace, or a tuple of targets.
struct Target {
  int name = -1;
  Text attribute;
  std::vector<Target> parts;  // not empty: a tuple
  Position at;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

/// A macro's parameter. Its default is evaluated at each call, in the macro's own scope, so that
/// `macro m(a, b=a)` sees the `a` of that call.
struct Parameter {
  int name = -1;
  ExprPtr default_value;  // null: none
};

/// A macro's or a call block's signature and body. `uses_…` say whether the body mentions the name
/// (macros inside of it count): jinja2 binds caller, varargs and kwargs only then, and refuses
/// arguments that would go into a variable nobody reads.
struct MacroDef {
  Text name;
  std::vector<Parameter> parameters;
  Body body;
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

/// What a statement is, and which fields of Stmt it uses.
enum class StmtKind : uint8_t {
  kData,        // constant
  kPrint,       // expr
  kIf,          // branches, else_body
  kFor,         // target, expr, filter, body, else_body
  kSet,         // target, expr
  kSetBlock,    // target, body, through filter (may be null)
  kMacro,       // macro, bound to name
  kCall,        // expr called with macro as its caller
  kFilter,      // body through filter
  kWith,        // assignments, body
  kGeneration,  // body
  kBreak,
  kContinue,
};

/// `if` or `elif` with its body; the `else` is Stmt::else_body.
struct Branch {
  ExprPtr condition;
  Body body;
};

/// `target = value` of a `with` tag. All values are evaluated before the first is assigned.
struct Assignment {
  Target target;
  ExprPtr value;
};

/// One tag with what it encloses, or a stretch of plain text. `at` is the place of the tag's name,
/// which an error inside of it names unless an expression knows better.
struct Stmt {
  StmtKind kind = StmtKind::kData;
  bool recursive = false;
  int name = -1;
  Position at;
  Value constant;
  ExprPtr expr;
  ExprPtr filter;
  Target target;
  std::vector<Branch> branches;
  std::vector<Assignment> assignments;
  Body body;
  Body else_body;
  std::unique_ptr<MacroDef> macro;
};

/// A whole template. `names` has each variable's name once; the interpreter keeps its globals in a
/// vector of the same length, so that most look-ups need no comparison of text.
struct Ast {
  Body body;
  std::vector<std::string> names;
};

}  // namespace weft::jinja
