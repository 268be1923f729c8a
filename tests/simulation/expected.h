// The model: what must be in a store, may be, or must not be, after what was acknowledged. Plain
// maps; it looks at no file and knows nothing of how a store is made.
#pragma once

#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"

namespace weft::sim {

/// A document that is not there.
inline constexpr std::string_view kAbsent = "";

struct Expected {
  /// The user's folder as it is now: path to content.
  std::map<std::string, std::string> sources;
  /// Every content that ever was a source's, by its hash.
  std::map<std::string, std::string> contents;
  /// What the index may have of each path: hashes of contents, or kAbsent. One value where it was
  /// acknowledged.
  std::map<std::string, std::set<std::string>> in_index;
  /// Documents whose KV is all stored, as the index must know.
  std::set<std::string> marked;
  /// Which model the store may be settled for; kUnsettled among them: none.
  std::set<int> settled{kUnsettled};
  static constexpr int kUnsettled = -1;

  /// Records that must be there; must not be; were ever damaged by the simulation (one that was
  /// found so and removed may come back with the next power cut).
  std::set<Hash128> stored;
  std::set<Hash128> removed;
  std::set<Hash128> damaged;

  void write_source(const std::string& path, const std::string& content);
  void remove_source(const std::string& path) { sources.erase(path); }
  /// The hash that the index has of a source now; kAbsent where there is none.
  std::string source_hash(const std::string& path) const;
  /// All paths that are or may be documents, under `root`.
  std::vector<std::string> paths_under(const std::string& root) const;

  /// An ingest of `root` was acknowledged, or it may have done any part of it.
  void ingested(const std::string& root);
  /// A new file under `root` may have taken over a document elsewhere with the same content, whose
  /// own file is gone.
  void may_be_taken_over(const std::string& root);
  void maybe_ingested(const std::string& root);
  void settled_by(int model, bool is_sure);

  bool may_hold(const std::string& path, const std::string& hash) const;
  /// Contents that must be in the index under some path.
  std::vector<std::string> sure_contents() const;
};

/// A content and its mark, a word that only it and its copies have.
std::string make_content(std::mt19937_64& random, int number);
std::string mark_of(const std::string& content);

}  // namespace weft::sim
