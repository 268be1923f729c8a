// The methods of Python's str that templates may call.
#include <algorithm>

#include "jinja/runtime_internal.h"
#include "jinja/unicode_internal.h"

namespace weft::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

Value str(Text text, const Value& self) { return Value::string(std::move(text), self.is_markup()); }

// A Markup string escapes the arguments of its methods; weft says so rather than do half of it.
const Text& argument(const Value& self, const Bound& bound, size_t i, Budget& budget) {
  const Text& text = bound.text(i);
  if (self.is_markup()) budget.touch(text.n_bytes());
  if (self.is_markup() && !bound[i].is_markup() && text.view().find_first_of("&<>'\"") != kNone) {
    fail("a method of a string marked safe, with an argument that would be escaped");
  }
  return text;
}

template <bool kLeft, bool kRight>
Value strip_method(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "strip", {""}, 0);
  return strip(self, bound.is_none(0) ? nullptr : bound.get(0), kLeft, kRight, rt.budget);
}

std::vector<Value> to_values(const std::vector<Text>& texts, const Value& self) {
  std::vector<Value> out;
  out.reserve(texts.size());
  for (const Text& text : texts) out.push_back(str(text, self));
  return out;
}

// Words between white space, at most `limit` cuts (negative: any number).
std::vector<Text> split_space(const Text& text, int64_t limit, Budget& budget) {
  const std::string_view all = text.view();
  budget.touch(all.size());
  std::vector<Text> words;
  for (size_t at = space_prefix(all); at < all.size();) {
    size_t end = at;
    if (limit == 0) {
      end = all.size();
    } else {
      while (end < all.size()) {
        const Character c = character_at(all, end);
        if (is_space(c.code)) break;
        end += c.n_bytes;
      }
      --limit;
    }
    words.push_back(text.substr(at, end - at, &budget));
    budget.check_items(words.size());
    at = end + space_prefix(all.substr(end));
  }
  return words;
}

std::vector<Text> rsplit_space(const Text& text, int64_t limit, Budget& budget) {
  if (limit < 0) return split_space(text, limit, budget);
  const std::string_view all = text.view();
  budget.touch(all.size());
  std::vector<Text> words;
  for (size_t end = all.size() - space_suffix(all); end > 0; --limit) {
    size_t begin = end;
    if (limit == 0) {
      begin = 0;
    } else {
      while (begin > 0) {
        size_t before = begin - 1;
        while (before > 0 && (all[before] & 0xc0) == 0x80) --before;
        if (is_space(character_at(all, before).code)) break;
        begin = before;
      }
    }
    words.push_back(text.substr(begin, end - begin, &budget));
    if (limit == 0) break;
    end = begin - space_suffix(all.substr(0, begin));
  }
  std::reverse(words.begin(), words.end());
  return words;
}

// The first `limit` places of `needle` (negative: all).
std::vector<size_t> find_all(std::string_view text, std::string_view needle, int64_t limit,
                             Budget& budget) {
  std::vector<size_t> found;
  for (size_t at = 0; limit < 0 || found.size() < static_cast<size_t>(limit); at += needle.size()) {
    at = find_text(text, needle, at, budget);
    if (at == kNone) break;
    found.push_back(at);
    budget.check_items(found.size() + 1);
  }
  return found;
}

// The last place of `needle` that ends at or before `end`.
size_t rfind_text(std::string_view text, std::string_view needle, size_t end, Budget& budget) {
  if (needle.size() > end) return kNone;
  if (needle.empty()) return end;
  for (size_t at = end - needle.size() + 1; at-- > 0;) {
    budget.work(2);
    if (text[at] != needle[0]) continue;
    budget.touch(2);
    if (same_text(text.substr(at, needle.size()), needle, &budget)) return at;
  }
  return kNone;
}

std::vector<Text> split_at(const Text& text, const Text& separator, int64_t limit, bool from_right,
                           Budget& budget) {
  if (separator.empty()) fail("empty separator");
  const std::string_view all = text.view();
  std::vector<size_t> cuts;
  if (!from_right) {
    cuts = find_all(all, separator.view(), limit, budget);
  } else {
    size_t end = all.size();
    while (limit < 0 || cuts.size() < static_cast<size_t>(limit)) {
      const size_t at = rfind_text(all, separator.view(), end, budget);
      if (at == kNone) break;
      cuts.push_back(at);
      end = at;
    }
    std::reverse(cuts.begin(), cuts.end());
  }
  std::vector<Text> parts;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    parts.push_back(text.substr(begin, cut - begin, &budget));
    begin = cut + separator.n_bytes();
  }
  parts.push_back(text.substr(begin, all.size() - begin, &budget));
  return parts;
}

template <bool kFromRight>
Value split_method(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "split", {"sep", "maxsplit"}, 0);
  const int64_t limit = std::max<int64_t>(-1, bound.integer(1, -1));
  std::vector<Text> parts;
  if (!bound.is_none(0)) {
    parts = split_at(self.text(), bound.text(0), limit, kFromRight, rt.budget);
  } else {
    parts = kFromRight ? rsplit_space(self.text(), limit, rt.budget)
                       : split_space(self.text(), limit, rt.budget);
  }
  return make_list(to_values(parts, self), &rt.budget);
}

Value splitlines(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "splitlines", {"keepends"}, 0);
  return make_list(to_values(split_lines(self.text(), bound.flag(0, false), rt.budget), self),
                   &rt.budget);
}

template <bool kFromRight>
Value partition(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "partition", {""}, 1);
  const Text& separator = argument(self, bound, 0, rt.budget);
  if (separator.empty()) fail("empty separator");
  const Text& text = self.text();
  const size_t at = kFromRight
                        ? rfind_text(text.view(), separator.view(), text.n_bytes(), rt.budget)
                        : find_text(text.view(), separator.view(), 0, rt.budget);
  const Value none = str(Text(), self);
  if (at == kNone) {
    return kFromRight ? make_tuple({none, none, self}, &rt.budget)
                      : make_tuple({self, none, none}, &rt.budget);
  }
  const size_t after = at + separator.n_bytes();
  return make_tuple({str(text.substr(0, at, &rt.budget), self),
                     str(text.substr(at, separator.n_bytes(), &rt.budget), self),
                     str(text.substr(after, text.n_bytes() - after, &rt.budget), self)},
                    &rt.budget);
}

// The part of the string that optional start and end (characters) leave; false when start is past
// the end.
bool window(const Text& text, const Bound& bound, size_t& begin, size_t& end, Budget& budget) {
  const auto n = static_cast<int64_t>(text.length());
  const auto place = [&](size_t i, int64_t otherwise) {
    int64_t at = bound.integer(i, otherwise);
    if (at < 0) at = std::max<int64_t>(0, at < -n ? 0 : at + n);
    return at;
  };
  const int64_t first = place(1, 0);
  const int64_t last = std::min(place(2, n), n);
  if (first > n || first > last) return false;
  begin = text.byte_of(static_cast<size_t>(first), budget);
  end = text.byte_of(static_cast<size_t>(last), budget);
  return true;
}

template <bool kAtStart>
Value affix(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, kAtStart ? "startswith" : "endswith", {"", "", ""}, 1);
  size_t begin = 0;
  size_t end = 0;
  const bool inside = window(self.text(), bound, begin, end, rt.budget);
  const auto holds = [&](const Value& wanted) {
    if (!wanted.is_string()) {
      if (wanted.is_undefined()) fail_undefined(wanted);
      fail(std::string(kAtStart ? "startswith" : "endswith") +
           " first arg must be str or a tuple of str, not " + type_name(wanted));
    }
    rt.budget.touch(2);
    if (!inside) return false;
    const std::string_view part = self.view().substr(begin, end - begin);
    return kAtStart ? begins_with(part, wanted.view(), &rt.budget)
                    : ends_with(part, wanted.view(), &rt.budget);
  };
  if (!bound[0].is(Kind::kTuple)) return Value::boolean(holds(bound[0]));
  for (const Value& wanted : bound[0].items()) {
    if (holds(wanted)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool kFromRight, bool kMustExist>
Value find_method(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "find", {"", "", ""}, 1);
  const Text& text = self.text();
  const Text& wanted = bound.text(0);
  size_t begin = 0;
  size_t end = 0;
  size_t found = kNone;
  if (window(text, bound, begin, end, rt.budget)) {
    const std::string_view part = text.view().substr(0, end);
    found = kFromRight ? rfind_text(part, wanted.view(), end, rt.budget)
                       : find_text(part, wanted.view(), begin, rt.budget);
    if (found != kNone && found < begin) found = kNone;
  }
  if (found == kNone) {
    if (kMustExist) fail("substring not found");
    return Value::integer(-1);
  }
  const std::string_view before = text.view().substr(0, found);
  rt.budget.work(2 * found);
  return Value::integer(
      std::count_if(before.begin(), before.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

Value count(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "count", {"", "", ""}, 1);
  const Text& wanted = bound.text(0);
  size_t begin = 0;
  size_t end = 0;
  if (!window(self.text(), bound, begin, end, rt.budget)) return Value::integer(0);
  const std::string_view part = self.view().substr(begin, end - begin);
  if (wanted.empty()) {
    rt.budget.work(2 * part.size());
    const auto n =
        std::count_if(part.begin(), part.end(), [](char c) { return (c & 0xc0) != 0x80; });
    return Value::integer(n + 1);
  }
  return Value::integer(static_cast<int64_t>(find_all(part, wanted.view(), -1, rt.budget).size()));
}

Value replace_method(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "replace", {"", "", "count"}, 2);
  return replace(self, argument(self, bound, 0, rt.budget), argument(self, bound, 1, rt.budget),
                 bound.integer(2, -1), rt.budget);
}

template <bool kAtStart>
Value remove_affix(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "removeprefix", {""}, 1);
  const std::string_view affix = bound.text(0).view();
  const Text& text = self.text();
  const bool there = kAtStart ? begins_with(text.view(), affix, &rt.budget)
                              : ends_with(text.view(), affix, &rt.budget);
  if (!there || affix.empty()) return self;
  return str(text.substr(kAtStart ? affix.size() : 0, text.n_bytes() - affix.size(), &rt.budget),
             self);
}

template <char kTo>
Value case_method(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "upper", {}, 0);
  return text_case(self, kTo, rt.budget);
}

// Changes case by where a character is: `first` characters get title case.
Value recase(const Value& self, Budget& budget, bool every_word, bool swap) {
  const Text& text = self.text();
  budget.touch(4 * text.n_bytes());
  TextBuilder out(&budget);
  bool inside = false;
  text.for_runs(0, text.n_bytes(), [&](std::string_view piece, Origin origin) {
    for_parts(piece, [&](std::string_view part) {
      const auto offset = static_cast<size_t>(part.data() - text.view().data());
      std::string changed;
      for (size_t at = 0; at < part.size();) {
        const Character c = character_at(part, at);
        if (swap) {
          is_upper(c.code) ? append_lower_in(changed, text.view(), offset + at)
                           : append_upper(changed, c.code);
          at += c.n_bytes;
          continue;
        }
        inside ? append_lower_in(changed, text.view(), offset + at) : append_title(changed, c.code);
        inside = every_word ? is_upper(c.code) || is_lower(c.code) : true;
        at += c.n_bytes;
      }
      out.add(changed, origin);
    });
  });
  return str(out.finish(), self);
}

Value title(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "title", {}, 0);
  return recase(self, rt.budget, true, false);
}

Value capitalize(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "capitalize", {}, 0);
  return recase(self, rt.budget, false, false);
}

Value swapcase(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "swapcase", {}, 0);
  return recase(self, rt.budget, false, true);
}

// Whether every character is of a class, and there is one.
template <bool (*kIs)(uint32_t)>
Value all_are(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "isdigit", {}, 0);
  const std::string_view all = self.view();
  rt.budget.touch(3 * all.size());
  for (size_t at = 0; at < all.size();) {
    const Character c = character_at(all, at);
    if (!kIs(c.code)) return Value::boolean(false);
    at += c.n_bytes;
  }
  return Value::boolean(!all.empty());
}

// islower and isupper: no character of the other case, and one at least of this.
template <bool (*kIs)(uint32_t), bool (*kIsOther)(uint32_t)>
Value cased(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "isupper", {}, 0);
  const std::string_view all = self.view();
  rt.budget.touch(3 * all.size());
  bool any = false;
  for (size_t at = 0; at < all.size();) {
    const Character c = character_at(all, at);
    if (kIsOther(c.code)) return Value::boolean(false);
    any |= kIs(c.code);
    at += c.n_bytes;
  }
  return Value::boolean(any);
}

Value join_method(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "join", {""}, 1);
  return str(join(self.text(), to_items(bound[0], rt.budget), true, rt.budget).text(), self);
}

enum class Side { kLeft, kRight, kBoth };

template <Side kText>
Value justify(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "center", {"", ""}, 1);
  const Text fill = bound.has(1) ? bound.text(1) : Text(" ", Origin::kTemplate);
  if (fill.length() != 1) fail("The fill character must be exactly one character long");
  const auto n = static_cast<int64_t>(self.text().length());
  const int64_t missing = std::max<int64_t>(0, bound.integer(0, 0) - n);
  rt.budget.check_string(static_cast<size_t>(missing));
  // Python's center puts the odd one on the left when the width is odd.
  const int64_t width = n + missing;
  int64_t left = kText == Side::kLeft ? 0 : missing;
  if (kText == Side::kBoth) left = missing / 2 + (missing & width & 1);
  TextBuilder out(&rt.budget);
  const auto pad = [&](int64_t times) {
    for (int64_t i = 0; i < times; ++i) out.add(fill);  // charges each
  };
  pad(left);
  out.add(self.text());
  pad(missing - left);
  return str(out.finish(), self);
}

Value zfill(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "zfill", {""}, 1);
  const auto n = static_cast<int64_t>(self.text().length());
  const int64_t missing = std::max<int64_t>(0, bound.integer(0, 0) - n);
  rt.budget.check_string(static_cast<size_t>(missing));
  const bool sign = self.view().starts_with('-') || self.view().starts_with('+');
  TextBuilder out(&rt.budget);
  out.add(self.text(), 0, sign ? 1 : 0);
  out.add(std::string(static_cast<size_t>(missing), '0'), Origin::kTemplate);
  out.add(self.text(), sign ? 1 : 0, self.text().n_bytes() - (sign ? 1 : 0));
  return str(out.finish(), self);
}

Value format_method(Runtime& rt, const Value& self, const Args& args) {
  if (self.is_markup()) fail("format of a string marked safe");
  return format_braces(rt, self, args);
}

}  // namespace

MethodFn find_string_method(std::string_view name) {
  static constexpr std::pair<std::string_view, MethodFn> kMethods[] = {
      {"strip", strip_method<true, true>},
      {"lstrip", strip_method<true, false>},
      {"rstrip", strip_method<false, true>},
      {"split", split_method<false>},
      {"rsplit", split_method<true>},
      {"splitlines", splitlines},
      {"partition", partition<false>},
      {"rpartition", partition<true>},
      {"startswith", affix<true>},
      {"endswith", affix<false>},
      {"find", find_method<false, false>},
      {"rfind", find_method<true, false>},
      {"index", find_method<false, true>},
      {"rindex", find_method<true, true>},
      {"count", count},
      {"replace", replace_method},
      {"removeprefix", remove_affix<true>},
      {"removesuffix", remove_affix<false>},
      {"upper", case_method<'u'>},
      {"lower", case_method<'l'>},
      {"title", title},
      {"capitalize", capitalize},
      {"swapcase", swapcase},
      {"isdigit", all_are<is_decimal>},
      {"isdecimal", all_are<is_decimal>},
      {"isalpha", all_are<is_alpha>},
      {"isalnum", all_are<is_alnum>},
      {"isspace", all_are<is_space>},
      {"isupper", cased<is_upper, is_lower>},
      {"islower", cased<is_lower, is_upper>},
      {"join", join_method},
      {"center", justify<Side::kBoth>},
      {"ljust", justify<Side::kLeft>},
      {"rjust", justify<Side::kRight>},
      {"zfill", zfill},
      {"format", format_method},
  };
  for (const auto& [known, fn] : kMethods) {
    if (known == name) return fn;
  }
  return nullptr;
}

}  // namespace weft::jinja
