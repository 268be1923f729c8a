// Layer i + 1 is read from the disk, or copied out of the memory tier, while layer i is computed:
// two slots, one thread that loads, and the caller that computes. next() hands out a slot and takes
// back the one before it, so no byte is overwritten while somebody reads it. More slots gain
// nothing: where loading is slower than computing, every layer waits for it all the same.
#include "fusion/load_pipeline.h"

namespace weft::fusion {

LoadPipeline::LoadPipeline(std::span<ChunkSource> sources, int32_t first_layer, int32_t n_layers)
    : sources_(sources),
      n_layers_(n_layers),
      loaded_(first_layer),
      released_(first_layer),
      taken_(first_layer) {
  for (Slot& slot : slots_) {
    slot.scratch.resize(sources.size());
    slot.chunk_bytes.resize(sources.size());
  }
}

Result<std::unique_ptr<LoadPipeline>> LoadPipeline::start(std::span<ChunkSource> sources,
                                                          int32_t first_layer, int32_t n_layers) {
  std::unique_ptr<LoadPipeline> pipeline(new LoadPipeline(sources, first_layer, n_layers));
  WEFT_ASSIGN_OR_RETURN(pipeline->thread_,
                        Thread::start("the thread that loads chunks ahead",
                                      [self = pipeline.get()] { self->load_all(); }));
  return pipeline;
}

LoadPipeline::~LoadPipeline() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.reset();
}

void LoadPipeline::load_all() {
  try {
    load_layers();
  } catch (...) {  // whoever waits for the layer throws it again
    {
      std::lock_guard lock(mutex_);
      failed_ = true;
      thrown_ = std::current_exception();
    }
    changed_.notify_all();
  }
}

void LoadPipeline::load_layers() {
  for (int32_t layer = loaded_; layer < n_layers_; ++layer) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || layer < released_ + kSlots; });
      if (stop_) return;
    }
    const bool ok = load_into(slots_[layer % kSlots], layer);
    {
      std::lock_guard lock(mutex_);
      if (ok) {
        loaded_ = layer + 1;
      } else {
        failed_ = true;
      }
    }
    changed_.notify_all();
    if (!ok) return;
  }
}

// A record that fails ends the loading: the chunk is computed anew, and the pass begins again.
bool LoadPipeline::load_into(Slot& slot, int32_t layer) {
  for (size_t chunk = 0; chunk < sources_.size(); ++chunk) {
    auto bytes = sources_[chunk].load_layer(layer, slot.scratch[chunk]);
    if (!bytes.is_ok()) {
      failure_ = {chunk, bytes.status()};
      return false;
    }
    slot.chunk_bytes[chunk] = *bytes;
  }
  return true;
}

std::span<const std::span<const std::byte>> LoadPipeline::next() {
  std::unique_lock lock(mutex_);
  released_ = taken_;
  changed_.notify_all();
  const int32_t layer = taken_;
  changed_.wait(lock, [&] { return failed_ || loaded_ > layer; });
  if (loaded_ <= layer && thrown_ != nullptr) std::rethrow_exception(thrown_);
  if (loaded_ <= layer) return {};
  taken_ = layer + 1;
  return slots_[layer % kSlots].chunk_bytes;
}

}  // namespace weft::fusion
