// Random work on a KV cache of any shape, without a model: every token's K and V are numbers that
// follow from what it is, so that each byte can be compared with what it must be, whatever pages it
// has come to lie on.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "base/narrow.h"
#include "base/status.h"
#include "kv/cache.h"

namespace weft::bench {

/// Of the cache, in f16: by default four layers as a model of 1B has, and contexts for many.
struct KvShape {
  int32_t n_layers = 4;
  int32_t n_kv_heads = 8;
  int32_t head_dim = 64;
  int32_t capacity_tokens = 65'536;  // of all sequences together
};

/// Sequences of up to 2,048 tokens, 96 at most; they begin alike where one was found as the other's
/// prefix or is its fork. The same for the same seed. One thread.
class KvWork {
 public:
  /// What is done, by its name and how often it is drawn.
  static constexpr std::array<std::pair<std::string_view, int>, 7> kOperations = {{{"create", 3},
                                                                                   {"append", 60},
                                                                                   {"fork", 1},
                                                                                   {"remove", 10},
                                                                                   {"truncate", 4},
                                                                                   {"free", 2},
                                                                                   {"publish", 6}}};

  /// kInvalidArgument, kUnsupported or kResourceExhausted for a shape that no cache can have.
  static Result<KvWork> create(const KvShape& shape, uint64_t seed);

  kv::Cache& cache() { return *cache_; }
  int64_t n_sequences() const { return std::ssize(sequences_); }
  /// Of each of kOperations.
  const std::array<int64_t, kOperations.size()>& done() const { return done_; }
  /// Of `done()`'s creates, those that found a prefix; appends and removes without pages for it,
  /// each of which freed a sequence in its place.
  int64_t n_found() const { return n_found_; }
  int64_t n_without_pages() const { return n_without_pages_; }

  /// One random operation. An error is a bug of the cache's.
  Status step();
  /// Whether a random token of a random sequence is what it should be.
  bool looks_right();
  /// Whether all of them are, bit by bit.
  bool is_right();
  /// Frees every other sequence, and what the prefix index alone holds.
  void free_half();

 private:
  struct Token {
    int32_t id = 0;
    uint32_t value = 0;  // what its K and V are made of
  };
  using Tokens = std::vector<Token>;
  using Sequences = std::map<kv::SequenceId, Tokens>;

  explicit KvWork(std::unique_ptr<kv::Cache> cache, uint64_t seed)
      : cache_(std::move(cache)), random_(seed) {}

  int64_t pick(int64_t n) { return narrow<int64_t>(random_() % narrow<uint64_t>(n)); }
  Sequences::iterator any() { return std::next(sequences_.begin(), pick(n_sequences())); }
  Status run(size_t operation);
  void create_one();
  Status append();
  Status fork();
  Status remove();
  Status truncate();
  void free_one();
  void publish();
  /// Status as it is, but for too few pages: then a sequence is freed.
  Status or_free_one(const Status& status);

  template <class Fn>
  void for_vectors(kv::SequenceId id, int32_t slot, uint32_t value, const Fn& fn);
  void write(kv::SequenceId id, int32_t slot, const Token& token);
  bool holds(kv::SequenceId id, int32_t slot, const Token& token);

  std::unique_ptr<kv::Cache> cache_;
  std::mt19937_64 random_;
  Sequences sequences_;
  std::array<int64_t, kOperations.size()> done_{};
  int64_t n_found_ = 0;
  int64_t n_without_pages_ = 0;
};

}  // namespace weft::bench
