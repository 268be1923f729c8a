// The values of a template: Python's, as far as chat templates meet them. Lists, tuples and dicts
// are immutable (transformers renders in jinja2's immutable sandbox), so they cannot form cycles.
// What operations mean is in operators_internal.h and the files beside it.
// Thread safety: values that a rendering made stay in it; those made outside may be shared.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/text.h"

namespace weft::jinja {

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kView,      // dict.keys(), values(), items()
  kIterator,  // what map, select, reverse … give: can be walked once
  kNamespace,
  kFunction,  // range, namespace, raise_exception …
  kMethod,    // "abc".strip
  kMacro,
  kLoop,
  kCycler,
  kJoiner,
};

/// What values point to. `depth` is how deep lists are nested below, so that nothing that walks a
/// value recurses without bound.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object();
  int depth = 0;
  Budget* budget = nullptr;
  size_t held = 0;
};

struct Sequence;
struct Dict;
struct UndefinedInfo;

class Value {
 public:
  Value() = default;  // undefined, without a name
  static Value none(bool from_input = false) { return Value(Kind::kNone, from_input); }
  static Value boolean(bool b, bool from_input = false);
  static Value integer(int64_t i, bool from_input = false);
  static Value number(double d, bool from_input = false);
  static Value string(Text text, bool markup = false);
  static Value string(std::string bytes, Origin origin);
  static Value object(Kind kind, std::shared_ptr<Object> object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  /// int or bool, as Python's isinstance(x, int).
  bool is_int() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_int() || kind_ == Kind::kFloat; }
  bool is_list() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  bool as_bool() const { return int_ != 0; }
  int64_t as_int() const { return int_; }
  double as_double() const { return kind_ == Kind::kFloat ? float_ : static_cast<double>(int_); }
  const Text& text() const { return text_; }
  std::string_view view() const { return text_.view(); }
  /// A string that `safe` or `escape` made.
  bool is_markup() const { return markup_; }
  /// A scalar's origin (a string has one for each byte).
  bool from_input() const { return input_; }
  Origin origin() const { return input_ ? Origin::kInput : Origin::kTemplate; }

  const std::shared_ptr<Object>& object() const { return object_; }
  template <class T>
  T& as() const {
    return static_cast<T&>(*object_);
  }
  const std::vector<Value>& items() const;  // of a list or tuple
  const Dict& dict() const;
  int depth() const { return object_ ? object_->depth : 0; }

 private:
  Value(Kind kind, bool from_input) : kind_(kind), input_(from_input) {}

  Kind kind_ = Kind::kUndefined;
  bool input_ = false;
  bool markup_ = false;
  union {
    int64_t int_ = 0;
    double float_;
  };
  Text text_;
  std::shared_ptr<Object> object_;
};

struct Sequence : Object {
  std::vector<Value> items;
  std::vector<std::string_view> names;  // a named tuple's fields (static strings); else empty
};

/// In order of insertion. Keys are distinct by Python's equality.
struct Dict : Object {
  std::vector<std::pair<Value, Value>> items;
  std::vector<uint32_t> by_key;  // indices in order of keys, when large and all keys are strings

  /// Null when there is none; by binary search from a dozen string keys on.
  const Value* find(std::string_view key, Budget* charged = nullptr) const;
};

/// What an undefined value was, for messages.
struct UndefinedInfo : Object {
  std::string message;
};

/// For values made outside of a rendering. `budget` null: only the collection and depth limits'
/// defaults hold. A later item with an equal string key replaces the earlier value.
Value make_list(std::vector<Value> items, Budget* budget = nullptr);
Value make_tuple(std::vector<Value> items, Budget* budget = nullptr,
                 std::vector<std::string_view> names = {});
Value make_dict(std::vector<std::pair<Value, Value>> items, Budget* budget = nullptr);
/// An undefined value with its message ("'x' is undefined").
Value make_undefined(std::string message);

/// "int", "str", "dict" … as Python's type(x).__name__.
const char* type_name(const Value& value);

}  // namespace weft::jinja
