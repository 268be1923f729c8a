// A sequence of the cache as a file (docs/formats/session.md): token ids, what made each slot, and
// K and V of every layer with their types, beside two strings of bytes that it does not look into:
// what the KV depends on (identity) and what else a session is (state). A file is hostile until
// SessionReader has opened it, which checks all of it before anything of it is used.
// Free functions and readers over different files: thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/function_ref.h"
#include "base/status.h"
#include "kv/cache.h"

namespace weft::kv {

inline constexpr uint32_t kSessionVersion = 2;
/// Limits of every session file, written or read.
inline constexpr int32_t kMaxSessionTokens = 1 << 24;
inline constexpr int32_t kMaxSessionLayers = 4096;
inline constexpr uint32_t kMaxSessionIdentityBytes = 1u << 20;
inline constexpr uint64_t kMaxSessionStateBytes = uint64_t{64} << 20;

/// What a file has of one content and no other one has: its size, its first checksum, and its last
/// one, which depends on every byte before it.
struct SessionStamp {
  uint64_t size_bytes = 0;
  uint64_t first = 0;
  uint64_t last = 0;
  bool operator==(const SessionStamp&) const = default;
};
/// Reads 24 bytes of the file and checks nothing; kCorrupt for a file too short for them.
Result<SessionStamp> read_session_stamp(const ReadFile& file);

/// Whether the file begins as a session does.
bool is_session_file(const ReadFile& file);

struct SessionContent {
  std::span<const int32_t> tokens;      // those of the slots, in order, and at most one more
  int32_t n_slots = 0;                  // of the sequence's start; at most its length
  std::span<const std::byte> identity;  // 1 to kMaxSessionIdentityBytes
  std::span<const std::byte> state;     // at most kMaxSessionStateBytes
};
/// Hands the file's bytes to `append`, from its beginning to its end; its first error ends it.
/// kInvalidArgument for a content over a limit. Returns the stamp of what was written.
Result<SessionStamp> write_session(Cache& cache, SequenceId sequence, const SessionContent& content,
                                   FunctionRef<Status(std::span<const std::byte>)> append);

/// What the head says; fields are within their limits, and fit together.
struct SessionHead {
  int32_t n_tokens = 0;
  int32_t n_slots = 0;                // n_tokens, or one less
  kernels::KvLayout layout;           // page_tokens is 0: the file has no pages
  std::vector<int32_t> layer_groups;  // [n_layers]
  std::vector<std::byte> identity;
  uint64_t state_bytes = 0;
  uint64_t header_bytes = 0;
  uint64_t checksum = 0;

  /// K and V of one layer and slot: all KV heads.
  int64_t slot_bytes() const;
  int64_t layer_bytes() const { return n_slots * slot_bytes(); }
};

/// An open session file; what was read at its opening stays in memory, the KV does not.
class SessionReader {
 public:
  /// Reads the whole file and checks every length and every checksum. kCorrupt for damage and for
  /// what is no session, kUnsupported for another version; `name` is put before the message. Takes
  /// memory for tokens, runs, identity and state, which have limits, and none for the layers.
  static Result<SessionReader> open(std::unique_ptr<ReadFile> file, std::string name);

  const std::string& name() const { return name_; }
  const SessionHead& head() const { return head_; }
  uint64_t size_bytes() const { return file_->size_bytes(); }
  std::span<const int32_t> tokens() const { return tokens_; }  // none is negative
  /// What made the slots: covers them all.
  std::span<const SlotRun> kinds() const { return kinds_; }
  std::span<const std::byte> state() const { return state_; }
  const SessionStamp& stamp() const { return stamp_; }

  /// kUnsupported where the cache's layers are not the file's in number, groups, shape or type; the
  /// line names the flags for the types.
  Status check_cache(const Cache& cache) const;
  /// A new sequence with the first n_slots of the file's; check_cache(cache) is ok and n_slots <=
  /// head().n_slots. Each layer is read again and compared with the checksum that it had in open():
  /// a file that was overwritten since, be it with another session that is whole, is kCorrupt.
  /// kResourceExhausted as in Cache::reserve, before anything is read or allocated; after an error
  /// the cache has no sequence more.
  Result<SequenceId> restore(Cache& cache, int32_t n_slots) const;

 private:
  SessionReader(std::unique_ptr<ReadFile> file, std::string name)
      : file_(std::move(file)), name_(std::move(name)) {}
  /// A piece of a block, and where it lies in the block.
  using Piece = void(uint64_t at, std::span<const std::byte> bytes);

  Status read_head();
  Status read_tokens();
  Result<std::vector<std::byte>> read_block(uint64_t at, uint64_t n_bytes, const std::string& what);
  Status check_layers();
  Status check_end_of_block(uint64_t end, uint64_t checksum, const std::string& what);
  Result<uint64_t> hash_layer(int32_t layer, FunctionRef<Piece> on_piece) const;
  uint64_t layer_offset(int32_t layer) const;

  std::unique_ptr<ReadFile> file_;
  std::string name_;
  SessionHead head_;
  std::vector<int32_t> tokens_;
  std::vector<SlotRun> kinds_;
  std::vector<std::byte> state_;
  uint64_t layers_at_ = 0;
  uint64_t last_checksum_ = 0;  // of the chain so far, while open() reads
  // As open() found them: of the block before the layers, then of each layer.
  std::vector<uint64_t> layer_checksums_;
  SessionStamp stamp_;
};

}  // namespace weft::kv
