// Any bytes as a chat template over a conversation (after a zero byte: one's own, as JSON): a
// rendering or one line, within the limits and in time; and nothing that the input says, nor
// anything made of it, is the template's text.
//
// The oracle: whatever the input says is spelled in a private alphabet (U+E000 and on), which no
// template can write without spelling it out, so none of it may be in the template's text. And the
// template is rendered again with another private alphabet (U+F000 and on): what it sees has the
// same order, length, case and class, so what it says by itself must be the same. That finds what
// is made of the input's characters and is not them: \ue000 of repr and of ensure_ascii, %EE of
// urlencode. (Keys and roles that templates ask for stay as they are, and so do numbers.)
// ./template_fuzz -max_len=4096 -dict=fuzz/template.dict fuzz/corpus/template
#include <cstdlib>
#include <string>

#include "jinja/json.h"
#include "jinja/template.h"
#include "time_limit.h"

namespace {

using weft::jinja::Error;
using weft::jinja::Kind;
using weft::jinja::Limits;
using weft::jinja::Origin;
using weft::jinja::Segment;
using weft::jinja::Template;
using weft::jinja::Value;

// Spelled in the private alphabet but for what is_known() says.
constexpr const char* kConversation = R"({"messages": [
  {"role": "system", "content": "x yAb"},
  {"role": "user", "content": "x\n <x> z", "name": "a\nb"},
  {"role": "assistant", "content": null, "tool_calls": [{"id": "i", "type": "function",
   "function": {"name": "f", "arguments": {"k": [1, 2.5, true, null, "v"], "key": "b"}}}]},
  {"role": "tool", "content": [{"type": "text", "text": "t"}]}],
  "tools": [{"type": "function", "function": {"name": "f",
   "description": "d", "parameters": {"properties": {"p": {"type": "q"}}}}}],
  "fmt": "{:c>3}{0!r:%}{k}%%%-05d%(k)s", "obj": {"u": 1, "w": {"v": "a"}}, "arr": ["b", "a", "b"],
  "num": 3, "neg": -2.5, "flag": false})";

// A byte of a string of the input is this character and `first`; 0xe000 and 0xf000 take as many
// bytes of UTF-8, and templates know neither.
void append_private(std::string& out, unsigned char byte, unsigned first) {
  const unsigned code = first + byte;
  out += static_cast<char>(0xe0 | code >> 12);
  out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
  out += static_cast<char>(0x80 | (code & 0x3f));
}

bool is_known(std::string_view word) {
  static constexpr std::string_view kKnown[] = {
      "messages",  "role",  "content", "system",      "user",       "assistant",
      "tool",      "tools", "name",    "tool_calls",  "type",       "function",
      "arguments", "text",  "id",      "description", "parameters", "properties",
      "fmt",       "obj",   "arr",     "num",         "neg",        "flag"};
  for (const std::string_view known : kKnown) {
    if (known == word) return true;
  }
  return false;
}

// Everything that is no word which templates ask for, in the private alphabet. A string that could
// be a format keeps its directives; its other characters are private.
std::string spelled(std::string_view text, unsigned first) {
  if (is_known(text)) return std::string(text);
  const bool is_format = text.find_first_of("%{") != std::string_view::npos;
  std::string out;
  for (const char c : text) {
    const bool kept = is_format && std::string_view("%{}:<>=^+-#0123456789.!()[],*sdrxf").find(c) !=
                                       std::string_view::npos;
    if (kept) {
      out += c;
    } else {
      append_private(out, static_cast<unsigned char>(c), first);
    }
  }
  return out;
}

Value spelled(const Value& value, unsigned first) {
  if (value.is_string()) return Value::string(spelled(value.view(), first), Origin::kInput);
  if (value.is(Kind::kList)) {
    std::vector<Value> items;
    for (const Value& item : value.items()) items.push_back(spelled(item, first));
    return weft::jinja::make_list(std::move(items));
  }
  if (value.is(Kind::kDict)) {
    std::vector<std::pair<Value, Value>> items;
    for (const auto& [key, item] : value.dict().items) {
      items.emplace_back(spelled(key, first), spelled(item, first));
    }
    return weft::jinja::make_dict(std::move(items));
  }
  return value;
}

void check(const Error& error) {
  const std::string line = error.to_string();
  if (line.empty() || line.size() > 1000 || line.find('\n') != std::string::npos) std::abort();
}

// U+E000 to U+FFFF, the two alphabets among them: no letter case leads there from elsewhere.
bool has_private(std::string_view text) {
  return text.find_first_of("\xee\xef") != std::string_view::npos;
}

bool could_spell_it(std::string_view source) {
  return source.find('\\') != std::string_view::npos || has_private(source);
}

void check(const std::vector<Segment>& segments, bool marked, const Limits& limits) {
  size_t n_bytes = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].text.empty()) std::abort();
    if (i > 0 && segments[i].from_input == segments[i - 1].from_input) std::abort();
    if (marked && !segments[i].from_input && has_private(segments[i].text)) std::abort();
    n_bytes += segments[i].text.size();
  }
  if (n_bytes > limits.output_bytes) std::abort();
}

std::string said_by_the_template(const std::vector<Segment>& segments) {
  std::string text;
  for (const Segment& segment : segments) {
    text += segment.from_input ? std::string("\0", 1) : segment.text;
  }
  return text;
}

weft::jinja::Result<std::vector<Segment>> render(const Template& compiled, const Value& input,
                                                 const weft::jinja::RenderOptions& options) {
  weft::jinja::Variables variables = {{"bos_token", Value::string("<s>", Origin::kTemplate)},
                                      {"input", input}};
  if (input.is(Kind::kDict)) {
    for (const auto& [key, value] : input.dict().items) {
      variables.emplace_back(std::string(key.view()), value);
    }
  }
  auto segments = compiled.render(variables, options);
  if (!segments.is_ok()) check(segments.error());
  return segments;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const weft::fuzz::TimeLimit time_limit(size);
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t zero = all.find('\0');
  const std::string_view source = all.substr(0, zero);
  const auto given = weft::jinja::parse_json(zero == std::string_view::npos ? kConversation
                                                                            : all.substr(zero + 1));
  if (!given.is_ok()) {
    check(given.error());
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
  const bool marked = !could_spell_it(source);
  const auto one = render(*compiled, spelled(*given, 0xe000), options);
  if (one.is_ok()) check(*one, marked, options.limits);
  if (!marked) return 0;
  const auto other = render(*compiled, spelled(*given, 0xf000), options);
  if (one.is_ok() != other.is_ok()) std::abort();
  if (one.is_ok() && said_by_the_template(*one) != said_by_the_template(*other)) std::abort();
  return 0;
}
