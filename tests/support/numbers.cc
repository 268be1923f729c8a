#include "support/numbers.h"

#include <cmath>
#include <random>

namespace weft::test {

std::vector<float> random_floats(size_t n, uint32_t seed, float deviation) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

std::vector<int32_t> random_ids(int n, int32_t n_vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(n));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(n_vocab));
  return ids;
}

double relative_error(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  if (a.size() != b.size()) return 1.0;
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    norm += static_cast<double>(a[i]) * a[i];
  }
  return norm == 0 ? difference : std::sqrt(difference / norm);
}

}  // namespace weft::test
