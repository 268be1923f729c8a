// The room's border. Inside, a Failure or std::bad_alloc unwinds whatever was being evaluated; here
// both become an Error, so that nothing is thrown into other rooms. Memory that runs out becomes
// one too, since one template that takes too much is no reason to end a program.
#include "jinja/template.h"

#include <new>

#include "jinja/interpreter_internal.h"
#include "jinja/lexer_internal.h"
#include "jinja/parser_internal.h"
#include "jinja/unicode_internal.h"

namespace weft::jinja {
namespace {

constexpr size_t kMaxMessageBytes = 600;

/// One line, whatever the template or the input put into it: raise_exception('two\nlines') comes
/// out as "two lines". Messages quote parts of templates, so control characters, which could drive
/// a terminal, become blanks, and 600 bytes are enough to say what is wrong. `at` is where the
/// rendering was, for failures that knew no place.
Error presentable(Error error, Position at) {
  if (error.position.line == 0) error.position = at;
  std::string line;
  for (const char c : utf8_prefix(error.message, kMaxMessageBytes)) {
    line += to_byte(c) < 0x20 || c == 0x7f ? ' ' : c;
  }
  if (error.message.size() > kMaxMessageBytes) line += "…";
  error.message = std::move(line);
  return error;
}

}  // namespace

Result<Template> Template::compile(std::string_view source, const Limits& limits) {
  if (source.size() > limits.template_bytes) {
    return Error{"the template has " + std::to_string(source.size()) + " bytes, more than " +
                     std::to_string(limits.template_bytes),
                 {},
                 /*at_limit=*/true};
  }
  if (!is_valid_utf8(source)) return Error{"the template is not UTF-8", {}};
  try {
    Budget budget(limits);
    return Template(std::make_shared<const Ast>(parse(normalise_newlines(source), budget)));
  } catch (const Failure& failure) {
    return presentable(failure.error, {});
  } catch (const std::bad_alloc&) {
    return Error{"no memory for the template", {}};
  }
}

Result<std::vector<Segment>> Template::render(const Variables& variables,
                                              const RenderOptions& options) const {
  Budget budget(options.limits);
  Interpreter interpreter(*ast_, variables, options, budget);
  try {
    return interpreter.run();
  } catch (const Failure& failure) {
    return presentable(failure.error, interpreter.position());
  } catch (const std::bad_alloc&) {
    return Error{"no memory for the rendering", interpreter.position()};
  }
}

// For callers to whom origins do not matter.
std::string joined(const std::vector<Segment>& segments) {
  std::string text;
  for (const Segment& segment : segments) text += segment.text;
  return text;
}

}  // namespace weft::jinja
