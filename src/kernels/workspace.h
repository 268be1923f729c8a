// Memory that ops need while they run, kept from one call to the next, so that a layer allocates
// nothing once a step of its size has run. It holds nothing between calls that anyone may rely on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/narrow.h"
#include "tensor/buffer.h"

namespace weft::kernels {

/// What memory is for. Two that one op uses at the same time are two uses; ops run one after the
/// other, so different ops may share one.
enum class Use {
  kActivations,  // an op's input as its kernels take it: packed, quantised
  kActivationResidual,
  kActivationOutlier,
  kActivationScale,
  kActivationSum,
  kActivationGroups,
  kPartials,  // what workers leave for a later region
  kPanel,     // from here on a worker's own
  kSums,
  kColumns,
  kScratch,
};
inline constexpr size_t kUses = to_underlying(Use::kScratch) + 1;

/// One op at a time; a worker may ask for its own while a region runs: each has slots of its own,
/// so no lock is needed. Memory only grows, to what the largest step so far has needed. Throws
/// OutOfMemory as AlignedBuffer does.
class Workspace {
 public:
  explicit Workspace(int n_workers) : of_workers_(n_workers) {}
  int n_workers() const { return narrow<int>(of_workers_.size()); }

  /// n elements at a 64-byte boundary, contents unspecified, until the next call for the same use.
  template <class T>
  T* of_op(Use use, int64_t n) {
    return take<T>(of_op_, use, n);
  }
  template <class T>
  T* of_worker(int worker, Use use, int64_t n) {
    return take<T>(of_workers_[worker], use, n);
  }

  /// What oneDNN's products of `in_features` need, made by `make` when it is first asked for.
  template <class T, class Make>
  T& product_of(int64_t in_features, const Make& make) {
    std::shared_ptr<void>& product = products_[in_features];
    if (product == nullptr) product = std::shared_ptr<T>(make());
    return *static_cast<T*>(product.get());
  }

 private:
  using Slots = std::array<AlignedBuffer<std::byte>, kUses>;

  template <class T>
  static T* take(Slots& slots, Use use, int64_t n) {
    WEFT_CHECK(n >= 0);
    AlignedBuffer<std::byte>& slot = slots[to_underlying(use)];
    const int64_t n_bytes = n * sizeof(T);
    if (n_bytes > slot.size()) {
      slot = AlignedBuffer<std::byte>();  // first: the two are never there together
      slot = AlignedBuffer<std::byte>::uninitialised(n_bytes);
    }
    return reinterpret_cast<T*>(slot.data());
  }

  Slots of_op_;
  std::vector<Slots> of_workers_;
  std::map<int64_t, std::shared_ptr<void>> products_;
};

}  // namespace weft::kernels
