#include "cli/library.h"

#include <fmt/format.h>

namespace weft::cli {
namespace {

using engine::AnchorSpec;

constexpr const char* kAnchorProperty = "anchor";             // none, opening, neutral or file
constexpr const char* kPassagesProperty = "anchor_passages";  // of anchor "file"
constexpr const char* kModelProperty = "model";               // fingerprint, space, name

const char* anchor_name(AnchorSpec::Kind kind) {
  switch (kind) {
    case AnchorSpec::Kind::kNone:
      return "none";
    case AnchorSpec::Kind::kOpening:
      return "opening";
    case AnchorSpec::Kind::kNeutral:
      return "neutral";
    case AnchorSpec::Kind::kFile:
      return "file";
  }
  return "unknown";
}

Result<AnchorSpec> stored_anchor(store::ChunkStore& store) {
  WEFT_ASSIGN_OR_RETURN(const std::string name, store.property(kAnchorProperty));
  for (const auto kind : {AnchorSpec::Kind::kNone, AnchorSpec::Kind::kOpening,
                          AnchorSpec::Kind::kNeutral, AnchorSpec::Kind::kFile}) {
    if (name != anchor_name(kind)) continue;
    AnchorSpec spec{kind, ""};
    if (kind == AnchorSpec::Kind::kFile) {
      WEFT_ASSIGN_OR_RETURN(spec.passages, store.property(kPassagesProperty));
    }
    return spec;
  }
  return corrupt(fmt::format("{}: unknown anchor '{}'", store.dir(), name));
}

/// The folder's anchor, set from the flag when the folder has none yet.
Status settle_anchor(Env& env, store::ChunkStore& store, const std::string& flag) {
  const auto stored = stored_anchor(store);
  if (!stored.is_ok() && stored.status().code() != StatusCode::kNotFound) return stored.status();
  if (stored.is_ok() && flag.empty()) return Status::ok();
  WEFT_ASSIGN_OR_RETURN(const AnchorSpec wanted,
                        AnchorSpec::parse(env, flag.empty() ? "neutral" : flag));
  if (!stored.is_ok()) {
    if (wanted.kind == AnchorSpec::Kind::kFile) {
      WEFT_RETURN_IF_ERROR(store.set_property(kPassagesProperty, wanted.passages));
    }
    return store.set_property(kAnchorProperty, anchor_name(wanted.kind));
  }
  if (stored->kind == wanted.kind && stored->passages == wanted.passages) return Status::ok();
  return invalid_argument(
      fmt::format("{}: the folder's chunks stand behind anchor '{}'; for '{}' take another folder",
                  store.dir(), anchor_name(stored->kind), anchor_name(wanted.kind)));
}

std::string model_line(const engine::Engine& engine) {
  return engine.model().fingerprint().to_hex() + " " + engine.model().config().name;
}

/// The name in a line that model_line made.
std::string model_name(const std::string& line) {
  const size_t space = line.find(' ');
  return space == std::string::npos ? line : line.substr(space + 1);
}

Status check_model(store::ChunkStore& store, const engine::Engine& engine) {
  WEFT_ASSIGN_OR_RETURN(const std::string stored, store.property(kModelProperty));
  if (stored.substr(0, stored.find(' ')) == engine.model().fingerprint().to_hex()) {
    return Status::ok();
  }
  return invalid_argument(
      fmt::format("{}: nothing here for {}: the documents were ingested with {}; ask with that "
                  "model, or ingest "
                  "them into another folder",
                  store.dir(), engine.model().config().name, model_name(stored)));
}

std::string index_path(const std::string& dir) { return join_path(dir, "documents.sqlite"); }

}  // namespace

Status Library::reopen_store(Env& env) {
  store_.reset();
  WEFT_ASSIGN_OR_RETURN(
      store_, store::ChunkStore::open(env, {.dir = options_.dir,
                                            .memory_limit_bytes = options_.memory_limit_bytes,
                                            .disk_limit_bytes = options_.store_limit_bytes}));
  return Status::ok();
}

Status Library::read_anchor() {
  WEFT_ASSIGN_OR_RETURN(const AnchorSpec spec, stored_anchor(*store_));
  WEFT_ASSIGN_OR_RETURN(anchor_, rag_.anchor(spec));
  return Status::ok();
}

Result<Library> Library::create(Env& env, const LibraryOptions& options, engine::Engine& engine,
                                const std::string& anchor_flag) {
  WEFT_ASSIGN_OR_RETURN(engine::RagPrompt rag, engine::RagPrompt::for_engine(engine));
  Library library(options, rag);
  WEFT_ASSIGN_OR_RETURN(library.store_, store::ChunkStore::open(
                                            env, {.dir = options.dir,
                                                  .memory_limit_bytes = options.memory_limit_bytes,
                                                  .disk_limit_bytes = options.store_limit_bytes,
                                                  .create = true}));
  WEFT_RETURN_IF_ERROR(settle_anchor(env, *library.store_, anchor_flag));
  Status model = check_model(*library.store_, engine);
  if (model.code() == StatusCode::kNotFound) {
    model = library.store_->set_property(kModelProperty, model_line(engine));
  }
  WEFT_RETURN_IF_ERROR(model);
  WEFT_ASSIGN_OR_RETURN(library.index_, retrieval::Index::open(index_path(options.dir),
                                                               retrieval::Index::Mode::kCreate));
  WEFT_RETURN_IF_ERROR(library.read_anchor());
  return library;
}

Result<Library> Library::open(Env& env, const LibraryOptions& options, engine::Engine& engine) {
  WEFT_ASSIGN_OR_RETURN(engine::RagPrompt rag, engine::RagPrompt::for_engine(engine));
  Library library(options, rag);
  WEFT_RETURN_IF_ERROR(library.reopen_store(env));
  const Status model = check_model(*library.store_, engine);
  if (model.code() == StatusCode::kNotFound) {
    return not_found(options.dir + ": no documents were ingested here; see weft ingest --help");
  }
  WEFT_RETURN_IF_ERROR(model);
  WEFT_ASSIGN_OR_RETURN(library.index_, retrieval::Index::open(index_path(options.dir),
                                                               retrieval::Index::Mode::kReadOnly));
  WEFT_RETURN_IF_ERROR(library.read_anchor());
  return library;
}

}  // namespace weft::cli
