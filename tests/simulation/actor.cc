#include "simulation/actor.h"

#include <algorithm>
#include <utility>

#include "fusion/chunk_key.h"
#include "library/ingester.h"
#include "retrieval/passages.h"
#include "simulation/sim_vfs.h"

namespace weft::sim {

using Mode = retrieval::Index::Mode;

void Actor::restart() {
  close();
  process_ = std::make_unique<Process>(machine_);
}

void Actor::close() {
  if (!process_) return;
  const AsProcess as(*process_);
  library_.reset();
}

Status Actor::open(int model, bool create) {
  const AsProcess as(*process_);
  library_.reset();
  model_ = model;
  const library::LibraryOptions options{.dir = setting_.dir,
                                        .memory_limit_bytes = setting_.memory_limit_bytes,
                                        .store_limit_bytes = setting_.disk_limit_bytes};
  auto opened = create ? library::Library::create(*process_, options, engine(model), "opening")
                       : library::Library::open(*process_, options, engine(model));
  WEFT_RETURN_IF_ERROR(opened.status());
  library_ = std::make_unique<library::Library>(std::move(*opened));
  return Status::ok();
}

Outcome Actor::perform(const Op& op) {
  const AsProcess as(*process_);
  Outcome out;
  const bool needs_library =
      op.kind == Op::kIngest || op.kind == Op::kAsk || op.kind == Op::kHalfLoad;
  if (needs_library) {
    const bool is_fit =
        library_ && model_ == op.model && !(op.kind == Op::kIngest && library_->is_read_only());
    if (!is_fit) out.status = open(op.model, op.kind == Op::kIngest);
    if (out.status.is_ok()) {
      out.is_read_only = library_->is_read_only();
      out.status = perform_with_library(op, out);
    }
  } else {
    out.status = perform_with_store(op, out);
  }
  if (!op.keep_open) library_.reset();
  return out;
}

Status Actor::perform_with_library(const Op& op, Outcome& out) {
  if (op.kind == Op::kIngest) return ingest(op);
  if (op.kind == Op::kAsk) return ask(op, out);
  return half_load(op);
}

Status Actor::ingest(const Op& op) {
  library::IngestEvents events;
  events.cancelled = [left = op.cancel_after]() mutable { return left >= 0 && left-- == 0; };
  return library::Ingester(*process_, engine(op.model), *library_, events).run({op.root}).status();
}

/// As weft ask does: the passages, the prompt, the first token; then what was missing is stored.
Status Actor::ask(const Op& op, Outcome& out) {
  retrieval::PassageOptions options;
  options.n_passages = op.n_chunks;
  WEFT_ASSIGN_OR_RETURN(retrieval::Passages found,
                        retrieval::find_passages(library_->index(), op.question, options));
  out.hits = std::move(found.hits);
  if (out.hits.empty()) return Status::ok();
  WEFT_ASSIGN_OR_RETURN(out.prompt.prefix, library_->rag().prefix());
  WEFT_ASSIGN_OR_RETURN(out.prompt.suffix, library_->rag().suffix(op.question));
  for (const retrieval::Hit& hit : out.hits) out.prompt.chunks.push_back(hit.chunk.tokens);
  out.anchor = library_->anchor();
  fusion::Fusor& fusor = library_->fusor();
  WEFT_ASSIGN_OR_RETURN(fusion::Prefilled done, fusor.prefill(out.prompt, op.fusion));
  out.logits = std::move(done.logits);
  if (library_->is_read_only()) return Status::ok();
  for (const retrieval::Hit& hit : out.hits) {
    if (fusor.ensure_stored(hit.chunk.tokens).is_ok()) out.kept.push_back(hit.chunk.record);
  }
  return Status::ok();
}

/// A reader that stops after the first layer of some record.
Status Actor::half_load(const Op& op) {
  WEFT_ASSIGN_OR_RETURN(const auto documents, library_->index().documents());
  if (documents.empty()) return Status::ok();
  WEFT_ASSIGN_OR_RETURN(const auto chunks,
                        library_->index().chunks_of(documents[op.seed % documents.size()].id));
  for (const retrieval::Chunk& chunk : chunks) {
    const auto identity =
        fusion::chunk_identity(engine(op.model).key_scope(library_->anchor()), chunk.tokens);
    auto handle = library_->store().find(store::Key::of(identity));
    if (!handle.is_ok()) continue;
    store::AlignedBytes scratch;
    (void)handle->load_layer(static_cast<uint32_t>(op.seed % handle->info().n_layers), scratch);
  }
  return Status::ok();
}

Status Actor::perform_with_store(const Op& op, Outcome& out) {
  std::unique_ptr<store::ChunkStore> own;
  store::ChunkStore* store = library_ ? &library_->store() : nullptr;
  if (store == nullptr) {
    WEFT_ASSIGN_OR_RETURN(own, store::ChunkStore::open(*process_, {.dir = setting_.dir}));
    store = own.get();
  }
  switch (op.kind) {
    case Op::kVerify: {
      WEFT_ASSIGN_OR_RETURN(out.report, store->verify([](uint64_t, uint64_t) { return true; }));
      return Status::ok();
    }
    case Op::kGc:
      own.reset();
      return gc();
    default:
      break;
  }
  WEFT_ASSIGN_OR_RETURN(out.records, store->ls());
  WEFT_ASSIGN_OR_RETURN(out.stats, store->stat());
  if (op.kind == Op::kList || out.records.empty()) return Status::ok();
  if (op.kind == Op::kRemove) {
    const Hash128 hash = out.records[op.seed % out.records.size()].hash;
    WEFT_RETURN_IF_ERROR(store->remove(hash));
    out.removed.push_back(hash);
    return Status::ok();
  }
  WEFT_RETURN_IF_ERROR(store->clear());
  for (const store::RecordSummary& record : out.records) out.removed.push_back(record.hash);
  return Status::ok();
}

/// As weft cache gc does.
Status Actor::gc() {
  WEFT_ASSIGN_OR_RETURN(const auto store,
                        store::ChunkStore::open(*process_, {.dir = setting_.dir}));
  WEFT_ASSIGN_OR_RETURN(const auto index, retrieval::Index::open(library::index_path(setting_.dir),
                                                                 Mode::kReadWrite, *process_));
  WEFT_RETURN_IF_ERROR(index->verify());
  WEFT_ASSIGN_OR_RETURN(const auto records, store->ls());
  std::vector<Hash128> unneeded;
  for (const store::RecordSummary& record : records) {
    WEFT_ASSIGN_OR_RETURN(const bool needed, index->has_record(record.hash));
    if (!needed) unneeded.push_back(record.hash);
  }
  const auto remove = [&](const Hash128& record) { return library::remove_record(*store, record); };
  WEFT_RETURN_IF_ERROR(index->remove_unneeded(unneeded, remove));
  WEFT_RETURN_IF_ERROR(index->sweep(remove));
  return index->drop_former_terms();
}

}  // namespace weft::sim
