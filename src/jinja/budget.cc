// The limits' messages, and comparisons that charge what they look at. Messages say the limit in
// its unit, so that whoever set it knows which field of Limits it is.
//
// The exceptions are thrown by value and caught at the room's border (template.cc, json_parse.cc).
// Every function between may be unwound at any charge, so what must be undone is undone by
// destructors: the interpreter's scopes, its output, its depth.
#include <algorithm>
#include <utility>

#include "jinja/budget_internal.h"

namespace weft::jinja {
namespace {

constexpr int64_t kMaxSteps = INT64_MAX / 128;  // so that 64ths of them can be counted

}  // namespace

void fail(std::string message) { throw Failure{{std::move(message), {}}}; }

void fail_at(Position position, std::string message) {
  throw Failure{{std::move(message), position}};
}

void fail_limit(std::string message) { throw Failure{{std::move(message), {}, /*at_limit=*/true}}; }

Budget::Budget(const Limits& limits)
    : limits_(limits), left_(std::min(limits.steps, kMaxSteps) * kStep) {}

void Budget::fail_steps() const {
  fail_limit("the template does more than " + std::to_string(limits_.steps) + " steps");
}

void Budget::fail_live() {
  fail_limit("the template's values take more than " + std::to_string(limits_.live_bytes) +
             " bytes");
}

void Budget::check_string(int64_t n_bytes) const {
  if (std::cmp_greater(n_bytes, limits_.string_bytes)) {
    fail_limit("a string would be longer than " + std::to_string(limits_.string_bytes) + " bytes");
  }
}

void Budget::check_items(int64_t n_items) const {
  if (std::cmp_greater(n_items, limits_.collection_items)) {
    fail_limit("a list would have more than " + std::to_string(limits_.collection_items) +
               " items");
  }
}

// Texts of different lengths are told apart without looking at them, so they cost nothing.
bool same_text(std::string_view a, std::string_view b, Budget* budget) {
  if (a.size() != b.size()) return false;
  if (budget != nullptr) budget->work(a.size());
  return a == b;
}

// Charged for the shorter of the two, though the first difference may come soon: how far a
// comparison gets is what a hostile key decides.
int compare_text(std::string_view a, std::string_view b, Budget* budget) {
  if (budget != nullptr) budget->work(std::min(a.size(), b.size()));
  return a.compare(b);
}

bool begins_with(std::string_view text, std::string_view prefix, Budget* budget) {
  return text.size() >= prefix.size() && same_text(text.substr(0, prefix.size()), prefix, budget);
}

bool ends_with(std::string_view text, std::string_view suffix, Budget* budget) {
  return text.size() >= suffix.size() &&
         same_text(text.substr(text.size() - suffix.size()), suffix, budget);
}

}  // namespace weft::jinja
