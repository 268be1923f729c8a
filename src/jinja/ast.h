// The syntax tree of a template. It only holds; parser.cc makes it and interpreter_internal.h walks
// it. Its depth is bounded by Limits::syntax_depth. Names are numbers into Ast::names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "jinja/result.h"
#include "jinja/value.h"

namespace weft::jinja {

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

struct NamedExpr {
  Text name;
  ExprPtr value;
};

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<NamedExpr> named;
  ExprPtr star;       // *args
  ExprPtr star_star;  // **kwargs
};

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

struct Parameter {
  int name = -1;
  ExprPtr default_value;  // null: none
};

/// A macro's or a call block's signature and body.
struct MacroDef {
  Text name;
  std::vector<Parameter> parameters;
  Body body;
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

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

struct Branch {
  ExprPtr condition;
  Body body;
};

struct Assignment {
  Target target;
  ExprPtr value;
};

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

struct Ast {
  Body body;
  std::vector<std::string> names;
};

}  // namespace weft::jinja
