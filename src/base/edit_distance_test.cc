#include "base/edit_distance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace weft {
namespace {

/// The definition, by recursion.
size_t slow_distance(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return a.size() + b.size();
  const std::string_view a1 = a.substr(1), b1 = b.substr(1);
  size_t least = std::min(slow_distance(a1, b) + 1, slow_distance(a, b1) + 1);
  least = std::min(least, slow_distance(a1, b1) + (a[0] == b[0] ? 0 : 1));
  if (a.size() > 1 && b.size() > 1 && a[0] == b[1] && a[1] == b[0]) {
    least = std::min(least, slow_distance(a.substr(2), b.substr(2)) + 1);
  }
  return least;
}

TEST(EditDistance, EqualsItsDefinition) {
  std::mt19937 random(3);
  const auto word = [&] {
    std::string text(random() % 6, ' ');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int i = 0; i < 300; ++i) {
    const std::string a = word(), b = word();
    EXPECT_EQ(edit_distance(a, b), slow_distance(a, b)) << a << " " << b;
  }
}

}  // namespace
}  // namespace weft
