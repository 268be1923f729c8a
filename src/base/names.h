// The values of an enumeration by name. What parses a value, prints it, lists it in a help or an
// error reads one table, so that a new value is a line in it.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace weft {

/// "none, prefix, full or blend"
inline std::string listed(std::span<const std::string> words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    const char* joint = i == 0 ? "" : i + 1 == words.size() ? " or " : ", ";
    text += joint + words[i];
  }
  return text;
}

template <class E>
struct Named {
  E value;
  const char* name;
  const char* help = "";  // of a flag's value, after its name; "": the name says it
};
// clang before 17 deduces nothing of an aggregate by itself (the fuzzers are its).
template <class E>
Named(E, const char*) -> Named<E>;
template <class E>
Named(E, const char*, const char*) -> Named<E>;

/// Every value of E once. constexpr; thread-safe.
template <class E, size_t N>
class Names {
 public:
  constexpr explicit Names(const Named<E> (&all)[N]) {
    for (size_t i = 0; i < N; ++i) all_[i] = all[i];
  }

  constexpr auto begin() const { return all_.begin(); }
  constexpr auto end() const { return all_.end(); }

  constexpr const char* name(E value) const {
    for (const Named<E>& one : all_) {
      if (one.value == value) return one.name;
    }
    WEFT_CHECK(false);
    return "";
  }
  constexpr std::optional<E> find(std::string_view name) const {
    for (const Named<E>& one : all_) {
      if (name == one.name) return one.value;
    }
    return std::nullopt;
  }

  std::vector<E> values() const {
    std::vector<E> out;
    for (const Named<E>& one : all_) out.push_back(one.value);
    return out;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const Named<E>& one : all_) out.emplace_back(one.name);
    return out;
  }
  /// "none, prefix, full or blend"
  std::string listed() const { return weft::listed(names()); }
  /// "none; prefix: what a prefix cache would have; …"
  std::string explained() const {
    std::string text;
    for (const Named<E>& one : all_) {
      text += (text.empty() ? "" : "; ") + std::string(one.name);
      if (*one.help != '\0') text += std::string(": ") + one.help;
    }
    return text;
  }

 private:
  std::array<Named<E>, N> all_{};
};

}  // namespace weft
