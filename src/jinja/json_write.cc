// The filter tojson, as transformers defines it: Python's json.dumps with ensure_ascii=False.
// jinja2's own escapes <, >, & and ' for HTML, which models were not trained on. Defaults are ", "
// and ": " between, or with an indent "," and new lines:
//   {'a': [1, 2]}|tojson              {"a": [1, 2]}
//   {'a': 1}|tojson(indent=2)         three lines, "a" two blanks in
//
// The text of tool definitions goes through here in most prompts. If anything of it is the input's,
// then so is all of it, as with lists that are printed (convert.cc).
#include <algorithm>
#include <cmath>

#include "jinja/runtime_internal.h"
#include "jinja/unicode_internal.h"

namespace weft::jinja {
namespace {

// tojson's arguments, resolved: separators are Texts because the template or the input gives them.
struct JsonStyle {
  bool ascii = false;
  bool sorted = false;
  Text indent;  // of one level
  bool lines = false;
  Text item_separator;
  Text key_separator;
};

// One call of tojson. Its recursion is bounded by the value's depth.
class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget)
      : style_(style), budget_(budget), out_(&budget) {}

  Text write(const Value& value) {
    put(value, 0);
    return out_.finish();
  }

 private:
  void literal(std::string_view text) { out_.add(text, Origin::kTemplate); }

  // Nothing unless there is an indent; indent=0 has new lines without blanks.
  void new_line(int level) {
    if (!style_.lines) return;
    literal("\n");
    for (int i = 0; i < level; ++i) out_.add(style_.indent);
  }

  void put(const Value& value, int level) {
    budget_.step();
    switch (value.kind()) {
      case Kind::kNone:
        return out_.add("null", value.origin());
      case Kind::kBool:
        return out_.add(value.as_bool() ? "true" : "false", value.origin());
      case Kind::kInt:
        return out_.add(std::to_string(value.as_int()), value.origin());
      case Kind::kFloat:
        budget_.step(4);
        return out_.add(number(value.as_double()), value.origin());
      case Kind::kString:
        return string(value.text());
      case Kind::kList:
      case Kind::kTuple:
        return list(value.items(), level);
      case Kind::kDict:
        return dict(value.dict(), level);
      default:
        fail(std::string("Object of type ") + type_name(value) + " is not JSON serializable");
    }
  }

  // NaN and Infinity are no JSON, but json.dumps writes them.
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_repr(value);
  }

  void list(const std::vector<Value>& items, int level) {
    if (items.empty()) return literal("[]");
    literal("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.add(style_.item_separator);
      new_line(level + 1);
      put(items[i], level + 1);
    }
    new_line(level);
    literal("]");
  }

  // JSON's keys are strings: json.dumps writes numbers, bools and None as their text.
  Text key(const Value& value) const {
    const auto text = [&](std::string name) { return Text(std::move(name), value.origin()); };
    switch (value.kind()) {
      case Kind::kString:
        return value.text();
      case Kind::kNone:
        return text("null");
      case Kind::kBool:
        return text(value.as_bool() ? "true" : "false");
      case Kind::kInt:
        return text(std::to_string(value.as_int()));
      case Kind::kFloat:
        return text(number(value.as_double()));
      default:
        fail(std::string("keys must be str, int, float, bool or None, not ") + type_name(value));
    }
  }

  // In order of insertion, or sorted by the keys as they are, before they become text.
  void dict(const Dict& dict, int level) {
    if (dict.items.empty()) return literal("{}");
    std::vector<const std::pair<Value, Value>*> order;
    for (const auto& item : dict.items) order.push_back(&item);  // put() charges each
    if (style_.sorted) {
      std::stable_sort(order.begin(), order.end(), [&](const auto* a, const auto* b) {
        return less(a->first, b->first, budget_);
      });
    }
    literal("{");
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0) out_.add(style_.item_separator);
      new_line(level + 1);
      string(key(order[i]->first));
      out_.add(style_.key_separator);
      put(order[i]->second, level + 1);
    }
    new_line(level);
    literal("}");
  }

  void string(const Text& text) {
    literal("\"");
    budget_.touch(text.n_bytes());
    text.for_runs(0, text.n_bytes(), [&](std::string_view piece, Origin origin) {
      for_parts(piece, [&](std::string_view part) {
        std::string escaped;
        escape(part, escaped);
        out_.add(escaped, origin);
      });
    });
    literal("\"");
  }

  // Quotes, backslashes and control characters; with ensure_ascii everything beyond ASCII as \u, in
  // two halves from U+10000 on. U+007F stays, as in Python.
  void escape(std::string_view part, std::string& out) const {
    static constexpr std::string_view kSpecial = "\"\\\n\r\t\b\f";
    static constexpr std::string_view kLetters = "\"\\nrtbf";
    for (size_t at = 0; at < part.size();) {
      const Character c = character_at(part, at);
      const size_t special = c.code < 0x80 ? kSpecial.find(part[at]) : std::string_view::npos;
      if (special != std::string_view::npos) {
        out += '\\';
        out += kLetters[special];
      } else if (c.code < 0x20) {
        unicode_escape(c.code, out);
      } else if (c.code >= 0x80 && style_.ascii) {
        if (c.code >= 0x10000) {
          unicode_escape(0xd800 + ((c.code - 0x10000) >> 10), out);
          unicode_escape(0xdc00 + ((c.code - 0x10000) & 0x3ff), out);
        } else {
          unicode_escape(c.code, out);
        }
      } else {
        out += part.substr(at, c.n_bytes);
      }
      at += c.n_bytes;
    }
  }

  static void unicode_escape(uint32_t code, std::string& out) {
    static constexpr char kHex[] = "0123456789abcdef";
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out += kHex[code >> shift & 15];
  }

  const JsonStyle& style_;
  Budget& budget_;
  TextBuilder out_;
};

// The indent is a number of blanks or a text, the separators a pair of strings.
JsonStyle style_of(const Bound& bound, Budget& budget) {
  JsonStyle style;
  style.ascii = bound.flag(0, false);
  style.sorted = bound.flag(3, false);
  style.lines = !bound.is_none(1);
  if (style.lines) {
    if (bound[1].is_string()) {
      style.indent = bound[1].text();
    } else {
      const int64_t n = std::max<int64_t>(0, bound.integer(1, 0));
      budget.check_string(n);
      style.indent = Text(std::string(n, ' '), Origin::kTemplate, &budget);
    }
  }
  style.item_separator = Text(style.lines ? "," : ", ", Origin::kTemplate);
  style.key_separator = Text(": ", Origin::kTemplate);
  if (!bound.is_none(2)) {
    const std::vector<Value> pair = to_items(bound[2], budget);
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      fail("tojson: separators must be two strings");
    }
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  return style;
}

}  // namespace

Value to_json(Runtime& runtime, const Value& value, const Args& args) {
  const Bound bound(args, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  const JsonStyle style = style_of(bound, runtime.budget);
  const Text text = JsonWriter(style, runtime.budget).write(value);
  if (!text.has_input()) return Value::string(text);
  // Punctuation round what the input says is the input's too: one stretch of text, not many.
  return Value::string(Text(std::string(text.view()), Origin::kInput, &runtime.budget));
}

}  // namespace weft::jinja
