// Loads the chunks' layers ahead of the computation: one thread reads layer after layer for all
// chunks, a few layers ahead of the one in use.
#pragma once

#include <array>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/env.h"
#include "base/thread.h"
#include "fusion/chunk_source.h"

namespace weft::fusion {

/// A layer that could not be loaded, and whose chunk has to be planned as a miss.
struct LoadFailure {
  size_t chunk = 0;
  Status status;
};

/// One consumer thread. Layers are asked for in order, each once.
class LoadPipeline {
 public:
  /// `sources` must outlive the pipeline; layers [first_layer, n_layers) are loaded.
  /// kResourceExhausted when the machine refuses the thread.
  static Result<std::unique_ptr<LoadPipeline>> start(std::span<ChunkSource> sources,
                                                     int32_t first_layer, int32_t n_layers);
  /// Stops reading ahead and waits for the thread.
  ~LoadPipeline();
  LoadPipeline(const LoadPipeline&) = delete;
  LoadPipeline& operator=(const LoadPipeline&) = delete;

  /// Waits for the next layer; each chunk's bytes stay valid until the next call. After a failure
  /// (see failure()) it returns an empty span. What loading threw (a machine out of memory) is
  /// thrown here.
  std::span<const std::span<const std::byte>> next();
  const LoadFailure& failure() const { return failure_; }

  static constexpr int32_t kSlots = 4;  // layers in memory at a time: one in use, three ahead

 private:
  LoadPipeline(std::span<ChunkSource> sources, int32_t first_layer, int32_t n_layers);

  struct Slot {
    std::vector<store::AlignedBytes> scratch;  // a chunk's
    std::vector<std::span<const std::byte>> chunk_bytes;
  };

  void load_all();
  void load_layers();
  bool load_into(Slot& slot, int32_t layer);

  std::span<ChunkSource> sources_;
  const int32_t n_layers_;
  std::array<Slot, kSlots> slots_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int32_t loaded_;    // layers below are loaded
  int32_t released_;  // layers below are no longer in use
  int32_t taken_;     // layers below were given to the consumer
  bool stop_ = false;
  bool failed_ = false;
  LoadFailure failure_;
  std::exception_ptr thrown_;
  std::optional<Thread> thread_;
};

}  // namespace weft::fusion
