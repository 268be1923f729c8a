// Penalties, top-k, top-p, min-p, then temperature, in llama.cpp's order: the filters see the
// model's own distribution, so that a temperature does not change which tokens may come, only how
// often.
#include "sampling/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/narrow.h"

namespace weft::sampling {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kImpossible = -std::numeric_limits<float>::infinity();

float usable_logit(float logit) {
  if (std::isnan(logit)) return kImpossible;
  return std::min(logit, kLargest);
}

// The n-th number of splitmix64 (Steele, Lea, Flood 2014) as a double in [0, 1). It depends on
// seed and n alone, on every platform.
double uniform(uint64_t seed, uint64_t n) {
  uint64_t x = seed + (n + 1) * 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  x ^= x >> 31;
  return (x >> 11) * 0x1.0p-53;
}

}  // namespace

Status check_options(const SamplingOptions& options) {
  const auto refuse = [](const char* field, float value, const char* range) {
    return invalid_argument(fmt::format("{} {}: must be {}", field, value, range));
  };
  if (!(options.temperature >= 0.0f) || !std::isfinite(options.temperature)) {
    return refuse("temp", options.temperature, "0 (greedy) or more");
  }
  if (options.top_k < 0) {
    return invalid_argument(fmt::format("top-k {}: must be 0 (all) or more", options.top_k));
  }
  if (!(options.top_p > 0.0f && options.top_p <= 1.0f)) {
    return refuse("top-p", options.top_p, "over 0 and at most 1 (all)");
  }
  if (!(options.min_p >= 0.0f && options.min_p <= 1.0f)) {
    return refuse("min-p", options.min_p, "from 0 (all) to 1");
  }
  return check_options(options.penalties);
}

Result<Sampler> Sampler::create(const SamplingOptions& options) {
  WEFT_RETURN_IF_ERROR(check_options(options));
  return Sampler(options);
}

void Sampler::resume(std::span<const int32_t> answer, uint64_t n_draws) {
  for (const int32_t id : answer) penalties_.add(id);
  n_draws_ = n_draws;
}

int32_t Sampler::sample(std::span<const float> logits) {
  if (!penalties_.any()) return choose(logits);
  penalised_.assign(logits.begin(), logits.end());
  penalties_.apply(penalised_);
  const int32_t id = choose(penalised_);
  penalties_.add(id);
  return id;
}

int32_t Sampler::choose(std::span<const float> logits) {
  if (options_.temperature == 0.0f) return greedy_token(logits);
  collect(logits);
  if (candidates_.empty()) return 0;
  keep_top_k();
  keep_top_p();
  keep_min_p();
  return draw();
}

// What cannot come is left out at once, so that no filter counts it.
void Sampler::collect(std::span<const float> logits) {
  WEFT_CHECK(!logits.empty());
  candidates_.clear();
  candidates_.reserve(logits.size());
  for (int32_t id = 0; id < std::ssize(logits); ++id) {
    const float logit = usable_logit(logits[id]);
    if (logit != kImpossible) candidates_.push_back({logit, id});
  }
}

void Sampler::keep_top_k() {
  const int64_t n = std::ssize(candidates_);
  const int64_t k = options_.top_k == 0 ? n : std::min<int64_t>(options_.top_k, n);
  std::partial_sort(candidates_.begin(), candidates_.begin() + k, candidates_.end(),
                    [](const Candidate& a, const Candidate& b) {
                      return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
                    });
  candidates_.resize(k);
}

// The shortest beginning of the ranked candidates whose probability is at least top_p (Holtzman et
// al. 2019); at least one is kept.
void Sampler::keep_top_p() {
  if (options_.top_p >= 1.0f) return;
  const double best = candidates_[0].logit;
  double total = 0.0;
  for (const Candidate& c : candidates_) total += std::exp(c.logit - best);
  const double wanted = options_.top_p * total;
  double sum = 0.0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    sum += std::exp(candidates_[i].logit - best);
    if (sum >= wanted) {
      candidates_.resize(i + 1);
      return;
    }
  }
}

// Those at least min_p times as probable as the best, compared as logits: log min_p below it.
void Sampler::keep_min_p() {
  if (options_.min_p <= 0.0f) return;
  const double least = candidates_[0].logit + std::log(double{options_.min_p});
  const auto end = std::find_if(candidates_.begin() + 1, candidates_.end(),
                                [least](const Candidate& c) { return c.logit < least; });
  candidates_.erase(end, candidates_.end());
}

// By inverting the sums, with a number that the seed and the draw's index alone determine: the same
// seed gives the same text on every machine whose logits are the same.
int32_t Sampler::draw() {
  const double best = candidates_[0].logit;
  const double temperature = options_.temperature;
  const auto weight = [&](const Candidate& c) { return std::exp((c.logit - best) / temperature); };
  double total = 0.0;
  for (const Candidate& c : candidates_) total += weight(c);
  const double target = uniform(options_.seed, n_draws_++) * total;
  double sum = 0.0;
  for (const Candidate& c : candidates_) {
    sum += weight(c);
    if (target < sum) return c.id;
  }
  return candidates_.back().id;
}

int32_t greedy_token(std::span<const float> logits) {
  WEFT_CHECK(!logits.empty());
  // Only runs that hold something larger than all before are looked at one by one: a batch's logits
  // are read by one thread while the others wait.
  constexpr int64_t kRun = 512, kLanes = 16;
  const int64_t n = std::ssize(logits);
  int64_t best = 0;
  float best_logit = kImpossible;
  for (int64_t begin = 0; begin < n; begin += kRun) {
    const int64_t end = std::min(begin + kRun, n);
    if (end == begin + kRun) {
      std::array<float, kLanes> largest;
      largest.fill(best_logit);
      for (int64_t id = begin; id < end; id += kLanes) {
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const float logit = logits[id + lane];
          largest[lane] = logit > largest[lane] ? logit : largest[lane];  // never takes NaN
        }
      }
      if (std::ranges::none_of(largest, [&](float x) { return x > best_logit; })) continue;
    }
    for (int64_t id = begin; id < end; ++id) {
      if (logits[id] > best_logit) {
        best = id;
        best_logit = logits[id];
      }
    }
  }
  return narrow<int32_t>(best);
}

}  // namespace weft::sampling
