// The functions that a template finds without asking: jinja2's (range, dict, namespace, cycler,
// joiner) and transformers' (raise_exception, strftime_now). jinja2's lipsum, which writes random
// text, is not among them.
//
// None reads anything from outside. The time comes with RenderOptions, set by whoever asks for the
// rendering, so that one rendering has one time and a test can have any.
#include <algorithm>

#include "jinja/runtime_internal.h"

namespace weft::jinja {
namespace {

// range(stop), range(start, stop), range(start, stop, step). Its numbers are the input's if one of
// these is: for a list of `n` of the input it says `n`.
Value range(Runtime&, const Args& args) {
  const Bound bound(args, "range", {"", "", ""}, 1);
  for (size_t i = 0; i < 3; ++i) {
    if (bound.has(i) && bound[i].is_none()) fail("range of None");
  }
  bool input = false;
  for (size_t i = 0; i < 3; ++i) input |= bound.has(i) && bound[i].from_input();
  const int64_t first = bound.integer(0, 0);
  if (!bound.has(1)) return make_range(0, first, 1, input);
  return make_range(first, bound.integer(1, 0), bound.integer(2, 1), input);
}

// A dict (or pairs) and keyword arguments, as dict() and namespace() take them. Names that **
// unpacked are Texts, so a key that the input named stays the input's.
std::vector<std::pair<Value, Value>> pairs_of(Runtime& rt, const Args& args, const char* what) {
  if (args.positional.size() > 1) fail(std::string(what) + " takes one argument at most");
  std::vector<std::pair<Value, Value>> pairs;
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.is(Kind::kDict)) {
      pairs = from.dict().items;
    } else {
      for (const Value& pair : to_items(from, rt.budget)) {
        std::vector<Value> two = to_items(pair, rt.budget);
        if (two.size() != 2) fail(std::string(what) + ": an element is no pair");
        pairs.emplace_back(std::move(two[0]), std::move(two[1]));
      }
    }
  }
  for (const auto& [name, value] : args.named) {
    pairs.emplace_back(Value::string(name), value);
  }
  for (const auto& [key, value] : pairs) {
    if (!key.is_string()) fail(std::string(what) + ": a key is no string");
  }
  return pairs;
}

Value dict(Runtime& rt, const Args& args) {
  return make_dict(pairs_of(rt, args, "dict"), &rt.budget);
}

// Through a dict, so that of equal names the last value counts.
Value make_namespace(Runtime& rt, const Args& args) {
  std::vector<std::pair<Text, Value>> attributes;
  const Value merged = make_dict(pairs_of(rt, args, "namespace"), &rt.budget);
  for (const auto& [key, value] : merged.dict().items) {
    attributes.emplace_back(key.text(), value);
  }
  return rt.make_namespace(std::move(attributes));
}

// How a template refuses a conversation, such as two user turns in a row. The message reaches the
// user, so it says who refuses.
Value raise_exception(Runtime& rt, const Args& args) {
  const Bound bound(args, "raise_exception", {"message"}, 1);
  const Text message = to_str(bound[0], rt.budget);
  fail("the template refuses: " + std::string(message.view()));
}

// datetime.now().strftime(format), which some templates put into the system turn. C's strftime does
// the work (weft sets no locale for times), but for what only Python has: %f is six zeros, since
// `now` has seconds only, and %z and %Z are empty for a time without a zone. It is charged by the
// number of conversions, each of which can be slow.
Value strftime_now(Runtime& rt, const Args& args) {
  const Bound bound(args, "strftime_now", {"format"}, 1);
  const std::string_view format = bound.text(0).view();
  if (format.size() > 1000 || format.find('\0') != std::string_view::npos) {
    fail("strftime_now: the format is too long or holds a zero byte");
  }
  rt.budget.step(8 + 32 * std::count(format.begin(), format.end(), '%'));
  std::string wanted;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] == '%' && i + 1 < format.size()) {
      const char c = format[++i];
      if (c == 'f') {
        wanted += "000000";  // microseconds, which `now` does not have
      } else if (c == 'z' || c == 'Z') {
        // Python's datetime.now() knows no zone
      } else {
        wanted += {'%', c};
      }
    } else {
      wanted += format[i];
    }
  }
  char buffer[8192];
  wanted += ' ';  // so that an empty result is told from one that does not fit
  const size_t n = std::strftime(buffer, sizeof buffer, wanted.c_str(), &rt.options.now);
  if (n == 0) fail("strftime_now: the result is too long");
  return Value::string(Text(std::string(buffer, n - 1), bound.text(0).origin(), &rt.budget));
}

// An object with next(), reset() and current.
Value cycler(Runtime& rt, const Args& args) {
  if (!args.named.empty() || args.positional.empty())
    fail("cycler: at least one item has to be provided");
  auto object = std::make_shared<Cycler>();
  object->depth = make_list(args.positional, &rt.budget).depth();
  object->items = args.positional;
  return Value::object(Kind::kCycler, std::move(object));
}

// A function that is "" once and the separator after that.
Value joiner(Runtime&, const Args& args) {
  const Bound bound(args, "joiner", {"sep"}, 0);
  auto object = std::make_shared<Joiner>();
  object->separator = bound.has(0) ? bound[0] : Value::string(", ", Origin::kTemplate);
  object->depth = object->separator.depth() + 1;
  return Value::object(Kind::kJoiner, std::move(object));
}

}  // namespace

// Looked up when a rendering begins, for the names that the template mentions (Interpreter's
// constructor), so not once a call.
Value find_function(std::string_view name) {
  static constexpr std::pair<std::string_view, FunctionFn> kFunctions[] = {
      {"range", range},
      {"dict", dict},
      {"namespace", make_namespace},
      {"raise_exception", raise_exception},
      {"strftime_now", strftime_now},
      {"cycler", cycler},
      {"joiner", joiner},
  };
  for (const auto& [known, fn] : kFunctions) {
    if (known != name) continue;
    auto function = std::make_shared<Function>();
    function->name = known;
    function->fn = fn;
    return Value::object(Kind::kFunction, std::move(function));
  }
  return {};
}

}  // namespace weft::jinja
