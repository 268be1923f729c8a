// A template and variables of 1 MB, said by a few bytes (template_case.h): rendered, or refused in
// one line, in the time that 1 MB may take.
// ./template_time_fuzz -max_len=2048 -dict=fuzz/template.dict fuzz/corpus/template_time
#include <cstdlib>

#include "jinja/json.h"
#include "jinja/template.h"
#include "template_case.h"
#include "time_limit.h"

namespace {

using weft::jinja::Template;
using weft::jinja::Value;

void check(const weft::jinja::Error& error) {
  const std::string line = error.to_string();
  if (line.empty() || line.size() > 1000 || line.find('\n') != std::string::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const weft::fuzz::TemplateCase given = weft::fuzz::expand_template_case(
      std::string_view(reinterpret_cast<const char*>(data), size), size_t{1} << 20);
  const weft::fuzz::TimeLimit time_limit(given.source.size() + given.json.size());
  const auto input = weft::jinja::parse_json(given.json.empty() ? "{}" : given.json);
  if (!input.is_ok()) {
    check(input.error());
    return 0;
  }
  const auto compiled = Template::compile(given.source);
  if (!compiled.is_ok()) {
    check(compiled.error());
    return 0;
  }
  weft::jinja::Variables variables;
  if (input->is(weft::jinja::Kind::kDict)) {
    for (const auto& [key, value] : input->dict().items) {
      variables.emplace_back(std::string(key.view()), value);
    }
  }
  // Fewer steps than usual, or few inputs a minute would be tried: what costs more than it is
  // charged for takes too long all the same.
  weft::jinja::RenderOptions options;
  options.limits.steps /= 10;
  const auto rendered = compiled->render(variables, options);
  if (!rendered.is_ok()) check(rendered.error());
  return 0;
}
