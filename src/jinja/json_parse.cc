// parse_json, on the events of nlohmann's SAX parser, which checks UTF-8 and syntax and neither
// recurses nor builds anything. The Builder keeps the open arrays and objects on a vector of its
// own, so depth costs memory and not stack; a text of 200,000 opening brackets is refused at the
// limit of nesting.
//
// Values are made as they close, the innermost first, so each container is made once with all its
// items, which merges equal keys (make_dict) and checks its size.
#include <nlohmann/json.hpp>
#include <utility>

#include "jinja/budget_internal.h"
#include "jinja/json.h"

namespace weft::jinja {
namespace {

using Json = nlohmann::json;

/// Builds values from the parser's events, without recursion. A handler that returns false ends the
/// parse; limits end it by a Failure, with a message of their own.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(Origin origin, const Limits& limits) : origin_(origin), limits_(limits) {}

  bool null() override { return put(Value::none(input())); }
  bool boolean(bool b) override { return put(Value::boolean(b, input())); }
  bool number_integer(number_integer_t i) override { return put(Value::integer(i, input())); }
  // Python's integers have no end, ours 64 bits; one that does not fit is refused. The parser gives
  // integers too large for 64 bits as floats, whose digits tell that they were none.
  bool number_unsigned(number_unsigned_t u) override {
    if (std::cmp_greater(u, INT64_MAX)) fail("an integer that does not fit 64 bits");
    return put(Value::integer(u, input()));
  }
  bool number_float(number_float_t d, const string_t& digits) override {
    if (digits.find_first_of(".eE") == std::string::npos) {
      fail("an integer that does not fit 64 bits");
    }
    return put(Value::number(d, input()));
  }
  bool string(string_t& text) override { return put(Value::string(std::move(text), origin_)); }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override { return open(true); }
  bool key(string_t& text) override {
    open_.back().keys.push_back(Value::string(std::move(text), origin_));
    return true;
  }
  // Keys and values were collected in two lists, because a value comes long after its key, with
  // other objects between.
  bool end_object() override {
    Open top = std::move(open_.back());
    open_.pop_back();
    std::vector<std::pair<Value, Value>> items;
    items.reserve(top.keys.size());
    for (size_t i = 0; i < top.keys.size(); ++i) {
      items.emplace_back(std::move(top.keys[i]), std::move(top.values[i]));
    }
    return put(make_dict(std::move(items)));
  }
  bool start_array(size_t) override { return open(false); }
  bool end_array() override {
    std::vector<Value> values = std::move(open_.back().values);
    open_.pop_back();
    return put(make_list(std::move(values)));
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) override {
    error_at_ = at;
    return false;
  }

  Value root;
  size_t error_at() const { return error_at_; }

 private:
  // An array or object that has not been closed yet.
  struct Open {
    bool is_object = false;
    std::vector<Value> keys;
    std::vector<Value> values;
  };

  bool input() const { return origin_ == Origin::kInput; }
  bool open(bool is_object) {
    if (std::ssize(open_) >= limits_.value_depth) {
      fail("nested deeper than " + std::to_string(limits_.value_depth) + " levels");
    }
    open_.emplace_back().is_object = is_object;
    return true;
  }
  // Into the innermost open container, or as the result.
  bool put(Value value) {
    if (open_.empty()) {
      root = std::move(value);
      return true;
    }
    std::vector<Value>& values = open_.back().values;
    values.push_back(std::move(value));
    if (values.size() > limits_.collection_items) {
      fail("a list or object of more than " + std::to_string(limits_.collection_items) + " items");
    }
    return true;
  }

  Origin origin_;
  const Limits& limits_;
  std::vector<Open> open_;
  size_t error_at_ = 0;
};

// Counted only when there is an error. Columns are characters.
Position position_of(std::string_view text, size_t at) {
  Position place{1, 1};
  for (size_t i = 0; i < std::min(at, text.size()); ++i) {
    if (text[i] == '\n') {
      ++place.line;
      place.column = 1;
    } else if ((text[i] & 0xc0) != 0x80) {
      ++place.column;
    }
  }
  return place;
}

}  // namespace

Result<Value> parse_json(std::string_view json, Origin origin, const Limits& limits) {
  Builder builder(origin, limits);
  try {
    if (Json::sax_parse(json, &builder)) return std::move(builder.root);
  } catch (const Failure& failure) {
    return Error{"JSON: " + failure.error.message, {}};
  }
  const size_t at = builder.error_at();
  return Error{"not valid JSON", position_of(json, at == 0 ? 0 : at - 1)};
}

}  // namespace weft::jinja
