// CPU time as an oracle: what a template or a request can make slow is refused in time. The files
// of fuzz/corpus/template_time say templates of 1 MB (fuzz/template_case.h); the table below says
// what a template can do again and again, so that nothing costs more than the steps it is charged
// for.
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "../../fuzz/template_case.h"
#include "jinja/json.h"
#include "jinja/template.h"

namespace weft::jinja {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kTimesSlower = 20;
#else
constexpr double kTimesSlower = 1;
#endif
constexpr double kLimitS = 2 * kTimesSlower;  // for 1 MB

double cpu_s() {
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Rendered, or refused in one line; everything is freed again, too.
void run(const std::string& source, const std::string& json, const Limits& limits) {
  const auto input = parse_json(json.empty() ? "{}" : json);
  if (!input.is_ok()) return;
  Variables variables;
  for (const auto& [key, value] : input->dict().items) {
    variables.emplace_back(std::string(key.view()), value);
  }
  const auto compiled = Template::compile(source, limits);
  if (!compiled.is_ok()) {
    EXPECT_EQ(compiled.error().to_string().find('\n'), std::string::npos);
    return;
  }
  RenderOptions options;
  options.limits = limits;
  const auto rendered = compiled->render(variables, options);
  if (!rendered.is_ok()) {
    EXPECT_EQ(rendered.error().to_string().find('\n'), std::string::npos);
  }
}

std::vector<std::filesystem::path> case_files() {
  std::vector<std::filesystem::path> files;
  const std::string folder = std::string(WEFT_SOURCE_DIR) + "/fuzz/corpus/template_time";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry);
  std::sort(files.begin(), files.end());
  return files;
}

class TemplateTime : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(TemplateTime, OneMegabyteIsRenderedOrRefusedInTime) {
  std::ifstream in(GetParam(), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const fuzz::TemplateCase given = fuzz::expand_template_case(text, size_t{1} << 20);
  const double begin_s = cpu_s();
  run(given.source, given.json, {});
  EXPECT_LT(cpu_s() - begin_s, kLimitS);
}

INSTANTIATE_TEST_SUITE_P(Corpus, TemplateTime, ::testing::ValuesIn(case_files()),
                         [](const auto& file) {
                           std::string name = file.param.filename().string();
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Strings: s of ASCII, u of é, z of spaces, each 100,000 characters; b has 8 MB.
constexpr const char* kHeavy[] = {
    "{% if x.y is defined %}{% endif %}",
    "{% if nothing %}{% endif %}",
    "{% if s.nothing %}{% endif %}",
    "{% if a.b.c %}{% endif %}",
    "{% set q = s.upper %}",
    "{% set q = e.upper() %}",
    "{% set q = namespace() %}",
    "{% set q = range(5)|list %}",
    "{% set q = 1e308 % 3e-308 %}",
    "{% set q = 1e308 // 3e-308 %}",
    "{% set q = 1.7976931348623157e308|round(300) %}",
    "{% set q = 1.7976931348623157e308|round(-300) %}",
    "{% set q = 0.1|round(2) %}",
    "{% set q = 1e-300|round(100, 'ceil') %}",
    "{% set q = '%.100f' % 1e308 %}",
    "{% set q = '{:.100f}'.format(1e308) %}",
    "{% set q = '{}'.format(1) %}",
    "{% set q = '{:>100000}'.format(1) %}",
    "{% set q = '{:é>100000}'.format(1) %}",
    "{% set q = 'x'.center(100000) %}",
    "{% set q = 'x'.zfill(100000) %}",
    "{% set q = 'x'.zfill(64000000) %}",
    "{% set q = strftime_now('%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c') %}",
    "{% set q = strftime_now('%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s') %}",
    "{% set q = s|upper %}",
    "{% set q = u|upper %}",
    "{% set q = u|lower %}",
    "{% set q = u|title %}",
    "{% set q = u.title() %}",
    "{% set q = u.swapcase() %}",
    "{% set q = u.capitalize() %}",
    "{% set q = u.isalnum() %}",
    "{% set q = u|wordcount %}",
    "{% set q = s|wordcount %}",
    "{% set q = u.islower() %}",
    "{% set q = z.strip() %}",
    "{% set q = z|trim %}",
    "{% set q = s.strip('xyza') %}",
    "{% set q = s.strip(s) %}",
    "{% set q = u.strip(u) %}",
    "{% set q = s.strip(s ~ 'b') %}",
    "{% set q = z.split() %}",
    "{% set q = s.split() %}",
    "{% set q = u.split() %}",
    "{% set q = z.rsplit(none, 1) %}",
    "{% set q = u.rsplit(none, 1) %}",
    "{% set q = s.split('a') %}",
    "{% set q = s.split('b') %}",
    "{% set q = s.rsplit('b') %}",
    "{% set q = s.rsplit('a', 3) %}",
    "{% set q = s.split('a', 1) %}",
    "{% set q = s.splitlines() %}",
    "{% set q = u.splitlines() %}",
    "{% set q = s.partition('b') %}",
    "{% set q = s.rpartition('b') %}",
    "{% set q = s.rfind('b') %}",
    "{% set q = s.find('b') %}",
    "{% set q = u.find('b') %}",
    "{% set q = u.find('b', 99999) %}",
    "{% set q = u.rfind('é', 0, 1) %}",
    "{% set q = u.count('b', 99998) %}",
    "{% set q = u.startswith('b', 99998) %}",
    "{% set q = u.endswith('b', 99998) %}",
    "{% set q = s.startswith(s) %}",
    "{% set q = b.startswith(b) %}",
    "{% set q = b.removeprefix(b) %}",
    "{% set q = b.removesuffix(b) %}",
    "{% set q = b.removeprefix('b') %}",
    "{% set q = s.count('') %}",
    "{% set q = s.count('a') %}",
    "{% set q = b.count('b') %}",
    "{% set q = b.count('a', 1, 2) %}",
    "{% set q = s.replace('a', 'b') %}",
    "{% set q = s.replace('', 'b') %}",
    "{% set q = s.replace('b', 'a') %}",
    "{% set q = u.replace('', e) %}",
    "{% set q = s|list %}",
    "{% set q = u|list %}",
    "{% set q = s|reverse %}",
    "{% set q = s|length %}",
    "{% set q = 'b' in s %}",
    "{% set q = ('ab' * 500) in s %}",
    "{% set q = ('a' * 300 ~ 'b' ~ 'a' * 300) in s %}",
    "{% set q = ('a' * 100 ~ 'b') in s %}",
    "{% set q = ('b' ~ 'a' * 100) in s %}",
    "{% set q = ('b' ~ 'a' * 300) in s %}",
    "{% set q = 'a' * 100000 %}",
    "{% set q = e * 100000 %}",
    "{% set q = [] * 100000 %}",
    "{% set q = [1] * 100000 %}",
    "{% set q = ('a' * 1000) * 1000 %}",
    "{% set q = s|indent %}",
    "{% set q = u|indent(s) %}",
    "{% set q = s|truncate(10) %}",
    "{% set q = u|truncate(99990) %}",
    "{% set q = s|escape %}",
    "{% set q = u|escape %}",
    "{% set q = s|urlencode %}",
    "{% set q = u|urlencode %}",
    "{% set q = s|tojson %}",
    "{% set q = u|tojson %}",
    "{% set q = u|tojson(ensure_ascii=true) %}",
    "{% set q = [1,2,3,4,5,6]|tojson %}",
    "{% set q = [1.5,2.5,3.3,4.123456789012345,5.1e300,6e-300]|tojson %}",
    "{% set q = {'a': 1, 'b': [1, 2]}|tojson(indent=2) %}",
    "{% set q = [[[[[[[[[[[1]]]]]]]]]]]|tojson(indent=100000) %}",
    "{% set q = [s]|string %}",
    "{% set q = [u]|string %}",
    "{% set q = [1.5,2.5,3.3,4.123456789012345,5.1e300,6e-300]|string %}",
    "{% set q = 5.123456789012345e-300|string %}",
    "{% set q = s|int %}",
    "{% set q = b|int %}",
    "{% set q = b|float %}",
    "{% set q = z|int %}",
    "{% set q = '1'|int %}",
    "{% set q = '1.7976931348623157e308'|float %}",
    "{% set q = ('1' * 400)|float %}",
    "{% set q = ('0.' ~ '0' * 330 ~ '49406564584124654')|float %}",
    "{% set q = [3, 1, 2]|sort %}",
    "{% set q = s|sort %}",
    "{% set q = s|unique|list %}",
    "{% set q = range(1000)|unique|list %}",
    "{% set q = range(1000)|sort %}",
    "{% set q = range(1000)|map('string')|list %}",
    "{% set q = range(1000)|map('upper')|list %}",
    "{% set q = range(1000)|map('default')|list %}",
    "{% set q = range(1000)|selectattr('x')|list %}",
    "{% set q = range(1000)|map(attribute='x')|list %}",
    "{% set q = range(1000)|groupby('x')|list %}",
    "{% set q = range(1000)|batch(1)|list %}",
    "{% set q = range(1000)|slice(1000)|list %}",
    "{% set q = [1]|slice(100000)|list %}",
    "{% set q = [1]|batch(100000, 0)|list %}",
    "{% set q = range(1000)|join(s) %}",
    "{% set q = range(1000)|list|string %}",
    "{% set q = {'a': 1}|dictsort %}",
    "{% set q = {'a': 1}|items|list %}",
    "{% set q = {s: 1, s: 2} %}",
    "{% set q = {s: 1}[s] %}",
    "{% set q = {s: 1}.get(s) %}",
    "{% set q = dict(**{s: 1}) %}",
    "{% set q = dict(**{s: 1, s ~ 'b': 2}) %}",
    "{% set q = namespace(**{s: 1})[s] %}",
    "{% macro m() %}{% endmacro %}{% set q = m() %}",
    "{% macro m(a, b=1) %}{{ a }}{% endmacro %}{{ m(1) }}",
    "{% call(x) dict() %}{% endcall %}",
    "{% filter upper %}x{% endfilter %}",
    "{% generation %}{% endgeneration %}",
    "{% for i in [1] %}{% endfor %}",
    "{% for i in [] %}{% endfor %}",
    "{% for i in range(100) %}{% endfor %}",
    "{% for i in range(100) if i %}{% endfor %}",
    "{% for i in range(100) %}{{ loop.index }}{% endfor %}",
    "{% for i in range(100) %}{% if loop.changed(i) %}{% endif %}{% endfor %}",
    "{% for i in range(100) %}{% if loop.previtem is defined %}{% endif %}{% endfor %}",
    "{% for i in [1] recursive %}{{ loop([]) }}{% endfor %}",
    "{% for i in s %}{% endfor %}",
    "{% set q = cycler(1, 2).next() %}",
    "{% set q = joiner() %}{{ q() }}{{ q() }}",
    "{% set q = 'x' is filter %}",
    "{% set q = s is filter %}",
    "{% set q = 1|attr('x') %}",
    "{% set q = {}|attr('x') %}",
    "{% set q = 'a'|format %}",
    "{% set q = '%(a)s'|format(a=1) %}",
    "{% set q = ('%(' ~ s ~ ')s')|format(**{s: 1}) %}",
    "{% set q = '{{}}{{}}{{}}{{}}{{}}{{}}{{}}{{}}{{}}'.format() %}",
    "{% set q = '{0}{0}{0}{0}{0}{0}{0}{0}{0}{0}{0}{0}'.format('') %}",
    "{% set q = '{0!r}{0!r}{0!r}{0!r}{0!r}{0!r}{0!r}'.format('') %}",
    "{% set q = s.format() %}",
};

TEST(TemplateSteps, NoStepCostsMoreTimeThanAStepMay) {
  Limits limits;
  limits.steps /= 20;
  for (const char* heavy : kHeavy) {
    SCOPED_TRACE(heavy);
    const std::string source =
        "{% set e = '' %}{% set s = ('a' * 1000) * 100 %}{% set u = ('é' * 1000) * 100 %}"
        "{% set z = (' ' * 1000) * 100 %}{% set b = ('a' * 4000) * 2000 %}"
        "{% for i in range(99999) %}{% for j in range(99999) %}" +
        std::string(heavy) + "{% endfor %}{% endfor %}";
    const double begin_s = cpu_s();
    run(source, "", limits);
    // A twentieth of the steps may take a tenth of the time: there are costs at the beginning.
    EXPECT_LT(cpu_s() - begin_s, kLimitS / 10);
  }
}

}  // namespace
}  // namespace weft::jinja
