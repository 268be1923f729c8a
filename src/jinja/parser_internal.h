// Tokens to the syntax tree, by jinja2's grammar with loop controls and {% generation %}. Tags that
// need other templates (extends, include, import, block) and those of extensions are refused by
// name. It never evaluates anything. Thread safety: none needed, it is one function.
#pragma once

#include <string_view>

#include "jinja/ast.h"
#include "jinja/budget_internal.h"

namespace weft::jinja {

/// `source` as normalise_newlines leaves it. Every node that is made or walked again is charged.
/// Throws Failure.
Ast parse(std::string_view source, Budget& budget);

}  // namespace weft::jinja
