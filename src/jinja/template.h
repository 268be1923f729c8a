// A Jinja2 template as chat templates use it, compiled once and rendered with the options that
// transformers gives jinja2: trim_blocks, lstrip_blocks, no autoescape, the immutable sandbox, loop
// controls, {% generation %}, tojson without HTML escapes, raise_exception and strftime_now. Both
// the template and its variables are taken for hostile: see limits.h. It never reads a file, a
// clock or the environment, and never throws. What it prints remembers its origin (text.h). Thread
// safety: a Template can be rendered by many threads at once.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/limits.h"
#include "jinja/result.h"
#include "jinja/value.h"

namespace weft::jinja {

struct Ast;

using Variables = std::vector<std::pair<std::string, Value>>;

struct RenderOptions {
  Limits limits;
  std::tm now{};  // what strftime_now formats; local time, as Python's datetime.now()
};

class Template {
 public:
  /// Fails with the place where the syntax is wrong.
  static Result<Template> compile(std::string_view source, const Limits& limits = {});

  /// Neighbouring segments differ in origin; none is empty. A later variable of the same name wins.
  Result<std::vector<Segment>> render(const Variables& variables,
                                      const RenderOptions& options = {}) const;

 private:
  explicit Template(std::shared_ptr<const Ast> ast) : ast_(std::move(ast)) {}
  std::shared_ptr<const Ast> ast_;
};

/// The segments' texts, one after the other.
std::string joined(const std::vector<Segment>& segments);

}  // namespace weft::jinja
