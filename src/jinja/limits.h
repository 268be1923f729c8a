// What a template may use. A chat template comes with a model from the internet and its variables
// come from anyone: both are hostile, so everything that they can make grow is bounded here: text,
// lists, values alive, work, and nesting in all three of its forms.
//
// The defaults are far above what the templates of models need and low enough that a rendering that
// reaches any of them ends in less than 2 s of CPU time and within `live_bytes`
// (docs/templates.md). They are plain fields, so that a test or a caller with a small task can set
// lower ones: text/chat_template.cc gives the short conversations that it probes a template with an
// eighth of the steps.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::jinja {

/// Every limit is inclusive: a list of exactly collection_items items passes.
struct Limits {
  size_t template_bytes = size_t{1} << 20;  // longest source
  size_t output_bytes = size_t{64} << 20;   // longest rendering
  size_t string_bytes = size_t{64} << 20;   // longest string value
  size_t collection_items = size_t{1} << 20;
  size_t live_bytes = size_t{512} << 20;  // all values of a rendering, at any one time
  int64_t steps = 10'000'000;  // of compiling and again of rendering; one takes 0.1 us at most: an
                               // expression, a statement, 64 bytes that are copied or compared
  int depth = 1000;        // nested evaluations: statements, expressions and macro calls together
  int syntax_depth = 300;  // nesting of expressions and blocks in the source
  int value_depth = 100;   // lists in lists; JSON in JSON
};

}  // namespace weft::jinja
