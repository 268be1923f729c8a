// Tokens to the syntax tree, by jinja2's grammar with loop controls and {% generation %}. Tags that
// need other templates (extends, include, import, block) and those of extensions are refused by
// name: a template that comes with a model is one file, and weft reads no other for it. It never
// evaluates anything, not even constants, so that compiling needs no limits beyond size, steps and
// nesting. Thread safety: none needed, it is one function.
#pragma once

#include <string_view>

#include "jinja/ast.h"
#include "jinja/budget_internal.h"

namespace weft::jinja {

/// `source` as normalise_newlines leaves it; the tree keeps no view of it. Every node that is made
/// or walked again is charged. Throws Failure with the place of the token that does not fit.
Ast parse(std::string_view source, Budget& budget);

}  // namespace weft::jinja
