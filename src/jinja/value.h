// The values of a template: Python's, as far as chat templates meet them. Lists, tuples and dicts
// are immutable (transformers renders in jinja2's immutable sandbox), so they cannot form cycles
// and shared_ptr frees them all. What operations mean is in operators_internal.h and the files
// beside it.
//
// Every scalar knows whether it is the input's, so that a number of the conversation stays the
// input's when it is printed; a string knows it byte by byte (text.h); containers know nothing,
// their items do.
//
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

/// What a value is. Those up to kDict can be passed in; the others a rendering makes by itself.
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
/// value recurses without bound: printing, comparing and freeing a list in a list 100,000 deep
/// would each overflow the stack, so such a list cannot be made. `held` bytes of `budget` are
/// released with it.
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

/// One value: a kind and a scalar, a Text, or an Object that copies share. Copying is cheap and
/// never copies items.
class Value {
 public:
  Value() = default;  // undefined, without a name
  /// Makers of scalars, which never fail. `from_input` is the value's origin.
  static Value none(bool from_input = false) { return Value(Kind::kNone, from_input); }
  static Value boolean(bool b, bool from_input = false);
  static Value integer(int64_t i, bool from_input = false);
  static Value number(double d, bool from_input = false);
  /// `markup`: what `safe` or `escape` made, which `+` and escape treat as Markup of markupsafe.
  static Value string(Text text, bool markup = false);
  static Value string(std::string bytes, Origin origin);
  /// `object` must be of the struct that `kind` names (Sequence, Dict, or one of
  /// operators_internal.h and runtime_internal.h).
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

  /// The scalar itself. The kind must be right: as_int of a float would read its bits.
  bool as_bool() const { return int_ != 0; }
  int64_t as_int() const { return int_; }
  double as_double() const { return kind_ == Kind::kFloat ? float_ : int_; }
  const Text& text() const { return text_; }
  std::string_view view() const { return text_.view(); }
  /// A string that `safe` or `escape` made.
  bool is_markup() const { return markup_; }
  /// A scalar's origin (a string has one for each byte).
  bool from_input() const { return input_; }
  Origin origin() const { return input_ ? Origin::kInput : Origin::kTemplate; }

  const std::shared_ptr<Object>& object() const { return object_; }
  /// The object as the struct of its kind, which nothing checks.
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

/// A list or a tuple.
struct Sequence : Object {
  std::vector<Value> items;
  std::vector<std::string_view> names;  // a named tuple's fields (static strings); else empty
};

/// In order of insertion, as Python's dict has been since 3.7 and templates print it. Keys are
/// distinct by Python's equality. It is no hash table: its buckets would be something that a
/// request's keys could aim at. A dict from a dozen string keys on has their sorted order beside it
/// instead, and small ones are searched from the beginning.
struct Dict : Object {
  std::vector<std::pair<Value, Value>> items;
  std::vector<uint32_t> by_key;  // indices in order of keys, when large and all keys are strings

  /// The value under a key; null when there is none. By binary search where by_key is not empty.
  /// `charged` null: not in a rendering.
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
