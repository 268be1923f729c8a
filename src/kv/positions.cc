// Runs rather than a number a slot: a long text has as many runs as it was shifted or divided in
// places, and forking a sequence copies them. Positions are exact whatever was done before, since
// nothing is rounded twice (PositionRun); llama.cpp keeps a position and the sum of shifts for each
// cell instead.
#include "kv/positions.h"

#include <algorithm>

#include "base/check.h"
#include "base/narrow.h"

namespace weft::kv {
namespace {

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

// Of offsets and divisors: products of them stay far from 64 bits.
constexpr int64_t kMost = int64_t{1} << 30;

}  // namespace

int64_t PositionMap::value(int64_t slot) const {
  if (runs_.empty()) return slot;
  const auto after = std::ranges::upper_bound(runs_, slot, {}, &PositionRun::begin);
  const PositionRun& run = *std::prev(after);
  return floor_div(slot + run.offset, run.divisor);
}

int32_t PositionMap::at(int32_t slot) const {
  WEFT_CHECK(slot >= 0);
  return narrow<int32_t>(value(slot));
}

void PositionMap::split(int32_t slot) {
  if (runs_.empty()) runs_.push_back({});
  const auto after = std::ranges::upper_bound(runs_, slot, {}, &PositionRun::begin);
  PositionRun half = *std::prev(after);
  if (half.begin == slot) return;
  half.begin = slot;
  runs_.insert(after, half);
}

void PositionMap::normalise() {
  const auto same = [](const PositionRun& a, const PositionRun& b) {
    return a.offset == b.offset && a.divisor == b.divisor;
  };
  // A run whose slots have their numbers is written as one that was never changed. Within a run
  // positions ascend by one at most, so its ends tell.
  for (size_t i = 0; i < runs_.size(); ++i) {
    PositionRun& run = runs_[i];
    const bool is_last = i + 1 == runs_.size();
    const int64_t last = is_last ? run.begin : runs_[i + 1].begin - 1;
    if (is_last && run.divisor != 1) continue;
    if (value(run.begin) == run.begin && value(last) == last) run = {.begin = run.begin};
  }
  runs_.erase(std::unique(runs_.begin(), runs_.end(), same), runs_.end());
  if (runs_.size() == 1 && same(runs_.front(), {})) runs_.clear();
}

// Within a run positions ascend, so its borders are all there is to look at.
bool PositionMap::is_ordered(int32_t length) const {
  int64_t before = 0;
  for (size_t i = 0; i < runs_.size() && runs_[i].begin < length; ++i) {
    const PositionRun& run = runs_[i];
    const int32_t end = i + 1 < runs_.size() ? std::min(runs_[i + 1].begin, length) : length;
    if (run.divisor > kMost || run.offset > kMost * kMost || run.offset < -kMost * kMost) {
      return false;
    }
    if (value(run.begin) < before) return false;
    before = value(end - 1);
  }
  return before <= INT32_MAX;
}

bool PositionMap::can_shift(int32_t begin, int32_t end, int64_t delta, int32_t length) const {
  if (delta > INT32_MAX || delta < -INT32_MAX) return false;
  PositionMap shifted = *this;
  shifted.shift(begin, end, delta, length);
  return shifted.is_ordered(length);
}

bool PositionMap::can_divide(int32_t begin, int32_t end, int64_t divisor, int32_t length) const {
  if (divisor <= 0 || divisor > kMost) return false;
  PositionMap divided = *this;
  divided.divide(begin, end, divisor, length);
  return divided.is_ordered(length);
}

void PositionMap::shift(int32_t begin, int32_t end, int64_t delta, int32_t length) {
  if (begin == end) return;
  split(begin);
  split(end);
  for (PositionRun& run : runs_) {
    if (run.begin >= begin && run.begin < end) run.offset += delta * run.divisor;
  }
  cut(length);
}

void PositionMap::divide(int32_t begin, int32_t end, int64_t divisor, int32_t length) {
  if (begin == end) return;
  split(begin);
  split(end);
  for (PositionRun& run : runs_) {
    if (run.begin >= begin && run.begin < end) run.divisor *= divisor;
  }
  cut(length);
}

void PositionMap::remove(int32_t begin, int32_t end, int32_t length) {
  if (begin == end) return;
  if (end == length) return cut(begin);
  const int64_t delta = value(begin) - value(end);
  const int32_t gap = end - begin;
  split(begin);
  split(end);
  std::erase_if(runs_,
                [&](const PositionRun& run) { return run.begin >= begin && run.begin < end; });
  for (PositionRun& run : runs_) {
    if (run.begin < end) continue;
    run.begin -= gap;
    run.offset += gap + delta * run.divisor;
  }
  cut(length - gap);
}

// What comes next goes on by one from the last token, whatever was done to that one.
void PositionMap::cut(int32_t length) {
  std::erase_if(runs_, [&](const PositionRun& run) { return run.begin >= length; });
  if (!runs_.empty()) {
    const int64_t next = value(length - 1) + 1;
    runs_.push_back({.begin = length, .offset = next - length, .divisor = 1});
  }
  normalise();
}

}  // namespace weft::kv
