// What the KV cache held, in lines: for -v, and for /stats of a chat.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"

namespace weft::cli {

/// A line for each group of layers, as
/// "KV cache  14 of 768 pages used (5.2 MB), 3 shared by several, 754 free; 9 of 224 slots without
/// a token (4.0 %)".
std::vector<std::string> kv_lines(const std::vector<engine::GroupUse>& groups);

/// The fullest that a cache has been.
class FullestKv {
 public:
  void see(const std::vector<engine::GroupUse>& groups);
  /// Empty: nothing was ever in it.
  const std::vector<engine::GroupUse>& groups() const { return groups_; }
  void clear() { groups_.clear(); }

 private:
  std::vector<engine::GroupUse> groups_;
};

}  // namespace weft::cli
