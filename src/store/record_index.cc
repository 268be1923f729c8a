// Least recently used first, by one ordered set per tier of (time of last use, hash). The usual
// linked list would not do: times also come from other processes, through the files, and are then
// not the newest, so an entry has to be put anywhere in the order. A set costs O(log n) per use.
// The hash breaks ties between equal times, so that the order is the same in every run.
//
// Pinning needs no count of its own: entries are shared pointers, and one that somebody besides the
// index holds (use_count() > 1) is never chosen for eviction.
#include "store/record_index.h"

#include <algorithm>

namespace weft::store {

IndexPin RecordIndex::find(const Hash128& hash) const {
  const auto it = entries_.find(hash);
  return it == entries_.end() ? nullptr : it->second;
}

IndexPin RecordIndex::get(const Hash128& hash) {
  IndexPin& entry = entries_[hash];
  if (!entry) entry = std::make_shared<IndexEntry>(IndexEntry{.hash = hash});
  return entry;
}

void RecordIndex::set_file(const IndexPin& entry, uint64_t file_bytes) {
  WEFT_DCHECK(holds(entry));
  // What may throw comes first: a file that has bytes but no place in the order would count against
  // the limit and never be evicted.
  if (file_bytes > 0) disk_order_.insert({entry->last_use_ns, entry->hash});
  disk_bytes_ += file_bytes - entry->file_bytes;
  entry->file_bytes = file_bytes;
  if (file_bytes == 0) {
    disk_order_.erase({entry->last_use_ns, entry->hash});
    forget_if_empty(entry);
  }
}

void RecordIndex::set_copy(const IndexPin& entry, std::shared_ptr<const MemoryCopy> copy) {
  WEFT_DCHECK(holds(entry));
  if (copy) memory_order_.insert({entry->last_use_ns, entry->hash});  // may throw, so first
  if (entry->copy) memory_bytes_ -= entry->copy->bytes.size();
  if (copy) memory_bytes_ += copy->bytes.size();
  entry->copy = std::move(copy);
  if (!entry->copy) {
    memory_order_.erase({entry->last_use_ns, entry->hash});
    forget_if_empty(entry);
  }
}

void RecordIndex::set_last_use(const IndexPin& entry, int64_t last_use_ns) {
  const std::pair old_place{entry->last_use_ns, entry->hash};
  entry->last_use_ns = last_use_ns;
  for (Order* order : {&disk_order_, &memory_order_}) {
    auto node = order->extract(old_place);  // reusing the node allocates nothing, so cannot throw
    if (node.empty()) continue;
    node.value().first = last_use_ns;
    order->insert(std::move(node));
  }
}

template <class BytesOf>
std::vector<IndexPin> RecordIndex::victims(const Order& order, uint64_t bytes,
                                           BytesOf bytes_of) const {
  std::vector<IndexPin> chosen;
  uint64_t freed = 0;
  for (const auto& [last_use, hash] : order) {
    const IndexPin& entry = entries_.at(hash);
    if (entry.use_count() > 1) continue;  // pinned
    if (freed >= bytes) break;
    freed += bytes_of(*entry);
    chosen.push_back(entry);
  }
  if (freed < bytes) chosen.clear();
  return chosen;
}

std::vector<IndexPin> RecordIndex::disk_victims(uint64_t bytes) const {
  return victims(disk_order_, bytes, [](const IndexEntry& e) { return e.file_bytes; });
}

std::vector<IndexPin> RecordIndex::memory_victims(uint64_t bytes) const {
  return victims(memory_order_, bytes, [](const IndexEntry& e) { return e.copy->bytes.size(); });
}

std::vector<IndexPin> RecordIndex::used_after(int64_t time_ns) const {
  Order hashes;
  for (const Order* order : {&disk_order_, &memory_order_}) {
    hashes.insert(order->upper_bound({time_ns, Hash128{~0ull, ~0ull}}), order->end());
  }
  std::vector<IndexPin> entries;
  for (const auto& [last_use, hash] : hashes) entries.push_back(find(hash));
  return entries;
}

std::vector<IndexPin> RecordIndex::by_last_use() const {
  std::vector<IndexPin> all;
  all.reserve(entries_.size());
  for (const auto& [hash, entry] : entries_) all.push_back(entry);
  std::sort(all.begin(), all.end(), [](const IndexPin& a, const IndexPin& b) {
    return std::pair(a->last_use_ns, a->hash) < std::pair(b->last_use_ns, b->hash);
  });
  return all;
}

void RecordIndex::forget_if_empty(const IndexPin& entry) {
  if (entry->file_bytes == 0 && !entry->copy) entries_.erase(Hash128(entry->hash));
}

}  // namespace weft::store
