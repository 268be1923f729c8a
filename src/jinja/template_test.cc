// Templates rendered whole: syntax, scopes, bounds, origins, errors. What jinja2 writes for larger
// templates is compared in tests/chat_template_test.cc.
#include "jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jinja/json.h"

namespace weft::jinja {
namespace {

using ::testing::HasSubstr;

Variables variables_of(const std::string& json) {
  Variables variables;
  const Result<Value> parsed = parse_json(json);
  EXPECT_TRUE(parsed.is_ok()) << parsed.error().to_string();
  for (const auto& [key, value] : parsed->dict().items) {
    variables.emplace_back(std::string(key.view()), value);
  }
  return variables;
}

Result<std::vector<Segment>> segments_of(const std::string& source, const std::string& json = "{}",
                                         const RenderOptions& options = {}) {
  const Result<Template> compiled = Template::compile(source, options.limits);
  if (!compiled.is_ok()) return compiled.error();
  return compiled->render(variables_of(json), options);
}

std::string render(const std::string& source, const std::string& json = "{}") {
  const auto segments = segments_of(source, json);
  EXPECT_TRUE(segments.is_ok()) << source << ": " << segments.error().to_string();
  return segments.is_ok() ? joined(*segments) : "";
}

std::string error_of(const std::string& source, const std::string& json = "{}",
                     const RenderOptions& options = {}) {
  const auto segments = segments_of(source, json, options);
  EXPECT_FALSE(segments.is_ok()) << source << " gave "
                                 << (segments.is_ok() ? joined(*segments) : "");
  if (segments.is_ok()) return "";
  const std::string line = segments.error().to_string();
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  return line;
}

TEST(Template, PrintsAsPythonDoes) {
  EXPECT_EQ(render("{{ [1, 2.0, 'a', none, true, {'k': (1,)}] }}"),
            "[1, 2.0, 'a', None, True, {'k': (1,)}]");
  EXPECT_EQ(render("{{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ -0.0 }}"),
            "1e+16 1000000000000000.0 0.0001 1e-05 -0.0");
  EXPECT_EQ(render("{{ nothing }}|{{ 'a\\tb\\x41\\u00e9\\q' }}"), "|a\tbAé\\q");
}

TEST(Template, TheIntFilterRefusesABaseOutOfRange) {
  EXPECT_EQ(render("{{ 'ff'|int(base=16) }} {{ '0b11'|int(0, 0) }}"), "255 3");
  EXPECT_THAT(error_of("{{ '5'|int(0, 4294967306) }}"), HasSubstr("the base must be"));
}

TEST(Template, TrimsWhiteSpaceAsTransformersDoes) {
  EXPECT_EQ(render("  {% if true %}  \n  x\n  {% endif %}\ny\n"), "  \n  x\ny");
  EXPECT_EQ(render("a\n  {%- if true -%}\n  x {% endif %}"), "ax ");
  EXPECT_EQ(render("  {%+ if true %}\nx{% endif +%}\n\n"), "  x\n");
  EXPECT_EQ(render("a {#- b -#} c{# d #}\ne"), "ace");
  EXPECT_EQ(render("a\r\nb\rc"), "a\nb\nc");
}

TEST(Template, SetInALoopEndsWithTheIterationButNotInANamespace) {
  EXPECT_EQ(
      render("{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}"),
      "231");
  EXPECT_EQ(render("{% set n = namespace(x=1) %}{% for i in [1, 2] %}{% set n.x = n.x + i %}"
                   "{% endfor %}{{ n.x }}"),
            "4");
  EXPECT_EQ(render("{% macro m(a, b=a) %}{{ a }}{{ b }}{{ kwargs }}{% endmacro %}{{ m(1, c=2) }}"),
            "11{'c': 2}");
}

TEST(Template, ValuesCannotBeChanged) {
  EXPECT_THAT(error_of("{% set l = [1] %}{{ l.append(2) }}"), HasSubstr("'append'"));
  EXPECT_THAT(error_of("{{ d.update({'a': 1}) }}", R"({"d": {}})"), HasSubstr("unsafe"));
  EXPECT_EQ(render("{{ [].append is defined }}"), "False");
}

// It crashed: in parentheses an attribute is one of an expression, and of no name.
TEST(Template, OnlyNamesAndAttributesOfNamesAreAssignedTo) {
  for (const char* source :
       {"{% for a, (b. c) in [(1, (2, 3))] %}{{ a }}{% endfor %}",
        "{% for (b.c) in [1] %}{% endfor %}", "{% set a, (b.c) = 1, 2 %}",
        "{% set n = namespace() %}{% set (n.x) = 1 %}", "{% with (a.b) = 1 %}{% endwith %}",
        "{% set (n).x = 1 %}", "{% set (f()) = 1 %}", "{% for (a[0]) in [1] %}{% endfor %}"}) {
    EXPECT_THAT(error_of(source),
                AnyOf(HasSubstr("this cannot be assigned to"), HasSubstr("expected")))
        << source;
  }
}

TEST(Template, AnIteratorIsWalkedOnce) {
  EXPECT_EQ(render("{% set g = [1, 2]|map('string') %}{{ g|list }}{{ g|list }}{{ g is sequence }}"),
            "['1', '2'][]False");
  EXPECT_THAT(error_of("{{ [1]|map('string')|length }}"), HasSubstr("generator"));
}

TEST(Template, ErrorsNameThePlace) {
  EXPECT_THAT(error_of("a\n{% if x %}"), HasSubstr("line 2, column 11"));
  EXPECT_THAT(error_of("\n\n  {{ a.b }}"), HasSubstr("line 3, column 8: 'a' is undefined"));
  EXPECT_THAT(error_of("{{ é }}"), HasSubstr("line 1, column 4"));
  EXPECT_THAT(error_of("{{ 1 + 'a' }}"), HasSubstr("unsupported operand type(s) for +"));
  EXPECT_THAT(error_of("{{ raise_exception('two\nlines') }}"), HasSubstr("two lines"));
  EXPECT_THAT(error_of("{% include 'x' %}"), HasSubstr("include"));
  EXPECT_THAT(error_of("{{ 1|nonesuch }}"), HasSubstr("No filter named 'nonesuch'"));
  EXPECT_THAT(error_of("{{ (1 }}"), HasSubstr("line 1"));
  EXPECT_THAT(error_of("{{ 'open }}"), HasSubstr("no end"));
  EXPECT_THAT(error_of("\xff"), HasSubstr("UTF-8"));
  EXPECT_THAT(error_of("{% break %}"), HasSubstr("outside of a loop"));
}

TEST(Template, TheTimeComesFromTheOptions) {
  RenderOptions options;
  options.now.tm_year = 126;
  options.now.tm_mon = 2;
  options.now.tm_mday = 9;
  const auto segments = segments_of("{{ strftime_now('%Y-%m-%d') }}", "{}", options);
  ASSERT_TRUE(segments.is_ok());
  EXPECT_EQ(joined(*segments), "2026-03-09");
}

// ---- Bounds: what a hostile template can make grow ends in one line, soon.

TEST(TemplateBounds, WorkEndsAtTheStepLimit) {
  for (const char* source : {
           "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
           "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ "
           "f(60) }}",
           "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% "
           "endfor %}"
           "{{ n.l == n.l }}",
           "{% set s = 'a' * 10000000 %}{% for i in range(100000) %}{{ (s ~ 'b') in s }}{% endfor "
           "%}",
           "{% set s = 'ab' * 100000 %}{{ s.rfind('bb' * 50000) }}{% for i in range(99999) %}"
           "{{ s.rsplit('aa' * 9) | length }}{% endfor %}",
       }) {
    RenderOptions options;
    options.limits.steps = 2'000'000;
    EXPECT_THAT(error_of(source, "{}", options), HasSubstr("more than")) << source;
  }
}

TEST(TemplateBounds, SizesEndAtTheirLimits) {
  EXPECT_THAT(error_of("{{ 'a' * 1000000000 }}"), HasSubstr("longer than"));
  EXPECT_THAT(error_of("{{ [0] * 1000000000 }}"), HasSubstr("more than"));
  EXPECT_THAT(error_of("{{ range(1000000000000) }}"), HasSubstr("100000"));
  EXPECT_THAT(error_of("{{ 9 ** 99 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(error_of("{{ '%999999999d' % 1 }}"), HasSubstr("longer than"));
  EXPECT_THAT(error_of("{{ '{:999999999}'.format(1) }}"), HasSubstr("longer than"));
  EXPECT_THAT(error_of("{{ 'a'.center(999999999) }}"), HasSubstr("longer than"));
  EXPECT_THAT(error_of("{{ [1] | tojson(indent=999999999) }}"), HasSubstr("longer than"));
  EXPECT_THAT(error_of("{% set n = namespace(s='aaaaaaaa') %}{% for i in range(60) %}"
                       "{% set n.s = n.s ~ n.s %}{% endfor %}"),
              HasSubstr("longer than"));
  EXPECT_THAT(error_of("{% set s = ('a' * 1000) * 60000 %}{{ s }}{{ s }}"),
              HasSubstr("longer than"));
  RenderOptions options;
  options.limits.live_bytes = 1 << 20;
  EXPECT_THAT(error_of("{% set n = namespace(l=[]) %}{% for i in range(9) %}"
                       "{% set n.l = n.l + ['a' * 200000 ~ i] %}{% endfor %}",
                       "{}", options),
              HasSubstr("1048576 bytes"));
}

TEST(TemplateBounds, NestingEndsAtItsLimit) {
  EXPECT_THAT(error_of("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"),
              HasSubstr("deeper"));
  EXPECT_THAT(error_of("{{ " + std::string(5000, '-') + "1 }}"), HasSubstr("deeper"));
  std::string sum = "{{ 1";
  for (int i = 0; i < 5000; ++i) sum += " + 1";
  EXPECT_THAT(error_of(sum + " }}"), HasSubstr("deeper"));
  std::string ifs;
  for (int i = 0; i < 5000; ++i) ifs += "{% if 1 %}";
  EXPECT_THAT(error_of(ifs), HasSubstr("deeper"));
  EXPECT_THAT(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), HasSubstr("deeper"));
  EXPECT_THAT(error_of("{% set n = namespace(l=[]) %}{% for i in range(1000) %}"
                       "{% set n.l = [n.l] %}{% endfor %}"),
              HasSubstr("nested deeper"));
  EXPECT_THAT(error_of("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
              HasSubstr("deeper"));
}

TEST(TemplateBounds, CyclesAreHarmless) {
  EXPECT_EQ(render("{% set n = namespace() %}{% set n.me = n %}{% set n.l = [n] %}ok"), "ok");
  EXPECT_EQ(render("{% for i in [1, 2] %}{{ loop.changed(loop) }}{% endfor %}"), "TrueFalse");
  EXPECT_EQ(render("{% set n = namespace() %}{% macro m() %}x{% endmacro %}{% set n.m = m %}"
                   "{% for i in [1] %}{% set n.l = loop %}{% endfor %}{{ n.l.index }}{{ n.m() }}"),
            "1x");
}

// ---- Origins: what the input says stays marked, whatever the template does with it.

std::string marked(const std::string& source, const std::string& json = R"({"x": "in put"})") {
  const auto segments = segments_of(source, json);
  EXPECT_TRUE(segments.is_ok()) << segments.error().to_string();
  std::string out;
  for (const Segment& s : *segments) out += s.from_input ? "<" + s.text + ">" : s.text;
  return out;
}

TEST(TemplateOrigin, SurvivesEveryOperation) {
  EXPECT_EQ(marked("a{{ x }}b"), "a<in put>b");
  EXPECT_EQ(marked("{{ 'a' ~ x ~ 'b' }}{{ 'c' + x }}"), "a<in put>bc<in put>");
  EXPECT_EQ(marked("{{ ('a' + x + 'b')[::-1] }}{{ ('a' + x)[:3] }}"), "b<tup ni>aa<in>");
  EXPECT_EQ(marked("{{ x.upper() }}{{ x | title }}{{ x | trim }}{{ (' ' + x + ' ').strip() }}"),
            "<IN PUTIn Putin putin put>");
  EXPECT_EQ(marked("{{ x.replace('n', 'N!') }}"), "<i>N!< put>");
  EXPECT_EQ(marked("{{ 'a-b'.replace('-', x) }}"), "a<in put>b");
  EXPECT_EQ(marked("{{ x.split() | join('+') }}{{ '%s:%s' % (x, 1) }}{{ '{}'.format(x) }}"),
            "<in>+<putin put>:1<in put>");
  EXPECT_EQ(marked("{{ x | indent(2, true) }}{{ x | list | first }}"), "  <in puti>");
  EXPECT_EQ(marked("{% macro m(v) %}({{ v }}){% endmacro %}{{ m(x) }}"), "(<in put>)");
  EXPECT_EQ(
      marked("{% set s %}[{{ x }}]{% endset %}{{ s }}{% filter upper %}q{{ x }}{% endfilter %}"),
      "[<in put>]Q<IN PUT>");
  EXPECT_EQ(marked("{{ [x] }}{{ {'k': x} | tojson }}{{ {'k': 1} | tojson }}"),
            "<['in put']{\"k\": \"in put\"}>{\"k\": 1}");
  EXPECT_EQ(marked("{{ n + 1 }}{{ n | string }}{{ b }}", R"({"n": 4, "b": true})"), "<54True>");
}

// Names that ** unpacks, attributes, formats: whatever text can be made of them.
TEST(TemplateOrigin, NamesKeepTheirOrigin) {
  EXPECT_EQ(marked("{{ dict(**{x: 1}).keys() | join }}"), "<in put>");
  EXPECT_EQ(
      marked("{{ dict(**d).items() | list }}{{ dict(a=1, **d) | tojson }}", R"({"d": {"k": 1}})"),
      "<[('k', 1)]{\"a\": 1, \"k\": 1}>");
  EXPECT_EQ(marked("{% macro m() %}{% for k in kwargs %}{{ k }}{% endfor %}{% endmacro %}"
                   "{{ m(**{x: 1}) }}{{ m(a=1) }}"),
            "<in put>a");
  EXPECT_EQ(marked("{% macro m() %}{{ kwargs }}{{ caller() }}{% endmacro %}"
                   "{% call m(**{x: 1}) %}c{% endcall %}"),
            "<{'in put': 1}>c");
  EXPECT_EQ(marked("{{ '%s' | format(**{x: 1}) }}"), "<{'in put': 1}>");
  EXPECT_EQ(marked("{{ namespace(**{x: 1})[x] }}{{ {x: 1} | dictsort | map(attribute=0) | join }}"),
            "1<in put>");
  EXPECT_EQ(marked("{% for g in [{x: 2}] | groupby(x) %}{{ g.grouper }}{% endfor %}"
                   "{{ {x: 1} | items | list }}{{ {x: 1} | list | unique | join }}"),
            "2<[('in put', 1)]in put>");
  EXPECT_EQ(marked("{{ [{x: x}] | map(attribute=x) | join }}{{ '{0[in put]}'.format({x: x}) }}"),
            "<in putin put>");
}

TEST(TemplateOrigin, WhatAFormatPutsInIsTheFormats) {
  EXPECT_EQ(marked("{{ x.format('a', 1) }}", R"({"x": "{:*>3}{:+d}{{"})"), "<**>a<+1{>");
  EXPECT_EQ(marked("{{ x % (1, 'a', 255) }}", R"({"x": "%%%+05d%3s%#x"})"), "<%+0001  >a<0xff>");
  EXPECT_EQ(marked("{{ '%05d' % n }}{{ '{:>3}'.format(n) }}", R"({"n": 4})"), "0000<4>  <4>");
  EXPECT_EQ(marked("{{ [1] | tojson(indent=x) }}"), "<[\nin put1\n]>");
  EXPECT_EQ(marked("{{ 'a' | indent(x, true) }}{{ 'a'.center(3, x[0]) }}"), "<in put>a<i>a<i>");
}

TEST(TemplateOrigin, LinesThatAreIndentedKeepTheirEnds) {
  EXPECT_EQ(marked("{{ ('t\n' ~ x) | indent(1) }}", R"({"x": "a\r\nb\u2028\nc"})"),
            "t\n <a\n> <b\n\n> <c>");
  EXPECT_EQ(
      render("{{ '' | indent }}|{{ 'a\r' | indent(1, true, true) }}|{{ '\n' | indent(1, true) }}"),
      "| a\n | \n");
}

TEST(TemplateOrigin, NumbersKeepTheirOrigin) {
  EXPECT_EQ(marked("{{ range(n, n + 1) | first }}{{ range(n)[1:].start }}", R"({"n": 4})"), "<41>");
  EXPECT_EQ(marked("{{ range(n) }}", R"({"n": 4})"), "<range(0, 4)>");
  EXPECT_EQ(marked("{{ n | abs }}{{ '%d' % n }}{{ n | round }}", R"({"n": -1.5})"), "<1.5-1-2.0>");
}

TEST(TemplateOrigin, WhatOnlyComparesIsTheTemplates) {
  EXPECT_EQ(marked("{{ 'yes' if x == 'in put' }}{{ 'put' in x }}{{ x | length }}"), "yesTrue6");
  EXPECT_EQ(marked("{{ {'in put': 'mine'}[x] }}"), "mine");
}

TEST(ParseJson, KeepsOrderAndTakesTheLastOfEqualKeys) {
  EXPECT_EQ(render("{{ d }}", R"({"d": {"b": 1, "a": {"x": []}, "b": 2.50}})"),
            "{'b': 2.5, 'a': {'x': []}}");
}

TEST(ParseJson, RefusesInOneLineWithThePlace) {
  EXPECT_EQ(parse_json("{\"a\":\n  }").error().to_string(), "line 2, column 3: not valid JSON");
  for (const std::string& bad : {std::string(""), std::string("{"), std::string("[1,]"),
                                 std::string("\"\xff\""), std::string("99999999999999999999"),
                                 std::string(200000, '['), std::string("\"\\ud800\"")}) {
    const auto parsed = parse_json(bad);
    ASSERT_FALSE(parsed.is_ok()) << bad;
    EXPECT_EQ(parsed.error().to_string().find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace weft::jinja
