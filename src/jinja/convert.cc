// bool(), str() and repr(). Prompts show them: a template that prints a list of tools prints repr's
// quotes, and one that prints a float all its digits, so they are CPython's to the byte.
//
// Origins: repr gives each piece its own, but str of a list or dict that has anything of the input
// becomes the input's altogether (add_str). Brackets and quotes of the template's between the
// pieces would make many short stretches of the prompt, and an input could arrange what they spell.
#include <charconv>
#include <cmath>

#include "jinja/operators_internal.h"
#include "jinja/unicode_internal.h"

namespace weft::jinja {

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_double() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kView:
      return length_of(value) != 0;
    default:
      return true;
  }
}

// The quotes are always single ones; it is for people to read, not repr.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : utf8_prefix(text, 80)) out += to_byte(c) < 0x20 ? ' ' : c;
  return out + (text.size() > 80 ? "…'" : "'");
}

void fail_undefined(const Value& value) {
  if (value.object()) fail(value.as<UndefinedInfo>().message);
  fail("a value is undefined");
}

// The shortest digits that give the number back, which std::to_chars finds, in Python's layout:
// with an exponent from 1e16 on and below 1e-4, otherwise plain with at least ".0".
//   1e15 1000000000000000.0    1e16 1e+16    0.0001 0.0001    0.00001 1e-05
std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view all(buffer, end - buffer);
  const size_t e = all.find('e');
  std::string digits;
  std::string out;
  for (const char c : all.substr(0, e)) {
    if (c == '-') {
      out = "-";
    } else if (c != '.') {
      digits += c;
    }
  }
  const int exponent = std::atoi(std::string(all.substr(e + 1)).c_str());
  const int64_t n = std::ssize(digits);
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (n > 1) out += "." + digits.substr(1);
    const std::string magnitude = std::to_string(std::abs(exponent));
    return out + (exponent < 0 ? "e-" : "e+") + (magnitude.size() < 2 ? "0" : "") + magnitude;
  }
  if (exponent < 0) {
    return out + "0." + std::string(-exponent - 1, '0') + digits;
  }
  if (n <= exponent + 1) {
    return out + digits + std::string(exponent + 1 - n, '0') + ".0";
  }
  const int whole = exponent + 1;
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

namespace {

// \x, \u or \U with as many digits as the character needs.
void append_code(std::string& out, uint32_t code) {
  static constexpr char kHex[] = "0123456789abcdef";
  const int n = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
  out += n == 2 ? "\\x" : n == 4 ? "\\u" : "\\U";
  for (int i = n - 1; i >= 0; --i) out += kHex[code >> (4 * i) & 15];
}

// A stretch without its quotes. Unprintable characters, among them every odd white space, are
// written as escapes.
void repr_piece(std::string_view piece, char quote, std::string& out) {
  for (size_t at = 0; at < piece.size();) {
    const Character c = character_at(piece, at);
    if (c.code == to_byte(quote) || c.code == '\\') {
      out += '\\';
      out += static_cast<char>(c.code);
    } else if (c.code == '\n' || c.code == '\r' || c.code == '\t') {
      out += c.code == '\n' ? "\\n" : c.code == '\r' ? "\\r" : "\\t";
    } else if (!is_printable(c.code)) {
      append_code(out, c.code);
    } else {
      out += piece.substr(at, c.n_bytes);
    }
    at += c.n_bytes;
  }
}

// Single quotes, unless the text has some and no double ones: 'a', "it's", 'it\'s "x"'.
void string_repr(TextBuilder& out, const Text& text, Budget& budget) {
  const std::string_view all = text.view();
  budget.touch(2 * all.size());
  const bool double_quotes =
      all.find('\'') != std::string_view::npos && all.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  const std::string_view mark(&quote, 1);
  out.add(mark, Origin::kTemplate);
  text.for_runs(0, all.size(), [&](std::string_view piece, Origin origin) {
    for_parts(piece, [&](std::string_view part) {
      std::string escaped;
      repr_piece(part, quote, escaped);
      out.add(escaped, origin);
    });
  });
  out.add(mark, Origin::kTemplate);
}

void add_literal(TextBuilder& out, std::string_view text) { out.add(text, Origin::kTemplate); }

void sequence_repr(TextBuilder& out, const std::vector<Value>& items, std::string_view open,
                   std::string_view close, Budget& budget) {
  add_literal(out, open);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) add_literal(out, ", ");
    add_repr(out, items[i], budget);
  }
  add_literal(out, close);
}

void dict_repr(TextBuilder& out, const Dict& dict, Budget& budget) {
  add_literal(out, "{");
  bool first = true;
  for (const auto& [key, value] : dict.items) {
    if (!first) add_literal(out, ", ");
    first = false;
    add_repr(out, key, budget);
    add_literal(out, ": ");
    add_repr(out, value, budget);
  }
  add_literal(out, "}");
}

void range_repr(TextBuilder& out, const Range& range) {
  std::string text = "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
  if (range.step != 1) text += ", " + std::to_string(range.step);
  out.add(text + ")", range.from_input ? Origin::kInput : Origin::kTemplate);
}

}  // namespace

void add_repr(TextBuilder& out, const Value& value, Budget& budget) {
  budget.step();
  switch (value.kind()) {
    case Kind::kUndefined:
      return add_literal(out, "Undefined");
    case Kind::kNone:
      return out.add("None", value.origin());
    case Kind::kBool:
      return out.add(value.as_bool() ? "True" : "False", value.origin());
    case Kind::kInt:
      return out.add(std::to_string(value.as_int()), value.origin());
    case Kind::kFloat:
      budget.step(4);
      return out.add(float_repr(value.as_double()), value.origin());
    case Kind::kString:
      if (value.is_markup()) add_literal(out, "Markup(");
      string_repr(out, value.text(), budget);
      if (value.is_markup()) add_literal(out, ")");
      return;
    case Kind::kList:
      return sequence_repr(out, value.items(), "[", "]", budget);
    case Kind::kTuple:
      return sequence_repr(out, value.items(), "(", value.items().size() == 1 ? ",)" : ")", budget);
    case Kind::kDict:
      return dict_repr(out, value.dict(), budget);
    case Kind::kRange:
      return range_repr(out, value.as<Range>());
    case Kind::kView: {
      const View::What what = value.as<View>().what;
      if (what == View::What::kItems) add_literal(out, "dict_items(");
      if (what == View::What::kKeys) add_literal(out, "dict_keys(");
      if (what == View::What::kValues) add_literal(out, "dict_values(");
      sequence_repr(out, to_items(value, budget), "[", "]", budget);
      return add_literal(out, ")");
    }
    default:
      fail(std::string("a ") + type_name(value) +
           " has no text; |list makes a list of what yields");
  }
}

// str and repr differ for strings and undefined only.
void add_str(TextBuilder& out, const Value& value, Budget& budget) {
  if (value.is_string()) return out.add(value.text());
  if (value.is_undefined()) return;
  if (!is_iterable(value)) return add_repr(out, value, budget);
  TextBuilder repr(&budget);
  add_repr(repr, value, budget);
  const Text text = repr.finish();
  // Brackets round what the input says are the input's too: one stretch of text, not many.
  out.add(text.view(), text.origin());
}

Text to_str(const Value& value, Budget& budget) {
  if (value.is_string()) return value.text();
  TextBuilder out(&budget);
  add_str(out, value, budget);
  return out.finish();
}

}  // namespace weft::jinja
