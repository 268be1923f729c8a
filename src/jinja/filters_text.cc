// Filters that make text, or numbers of text.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "jinja/filters_internal.h"
#include "jinja/unicode_internal.h"

namespace weft::jinja {

bool is_filter(std::string_view name) {
  return find_text_filter(name) != nullptr || find_list_filter(name) != nullptr;
}

Value apply_filter(Runtime& runtime, std::string_view name, const Value& value, const Args& args) {
  FilterFn fn = find_text_filter(name);
  if (fn == nullptr) fn = find_list_filter(name);
  if (fn == nullptr) fail("No filter named " + quoted(name));
  runtime.budget.step(2);  // the tables are searched
  return fn(runtime, value, args);
}

namespace {

/// soft_str: a string as it is, marked safe or not.
Value soft(const Value& value, Budget& budget) {
  return value.is_string() ? value : Value::string(to_str(value, budget));
}

Value upper(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "upper", {}, 0);
  return text_case(soft(value, rt.budget), 'u', rt.budget);
}

Value lower(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "lower", {}, 0);
  return text_case(soft(value, rt.budget), 'l', rt.budget);
}

Value capitalize(Runtime& rt, const Value& value, const Args& args) {
  return find_string_method("capitalize")(rt, soft(value, rt.budget), args);
}

// Words begin after white space, hyphens and opening brackets.
Value title(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "title", {}, 0);
  const Text text = to_str(value, rt.budget);
  rt.budget.touch(2 * text.n_bytes());
  TextBuilder out(&rt.budget);
  bool inside = false;
  size_t rest = 0;  // after the first character of the word, which is lowered by itself
  text.for_runs(0, text.n_bytes(), [&](std::string_view piece, Origin origin) {
    for_parts(piece, [&](std::string_view part) {
      const auto offset = static_cast<size_t>(part.data() - text.view().data());
      std::string changed;
      for (size_t at = 0; at < part.size();) {
        const Character c = character_at(part, at);
        if (inside) {
          append_lower_in(changed, text.view().substr(rest), offset + at - rest);
        } else {
          append_upper(changed, c.code);
          rest = offset + at + c.n_bytes;
        }
        at += c.n_bytes;
        inside = !is_space(c.code) &&
                 (c.code >= 0x80 || std::string_view("-({[<").find(static_cast<char>(c.code)) ==
                                        std::string_view::npos);
      }
      out.add(changed, origin);
    });
  });
  return Value::string(out.finish());
}

Value trim(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "trim", {"chars"}, 0);
  return strip(soft(value, rt.budget), bound.is_none(0) ? nullptr : bound.get(0), true, true,
               rt.budget);
}

Value string(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "string", {}, 0);
  return soft(value, rt.budget);
}

Value safe(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "safe", {}, 0);
  return Value::string(to_str(value, rt.budget), true);
}

Value escape(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "escape", {}, 0);
  return Value::string(escape_markup(value, rt.budget), true);
}

Value forceescape(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "forceescape", {}, 0);
  return Value::string(escape_markup(Value::string(to_str(value, rt.budget)), rt.budget), true);
}

Value replace_filter(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "replace", {"old", "new", "count"}, 2);
  return replace(Value::string(to_str(value, rt.budget)), to_str(bound[0], rt.budget),
                 to_str(bound[1], rt.budget), bound.integer(2, -1), rt.budget);
}

Value format(Runtime& rt, const Value& value, const Args& args) {
  const Value text = soft(value, rt.budget);
  if (args.named.empty()) {
    return format_percent(text, make_tuple(args.positional, &rt.budget), rt.budget);
  }
  if (!args.positional.empty()) fail("format: positional and named arguments together");
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [name, argument] : args.named) {
    items.emplace_back(Value::string(name), argument);
  }
  return format_percent(text, make_dict(std::move(items), &rt.budget), rt.budget);
}

Value indent(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "indent", {"width", "first", "blank"}, 0);
  if (!value.is_string()) {
    if (value.is_undefined()) fail_undefined(value);
    fail(std::string("indent: expected str, got ") + type_name(value));
  }
  Text by;
  if (bound.has(0) && bound[0].is_string()) {
    by = bound[0].text();
  } else {
    const int64_t width = std::max<int64_t>(0, bound.integer(0, 4));
    rt.budget.check_string(static_cast<size_t>(width));
    by = Text(std::string(static_cast<size_t>(width), ' '), Origin::kTemplate);
  }
  const bool blank = bound.flag(2, false);
  TextBuilder with_newline(&rt.budget);
  with_newline.add(value.text());
  with_newline.add("\n", Origin::kTemplate);
  const std::vector<Text> lines = split_lines(with_newline.finish(), true, rt.budget);
  TextBuilder out(&rt.budget);
  if (bound.flag(1, false)) out.add(by);
  Origin newline = Origin::kTemplate;  // of the line before: each becomes \n and keeps its origin
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i].view();
    size_t end = line.size() - 1;
    while ((line[end] & 0xc0) == 0x80) --end;
    if (line.ends_with("\r\n")) --end;
    if (i > 0) {
      out.add("\n", newline);
      if (blank || end > 0) out.add(by);
    }
    out.add(lines[i], 0, end);
    newline = lines[i].origin_at(end);
  }
  return Value::string(out.finish(), value.is_markup());
}

Value center(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "center", {"width"}, 0);
  const Args width{{Value::integer(bound.integer(0, 80))}, {}};
  return find_string_method("center")(rt, soft(value, rt.budget), width);
}

Value truncate(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "truncate", {"length", "killwords", "end", "leeway"}, 0);
  if (!value.is_string()) fail(std::string("truncate: expected str, got ") + type_name(value));
  const int64_t length = bound.integer(0, 255);
  const Text end = bound.has(2) ? bound.text(2) : Text("...", Origin::kTemplate);
  const int64_t leeway = bound.integer(3, 5);
  const auto end_length = static_cast<int64_t>(end.length());
  if (length < end_length || leeway < 0) fail("truncate: the length is shorter than its end");
  const Text& text = value.text();
  if (static_cast<int64_t>(text.length()) - leeway <= length) return value;
  size_t stop = text.byte_of(static_cast<size_t>(length - end_length), rt.budget);
  if (!bound.flag(1, false)) {
    rt.budget.work(stop);
    const size_t space = text.view().substr(0, stop).rfind(' ');
    if (space != std::string_view::npos) stop = space;
  }
  TextBuilder out(&rt.budget);
  out.add(text, 0, stop);
  out.add(end);
  return Value::string(out.finish(), value.is_markup());
}

Value wordcount(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "wordcount", {}, 0);
  const Text text = to_str(value, rt.budget);
  rt.budget.touch(2 * text.n_bytes());
  int64_t n = 0;
  bool inside = false;
  for (size_t at = 0; at < text.n_bytes();) {
    const Character c = character_at(text.view(), at);
    const bool word = is_alnum(c.code) || c.code == '_';
    n += word && !inside ? 1 : 0;
    inside = word;
    at += c.n_bytes;
  }
  return Value::integer(n);
}

Value urlencode(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "urlencode", {}, 0);
  if (!value.is_string() && is_iterable(value)) fail("urlencode of anything but text");
  const Text text = to_str(value, rt.budget);
  rt.budget.touch(text.n_bytes());
  TextBuilder out(&rt.budget);
  text.for_runs(0, text.n_bytes(), [&](std::string_view piece, Origin origin) {
    for_parts(piece, [&](std::string_view part) {
      static constexpr char kHex[] = "0123456789ABCDEF";
      std::string quoted_part;
      for (const char c : part) {
        const auto byte = static_cast<uint8_t>(c);
        if (byte < 0x80 &&
            (is_alnum(byte) || std::string_view("_.-~/").find(c) != std::string_view::npos)) {
          quoted_part += c;
        } else {
          quoted_part += {'%', kHex[byte >> 4], kHex[byte & 15]};
        }
      }
      out.add(quoted_part, origin);
    });
  });
  return Value::string(out.finish());
}

// A number that Python's int() or float() would read: space round it, underscores between digits.
std::string clean_number(std::string_view text) {
  text.remove_prefix(space_prefix(text));
  text.remove_suffix(space_suffix(text));
  std::string out;
  const auto digit = [&](size_t i) {
    return i < text.size() && (is_decimal(static_cast<uint8_t>(text[i])) || text[i] >= 'a');
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i > 0 && digit(i - 1) && digit(i + 1)) continue;
    out += text[i];
  }
  if (out.starts_with('+') && !out.starts_with("+-")) out.erase(0, 1);
  return out;
}

bool read_float(std::string_view text, double& out, Budget& budget) {
  budget.step(16);
  budget.touch(text.size());
  std::string digits = clean_number(text);
  if (digits.empty() || digits.size() > 400) return false;
  for (char& c : digits) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  if (digits.find('x') != std::string::npos || digits.find('(') != std::string::npos) return false;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, out);
  if (stop != end) return false;
  if (error == std::errc::result_out_of_range) out = std::strtod(digits.c_str(), nullptr);
  return error != std::errc::invalid_argument;
}

bool read_integer(std::string_view text, int base, int64_t& out, Budget& budget) {
  budget.step(2);
  budget.touch(2 * text.size());
  std::string digits = clean_number(text);
  const bool minus = digits.starts_with('-');
  std::string body = digits.substr(minus ? 1 : 0);
  const char mark = body.size() > 2 && body[0] == '0' ? static_cast<char>(body[1] | 0x20) : '\0';
  const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (marked != 0 && (base == marked || base == 0)) {
    base = marked;
    body = body.substr(2);
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36) fail("int: the base must be 0 or 2 to 36");
  if (body.empty() || body[0] == '-' || body[0] == '+') return false;
  digits = (minus ? "-" : "") + body;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, out, base);
  if (stop == end && error == std::errc::result_out_of_range) {
    fail("an integer does not fit 64 bits");
  }
  return stop == end && error == std::errc();
}

bool truncated(double d, int64_t& out) {
  if (!std::isfinite(d)) return false;
  if (!(std::fabs(d) < 9.2e18)) fail("an integer does not fit 64 bits");
  out = static_cast<int64_t>(std::trunc(d));
  return true;
}

Value to_int(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "int", {"default", "base"}, 0);
  const Value otherwise = bound.has(0) ? bound[0] : Value::integer(0);
  int64_t out = 0;
  const bool input = value.is_string() ? value.text().has_input() : value.from_input();
  if (value.is_int()) return Value::integer(value.as_int(), input);
  double d = 0;
  if (value.is(Kind::kFloat)) {
    if (std::isinf(value.as_double())) return otherwise;
    return truncated(value.as_double(), out) ? Value::integer(out, input) : otherwise;
  }
  if (!value.is_string()) return otherwise;
  if (read_integer(value.view(), static_cast<int>(bound.integer(1, 10)), out, rt.budget) ||
      (read_float(value.view(), d, rt.budget) && truncated(d, out))) {
    return Value::integer(out, input);
  }
  return otherwise;
}

Value to_float(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "float", {"default"}, 0);
  if (value.is_number()) return Value::number(value.as_double(), value.from_input());
  double out = 0;
  if (value.is_string() && read_float(value.view(), out, rt.budget)) {
    return Value::number(out, value.text().has_input());
  }
  return bound.has(0) ? bound[0] : Value::number(0);
}

Value absolute(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "abs", {}, 0);
  if (!value.is_number()) {
    if (value.is_undefined()) fail_undefined(value);
    fail(std::string("bad operand type for abs(): '") + type_name(value) + "'");
  }
  if (value.is(Kind::kFloat))
    return Value::number(std::fabs(value.as_double()), value.from_input());
  return value.as_int() < 0 ? negative(value)
                            : binary(BinaryOp::kAdd, value, Value::integer(0), rt.budget);
}

// Python rounds the exact decimal value half to even; printf does the same.
double round_common(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 300) return value;
  if (precision < -300) return std::copysign(0.0, value);
  if (precision < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / scale) * scale;
  }
  char buffer[700];
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), value);
  return std::strtod(buffer, nullptr);
}

Value round(Runtime& rt, const Value& value, const Args& args) {
  const Bound bound(args, "round", {"precision", "method"}, 0);
  if (!value.is_number()) {
    if (value.is_undefined()) fail_undefined(value);
    fail(std::string("round: ") + type_name(value) + " is no number");
  }
  const int64_t precision = bound.integer(0, 0);
  const std::string_view method = bound.has(1) ? bound.text(1).view() : "common";
  const bool input = value.from_input();
  rt.budget.step(200);  // hundreds of digits are written and read
  if (method == "common") {
    if (value.is_int() && precision >= 0) return Value::integer(value.as_int(), input);
    if (value.is_int()) fail("round of an int to tens");
    return Value::number(round_common(value.as_double(), precision), input);
  }
  if (method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  if (precision < -300 || precision > 300) fail("round: the precision is out of range");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.as_double() * scale;
  return Value::number((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale, input);
}

}  // namespace

FilterFn find_text_filter(std::string_view name) {
  static constexpr std::pair<std::string_view, FilterFn> kFilters[] = {
      {"tojson", to_json},
      {"trim", trim},
      {"string", string},
      {"upper", upper},
      {"lower", lower},
      {"capitalize", capitalize},
      {"title", title},
      {"replace", replace_filter},
      {"safe", safe},
      {"escape", escape},
      {"e", escape},
      {"forceescape", forceescape},
      {"format", format},
      {"indent", indent},
      {"center", center},
      {"truncate", truncate},
      {"wordcount", wordcount},
      {"urlencode", urlencode},
      {"int", to_int},
      {"float", to_float},
      {"abs", absolute},
      {"round", round},
  };
  for (const auto& [known, fn] : kFilters) {
    if (known == name) return fn;
  }
  return nullptr;
}

}  // namespace weft::jinja
