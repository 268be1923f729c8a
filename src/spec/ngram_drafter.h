// Prompt lookup (Saxena 2023): answers quote what they are asked about, so what followed the newest
// tokens where they were before is likely to follow them again.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "spec/drafter.h"

namespace weft::spec {

class NgramDrafter : public Drafter {
 public:
  /// Of these lengths n-grams are looked up, the longest first.
  static constexpr int32_t kShortest = 2, kLongest = 5;

  void add(std::span<const int32_t> tokens) override;
  /// The length of the newest n-gram that was there before, less one.
  int32_t evidence() override;
  /// What followed it when it was there last; past the end of the text, what is drafted goes on
  /// from there, as in a line of dashes.
  Result<std::vector<int32_t>> draft(int32_t n) override;

 private:
  struct Match {
    int32_t length = 0;  // 0: none
    int32_t end = 0;     // where what followed begins
  };
  Match find() const;

  std::vector<int32_t> tokens_;
  /// Of the n-grams of each length that something follows: where they end last, by a hash.
  std::array<std::unordered_map<uint64_t, int32_t>, kLongest + 1> ends_;
};

}  // namespace weft::spec
