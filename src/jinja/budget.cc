#include "jinja/budget_internal.h"

namespace weft::jinja {

void fail(std::string message) { throw Failure{{std::move(message), {}}}; }

void fail_at(Position position, std::string message) {
  throw Failure{{std::move(message), position}};
}

void Budget::fail_steps() const {
  fail("the template does more than " + std::to_string(limits_.steps) + " steps");
}

void Budget::fail_live() {
  fail("the template's values take more than " + std::to_string(limits_.live_bytes) + " bytes");
}

void Budget::check_string(size_t n_bytes) const {
  if (n_bytes > limits_.string_bytes) {
    fail("a string would be longer than " + std::to_string(limits_.string_bytes) + " bytes");
  }
}

void Budget::check_items(size_t n_items) const {
  if (n_items > limits_.collection_items) {
    fail("a list would have more than " + std::to_string(limits_.collection_items) + " items");
  }
}

}  // namespace weft::jinja
