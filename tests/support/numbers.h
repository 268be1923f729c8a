// Numbers that tests compute with and compare: random ones, buffers with guards around them, equal
// bits, relative errors.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace weft::test {

/// Normally distributed around 0.
std::vector<float> random_floats(size_t n, uint32_t seed, float deviation = 1.0f);

/// n token ids below n_vocab.
std::vector<int32_t> random_ids(int n, int32_t n_vocab, uint32_t seed);

/// Norm of a - b over the norm of a; they are of one size, else the test fails.
double relative_error(std::span<const float> a, std::span<const float> b);

/// n elements between two rows of guard elements, which check() finds unchanged.
template <class T>
class Guarded {
 public:
  explicit Guarded(size_t n, T guard) : guard_(guard), memory_(n + 2 * kGuards, guard), n_(n) {}
  Guarded(const std::vector<T>& values, T guard) : Guarded(values.size(), guard) {
    std::copy(values.begin(), values.end(), data());
  }
  T* data() { return memory_.data() + kGuards; }
  size_t size() const { return n_; }
  std::vector<T> values() const {
    const auto first = memory_.begin() + kGuards;
    return {first, first + std::ssize(*this)};
  }
  void check() const {
    for (size_t i = 0; i < kGuards; ++i) {
      ASSERT_EQ(memory_[i], guard_) << "written " << kGuards - i << " before";
      ASSERT_EQ(memory_[kGuards + n_ + i], guard_) << "written " << i << " after";
    }
  }

 private:
  static constexpr size_t kGuards = 32;
  T guard_;
  std::vector<T> memory_;
  size_t n_;
};

/// Bit for bit, so that NaN equals itself and -0 does not equal 0.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace weft::test
