// "%s" % value and "{}".format(value), as Python's str has them (printf-style formatting, and the
// format specification mini-language). Both parse into the same Spec and share what pads, groups
// and writes numbers:
//   '%5.1f|%-4d|%04d' % (3.14159, 7, -7)           '  3.1|7   |-007'
//   '{:>5}|{:05d}|{:,}'.format('a', 42, 1234567)   '    a|00042|1,234,567'
//
// Two strings meet here, the format and the value, and either can be the input's. A value's own
// text keeps its origins; what the format puts in by itself (fill, sign, 0x, separators) has the
// format's; digits, which both decide, are the input's if either is. So the stars of {:*>3} in a
// message's text are the message's, whatever value they are put before.
//
// Not supported, and refused: fields inside fields, %a, !a, and n, which asks the locale. Widths
// are bounded by the longest string before a fill is written, precisions by kMaxPrecision.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "jinja/runtime_internal.h"
#include "jinja/unicode_internal.h"

namespace weft::jinja {
namespace {

// Digits after the point; a double has 17 that mean something, and each costs time.
constexpr int64_t kMaxPrecision = 100;

// One conversion or field: what is between % and the letter, or after the colon.
struct Spec {
  // Of what the format itself puts in: the fill, signs, 0x, separators, and digits of which it says
  // how many.
  Origin origin = Origin::kTemplate;
  std::string fill = " ";
  char align = 0;  // < > = ^
  char sign = '-';
  bool alternate = false;
  char group = 0;  // , or _
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

// 1234567 to 1,234,567, in groups of `size` from the right.
std::string group_digits(const std::string& digits, char separator, size_t size) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % size == 0) out += separator;
    out += digits[i];
  }
  return out;
}

// Writes `prefix` (a sign, 0x) and `body`, padded to spec.width characters. The padding is before
// both, after both, on both sides, or with "=" between them: -007. A width is counted in
// characters, and centred text has the odd one on the right, unlike str.center.
void put_padded(TextBuilder& out, const Spec& spec, char default_align, const Text& prefix,
                const Text& body, Budget& budget) {
  const int64_t n = prefix.length() + body.length();
  const int64_t missing = std::max<int64_t>(0, spec.width - n);
  budget.check_string(missing);
  const char align = spec.align == 0 ? default_align : spec.align;
  const auto pad = [&](int64_t times) {  // add() charges each
    for (int64_t i = 0; i < times; ++i) out.add(spec.fill, spec.origin);
  };
  const int64_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  pad(before);
  out.add(prefix);
  if (align == '=') pad(missing);
  out.add(body);
  if (align != '=') pad(missing - before);
}

// Integers of any base, with no sign: the magnitude of -2**63 needs all 64 bits.
std::string digits_of(uint64_t value, unsigned base, bool upper) {
  const char* digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string out;
  do {
    out.insert(out.begin(), digits[value % base]);
    value /= base;
  } while (value != 0);
  return out;
}

std::string sign_of(bool negative, char sign) {
  if (negative) return "-";
  return sign == '+' ? "+" : sign == ' ' ? " " : "";
}

// What is made of a number by a format is the input's if either is.
Text digits_text(std::string digits, const Spec& spec, const Value& value) {
  return Text(std::move(digits), value.from_input() ? Origin::kInput : spec.origin);
}

// d, x, X, o and b. Groups are of three digits in decimal and of four in other bases, as in Python.
void put_integer(TextBuilder& out, const Spec& spec, const Value& value, Budget& budget) {
  budget.step(4);
  const int64_t number = value.as_int();
  std::string prefix = sign_of(number < 0, spec.sign);
  const uint64_t bits = number;
  const uint64_t magnitude = number < 0 ? 0 - bits : bits;
  const char type = spec.type == 0 ? 'd' : spec.type;
  const unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  std::string digits = digits_of(magnitude, base, type == 'X');
  if (spec.group != 0) digits = group_digits(digits, spec.group, base == 10 ? 3 : 4);
  if (spec.alternate && base != 10) prefix += std::string("0") + type;
  put_padded(out, spec, '>', digits_text(std::move(prefix), spec, value),
             digits_text(std::move(digits), spec, value), budget);
}

// The magnitude by type e, f, g or %; by repr for type 0.
std::string float_digits(const Spec& spec, double magnitude) {
  if (std::isnan(magnitude)) return "nan";
  if (std::isinf(magnitude)) return "inf";
  if (spec.type == 0 && spec.precision < 0) return float_repr(magnitude);
  const bool percent = spec.type == '%';
  const char type = percent ? 'f' : spec.type == 0 ? 'g' : spec.type == 'F' ? 'f' : spec.type;
  const std::string format = std::string(spec.alternate ? "%#.*" : "%.*") + type;
  char buffer[512];
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  const int n = std::snprintf(buffer, sizeof buffer, format.c_str(), precision,
                              percent ? magnitude * 100 : magnitude);
  std::string digits(buffer, std::min<int>(n, sizeof buffer - 1));
  if (spec.type == 0 && digits.find_first_of(".e") == std::string::npos) digits += ".0";
  return percent ? digits + "%" : digits;
}

// e, f, g, % and repr's form. The sign is written apart from the digits, for "=" padding; nan has
// none. Groups go up to the point only.
void put_float(TextBuilder& out, const Spec& spec, const Value& value, Budget& budget) {
  budget.step(150);  // hundreds of digits are made
  const double number = value.as_double();
  if (spec.precision > kMaxPrecision) {
    fail("a format's precision is above " + std::to_string(kMaxPrecision));
  }
  std::string digits = float_digits(spec, std::fabs(number));
  if (spec.group != 0) {
    const size_t whole = std::min(digits.find_first_of(".e%"), digits.size());
    digits = group_digits(digits.substr(0, whole), spec.group, 3) + digits.substr(whole);
  }
  const bool negative = std::signbit(number) && !std::isnan(number);
  put_padded(out, spec, '>', digits_text(sign_of(negative, spec.sign), spec, value),
             digits_text(std::move(digits), spec, value), budget);
}

// Text cut to `precision` characters, then padded.
void put_text(TextBuilder& out, const Spec& spec, const Text& text, Budget& budget,
              char default_align) {
  Text shown = text;
  if (spec.precision >= 0 && std::cmp_less(spec.precision, text.length())) {
    shown = text.substr(0, text.byte_of(spec.precision, budget), &budget);
  }
  put_padded(out, spec, default_align, {}, shown, budget);
}

// ---- "%s" % value

// The left side is walked from one % to the next. `values_` is a tuple, whose items are taken in
// turn, a dict, for %(name)s, or any other value, which is one item. Items that are left over are
// an error, but not a dict's.
class Percent {
 public:
  Percent(const Value& format, const Value& values, Budget& budget)
      : format_(format), values_(values), budget_(budget), out_(&budget) {}

  Value run() {
    const Text& text = format_.text();
    const std::string_view all = text.view();
    size_t from = 0;
    while (from < all.size()) {
      const size_t mark = std::min(all.find('%', from), all.size());
      budget_.work(mark - from);
      out_.add(text, from, mark - from);
      if (mark == all.size()) break;
      at_ = mark + 1;
      conversion(all);
      from = at_;
    }
    const bool all_used = used_ >= (values_.is(Kind::kTuple) ? values_.items().size() : 1);
    if (!all_used && !values_.is(Kind::kDict)) {
      fail("not all arguments converted during string formatting");
    }
    return Value::string(out_.finish(), format_.is_markup());
  }

 private:
  const Value& next_value() {
    if (values_.is(Kind::kTuple)) {
      if (used_ < values_.items().size()) return values_.items()[used_++];
    } else if (used_ == 0) {
      ++used_;
      return values_;
    }
    fail("not enough arguments for format string");
  }

  // %(name)s: at_ is at the bracket, and moves after the closing one.
  const Value& keyed_value(std::string_view all) {
    const size_t close = all.find(')', at_);
    budget_.work(std::min(close, all.size()) - at_);
    if (close == std::string_view::npos) fail("incomplete format key");
    const std::string_view key = all.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    if (!values_.is(Kind::kDict)) fail("format requires a mapping");
    const Value* found = values_.dict().find(key, &budget_);
    if (found == nullptr) fail("format has no value for the key " + quoted(key));
    return *found;
  }

  // A width or precision: digits, or * for the next value.
  int64_t number(std::string_view all) {
    if (at_ < all.size() && all[at_] == '*') {
      ++at_;
      const Value& width = next_value();
      if (!width.is_int()) fail("* wants int");
      return width.as_int();
    }
    int64_t n = 0;
    for (; at_ < all.size() && all[at_] >= '0' && all[at_] <= '9'; ++at_) {
      n = n * 10 + (all[at_] - '0');
      if (n > INT32_MAX) fail("a format's width is too large");
    }
    return n;
  }

  // One conversion, from the character after % on, in the order that Python reads it: key, flags,
  // width, precision, a length that means nothing (%ld), type. A zero pads numbers between sign and
  // digits, unless they are to be on the left.
  void conversion(std::string_view all) {
    budget_.step(2);
    const size_t begin = at_ - 1;
    Spec spec;
    const Value* value = nullptr;
    if (at_ < all.size() && all[at_] == '(') value = &keyed_value(all);
    bool zero = false;
    for (; at_ < all.size() && std::string_view("#0- +").find(all[at_]) != std::string_view::npos;
         ++at_) {
      spec.alternate |= all[at_] == '#';
      zero |= all[at_] == '0';
      if (all[at_] == '-') spec.align = '<';
      if (all[at_] == '+' || (all[at_] == ' ' && spec.sign != '+')) spec.sign = all[at_];
    }
    spec.width = number(all);
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -std::max<int64_t>(spec.width, -INT32_MAX);
    }
    if (at_ < all.size() && all[at_] == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(0, number(all));
    }
    while (at_ < all.size() && (all[at_] == 'h' || all[at_] == 'l' || all[at_] == 'L')) ++at_;
    if (at_ >= all.size()) fail("incomplete format");
    spec.type = all[at_++];
    if (spec.type == '%') return out_.add(format_.text(), at_ - 1, 1);
    budget_.touch(at_ - begin);
    spec.origin = format_.text().origin_of(begin, at_ - begin);
    if (value == nullptr) value = &next_value();
    if (zero && spec.align == 0 && spec.type != 's' && spec.type != 'r') {
      spec.fill = "0";
      spec.align = '=';
    }
    convert(spec, *value);
  }

  // %d takes floats and cuts them, %x does not, as in Python.
  void convert(Spec& spec, const Value& value) {
    const char type = spec.type;
    if (type == 's') return put_text(out_, spec, to_str(value, budget_), budget_, '>');
    if (type == 'r') {
      TextBuilder repr(&budget_);
      add_repr(repr, value, budget_);
      return put_text(out_, spec, repr.finish(), budget_, '>');
    }
    if (type == 'c' && value.is_string() && value.text().length() == 1) {
      return put_text(out_, spec, value.text(), budget_, '>');
    }
    if (!value.is_number()) {
      fail(std::string("%") + type + " format: a real number is required, not " + type_name(value));
    }
    if (type == 'd' || type == 'i' || type == 'u') {
      spec.type = 'd';
      if (value.is_int()) return put_integer(out_, spec, value, budget_);
      const double whole = std::trunc(value.as_double());
      if (!(std::fabs(whole) < 9e18)) fail("cannot convert float to integer");
      return put_integer(out_, spec,
                         Value::integer(static_cast<int64_t>(whole), value.from_input()), budget_);
    }
    if ((type == 'x' || type == 'X' || type == 'o') && value.is_int()) {
      return put_integer(out_, spec, value, budget_);
    }
    if (std::string_view("eEfFgG").find(type) != std::string_view::npos) {
      return put_float(out_, spec, value, budget_);
    }
    fail("unsupported format character in a string");
  }

  const Value& format_;
  const Value& values_;
  Budget& budget_;
  TextBuilder out_;
  size_t at_ = 0;
  size_t used_ = 0;
};

// ---- "{}".format(value)

// [[fill]align][sign][#][0][width][,][.precision][type]. The fill is any one character, so an align
// in second place is looked for first: "<<5" is filled with "<".
Spec parse_spec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  const size_t first = text.empty() ? 0 : character_at(text, 0).n_bytes;
  if (first < text.size() && is_align(text[first])) {
    spec.fill = std::string(text.substr(0, first));
    spec.align = text[first];
    at = first + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[at++];
  }
  const auto take = [&](std::string_view set) {
    return at < text.size() && set.find(text[at]) != std::string_view::npos ? text[at++] : '\0';
  };
  const auto number = [&] {
    int64_t n = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
      n = n * 10 + (text[at] - '0');
      if (n > INT32_MAX) fail("a format's width is too large");
    }
    return n;
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != 0;
  if (at < text.size() && text[at] == '0' && spec.align == 0) {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = number();
  spec.group = take(",_");
  if (take(".") != 0) spec.precision = number();
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) fail("Invalid format specifier " + quoted(text));
  return spec;
}

// The string is walked from one brace to the next; doubled ones are braces. Attributes are looked
// up as the template's own: format can reach no more than the template could.
class Braces {
 public:
  Braces(Runtime& runtime, const Value& format, const Args& args)
      : budget_(runtime.budget), format_(format), args_(args), out_(&runtime.budget) {}

  Value run() {
    const Text& text = format_.text();
    const std::string_view all = text.view();
    for (size_t at = 0; at < all.size();) {
      const size_t mark = std::min(all.find_first_of("{}", at), all.size());
      budget_.touch(mark - at);
      out_.add(text, at, mark - at);
      at = mark;
      if (at == all.size()) break;
      budget_.step();
      if (at + 1 < all.size() && all[at + 1] == all[at]) {
        out_.add(text, at, 1);
        at += 2;
        continue;
      }
      if (all[at] == '}') fail("Single '}' encountered in format string");
      const size_t close = all.find_first_of("{}", at + 1);
      if (close == std::string_view::npos) fail("expected '}' before end of string");
      if (all[close] == '{') fail("format fields inside format fields are not supported");
      budget_.touch(3 * (close - at));  // its parts are looked for
      field(at + 1, close);
      at = close + 1;
    }
    return Value::string(out_.finish());
  }

 private:
  // Bytes [begin, end) of the format, between braces.
  void field(size_t begin, size_t end) {
    const std::string_view text = format_.view().substr(begin, end - begin);
    const Origin origin = format_.text().origin_of(begin, end - begin);
    const size_t name_end = std::min(text.find_first_of("!:"), text.size());
    Value value = lookup(text.substr(0, name_end), origin);
    std::string_view rest = text.substr(name_end);
    if (rest.starts_with('!')) {
      const char conversion = rest.size() > 1 ? rest[1] : '\0';
      rest.remove_prefix(std::min<size_t>(2, rest.size()));
      if (conversion != 's' && conversion != 'r') fail("an unknown conversion in a format string");
      TextBuilder converted(&budget_);
      conversion == 'r' ? add_repr(converted, value, budget_) : add_str(converted, value, budget_);
      value = Value::string(converted.finish());
    }
    if (!rest.empty() && rest[0] != ':') fail("expected ':' after conversion specifier");
    put(value, rest.empty() ? rest : rest.substr(1), origin);
  }

  // "0.name[key]": the argument, then attributes and items. A key is a number or text without
  // quotes, of the format's origin.
  Value lookup(std::string_view name, Origin origin) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = root(name.substr(0, end));
    for (std::string_view rest = name.substr(end); !rest.empty();) {
      if (rest[0] == '.') {
        const size_t stop = std::min(rest.find_first_of(".[", 1), rest.size());
        value = get_attribute(value, rest.substr(1, stop - 1), budget_);
        rest.remove_prefix(stop);
        continue;
      }
      const size_t close = rest.find(']');
      if (close == std::string_view::npos) fail("Missing ']' in format string");
      const std::string_view key = rest.substr(1, close - 1);
      const bool is_index = !key.empty() && key.size() < 10 &&
                            key.find_first_not_of("0123456789") == std::string_view::npos;
      value = get_item(value,
                       is_index ? Value::integer(std::stoll(std::string(key)))
                                : Value::string(std::string(key), origin),
                       budget_);
      rest.remove_prefix(close + 1);
    }
    return value;
  }

  // The argument: by name, by number, or the next one. Next and numbered ones do not mix.
  Value root(std::string_view name) {
    const bool is_index = name.find_first_not_of("0123456789") == std::string_view::npos;
    if (!is_index) {
      budget_.touch(args_.named.size());
      for (const auto& [key, value] : args_.named) {
        if (same_text(key.view(), name, &budget_)) return value;
      }
      fail("format has no value for the key " + quoted(name));
    }
    if (name.size() > 9) fail("Too many decimal digits in format string");
    const bool automatic = name.empty();
    if ((automatic ? numbered_ : automatic_)) {
      fail("cannot switch between automatic and manual field numbering");
    }
    (automatic ? automatic_ : numbered_) = true;
    const size_t index = automatic ? next_++ : std::stoul(std::string(name));
    if (index >= args_.positional.size()) {
      fail("Replacement index " + std::to_string(index) +
           " out of range for positional args tuple");
    }
    return args_.positional[index];
  }

  // By the value's type. Without a specification it is str(value); lists have nothing else.
  void put(const Value& value, std::string_view spec_text, Origin origin) {
    if (spec_text.empty()) return add_str(out_, value, budget_);
    Spec spec = parse_spec(spec_text);
    spec.origin = origin;
    const auto type_in = [&](std::string_view types) {
      return spec.type == 0 || types.find(spec.type) != std::string_view::npos;
    };
    if (value.is_string() && type_in("s")) {
      if (spec.align == '=' || spec.group != 0) fail("this format is not allowed for a string");
      return put_text(out_, spec, value.text(), budget_, '<');
    }
    if (value.is_int() && type_in("dbxXo")) {
      if (spec.precision >= 0) fail("Precision not allowed in integer format specifier");
      return put_integer(out_, spec, value, budget_);
    }
    if (value.is_number() && type_in("eEfFgG%")) return put_float(out_, spec, value, budget_);
    fail("the format " + quoted(spec_text) + " does not suit a value of type " + type_name(value));
  }

  Budget& budget_;
  const Value& format_;
  const Args& args_;
  TextBuilder out_;
  size_t next_ = 0;
  bool automatic_ = false;
  bool numbered_ = false;
};

}  // namespace

Value format_percent(const Value& format, const Value& arguments, Budget& budget) {
  if (format.is_markup()) fail("% on a string marked safe");
  return Percent(format, arguments, budget).run();
}

Value format_braces(Runtime& runtime, const Value& format, const Args& args) {
  return Braces(runtime, format, args).run();
}

}  // namespace weft::jinja
