// String work that methods and filters share. Every result keeps the origin of each byte.
//
// The pattern of all that change characters: for_runs gives stretches of one origin, for_parts cuts
// these into at most 64 KiB, a std::string takes what a part becomes, and the builder appends it
// with the stretch's origin. So beside the result, which the budget knows, there is never more than
// one part's memory that it does not. What needs a character's neighbours looks at the whole text,
// because they may lie in another stretch: the sigma of the input after a letter of the template's.
#include "jinja/runtime_internal.h"
#include "jinja/unicode_internal.h"

namespace weft::jinja {

// 'u' or 'l'. Length may change: 'ß' becomes 'SS', and 'Σ' at a word's end 'ς'.
Value text_case(const Value& value, char to, Budget& budget) {
  const Text text = to_str(value, budget);
  budget.touch(2 * text.n_bytes());
  TextBuilder out(&budget);
  text.for_runs(0, text.n_bytes(), [&](std::string_view piece, Origin origin) {
    for_parts(piece, [&](std::string_view part) {
      const size_t offset = part.data() - text.view().data();
      std::string changed;
      for (size_t at = 0; at < part.size();) {
        const Character c = character_at(part, at);
        if (to == 'u') {
          append_upper(changed, c.code);
        } else {
          append_lower_in(changed, text.view(), offset + at);
        }
        at += c.n_bytes;
      }
      out.add(changed, origin);
    });
  });
  return Value::string(out.finish(), value.is_markup());
}

namespace {

/// The characters that strip() takes away: white space, or those of a string. The string is
/// searched for each character, which s.strip(s) makes quadratic; each comparison is charged.
class StripSet {
 public:
  StripSet(const Value* characters_or_none, Budget& budget) : budget_(budget) {
    if (characters_or_none == nullptr) return;
    if (!characters_or_none->is_string()) fail("strip arg must be None or str");
    given_ = true;
    set_ = characters_or_none->view();
  }
  bool has(uint32_t code) const {
    budget_.touch(1);
    if (!given_) return is_space(code);
    for (size_t at = 0; at < set_.size();) {
      budget_.touch(1);
      const Character c = character_at(set_, at);
      if (c.code == code) return true;
      at += c.n_bytes;
    }
    return false;
  }

 private:
  Budget& budget_;
  bool given_ = false;
  std::string_view set_;
};

}  // namespace

// From both ends inwards; what is left is one piece of the text. From the right, bytes that
// continue a character are stepped over to its first.
Value strip(const Value& value, const Value* characters_or_none, bool left, bool right,
            Budget& budget) {
  const Text text = to_str(value, budget);
  const std::string_view all = text.view();
  const StripSet set(characters_or_none, budget);
  size_t begin = 0;
  size_t end = all.size();
  while (left && begin < end) {
    const Character c = character_at(all, begin);
    if (!set.has(c.code)) break;
    begin += c.n_bytes;
  }
  while (right && end > begin) {
    size_t at = end - 1;
    while ((all[at] & 0xc0) == 0x80) --at;
    if (!set.has(character_at(all, at).code)) break;
    end = at;
  }
  return Value::string(text.substr(begin, end - begin, &budget), value.is_markup());
}

// At most `limit` places (negative: all), from the left, without overlap. The value itself comes
// back when nothing was found. An empty `from` is found before every character and at the end, as
// in Python: 'abc'.replace('', '-') is -a-b-c-.
Value replace(const Value& value, const Text& from, const Text& to, int64_t limit, Budget& budget) {
  if (limit < 0) limit = INT64_MAX;
  const Text& text = value.text();
  const std::string_view all = text.view();
  TextBuilder out(&budget);
  size_t at = 0;
  if (from.empty()) {  // before every character and at the end
    for (; limit != 0; --limit) {
      budget.step();
      out.add(to);
      if (at >= all.size()) break;
      const size_t n = character_at(all, at).n_bytes;
      out.add(text, at, n);
      at += n;
    }
    out.add(text, at, all.size() - at);
    return Value::string(out.finish(), value.is_markup());
  }
  for (; limit != 0; --limit) {
    const size_t found = find_text(all, from.view(), at, budget);
    if (found == std::string_view::npos) break;
    out.add(text, at, found - at);
    out.add(to);
    at = found + from.n_bytes();
  }
  if (at == 0) return value;
  out.add(text, at, all.size() - at);
  return Value::string(out.finish(), value.is_markup());
}

// The separator comes between items only, each time with its own origins.
Value join(const Text& separator, const std::vector<Value>& items, bool strings_only,
           Budget& budget) {
  TextBuilder out(&budget);
  for (size_t i = 0; i < items.size(); ++i) {
    budget.step();
    if (strings_only && !items[i].is_string()) {
      fail("sequence item " + std::to_string(i) + ": expected str instance, " +
           type_name(items[i]) + " found");
    }
    if (i > 0) out.add(separator);
    add_str(out, items[i], budget);
  }
  return Value::string(out.finish());
}

// As str.splitlines: a line end at the very end of the text begins no further, empty line.
std::vector<Text> split_lines(const Text& text, bool keep_ends, Budget& budget) {
  const std::string_view all = text.view();
  budget.touch(all.size());
  std::vector<Text> lines;
  size_t begin = 0;
  for (size_t at = 0; at < all.size();) {
    const size_t end = line_end_at(all, at);
    if (end == 0) {
      at += character_at(all, at).n_bytes;
      continue;
    }
    lines.push_back(text.substr(begin, at - begin + (keep_ends ? end : 0), &budget));
    budget.check_items(lines.size());
    at += end;
    begin = at;
  }
  if (begin < all.size()) lines.push_back(text.substr(begin, all.size() - begin, &budget));
  return lines;
}

}  // namespace weft::jinja
