// Tokens to the syntax tree, by jinja2's grammar with loop controls and {% generation %}. Tags that
// need other templates (extends, include, import, block) and those of extensions are refused by
// name. It never evaluates anything. Thread safety: none needed, it is one function.
#pragma once

#include <string_view>

#include "jinja/ast.h"
#include "jinja/limits.h"

namespace weft::jinja {

/// `source` as normalise_newlines leaves it. Throws Failure.
Ast parse(std::string_view source, const Limits& limits);

}  // namespace weft::jinja
