// A folder of ingested documents: the chunk store, the index of documents and chunks beside it, and
// what both were made with. The index remembers the model, the anchor, the form of the passages and
// the type of the records, settled by the first ingest; nothing else may be mixed in. A chunk's
// record is kept only while the index has the chunk.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/rag_prompt.h"
#include "retrieval/index.h"
#include "store/chunk_store.h"

namespace weft::library {

struct LibraryOptions {
  std::string dir;
  uint64_t memory_limit_bytes = 1'000'000'000;
  uint64_t store_limit_bytes = 0;  // 0: none
  std::string prompt;              // chat or fewshot; "": as the folder, or the model, has it
  std::string record_type;         // one of fusion::kRecordTypes; "": as the folder, at first f16
  bool model_is_from_variable = false;  // by WEFT_MODEL, which an error then names
  std::function<bool()> cancelled;      // asked often, from any thread; true ends with kCancelled
};

class Library {
 public:
  /// For ingest: makes the folder where it is missing. `anchor_flag` is empty to take the folder's
  /// own (or the default for a new one); another anchor, form of prompt, type of records or model
  /// than the folder's is kInvalidArgument, a type that the model's heads do not take kUnsupported.
  static Result<Library> create(Env& env, const LibraryOptions& options, engine::Engine& engine,
                                const std::string& anchor_flag);
  /// For ask: kNotFound when nothing was ingested; another form of prompt or model is
  /// kInvalidArgument. Where nothing may be written, read-only.
  static Result<Library> open(Env& env, const LibraryOptions& options, engine::Engine& engine);

  store::ChunkStore& store() { return *store_; }
  retrieval::Index& index() { return *index_; }
  const engine::RagPrompt& rag() const { return *rag_; }
  const std::vector<int32_t>& anchor() const { return scope_.anchor; }
  DType record_type() const { return scope_.record_type; }

  /// Whether its KV on disk is limited (LibraryOptions::store_limit_bytes).
  bool has_store_limit() const { return options_.store_limit_bytes > 0; }

  /// Nothing is written: computed KV is not kept, and no record's time of use is noted.
  bool is_read_only() const { return is_read_only_; }

  /// Over this store; made once, so that its anchor is computed once. What it computes it keeps
  /// while a document has it. Until reopen_store().
  fusion::Fusor& fusor();
  /// The token ids of a chunk in a prompt, made of its document's title and its text. White space
  /// at the end of the text is left out.
  Result<std::vector<int32_t>> chunk_tokens(const std::string& title, std::string_view text) const;
  /// The name of the record of a chunk with these token ids.
  Hash128 record_of(std::span<const int32_t> tokens) const;
  /// About how many bytes the KV of so many tokens of chunks takes on disk.
  uint64_t kv_bytes(int64_t n_tokens) const;
  /// Bytes of the file that holds the KV of a chunk with these token ids.
  uint64_t record_bytes(std::span<const int32_t> tokens) const;
  /// kResourceExhausted where the KV cache cannot hold the anchor and a chunk of so many tokens
  /// after it, which is what computing the chunk takes.
  Status check_kv_room(int64_t chunk_tokens) const;
  /// Computes and stores the KV of those chunks that have no record yet. Used after a question for
  /// which plain prefill was faster, so that the next question finds the records. `on_failed` is
  /// told what could not be stored. Ends when `cancelled` says so; does nothing in a read-only
  /// library.
  void store_missing(std::span<const std::vector<int32_t>> chunks,
                     FunctionRef<void(const Status&)> on_failed);
  /// Removes the records whose last chunk has left the index.
  Status remove_unneeded_records();

  /// Removes the folder again if create() made it, it is still empty (no document, no record, no
  /// file of others) and nobody else has it open to write. From a folder that existed and was
  /// empty, only what create() put there is removed. Returns whether it did that; the library must
  /// not be used afterwards.
  Result<bool> take_away_if_new(Env& env);

  /// A store over the same folder whose memory tier is empty.
  Status reopen_store(Env& env);

 private:
  Library(LibraryOptions options, engine::Engine& engine)
      : options_(std::move(options)), engine_(&engine) {}
  Status open_store(Env& env, bool create);
  LockWait index_wait() const;  // for another process's change
  Result<bool> take_out_of_folder(Env& env);
  Status settle(Env& env, const std::string& anchor_flag, bool may_settle);
  /// The settlement to keep, given the one that is there; sets rag_ and scope_ by it. An error when
  /// model or flags differ from what is there.
  Result<retrieval::Settlement> agree(Env& env, std::optional<retrieval::Settlement> settled,
                                      const std::string& anchor_flag);

  LibraryOptions options_;
  engine::Engine* engine_;
  bool is_read_only_ = false;
  std::vector<std::string> made_folders_;  // did not exist before create(), deepest first
  std::optional<uint32_t> mode_of_empty_;  // of the folder, if it existed and was empty before
  std::optional<engine::RagPrompt> rag_;
  fusion::KeyScope scope_;
  std::unique_ptr<store::ChunkStore> store_;
  std::unique_ptr<retrieval::Index> index_;
  std::unique_ptr<fusion::Fusor> fusor_;  // of store_ and index_
};

/// The model that a store's documents were ingested with.
struct ModelOfStore {
  std::string name;  // "SmolLM2 135M (smollm2-135m.gguf)"
  std::string file;  // "smollm2-135m.gguf"; "": not known
};
/// kNotFound where nothing was ingested.
Result<ModelOfStore> model_of_store(Env& env, const std::string& dir, const LockWait& wait);

/// kAlreadyExists for a folder with other files in it that is not a store, nor one that was only
/// begun: weft puts nothing among a user's own files.
Status check_may_be_store(Env& env, const std::string& dir);

/// The index's file in a store's folder.
std::string index_path(const std::string& dir);
/// What a folder was made with; of one that an older weft made, as its properties say. Nothing
/// where nothing was ingested.
Result<std::optional<retrieval::Settlement>> settlement_of(const retrieval::Index& index,
                                                           store::ChunkStore& store);
/// A store's function for retrieval::Index to remove records with: one that is gone is fine.
Status remove_record(store::ChunkStore& store, const Hash128& record,
                     store::ChunkStore::Durable durable = store::ChunkStore::Durable::kNow);

}  // namespace weft::library
