// Prefills a prompt whose chunks may be reused wherever they are (CacheBlend, EuroSys'25): looks
// the chunks up, computes those that are missing, puts their rotated KV into the sequence's pages,
// chooses the tokens that depend on their neighbours, and recomputes them together with all text
// that is no chunk. Also the plain ways, so that one call serves every mode.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/env.h"
#include "base/function_ref.h"
#include "base/status.h"
#include "fusion/choice.h"
#include "fusion/chunk_computer.h"
#include "fusion/chunk_key.h"
#include "fusion/chunk_source.h"
#include "fusion/prompt.h"
#include "kv/cache.h"
#include "kv/self_extend.h"
#include "model/executor.h"
#include "model/forward.h"
#include "store/chunk_store.h"

namespace weft::fusion {

/// Where the time to the first token went. Parts that overlap are shown as waits, so they add up.
struct Timings {
  double lookup_ms = 0;     // prefix index and store
  double miss_ms = 0;       // computing and storing missing chunks
  double load_wait_ms = 0;  // waiting for layers to arrive
  double rotate_ms = 0;     // rotating K to its positions, copying V
  double select_ms = 0;     // choosing the tokens to recompute
  double recompute_ms = 0;  // computing them, and the text that is no chunk
  double prefill_ms = 0;    // plain prefill, or in mode full the text that is no chunk

  double total_ms() const {
    return lookup_ms + miss_ms + load_wait_ms + rotate_ms + select_ms + recompute_ms + prefill_ms;
  }
};

struct ChunkReport {
  ChunkOrigin origin = ChunkOrigin::kComputed;
  int32_t n_tokens = 0;
  int32_t recomputed_tokens = 0;
};

/// What was done and why. Token counts cover the whole prompt: reused + recomputed + computed.
struct Report {
  ReuseMode mode = ReuseMode::kNone;  // what was done, which may be plainer than what was asked
  int32_t prompt_tokens = 0;
  int32_t reused_tokens = 0;        // from the prefix index or from chunks
  int32_t recomputed_tokens = 0;    // of reused chunks
  int32_t computed_tokens = 0;      // the rest, missing chunks included
  double recomputed_share = 0;      // of the chunks' tokens, averaged over the layers that select
  std::vector<ChunkReport> chunks;  // in modes full and blend
  std::vector<std::string> notes;   // one line each, fit for the user
  uint64_t loaded_bytes = 0;
  Timings timings;
  double ratio = 0;                     // blend's, given or chosen; of checks the last one's
  std::optional<Prediction> predicted;  // where the options have rates
};

/// The prompt's KV is in `sequence`, committed.
struct Prefilled {
  kv::OwnedSequence sequence;
  std::vector<float> logits;  // [vocab_size], after the last token
  Report report;
};

/// Decides whether the record of a chunk that was just computed is kept: runs `put`, which stores
/// it, or does not. Its errors are those of storing.
using KeepRecord = std::function<Status(const Hash128& record, FunctionRef<Status()> put)>;

class Prefill;

/// Not thread-safe.
class Fusor {
 public:
  /// All must outlive the fusor. `store` may be null: then every chunk is a miss and is computed.
  /// With `self_extend` a prompt has the positions of its whole length before its chunks are
  /// placed: they are rotated to grouped ones.
  Fusor(model::ForwardPass& forward, kv::Cache& cache, const kernels::Context& context, Env& env,
        store::ChunkStore* store, KeyScope scope, const kv::SelfExtend& self_extend = {});
  ~Fusor();
  /// Without one, whatever is computed is kept.
  void set_keep_record(KeepRecord keep) { keep_record_ = std::move(keep); }

  /// kResourceExhausted when the cache has not enough pages or memory runs out, kInvalidArgument
  /// for options that make no sense and ids outside the vocabulary. On an error no sequence is left
  /// and nothing is held.
  Result<Prefilled> prefill(const Prompt& prompt, const FusionOptions& options);
  /// The same as work that rests between layers (prefill.h), where options.cancelled is not asked.
  /// Only its advance() can run out of pages.
  Result<std::unique_ptr<Prefill>> start(Prompt prompt, FusionOptions options);

  /// The same, over chunk sources that the caller gathered: one for each chunk, in order. A source
  /// that turns out damaged is computed again and replaced.
  Result<Prefilled> prefill_from(const Prompt& prompt, const FusionOptions& options,
                                 std::vector<ChunkSource>& sources);

  /// Pages that computing the prompt's chunks may need beside the prompt's own, at most.
  int32_t pages_for_missing(const Prompt& prompt) const;

  /// Every chunk's KV: from the store, or computed (and stored, where there is a store).
  Result<std::vector<ChunkSource>> gather(const Prompt& prompt);

  /// Computes and stores a chunk, unless the store has it. Errors are the store's and the cache's.
  Status ensure_stored(std::span<const int32_t> tokens, store::PutOptions options = {});
  /// The same for the first of `chunks`, as many as are there already or go into one step
  /// (ChunkComputer::compute_first). `on_stored` is called for each, in order, once it is there,
  /// with whether it was computed; after an error those, and no others, are stored.
  Status ensure_first_stored(std::span<const std::span<const int32_t>> chunks,
                             FunctionRef<void(bool computed)> on_stored,
                             store::PutOptions options = {});
  bool is_stored(std::span<const int32_t> tokens);

 private:
  friend class Gathering;
  friend class Prefill;

  /// A chunk with its name in the store. Movable; the key refers to the identity.
  struct NamedChunk {
    std::span<const int32_t> tokens;
    std::vector<std::byte> identity;
    store::Key key;
  };

  template <class Work>
  Status run_to_end(Work& work, const FusionOptions& options);
  ReuseCounts count(const Prompt& prompt) const;
  Result<std::vector<ChunkSource>> gather_all(const Prompt& prompt);
  NamedChunk named(std::span<const int32_t> tokens) const;
  std::vector<NamedChunk> named(const Prompt& prompt) const;
  std::vector<std::optional<ChunkSource>> look_up(std::span<const NamedChunk> chunks);
  ChunkSource keep(const NamedChunk& chunk, ChunkKv kv);
  Status put(const NamedChunk& chunk, const ChunkKv& kv, store::PutOptions options = {});

  model::ForwardPass& forward_;
  kv::Cache& cache_;
  const kernels::Context& context_;
  Env& env_;
  store::ChunkStore* store_;
  KeyScope scope_;
  kv::SelfExtend self_extend_;
  KeepRecord keep_record_;
  ChunkComputer computer_;
};

}  // namespace weft::fusion
