// Any bytes as a chat template over a conversation (behind a zero byte: one's own, as JSON): a
// rendering or one line, within the limits; and what the input says is never the template's text.
// ./template_fuzz -max_len=4096 -dict=fuzz/template.dict fuzz/corpus/template
#include <cstdlib>
#include <string>

#include "jinja/json.h"
#include "jinja/template.h"

namespace {

using weft::jinja::Error;
using weft::jinja::Limits;
using weft::jinja::Segment;
using weft::jinja::Template;
using weft::jinja::Value;

// U+E000 stands for what the input says.
constexpr const char* kConversation = R"({"messages": [
  {"role": "system", "content": "\ue000 \ue000Ab"},
  {"role": "user", "content": "\ue000\n <x> \ue000"},
  {"role": "assistant", "content": null, "tool_calls": [{"id": "\ue000", "type": "function",
   "function": {"name": "f\ue000", "arguments": {"\ue000": [1, 2.5, true, null, "\ue000"]}}}]},
  {"role": "tool", "content": [{"type": "text", "text": "\ue000"}]}],
  "tools": [{"type": "function", "function": {"name": "f\ue000", "parameters": {"properties": {}}}}],
  "n": 3, "flag": false})";
constexpr std::string_view kMark = "\xee\x80\x80";

void check(const Error& error) {
  const std::string line = error.to_string();
  if (line.empty() || line.size() > 1000 || line.find('\n') != std::string::npos) std::abort();
}

bool could_make_the_mark(std::string_view source) {
  return source.find('\\') != std::string_view::npos ||
         source.find(kMark) != std::string_view::npos;
}

void check(const std::vector<Segment>& segments, bool marks_are_the_inputs, const Limits& limits) {
  size_t n_bytes = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].text.empty()) std::abort();
    if (i > 0 && segments[i].from_input == segments[i - 1].from_input) std::abort();
    if (marks_are_the_inputs && !segments[i].from_input &&
        segments[i].text.find(kMark) != std::string::npos) {
      std::abort();
    }
    n_bytes += segments[i].text.size();
  }
  if (n_bytes > limits.output_bytes) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t zero = all.find('\0');
  const std::string_view source = all.substr(0, zero);
  const bool own = zero == std::string_view::npos;
  const auto input = weft::jinja::parse_json(own ? kConversation : all.substr(zero + 1));
  if (!input.is_ok()) {
    check(input.error());
    return 0;
  }
  weft::jinja::RenderOptions options;
  options.limits.steps = 200'000;
  options.limits.output_bytes = size_t{1} << 20;
  options.limits.string_bytes = size_t{1} << 20;
  options.limits.live_bytes = size_t{16} << 20;
  const auto compiled = Template::compile(source, options.limits);
  if (!compiled.is_ok()) {
    check(compiled.error());
    return 0;
  }
  weft::jinja::Variables variables = {
      {"bos_token", Value::string("<s>", weft::jinja::Origin::kTemplate)}, {"input", *input}};
  if (input->is(weft::jinja::Kind::kDict)) {
    for (const auto& [key, value] : input->dict().items) {
      variables.emplace_back(std::string(key.view()), value);
    }
  }
  const auto segments = compiled->render(variables, options);
  if (segments.is_ok()) {
    check(*segments, own && !could_make_the_mark(source), options.limits);
  } else {
    check(segments.error());
  }
  return 0;
}
