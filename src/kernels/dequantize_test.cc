#include "kernels/dequantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/ref/dequantize.h"
#include "support/instruction_sets.h"
#include "support/random_weights.h"

namespace weft::kernels {
namespace {

using test::kAllTypes;
using test::machine_isas;
using test::random_weights;

std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

struct Golden {
  std::string name;
  std::vector<uint8_t> bytes;
  std::vector<uint32_t> bits;
};

std::vector<Golden> read_golden() {
  std::ifstream file(WEFT_SOURCE_DIR "/src/kernels/testdata/dequantize.txt");
  std::vector<Golden> all;
  for (std::string name, hex, values; std::getline(file, name);) {
    std::getline(file, hex);
    std::getline(file, values);
    Golden golden{name, {}, {}};
    for (size_t i = 0; i + 1 < hex.size(); i += 2) {
      golden.bytes.push_back(std::stoul(hex.substr(i, 2), nullptr, 16));
    }
    std::istringstream stream(values);
    for (std::string word; stream >> word;) {
      golden.bits.push_back(std::stoul(word, nullptr, 16));
    }
    all.push_back(std::move(golden));
  }
  return all;
}

TEST(Dequantize, EqualsTheGgufPackageOnEverySet) {
  const std::vector<Golden> all = read_golden();
  ASSERT_EQ(all.size(), kAllTypes.size());
  for (const Golden& golden : all) {
    const DTypeInfo* info = find_dtype(golden.name);
    ASSERT_NE(info, nullptr) << golden.name;
    std::vector<float> values(golden.bits.size());
    const auto n = std::ssize(values);
    ref::dequantize(info->dtype, golden.bytes.data(), values.data(), n);
    EXPECT_EQ(bits_of(values), golden.bits) << golden.name << " ref";
    for (const Isa isa : machine_isas()) {
      std::fill(values.begin(), values.end(), -7.0f);
      dequantize(isa, info->dtype, golden.bytes.data(), values.data(), n);
      EXPECT_EQ(bits_of(values), golden.bits) << golden.name << " " << isa_name(isa);
    }
  }
}

TEST(Dequantize, EqualsItsTwinAtAnyAddressAndWritesNothingElse) {
  std::mt19937 random(11);
  for (const DType dtype : kAllTypes) {
    const DTypeInfo& info = dtype_info(dtype);
    for (const int blocks : {0, 1, 2, 3, 17, 33}) {
      const int64_t n = int64_t{blocks} * info.block_elements;
      const std::vector<uint8_t> bytes = random_weights(random, dtype, 1, n);
      std::vector<float> want(n);
      ref::dequantize(dtype, bytes.data(), want.data(), n);
      for (const Isa isa : machine_isas()) {
        for (const size_t offset : {0u, 1u}) {
          std::vector<uint8_t> moved(bytes.size() + offset);
          std::copy(bytes.begin(), bytes.end(), moved.begin() + offset);
          std::vector<float> got(n + 2, 12345.0f);
          dequantize(isa, dtype, moved.data() + offset, got.data() + 1, n);
          EXPECT_EQ(got.front(), 12345.0f);
          EXPECT_EQ(got.back(), 12345.0f);
          const std::vector<float> inner(got.begin() + 1, got.end() - 1);
          EXPECT_EQ(bits_of(inner), bits_of(want)) << info.name << " " << isa_name(isa);
        }
      }
    }
  }
}

TEST(Dequantize, EveryFiniteHalfIsExact) {
  std::vector<uint16_t> halves;
  for (uint32_t h = 0; h < 0x10000; ++h) {
    if ((h & 0x7fff) <= 0x7c00) halves.push_back(h);  // no NaN
  }
  const auto n = std::ssize(halves);
  std::vector<float> want(halves.size()), got(halves.size());
  ref::dequantize(DType::kF16, halves.data(), want.data(), n);
  for (const Isa isa : machine_isas()) {
    dequantize(isa, DType::kF16, halves.data(), got.data(), n);
    EXPECT_EQ(bits_of(got), bits_of(want)) << isa_name(isa);
  }
}

}  // namespace
}  // namespace weft::kernels
