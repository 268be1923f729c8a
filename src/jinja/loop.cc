// The attributes and methods of the variable `loop`, by jinja2's LoopContext. Numbers count from 1,
// with a 0 at the name's end from 0; revindex counts down to 1. As all items are known, last and
// nextitem need no look ahead. Attributes are made when asked for, not in each iteration.
#include "jinja/runtime_internal.h"

namespace weft::jinja {
namespace {

// loop.cycle('odd', 'even'): the argument whose turn it is, by the iteration's number.
Value cycle(Runtime&, const Value& self, const Args& args) {
  if (!args.named.empty() || args.positional.empty()) fail("no items for cycling given");
  return args.positional[self.as<Loop>().index % std::ssize(args.positional)];
}

// loop.changed(x): whether the arguments differ from those of the last call in this loop, and true
// at the first. They are kept by the loop object until the loop ends, and one of them could be the
// loop itself; a call after the end could build that cycle again, so it is refused.
Value changed(Runtime& rt, const Value& self, const Args& args) {
  auto& loop = self.as<Loop>();
  if (!args.named.empty()) fail("loop.changed takes no named arguments");
  if (!loop.active) fail("loop.changed after the loop");
  bool same = loop.has_changed && loop.changed_from.size() == args.positional.size();
  for (size_t i = 0; same && i < args.positional.size(); ++i) {
    same = equals(loop.changed_from[i], args.positional[i], rt.budget);
  }
  if (same) return Value::boolean(false);
  loop.has_changed = true;
  loop.changed_from = args.positional;
  return Value::boolean(true);
}

// A method bound to the loop. Its depth is one above the loop's, since it holds it.
Value method(const Value& loop, std::string_view name, MethodFn fn) {
  auto object = std::make_shared<Method>();
  object->self = loop;
  object->name = name;
  object->fn = fn;
  object->depth = loop.depth() + 1;
  return Value::object(Kind::kMethod, std::move(object));
}

}  // namespace

Value loop_attribute(const Value& value, std::string_view name) {
  const auto& loop = value.as<Loop>();
  const int64_t n = std::ssize(loop.items);
  const int64_t i = loop.index;
  if (name == "index") return Value::integer(i + 1);
  if (name == "index0") return Value::integer(i);
  if (name == "revindex") return Value::integer(n - i);
  if (name == "revindex0") return Value::integer(n - i - 1);
  if (name == "first") return Value::boolean(i == 0);
  if (name == "last") return Value::boolean(i + 1 == n);
  if (name == "length") return Value::integer(n);
  if (name == "depth") return Value::integer(loop.nesting + 1);
  if (name == "depth0") return Value::integer(loop.nesting);
  if (name == "previtem") {
    return i > 0 ? loop.items[loop.index - 1] : make_undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return i + 1 < n ? loop.items[loop.index + 1] : make_undefined("there is no next item");
  }
  if (name == "cycle") return method(value, "cycle", cycle);
  if (name == "changed") return method(value, "changed", changed);
  return {};
}

}  // namespace weft::jinja
