// Methods of lists, tuples, dicts, cyclers and floats, and how arguments meet parameters (Bound),
// which filters, tests and functions use too. Methods of strings are in string_methods.cc.
//
// Only methods that change nothing exist. The names of those that would (append, update …) are
// known all the same: they give an undefined value whose message says that values cannot be
// changed, as jinja2's immutable sandbox does, so that `x.append is defined` is False and calling
// it an error that names it.
#include <algorithm>
#include <cmath>

#include "jinja/runtime_internal.h"

namespace weft::jinja {

// Python's rules in Python's order: too many, then each name, then what is missing. All are errors
// of the call and not of the value.
Bound::Bound(const Args& args, std::string_view what,
             std::initializer_list<std::string_view> parameters, size_t required)
    : what_(what), values_(parameters.size()) {
  if (args.positional.size() > parameters.size()) {
    fail(what_ + " takes at most " + std::to_string(parameters.size()) + " arguments, " +
         std::to_string(args.positional.size()) + " given");
  }
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    size_t i = 0;
    while (i < parameters.size() && parameters.begin()[i] != name.view()) ++i;
    if (i == parameters.size() || name.empty()) {
      fail(what_ + " got an unexpected keyword argument " + quoted(name.view()));
    }
    if (values_[i] != nullptr) {
      fail(what_ + " got multiple values for argument " + quoted(name.view()));
    }
    values_[i] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) fail(what_ + " misses argument " + std::to_string(i + 1));
  }
}

int64_t Bound::integer(size_t i, int64_t fallback) const {
  if (is_none(i)) return fallback;
  if (values_[i]->is_undefined()) fail_undefined(*values_[i]);
  if (!values_[i]->is_int()) {
    fail(what_ + ": '" + type_name(*values_[i]) + "' object cannot be interpreted as an integer");
  }
  return values_[i]->as_int();
}

const Text& Bound::text(size_t i) const {
  if (values_[i]->is_undefined()) fail_undefined(*values_[i]);
  if (!values_[i]->is_string()) {
    fail(what_ + ": argument " + std::to_string(i + 1) + " must be str, not " +
         type_name(*values_[i]));
  }
  return values_[i]->text();
}

namespace {

// items, keys and values: a view, not a copy of the items.
template <View::What kWhat>
Value view(Runtime&, const Value& self, const Args& args) {
  const Bound bound(args, "items", {}, 0);
  auto object = std::make_shared<View>();
  object->dict = self;
  object->what = kWhat;
  object->depth = self.depth();
  return Value::object(Kind::kView, std::move(object));
}

// d.get(key), d.get(key, default)
Value get(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "get", {"", ""}, 1);
  if (const Value* found = find_key(self.dict(), bound[0], rt.budget)) return *found;
  return bound.has(1) ? bound[1] : Value::none();
}

Value copy(Runtime&, const Value& self, const Args& args) {
  const Bound bound(args, "copy", {}, 0);
  return self;  // immutable
}

Value count(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "count", {""}, 1);
  int64_t n = 0;
  for (const Value& item : self.items()) n += equals(item, bound[0], rt.budget) ? 1 : 0;
  return Value::integer(n);
}

// The place of the first equal item within optional bounds; an error if there is none, as in
// Python.
Value index(Runtime& rt, const Value& self, const Args& args) {
  const Bound bound(args, "index", {"", "", ""}, 1);
  const int64_t n = std::ssize(self.items());
  const auto place = [&](size_t i, int64_t fallback) {
    const int64_t at = bound.integer(i, fallback);
    return at < 0 ? std::max<int64_t>(0, at < -n ? 0 : at + n) : std::min(at, n);
  };
  const int64_t end = place(2, n);
  for (int64_t i = place(1, 0); i < end; ++i) {
    if (equals(self.items()[i], bound[0], rt.budget)) return Value::integer(i);
  }
  fail("the value is not in the list");
}

Value cycler_next(Runtime&, const Value& self, const Args& args) {
  const Bound bound(args, "next", {}, 0);
  auto& cycler = self.as<Cycler>();
  const Value item = cycler.items[cycler.at];
  cycler.at = (cycler.at + 1) % cycler.items.size();
  return item;
}

Value cycler_reset(Runtime&, const Value& self, const Args& args) {
  const Bound bound(args, "reset", {}, 0);
  self.as<Cycler>().at = 0;
  return Value::none();
}

Value is_integer(Runtime&, const Value& self, const Args& args) {
  const Bound bound(args, "is_integer", {}, 0);
  const double d = self.as_double();
  return Value::boolean(std::isfinite(d) && d == std::floor(d));
}

// By kind and name. A few comparisons of short names, which get_attribute charges.
MethodFn find_container_method(Kind kind, std::string_view name) {
  if (kind == Kind::kDict) {
    if (name == "items") return view<View::What::kItems>;
    if (name == "keys") return view<View::What::kKeys>;
    if (name == "values") return view<View::What::kValues>;
    if (name == "get") return get;
    if (name == "copy") return copy;
  }
  if (kind == Kind::kList && name == "copy") return copy;
  if (kind == Kind::kList || kind == Kind::kTuple) {
    if (name == "count") return count;
    if (name == "index") return index;
  }
  if (kind == Kind::kCycler && name == "next") return cycler_next;
  if (kind == Kind::kCycler && name == "reset") return cycler_reset;
  if (kind == Kind::kFloat && name == "is_integer") return is_integer;
  return nullptr;
}

// What jinja2's ImmutableSandboxedEnvironment refuses.
bool is_mutation(Kind kind, std::string_view name) {
  static constexpr std::string_view kList[] = {"append", "clear", "pop",    "reverse",
                                               "insert", "sort",  "extend", "remove"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto has = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (kind == Kind::kList && has(kList)) || (kind == Kind::kDict && has(kDict));
}

}  // namespace

// The method bound to its value.
Value find_method(const Value& self, std::string_view name) {
  if (is_mutation(self.kind(), name)) {
    return make_undefined("access to attribute " + quoted(name) + " of '" + type_name(self) +
                          "' object is unsafe: a template may not change values");
  }
  const MethodFn fn =
      self.is_string() ? find_string_method(name) : find_container_method(self.kind(), name);
  if (fn == nullptr) return {};
  auto method = std::make_shared<Method>();
  method->self = self;
  method->name = name;
  method->fn = fn;
  method->depth = self.depth() + 1;
  return Value::object(Kind::kMethod, std::move(method));
}

}  // namespace weft::jinja
