// As chunk records do it (store/record.cc): the head says how long the file must be, and the file's
// real size is compared with that before anything is allocated by a length from the file. There is
// no padding, so every byte is under a checksum and any change of one is refused.
//
// Checksums form a chain: a block's is computed with the one before it as the seed, the first
// block's with the head's. So a block of another session, or of another place in this one, does not
// pass, though it was whole where it came from; and the last one stands for the whole file. A table
// in the head, as records have it, would do the same, but has to be known before the first block is
// written, which for K and V means to gather all of them from their pages twice.
//
// Opening reads the file once without keeping K and V, restoring reads it again, layer by layer: a
// session of 8,192 tokens of a 1B model is 1 GB, and must not lie in memory twice. What was read in
// pieces, or twice, may have been overwritten in between (`cp other session` does it in place), and
// with another session that is whole in itself. So no checksum is taken from the file to begin with
// but the head's: the chain goes on from what was computed, and each layer's checksum is kept for
// the second reading. Layers are read in pieces of a megabyte, as only the file says how long they
// are: 4 KB of a sparse file can be a layer of gigabytes.
// `weft inspect` of a session of 42 MB (1,814 slots of SmolLM2), whole and compared, takes 23 ms on
// an AMD EPYC, from the page cache.
#include "kv/session_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/ascii.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/narrow.h"
#include "kernels/kv_codec.h"
#include "kv/byte_fields.h"

namespace weft::kv {
namespace {

// The \r\n shows a transfer as text, as in a record's magic.
constexpr std::array<char, 8> kMagic = {'W', 'E', 'F', 'T', 'S', 'E', '\r', '\n'};
constexpr uint64_t kChecksumBytes = 8;
constexpr uint64_t kVersionAt = 16;
constexpr uint64_t kFixedBytes = 76;
constexpr uint32_t kMaxKvHeads = 4096;
constexpr uint64_t kRunBytes = 8;
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;  // of a layer, read at once

/// The first kFixedBytes, but for magic and checksum, as they are in the file.
struct Fields {
  uint32_t version = kSessionVersion;
  uint32_t header_bytes = 0;
  uint64_t file_bytes = 0;
  uint32_t n_layers = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t k_type = 0;
  uint32_t v_type = 0;
  uint32_t n_tokens = 0;
  uint32_t n_slots = 0;
  uint32_t n_runs = 0;
  uint64_t state_bytes = 0;
  uint32_t identity_bytes = 0;
};

/// One list for both directions.
template <class F, class Fn>
void for_each_field(F& f, const Fn& fn) {
  fn(f.version);
  fn(f.header_bytes);
  fn(f.file_bytes);
  fn(f.n_layers);
  fn(f.n_kv_heads);
  fn(f.head_dim);
  fn(f.k_type);
  fn(f.v_type);
  fn(f.n_tokens);
  fn(f.n_slots);
  fn(f.n_runs);
  fn(f.state_bytes);
  fn(f.identity_bytes);
}

/// "f16": as the flags have it.
std::string type_name(DType type) { return ascii_lower(dtype_info(type).name); }

std::string types_text(const kernels::KvLayout& layout) {
  return fmt::format("K {} and V {}", type_name(layout.k_type), type_name(layout.v_type));
}

/// A type that weft reads, of whole blocks in a head.
bool fits_head(uint32_t type, uint32_t head_dim) {
  const DTypeInfo* info = find_dtype(type);
  return info != nullptr && head_dim % narrow<uint32_t>(info->block_elements) == 0;
}

/// The limits that both writer and reader keep; they bound every sum and product below far under
/// 2^63.
Status check_limits(std::string_view what, const Fields& f, StatusCode code) {
  struct Limit {
    const char* field;
    uint64_t value, least, most;
  };
  const Limit limits[] = {
      {"n_layers", f.n_layers, 1, uint64_t{kMaxSessionLayers}},
      {"n_kv_heads", f.n_kv_heads, 1, kMaxKvHeads},
      {"head_dim", f.head_dim, 1, uint64_t{kernels::kMaxHeadDim}},
      {"n_tokens", f.n_tokens, 0, uint64_t{kMaxSessionTokens}},
      {"n_slots", f.n_slots, std::max<uint64_t>(f.n_tokens, 1) - 1, f.n_tokens},
      {"n_runs", f.n_runs, f.n_slots == 0 ? 0u : 1u, f.n_slots},
      {"state_bytes", f.state_bytes, 0, kMaxSessionStateBytes},
      {"identity_bytes", f.identity_bytes, 1, kMaxSessionIdentityBytes},
  };
  for (const Limit& l : limits) {
    if (l.value >= l.least && l.value <= l.most) continue;
    return {code,
            fmt::format("{}: {} is {}, must be {} to {}", what, l.field, l.value, l.least, l.most)};
  }
  for (const uint32_t type : {f.k_type, f.v_type}) {
    if (fits_head(type, f.head_dim)) continue;
    return {code, fmt::format("{}: K or V of type {} with heads of {}: there is no such type here",
                              what, type, f.head_dim)};
  }
  return Status::ok();
}

uint64_t token_block_bytes(const Fields& f) {
  return sizeof(int32_t) * uint64_t{f.n_tokens} + kRunBytes * f.n_runs;
}

uint64_t header_bytes_of(const Fields& f) {
  return kFixedBytes + sizeof(uint32_t) * uint64_t{f.n_layers} + f.identity_bytes;
}

uint64_t file_bytes_of(const Fields& f, uint64_t layer_bytes) {
  return header_bytes_of(f) + token_block_bytes(f) + kChecksumBytes + f.state_bytes +
         kChecksumBytes + f.n_layers * (layer_bytes + kChecksumBytes);
}

SessionHead head_of(const Fields& f) {
  SessionHead head;
  head.n_tokens = narrow<int32_t>(f.n_tokens);
  head.n_slots = narrow<int32_t>(f.n_slots);
  head.layout = {.k_type = DType{f.k_type},
                 .v_type = DType{f.v_type},
                 .head_dim = narrow<int32_t>(f.head_dim),
                 .n_kv_heads = narrow<int32_t>(f.n_kv_heads)};
  head.state_bytes = f.state_bytes;
  head.header_bytes = header_bytes_of(f);
  return head;
}

std::vector<int32_t> groups_of(const Cache& cache) {
  std::vector<int32_t> groups;
  for (int32_t layer = 0; layer < cache.n_layers(); ++layer) {
    groups.push_back(cache.group_of(layer));
  }
  return groups;
}

/// The runs of the sequence's first n_slots.
std::vector<SlotRun> runs_of(std::span<const SlotRun> kinds, int32_t n_slots) {
  std::vector<SlotRun> runs;
  for (const SlotRun& run : kinds) {
    const int32_t begin = runs.empty() ? 0 : runs.back().end;
    if (begin < n_slots) runs.push_back({std::min(run.end, n_slots), run.kind});
  }
  return runs;
}

/// Hands blocks on, each with its checksum after it.
class BlockWriter {
 public:
  BlockWriter(FunctionRef<Status(std::span<const std::byte>)> append, uint64_t seed)
      : append_(append), checksum_(seed) {}
  Status write(std::span<const std::byte> block) {
    checksum_ = hash64(block, checksum_);
    WEFT_RETURN_IF_ERROR(append_(block));
    return append_(std::as_bytes(std::span(&checksum_, 1)));
  }
  uint64_t checksum() const { return checksum_; }

 private:
  FunctionRef<Status(std::span<const std::byte>)> append_;
  uint64_t checksum_;
};

std::vector<std::byte> encode_head(const Fields& fields, std::span<const int32_t> groups,
                                   std::span<const std::byte> identity) {
  ByteWriter checked;
  for_each_field(fields, [&](auto value) { checked.number(value); });
  checked.bytes(std::as_bytes(groups));
  checked.bytes(identity);
  const std::vector<std::byte> rest = checked.take();
  ByteWriter head;
  head.bytes(std::as_bytes(std::span(kMagic)));
  head.number(hash64(rest));
  head.bytes(rest);
  return head.take();
}

}  // namespace

int64_t SessionHead::slot_bytes() const { return kernels::kv_token_bytes(layout); }

Result<SessionStamp> read_session_stamp(const ReadFile& file) {
  SessionStamp stamp{.size_bytes = file.size_bytes()};
  if (stamp.size_bytes < kFixedBytes) return corrupt("no session");
  const auto read = [&](uint64_t at, uint64_t& value) {
    return file.read_at(at, std::as_writable_bytes(std::span(&value, 1)));
  };
  WEFT_RETURN_IF_ERROR(read(kMagic.size(), stamp.first));
  WEFT_RETURN_IF_ERROR(read(stamp.size_bytes - kChecksumBytes, stamp.last));
  return stamp;
}

bool is_session_file(const ReadFile& file) {
  std::array<std::byte, kMagic.size()> magic{};
  return file.size_bytes() >= magic.size() && file.read_at(0, magic).is_ok() &&
         std::memcmp(magic.data(), kMagic.data(), magic.size()) == 0;
}

Result<SessionStamp> write_session(Cache& cache, SequenceId sequence, const SessionContent& content,
                                   FunctionRef<Status(std::span<const std::byte>)> append) {
  WEFT_CHECK(content.n_slots >= 0 && content.n_slots <= cache.length(sequence));
  const std::vector<SlotRun> runs = runs_of(cache.slot_kinds(sequence), content.n_slots);
  const kernels::KvLayout& layout = cache.layout();
  if (std::ssize(content.tokens) > kMaxSessionTokens ||
      content.identity.size() > kMaxSessionIdentityBytes) {
    return invalid_argument(fmt::format("session to write: {} tokens, {} bytes of identity",
                                        content.tokens.size(), content.identity.size()));
  }
  Fields fields{.n_layers = narrow<uint32_t>(cache.n_layers()),
                .n_kv_heads = narrow<uint32_t>(layout.n_kv_heads),
                .head_dim = narrow<uint32_t>(layout.head_dim),
                .k_type = to_underlying(layout.k_type),
                .v_type = to_underlying(layout.v_type),
                .n_tokens = narrow<uint32_t>(content.tokens.size()),
                .n_slots = narrow<uint32_t>(content.n_slots),
                .n_runs = narrow<uint32_t>(runs.size()),
                .state_bytes = content.state.size(),
                .identity_bytes = narrow<uint32_t>(content.identity.size())};
  WEFT_RETURN_IF_ERROR(check_limits("session to write", fields, StatusCode::kInvalidArgument));
  const auto layer_bytes = narrow<uint64_t>(content.n_slots * kernels::kv_token_bytes(layout));
  fields.header_bytes = narrow<uint32_t>(header_bytes_of(fields));
  fields.file_bytes = file_bytes_of(fields, layer_bytes);

  const std::vector<std::byte> head = encode_head(fields, groups_of(cache), content.identity);
  uint64_t checksum = 0;
  std::memcpy(&checksum, &head[kMagic.size()], kChecksumBytes);
  WEFT_RETURN_IF_ERROR(append(head));

  ByteWriter tokens;
  tokens.bytes(std::as_bytes(content.tokens));
  for (const SlotRun& run : runs) {
    tokens.number(narrow<uint32_t>(run.end));
    tokens.number(uint32_t{to_underlying(run.kind)});
  }
  BlockWriter blocks(append, checksum);
  WEFT_RETURN_IF_ERROR(blocks.write(tokens.take()));
  WEFT_RETURN_IF_ERROR(blocks.write(content.state));
  WEFT_RETURN_IF_ERROR(cache.save(sequence, content.n_slots, [&](std::span<const std::byte> layer) {
    return blocks.write(layer);
  }));
  return SessionStamp{fields.file_bytes, checksum, blocks.checksum()};
}

Result<SessionReader> SessionReader::open(std::unique_ptr<ReadFile> file, std::string name) {
  SessionReader reader(std::move(file), std::move(name));
  WEFT_RETURN_IF_ERROR(reader.read_head());
  WEFT_RETURN_IF_ERROR(reader.read_tokens());
  WEFT_RETURN_IF_ERROR(reader.check_layers());
  return reader;
}

Status SessionReader::read_head() {
  const uint64_t size = file_->size_bytes();
  if (!is_session_file(*file_)) return corrupt(name_ + ": not a session (magic differs)");
  if (size < kFixedBytes) {
    return corrupt(fmt::format("{}: {} bytes, a session has at least {}: truncated", name_, size,
                               kFixedBytes));
  }
  std::vector<std::byte> bytes(kFixedBytes);
  WEFT_RETURN_IF_ERROR(file_->read_at(0, bytes));
  ByteReader in{std::span(bytes).subspan(kMagic.size())};
  const auto checksum = in.number<uint64_t>();
  Fields fields;
  for_each_field(fields, [&](auto& value) { value = in.number<std::decay_t<decltype(value)>>(); });
  if (fields.version != kSessionVersion) {
    return unsupported(fmt::format("{}: session of version {}, this weft reads version {}", name_,
                                   fields.version, kSessionVersion));
  }
  WEFT_RETURN_IF_ERROR(check_limits(name_, fields, StatusCode::kCorrupt));
  head_ = head_of(fields);
  head_.checksum = checksum;
  last_checksum_ = checksum;
  const uint64_t expected = file_bytes_of(fields, narrow<uint64_t>(head_.layer_bytes()));
  if (fields.header_bytes != head_.header_bytes || fields.file_bytes != expected) {
    return corrupt(fmt::format("{}: its header's lengths do not fit together: damaged", name_));
  }
  if (size != expected) {
    return corrupt(fmt::format("{}: file has {} bytes, its header says {}", name_, size, expected));
  }
  bytes.resize(head_.header_bytes);
  WEFT_RETURN_IF_ERROR(file_->read_at(kFixedBytes, std::span(bytes).subspan(kFixedBytes)));
  if (hash64(std::span(bytes).subspan(kVersionAt)) != checksum) {
    return corrupt(name_ + ": header checksum differs: damaged");
  }
  ByteReader rest{std::span(bytes).subspan(kFixedBytes)};
  for (uint32_t i = 0; i < fields.n_layers; ++i) {
    const auto group = rest.number<uint32_t>();
    if (group >= fields.n_layers) {
      return corrupt(fmt::format("{}: layer {} is of group {}", name_, i, group));
    }
    head_.layer_groups.push_back(narrow<int32_t>(group));
  }
  const std::span<const std::byte> identity = rest.bytes(fields.identity_bytes);
  head_.identity.assign(identity.begin(), identity.end());
  layers_at_ = head_.header_bytes + token_block_bytes(fields) + kChecksumBytes +
               fields.state_bytes + kChecksumBytes;
  kinds_.resize(fields.n_runs);
  return Status::ok();
}

/// Whether the block that ends at `end` has the checksum there that was computed.
Status SessionReader::check_end_of_block(uint64_t end, uint64_t checksum, const std::string& what) {
  uint64_t stored = 0;
  WEFT_RETURN_IF_ERROR(file_->read_at(end, std::as_writable_bytes(std::span(&stored, 1))));
  last_checksum_ = checksum;
  if (stored == checksum) return Status::ok();
  return corrupt(fmt::format("{}: checksum of {} differs: damaged", name_, what));
}

/// The block after those that were read.
Result<std::vector<std::byte>> SessionReader::read_block(uint64_t at, uint64_t n_bytes,
                                                         const std::string& what) {
  std::vector<std::byte> bytes(n_bytes);
  WEFT_RETURN_IF_ERROR(file_->read_at(at, bytes));
  WEFT_RETURN_IF_ERROR(check_end_of_block(at + n_bytes, hash64(bytes, last_checksum_), what));
  return bytes;
}

Status SessionReader::read_tokens() {
  const uint64_t n_bytes =
      sizeof(int32_t) * narrow<uint64_t>(head_.n_tokens) + kRunBytes * kinds_.size();
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                        read_block(head_.header_bytes, n_bytes, "the tokens"));
  ByteReader in(bytes);
  for (int32_t i = 0; i < head_.n_tokens; ++i) {
    const auto id = in.number<int32_t>();
    if (id < 0) return corrupt(fmt::format("{}: token {} is {}, below 0", name_, i, id));
    tokens_.push_back(id);
  }
  int32_t begin = 0;
  for (SlotRun& run : kinds_) {
    const auto end = in.number<uint32_t>();
    const auto kind = in.number<uint32_t>();
    if (std::cmp_less_equal(end, begin) || std::cmp_greater(end, head_.n_slots) ||
        kind > to_underlying(SlotKind::kFused)) {
      return corrupt(fmt::format("{}: slots from {} to {} of kind {}", name_, begin, end, kind));
    }
    begin = narrow<int32_t>(end);
    run = {begin, SlotKind{narrow<uint8_t>(kind)}};
  }
  if (begin != head_.n_slots) {
    return corrupt(
        fmt::format("{}: {} slots have a kind, there are {}", name_, begin, head_.n_slots));
  }
  WEFT_ASSIGN_OR_RETURN(state_, read_block(head_.header_bytes + n_bytes + kChecksumBytes,
                                           head_.state_bytes, "the state"));
  return Status::ok();
}

uint64_t SessionReader::layer_offset(int32_t layer) const {
  const auto stride = narrow<uint64_t>(head_.layer_bytes()) + kChecksumBytes;
  return layers_at_ + narrow<uint64_t>(layer) * stride;
}

/// The layer's checksum, as the file is now.
Result<uint64_t> SessionReader::hash_layer(int32_t layer, FunctionRef<Piece> on_piece) const {
  Hash64 hash(layer_checksums_[layer]);
  const auto n_bytes = narrow<uint64_t>(head_.layer_bytes());
  std::vector<std::byte> piece(std::min(n_bytes, kPieceBytes));
  for (uint64_t at = 0; at < n_bytes; at += piece.size()) {
    piece.resize(std::min(kPieceBytes, n_bytes - at));
    WEFT_RETURN_IF_ERROR(file_->read_at(layer_offset(layer) + at, piece));
    hash.update(piece);
    on_piece(at, piece);
  }
  return hash.value();
}

Status SessionReader::check_layers() {
  layer_checksums_ = {last_checksum_};
  const auto ignore = [](uint64_t, std::span<const std::byte>) {};
  for (int32_t i = 0; i < std::ssize(head_.layer_groups); ++i) {
    WEFT_ASSIGN_OR_RETURN(const uint64_t checksum, hash_layer(i, ignore));
    const uint64_t end = layer_offset(i) + narrow<uint64_t>(head_.layer_bytes());
    WEFT_RETURN_IF_ERROR(check_end_of_block(end, checksum, fmt::format("layer {}", i)));
    layer_checksums_.push_back(checksum);
  }
  stamp_ = {file_->size_bytes(), head_.checksum, last_checksum_};
  return Status::ok();
}

Status SessionReader::check_cache(const Cache& cache) const {
  const kernels::KvLayout& here = cache.layout();
  const kernels::KvLayout& there = head_.layout;
  if (groups_of(cache) != head_.layer_groups || here.n_kv_heads != there.n_kv_heads ||
      here.head_dim != there.head_dim) {
    return unsupported(fmt::format(
        "{}: KV of {} layers with {} heads of {}, this model has {} with {} of {}, or other layer "
        "groups",
        name_, head_.layer_groups.size(), there.n_kv_heads, there.head_dim, cache.n_layers(),
        here.n_kv_heads, here.head_dim));
  }
  if (here.k_type == there.k_type && here.v_type == there.v_type) return Status::ok();
  return unsupported(fmt::format(
      "{}: a session with {}, the cache of this run has {}; --cache-type-k {} --cache-type-v {} "
      "goes on with it",
      name_, types_text(there), types_text(here), type_name(there.k_type),
      type_name(there.v_type)));
}

namespace {

/// Bytes of a layer that are wanted, and where they go.
struct Wanted {
  uint64_t begin = 0;
  std::span<std::byte> out;

  void take(uint64_t at, std::span<const std::byte> piece) const {
    const uint64_t from = std::max(begin, at);
    const uint64_t to = std::min(begin + out.size(), at + piece.size());
    if (from < to) {
      std::ranges::copy(piece.subspan(from - at, to - from), out.begin() + (from - begin));
    }
  }
};

}  // namespace

// The file has K of all slots and then V of all, the sequence the first of both.
Result<SequenceId> SessionReader::restore(Cache& cache, int32_t n_slots) const {
  WEFT_CHECK(n_slots >= 0 && n_slots <= head_.n_slots);
  const kernels::KvLayout& layout = head_.layout;
  const int64_t k_slot_bytes = row_bytes(layout.k_type, layout.head_dim) * layout.n_kv_heads;
  const auto read_layer = [&](int32_t layer, std::span<std::byte> out) -> Status {
    const Wanted k{0, out.first(n_slots * k_slot_bytes)};
    const Wanted v{narrow<uint64_t>(head_.n_slots * k_slot_bytes), out.subspan(k.out.size())};
    WEFT_ASSIGN_OR_RETURN(const uint64_t checksum,
                          hash_layer(layer, [&](uint64_t at, std::span<const std::byte> piece) {
                            k.take(at, piece);
                            v.take(at, piece);
                          }));
    if (checksum == layer_checksums_[layer + 1]) return Status::ok();
    return corrupt(fmt::format(
        "{}: checksum of layer {} is not what it was a moment ago: another program is writing this "
        "file, or its disk is failing",
        name_, layer));
  };
  return cache.restore(n_slots, runs_of(kinds_, n_slots), read_layer);
}

}  // namespace weft::kv
