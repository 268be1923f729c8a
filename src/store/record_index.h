// What a chunk store knows about its records without reading them: sizes, last use, memory copies,
// and who may be evicted. Plain bookkeeping: touches no file. Not thread-safe; the chunk store
// guards it. An entry is pinned while anybody but the index holds a pointer to it.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "store/aligned_bytes.h"
#include "store/record.h"

namespace weft::store {

/// A record in memory, every layer verified; immutable once it is in the index.
struct MemoryCopy {
  RecordInfo info;
  std::vector<std::byte> identity;
  AlignedBytes bytes;         // [n_layers][layer_stride]
  uint64_t layer_stride = 0;  // at least layer_bytes

  std::span<std::byte> layer(uint32_t i) {
    return bytes.span().subspan(i * layer_stride, info.layer_bytes);
  }
  std::span<const std::byte> layer(uint32_t i) const {
    return bytes.span().subspan(i * layer_stride, info.layer_bytes);
  }
};

struct IndexEntry {
  Hash128 hash;
  uint64_t file_bytes = 0;                 // 0: not on disk
  int64_t last_use_ns = 0;                 // since the Unix epoch
  std::shared_ptr<const MemoryCopy> copy;  // null: not in memory
};
using IndexPin = std::shared_ptr<IndexEntry>;

class RecordIndex {
 public:
  struct Totals {
    uint64_t records = 0;
    uint64_t bytes = 0;
  };

  /// Null when there is no such entry.
  IndexPin find(const Hash128& hash) const;
  /// The entry, made when missing.
  IndexPin get(const Hash128& hash);
  bool holds(const IndexPin& entry) const { return find(entry->hash) == entry; }

  /// 0 takes the record off the disk tier; an entry in neither tier leaves the index.
  void set_file(const IndexPin& entry, uint64_t file_bytes);
  /// Null takes the record out of memory.
  void set_copy(const IndexPin& entry, std::shared_ptr<const MemoryCopy> copy);
  void set_last_use(const IndexPin& entry, int64_t last_use_ns);

  Totals disk() const { return {disk_order_.size(), disk_bytes_}; }
  Totals memory() const { return {memory_order_.size(), memory_bytes_}; }

  /// The least recently used unpinned entries of a tier that together free at least `bytes`;
  /// empty when all of them would not do.
  std::vector<IndexPin> disk_victims(uint64_t bytes) const;
  std::vector<IndexPin> memory_victims(uint64_t bytes) const;
  /// Those whose last use is later than `time_ns`, oldest use first.
  std::vector<IndexPin> used_after(int64_t time_ns) const;
  /// All entries, oldest use first.
  std::vector<IndexPin> by_last_use() const;

 private:
  struct Hasher {
    size_t operator()(const Hash128& hash) const { return hash.low; }
  };
  using Order = std::set<std::pair<int64_t, Hash128>>;  // by last use

  template <class BytesOf>
  std::vector<IndexPin> victims(const Order& order, uint64_t bytes, BytesOf bytes_of) const;
  void forget_if_empty(const IndexPin& entry);

  std::unordered_map<Hash128, IndexPin, Hasher> entries_;
  Order disk_order_;
  Order memory_order_;
  uint64_t disk_bytes_ = 0;
  uint64_t memory_bytes_ = 0;
};

}  // namespace weft::store
