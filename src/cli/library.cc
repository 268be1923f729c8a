#include "cli/library.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"
#include "fusion/chunk_key.h"

namespace weft::cli {
namespace {

using engine::AnchorSpec;

constexpr const char* kAnchorProperty = "anchor";             // none, opening, neutral or file
constexpr const char* kPassagesProperty = "anchor_passages";  // of anchor "file"
constexpr const char* kPromptProperty = "prompt";             // chat or fewshot
constexpr const char* kModelProperty = "model";               // fingerprint, space, name and file
constexpr const char* kRopesProperty = "ropes";               // hash, space, context in tokens

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

/// The folder's anchor, set from the flag when nothing stands in the folder yet.
Status settle_anchor(Env& env, store::ChunkStore& store, const std::string& flag, bool is_new) {
  const auto stored = is_new ? Result<AnchorSpec>(not_found("")) : stored_anchor(store);
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

/// The form of the folder's passages: as the flag and the folder say, which must agree. A folder
/// from before there were two forms has the chat form.
Result<std::optional<engine::PromptForm>> settle_prompt(store::ChunkStore& store,
                                                        const std::string& flag, bool is_new) {
  WEFT_ASSIGN_OR_RETURN(const auto wanted, engine::parse_prompt_form(flag));
  const auto stored = store.property(kPromptProperty);
  if (!stored.is_ok() && stored.status().code() != StatusCode::kNotFound) return stored.status();
  if (is_new) return wanted;  // nothing stands in the folder yet, whatever was begun
  const std::string name = stored.is_ok() ? *stored : "chat";
  WEFT_ASSIGN_OR_RETURN(const auto form, engine::parse_prompt_form(name));
  if (wanted && wanted != form) {
    return invalid_argument(
        fmt::format("{}: the folder's passages have the form '{}'; for '{}' take another folder",
                    store.dir(), name, flag));
  }
  return form;
}

std::string model_line(const engine::Engine& engine) {
  const std::string& path = engine.model().file().path();
  return fmt::format("{} {} ({})", engine.model().fingerprint().to_hex(),
                     engine.model().config().name, path.substr(path.rfind('/') + 1));
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
                  store.dir(), model_name(model_line(engine)), model_name(stored)));
}

std::string ropes_hash(const engine::Engine& engine) {
  const fusion::KeyScope scope{.ropes = engine.model().config().ropes};
  return hash128(fusion::chunk_identity(scope, {})).to_hex();
}

/// Some models turn keys otherwise when the context is longer: their chunks then are others.
Status check_ropes(store::ChunkStore& store, const engine::Engine& engine) {
  const auto stored = store.property(kRopesProperty);
  if (stored.status().code() == StatusCode::kNotFound) return Status::ok();  // an older folder
  WEFT_RETURN_IF_ERROR(stored.status());
  const size_t space = std::min(stored->find(' '), stored->size());
  if (stored->substr(0, space) == ropes_hash(engine)) return Status::ok();
  return invalid_argument(fmt::format(
      "{}: with -c {} this model's RoPE is another than with the{} tokens of context that the "
      "documents were ingested for; take -c as it was then, or another folder",
      store.dir(), engine.context_tokens(), stored->substr(space)));
}

std::string index_path(const std::string& dir) { return join_path(dir, "documents.sqlite"); }

}  // namespace

Result<std::unique_ptr<store::ChunkStore>> Library::open_store(Env& env,
                                                               const LibraryOptions& options,
                                                               bool create) {
  return store::ChunkStore::open(env, {.dir = options.dir,
                                       .memory_limit_bytes = options.memory_limit_bytes,
                                       .disk_limit_bytes = options.store_limit_bytes,
                                       .create = create});
}

Status Library::reopen_store(Env& env) {
  store_.reset();
  WEFT_ASSIGN_OR_RETURN(store_, open_store(env, options_, /*create=*/false));
  return Status::ok();
}

Status Library::read_anchor() {
  WEFT_ASSIGN_OR_RETURN(const AnchorSpec spec, stored_anchor(*store_));
  WEFT_ASSIGN_OR_RETURN(anchor_, rag_.anchor(spec));
  return Status::ok();
}

Result<Library> Library::create(Env& env, const LibraryOptions& options, engine::Engine& engine,
                                const std::string& anchor_flag) {
  WEFT_ASSIGN_OR_RETURN(auto store, open_store(env, options, /*create=*/true));
  Status model = check_model(*store, engine);
  const bool is_new = model.code() == StatusCode::kNotFound;
  if (!is_new) {
    WEFT_RETURN_IF_ERROR(model);
    WEFT_RETURN_IF_ERROR(check_ropes(*store, engine));
  }
  WEFT_ASSIGN_OR_RETURN(const auto form, settle_prompt(*store, options.prompt, is_new));
  WEFT_ASSIGN_OR_RETURN(engine::RagPrompt rag, engine::RagPrompt::for_engine(engine, form));
  WEFT_RETURN_IF_ERROR(settle_anchor(env, *store, anchor_flag, is_new));
  if (is_new) {
    WEFT_RETURN_IF_ERROR(
        store->set_property(kPromptProperty, engine::prompt_form_name(rag.form())));
    WEFT_RETURN_IF_ERROR(store->set_property(
        kRopesProperty, fmt::format("{} {}", ropes_hash(engine), engine.context_tokens())));
    WEFT_RETURN_IF_ERROR(store->set_property(kModelProperty, model_line(engine)));
  }
  Library library(options, std::move(rag));
  library.store_ = std::move(store);
  WEFT_ASSIGN_OR_RETURN(library.index_, retrieval::Index::open(index_path(options.dir),
                                                               retrieval::Index::Mode::kCreate));
  WEFT_RETURN_IF_ERROR(library.read_anchor());
  return library;
}

Result<Library> Library::open(Env& env, const LibraryOptions& options, engine::Engine& engine) {
  WEFT_ASSIGN_OR_RETURN(auto store, open_store(env, options, /*create=*/false));
  const Status model = check_model(*store, engine);
  if (model.code() == StatusCode::kNotFound) {
    return not_found(options.dir + ": no documents were ingested here; see weft ingest --help");
  }
  WEFT_RETURN_IF_ERROR(model);
  WEFT_RETURN_IF_ERROR(check_ropes(*store, engine));
  WEFT_ASSIGN_OR_RETURN(const auto form, settle_prompt(*store, options.prompt, /*is_new=*/false));
  WEFT_ASSIGN_OR_RETURN(engine::RagPrompt rag, engine::RagPrompt::for_engine(engine, form));
  Library library(options, std::move(rag));
  library.store_ = std::move(store);
  WEFT_ASSIGN_OR_RETURN(library.index_, retrieval::Index::open(index_path(options.dir),
                                                               retrieval::Index::Mode::kReadOnly));
  WEFT_RETURN_IF_ERROR(library.read_anchor());
  return library;
}

}  // namespace weft::cli
