// Opening a store for a model, and taking away one that stayed empty.
//
// A store's KV is worth nothing with another model, anchor or form of prompt, and a wrong mixture
// would not fail but answer badly. So the first ingest writes down what everything is made with
// (the settlement), and each opening compares its model and flags with that, with a line for every
// difference. The settlement is in the index and not in a file beside it, because it must change in
// the same transaction as the rows that depend on it; older versions kept it in the store's
// properties, which are still read (settlement_of_properties).
//
// An ingest that took nothing in leaves no store: the folder is removed, but only if this
// process made it and nothing else came into it. To check and remove in one step, the index's lock
// is held and the folder is first renamed away.
#include "library/library.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "base/byte_sizes.h"
#include "base/hash.h"
#include "base/narrow.h"
#include "base/shell_text.h"
#include "fusion/chunk_key.h"
#include "fusion/record_type.h"
#include "retrieval/scan.h"
#include "store/temp_files.h"

namespace weft::library {
namespace {

using engine::AnchorSpec;
using retrieval::Index;
using retrieval::Settlement;

/// The anchor that a folder's chunks were computed after. kCorrupt for a name of no anchor.
Result<AnchorSpec> settled_anchor(const Settlement& settled, const std::string& dir) {
  const auto kind = engine::kAnchors.find(settled.anchor);
  if (kind) return AnchorSpec{*kind, settled.anchor_passages};
  return corrupt(fmt::format("{}: unknown anchor '{}'", dir, settled.anchor));
}

/// The anchor of the flag or, without one, of the folder (`neutral` for a new one).
/// kInvalidArgument when flag and folder name different ones.
Result<AnchorSpec> agree_anchor(Env& env, const std::optional<Settlement>& settled,
                                const std::string& flag, const std::string& dir) {
  if (settled && flag.empty()) return settled_anchor(*settled, dir);
  WEFT_ASSIGN_OR_RETURN(const AnchorSpec wanted,
                        AnchorSpec::parse(env, flag.empty() ? "neutral" : flag));
  if (!settled) return wanted;
  WEFT_ASSIGN_OR_RETURN(const AnchorSpec there, settled_anchor(*settled, dir));
  if (there.kind == wanted.kind && there.passages == wanted.passages) return wanted;
  return invalid_argument(fmt::format(
      "{}: the folder's chunks were computed after anchor '{}'; for '{}' take another folder", dir,
      settled->anchor, engine::kAnchors.name(wanted.kind)));
}

/// The form of prompt that the flag or the folder names; nothing when neither does, and then the
/// model decides. kInvalidArgument when they name different ones.
Result<std::optional<engine::PromptForm>> agree_form(const std::optional<Settlement>& settled,
                                                     const std::string& flag,
                                                     const std::string& dir) {
  WEFT_ASSIGN_OR_RETURN(const auto wanted, engine::parse_prompt_form(flag));
  if (!settled) return wanted;
  const auto form = engine::parse_prompt_form(settled->prompt);
  if (!form.is_ok()) {
    return corrupt(fmt::format("{}: its passages have the form '{}', which this weft does not know",
                               dir, settled->prompt));
  }
  if (wanted && wanted != *form) {
    return invalid_argument(
        fmt::format("{}: the folder's passages have the form '{}'; for '{}' take another folder",
                    dir, settled->prompt, flag));
  }
  return *form;
}

/// The type of records of the flag or, without one, of the folder (f16 for a new one).
/// kInvalidArgument when flag and folder name different ones.
Result<DType> agree_record_type(const std::optional<Settlement>& settled, const std::string& flag,
                                const std::string& dir) {
  DType wanted = fusion::kUsualRecordType;
  if (!flag.empty()) {
    WEFT_ASSIGN_OR_RETURN(wanted, fusion::parse_record_type(flag));
  }
  if (!settled) return wanted;
  const auto there = fusion::kRecordTypes.find(settled->record_type);
  if (!there) {
    return corrupt(fmt::format("{}: its records have the type '{}', which this weft does not know",
                               dir, settled->record_type));
  }
  if (flag.empty() || wanted == *there) return *there;
  return invalid_argument(
      fmt::format("{}: the folder's records are of type '{}'; for '{}' take another folder", dir,
                  settled->record_type, fusion::kRecordTypes.name(wanted)));
}

/// "name (file)", for people; model_of_store() takes it apart again.
std::string model_name(const engine::Engine& engine) {
  const std::string& path = engine.model().file().path();
  return fmt::format("{} ({})", engine.model().config().name, path.substr(path.rfind('/') + 1));
}

Status check_model(const Settlement& settled, const engine::Engine& engine,
                   const LibraryOptions& options) {
  if (settled.model == engine.model().fingerprint().to_hex()) return Status::ok();
  const std::string& dir = options.dir;
  if (options.model_is_from_variable) {
    return invalid_argument(
        fmt::format("{}: nothing here for WEFT_MODEL, {}: the documents were ingested with {}; "
                    "name that model with -m, or another folder with --store",
                    dir, model_name(engine), settled.model_name));
  }
  return invalid_argument(
      fmt::format("{}: nothing here for {}: the documents were ingested with {}; ask with that "
                  "model, or ingest them into another folder",
                  dir, model_name(engine), settled.model_name));
}

/// A hash of all RoPE settings that the model has at this length of context, as hexadecimal digits.
std::string ropes_hash(const engine::Engine& engine) {
  const fusion::KeyScope scope{.ropes = engine.model().config().ropes};
  return hash128(fusion::chunk_identity(scope, {})).to_hex();
}

/// Models with LongRoPE have two sets of RoPE factors and use the long one when the context (-c) is
/// larger than the one that they were trained with. Their keys are then rotated by other angles, so
/// KV that was stored with the other set does not fit.
Status check_ropes(const Settlement& settled, const engine::Engine& engine,
                   const std::string& dir) {
  if (settled.ropes.empty()) return Status::ok();  // made by a weft that did not keep this
  if (settled.ropes == ropes_hash(engine)) return Status::ok();
  return invalid_argument(fmt::format(
      "{}: with -c {} this model's RoPE is another than with the {} tokens of context that the "
      "documents were ingested for; take -c as it was then, or another folder",
      dir, engine.context_tokens(), settled.context_tokens));
}

/// The settlement of a store of an older weft, which kept it as properties of the chunk store.
/// Nothing when they name no model.
Result<std::optional<Settlement>> settlement_of_properties(store::ChunkStore& store) {
  const auto property = [&](const char* name, const char* fallback) -> Result<std::string> {
    auto value = store.property(name);
    if (value.status().code() == StatusCode::kNotFound) return std::string(fallback);
    return value;
  };
  // "word the rest": two facts were kept in one property.
  const auto split = [](const std::string& line) {
    const size_t space = std::min(line.find(' '), line.size());
    return std::pair(line.substr(0, space), line.substr(std::min(space + 1, line.size())));
  };
  WEFT_ASSIGN_OR_RETURN(const std::string model, property("model", ""));
  if (model.empty()) return std::optional<Settlement>();
  Settlement settled;
  std::tie(settled.model, settled.model_name) = split(model);  // fingerprint, name and file
  WEFT_ASSIGN_OR_RETURN(const std::string ropes, property("ropes", ""));
  std::string context;
  std::tie(settled.ropes, context) = split(ropes);
  std::from_chars(context.data(), context.data() + context.size(), settled.context_tokens);
  // A folder from before there were two forms has the chat form.
  WEFT_ASSIGN_OR_RETURN(settled.prompt, property("prompt", "chat"));
  WEFT_ASSIGN_OR_RETURN(settled.anchor, property("anchor", "neutral"));
  if (settled.anchor == engine::kAnchors.name(AnchorSpec::Kind::kFile)) {
    WEFT_ASSIGN_OR_RETURN(settled.anchor_passages, property("anchor_passages", ""));
  }
  return std::optional(std::move(settled));
}

/// A folder and those above it that do not exist yet, the deepest first. Empty where one of them
/// exists but cannot be looked at: nothing is ever removed that may have been there.
std::vector<std::string> missing_folders(Env& env, const std::string& dir) {
  std::vector<std::string> missing;
  for (std::filesystem::path at = retrieval::canonical_path(dir); at.has_relative_path();
       at = at.parent_path()) {
    if (env.stat_link(at.string()).status().code() != StatusCode::kNotFound) return missing;
    missing.push_back(at.string());
  }
  return {};
}

constexpr const char* kTempFolder = "tmp";
/// In the order in which remove_bare() removes them.
constexpr std::string_view kFilesOfAnEmptyStore[] = {"documents.sqlite", "properties",
                                                     "store.lock"};

/// Whether a folder holds only what an empty store has: no record, and nothing of others.
Result<bool> is_bare(Env& env, const std::string& dir) {
  WEFT_ASSIGN_OR_RETURN(const auto entries, env.list(dir, BrokenLinks::kList));
  for (const DirEntry& entry : entries) {
    const bool is_known =
        entry.is_directory
            ? entry.name == kTempFolder
            : std::ranges::find(kFilesOfAnEmptyStore, entry.name) != std::end(kFilesOfAnEmptyStore);
    if (!is_known) return false;
  }
  const auto in_temp = env.list(join_path(dir, kTempFolder), BrokenLinks::kList);
  WEFT_RETURN_IF_ERROR(in_temp.status());
  return std::ranges::all_of(*in_temp,
                             [](const DirEntry& entry) { return entry.name.ends_with(".lock"); });
}

/// Whether a store is empty and no other process has it open to write.
Result<bool> is_bare_and_nobodys(Env& env, const std::string& dir) {
  WEFT_ASSIGN_OR_RETURN(const bool bare, is_bare(env, dir));
  if (!bare) return false;
  WEFT_ASSIGN_OR_RETURN(const int n_writers,
                        store::count_writers(env, join_path(dir, kTempFolder)));
  return n_writers <= 1;
}

/// Removes the files of an empty store. The lock file goes last: a process that opens the store
/// waits for it, and must not find half of the others.
void remove_bare(Env& env, const std::string& dir) {
  const std::string temp = join_path(dir, kTempFolder);
  const auto in_temp = env.list(temp);
  if (!in_temp.is_ok()) return;
  for (const DirEntry& entry : *in_temp) {
    if (entry.name.ends_with(".lock")) (void)env.remove(join_path(temp, entry.name));
  }
  std::error_code ignored;
  std::filesystem::remove(temp, ignored);
  for (const std::string_view name : kFilesOfAnEmptyStore) {
    (void)env.remove(join_path(dir, std::string(name)));
  }
}

/// Whether a name is one of a store's own, also of a store that was only begun, or one that a file
/// system puts into its top folder.
bool is_name_of_a_store(const DirEntry& entry) {
  if (entry.is_directory) return entry.name == kTempFolder || entry.name == "lost+found";
  return std::ranges::find(kFilesOfAnEmptyStore, entry.name) != std::end(kFilesOfAnEmptyStore) ||
         entry.name.starts_with("documents.sqlite") || entry.name.ends_with(".chunk");
}

Status nothing_ingested(const std::string& dir) {
  return not_found(fmt::format(
      "{}: no documents were ingested here; weft ingest -m MODEL --store {} PATH takes some in",
      dir, shell_path(dir)));
}

}  // namespace

Status check_may_be_store(Env& env, const std::string& dir) {
  const auto entries = env.list(dir, BrokenLinks::kList);
  if (!entries.is_ok()) return Status::ok();  // does not exist, or opening it will give the error
  const auto has = [&](std::string_view name) {
    return std::ranges::find(*entries, name, &DirEntry::name) != entries->end();
  };
  if (has("store.lock") && has("properties")) return Status::ok();
  const auto other = std::ranges::find_if_not(*entries, is_name_of_a_store);
  if (other == entries->end()) return Status::ok();
  return already_exists(
      fmt::format("{}: no store, and it has other files in it ({}): give --store a new or an empty "
                  "folder",
                  dir, other->name));
}

std::string index_path(const std::string& dir) { return join_path(dir, "documents.sqlite"); }

Result<std::optional<Settlement>> settlement_of(const Index& index, store::ChunkStore& store) {
  return index.is_old() ? settlement_of_properties(store) : index.settlement();
}

Status remove_record(store::ChunkStore& store, const Hash128& record,
                     store::ChunkStore::Durable durable) {
  Status removed = store.remove(record, durable);
  return removed.code() == StatusCode::kNotFound ? Status::ok() : removed;
}

Result<ModelOfStore> model_of_store(Env& env, const std::string& dir, const LockWait& wait) {
  auto index = Index::open(index_path(dir), Index::Mode::kReadOnly, env, wait);
  if (index.status().code() == StatusCode::kNotFound) return nothing_ingested(dir);
  WEFT_RETURN_IF_ERROR(index.status());
  WEFT_ASSIGN_OR_RETURN(const auto store,
                        store::ChunkStore::open(env, {.dir = dir, .read_only = true}));
  WEFT_ASSIGN_OR_RETURN(const auto settled, settlement_of(**index, *store));
  if (!settled) return nothing_ingested(dir);
  // "name (file)", as model_name wrote it.
  ModelOfStore model{.name = settled->model_name, .file = ""};
  const size_t begin = model.name.rfind('(');
  if (begin != std::string::npos && model.name.ends_with(')')) {
    model.file = model.name.substr(begin + 1, model.name.size() - begin - 2);
  }
  if (model.file.find('/') != std::string::npos) model.file.clear();
  return model;
}

LockWait Library::index_wait() const {
  return {.limit_ms = kUsualLockWait.limit_ms, .cancelled = options_.cancelled};
}

Status Library::open_store(Env& env, bool create) {
  store_.reset();
  WEFT_ASSIGN_OR_RETURN(
      store_, store::ChunkStore::open(env, {.dir = options_.dir,
                                            .memory_limit_bytes = options_.memory_limit_bytes,
                                            .disk_limit_bytes = options_.store_limit_bytes,
                                            .create = create,
                                            .read_only = is_read_only_,
                                            .cancelled = options_.cancelled}));
  return Status::ok();
}

Status Library::reopen_store(Env& env) {
  fusor_.reset();
  return open_store(env, /*create=*/false);
}

Result<Settlement> Library::agree(Env& env, std::optional<Settlement> settled,
                                  const std::string& anchor_flag) {
  const std::string& dir = options_.dir;
  if (settled) {
    WEFT_RETURN_IF_ERROR(check_model(*settled, *engine_, options_));
    WEFT_RETURN_IF_ERROR(check_ropes(*settled, *engine_, dir));
  }
  WEFT_ASSIGN_OR_RETURN(const auto form, agree_form(settled, options_.prompt, dir));
  WEFT_ASSIGN_OR_RETURN(rag_, engine::RagPrompt::for_engine(*engine_, form));
  WEFT_ASSIGN_OR_RETURN(const AnchorSpec anchor, agree_anchor(env, settled, anchor_flag, dir));
  WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> anchor_tokens, rag_->anchor(anchor));
  WEFT_ASSIGN_OR_RETURN(const DType record_type,
                        agree_record_type(settled, options_.record_type, dir));
  WEFT_RETURN_IF_ERROR(fusion::check_record_type(engine_->model().config(), record_type));
  scope_ = engine_->key_scope(std::move(anchor_tokens), record_type);
  if (!settled) {
    settled = Settlement{.model = engine_->model().fingerprint().to_hex(),
                         .model_name = model_name(*engine_),
                         .ropes = ropes_hash(*engine_),
                         .context_tokens = engine_->context_tokens(),
                         .prompt = engine::kPromptForms.name(rag_->form()),
                         .anchor = engine::kAnchors.name(anchor.kind),
                         .anchor_passages = anchor.passages,
                         .record_type = fusion::kRecordTypes.name(record_type)};
  }
  if (settled->ropes.empty()) {  // made by a weft that did not keep this: keep it from now on
    settled->ropes = ropes_hash(*engine_);
    settled->context_tokens = engine_->context_tokens();
  }
  settled->scope = record_of({}).to_hex();
  return std::move(*settled);
}

Status Library::settle(Env& env, const std::string& anchor_flag, bool may_settle) {
  const auto agree_with = [&](const std::optional<Settlement>& there,
                              bool is_old) -> Result<Settlement> {
    std::optional<Settlement> settled = there;
    if (is_old) {
      WEFT_ASSIGN_OR_RETURN(settled, settlement_of_properties(*store_));
    }
    if (!settled && !may_settle) return nothing_ingested(options_.dir);
    return agree(env, std::move(settled), anchor_flag);
  };
  const auto name = [&](std::span<const int32_t> tokens) { return record_of(tokens); };
  index_->set_token_limit(engine_->model().config().vocab_size);
  return index_->settle({agree_with, name});
}

Result<Library> Library::create(Env& env, const LibraryOptions& options, engine::Engine& engine,
                                const std::string& anchor_flag) {
  Library library(options, engine);
  library.made_folders_ = missing_folders(env, options.dir);
  if (const auto entries = env.list(options.dir, BrokenLinks::kList); entries.is_ok()) {
    const auto folder = env.stat(options.dir);
    if (entries->empty() && folder.is_ok()) library.mode_of_empty_ = folder->mode;
  }
  WEFT_RETURN_IF_ERROR(library.open_store(env, /*create=*/true));
  WEFT_ASSIGN_OR_RETURN(library.index_, Index::open(index_path(options.dir), Index::Mode::kCreate,
                                                    env, library.index_wait()));
  WEFT_RETURN_IF_ERROR(library.settle(env, anchor_flag, /*may_settle=*/true));
  WEFT_RETURN_IF_ERROR(library.remove_unneeded_records());
  return library;
}

Result<Library> Library::open(Env& env, const LibraryOptions& options, engine::Engine& engine) {
  Library library(options, engine);
  Status opened = library.open_store(env, /*create=*/false);
  if (opened.code() == StatusCode::kIoError) {  // perhaps only because it may not write there
    library.is_read_only_ = true;
    opened = library.open_store(env, /*create=*/false);
  }
  WEFT_RETURN_IF_ERROR(opened);
  auto index = Index::open(index_path(options.dir),
                           library.is_read_only_ ? Index::Mode::kReadOnly : Index::Mode::kReadWrite,
                           env, library.index_wait());
  if (index.status().code() == StatusCode::kNotFound) return nothing_ingested(options.dir);
  WEFT_ASSIGN_OR_RETURN(library.index_, std::move(index));
  if (library.index_->is_read_only() && !library.is_read_only_) {
    // A store that can be written is of no use beside an index that cannot: only the index says
    // which records are needed.
    library.is_read_only_ = true;
    WEFT_RETURN_IF_ERROR(library.reopen_store(env));
  }
  WEFT_ASSIGN_OR_RETURN(const retrieval::Counts counts, library.index_->counts());
  if (counts.documents == 0) return nothing_ingested(options.dir);
  WEFT_RETURN_IF_ERROR(library.settle(env, "", /*may_settle=*/false));
  WEFT_RETURN_IF_ERROR(library.remove_unneeded_records());
  return library;
}

fusion::Fusor& Library::fusor() {
  if (fusor_ != nullptr) return *fusor_;
  fusor_ = engine_->make_fusor(store_.get(), scope_.anchor, scope_.record_type);
  auto* const index = is_read_only_ ? nullptr : index_.get();
  // A record is stored only while the index has a chunk for it, under the index's lock. Otherwise
  // one that another process removes at this moment would be stored after all and never removed.
  fusor_->set_keep_record([index](const Hash128& record, FunctionRef<Status()> put) {
    return index == nullptr ? Status::ok() : index->put_record(record, put);
  });
  return *fusor_;
}

Result<std::vector<int32_t>> Library::chunk_tokens(const std::string& title,
                                                   std::string_view text) const {
  return rag_->chunk(title, text.substr(0, text.find_last_not_of(" \t\r\n") + 1));
}

Hash128 Library::record_of(std::span<const int32_t> tokens) const {
  return hash128(fusion::chunk_identity(scope_, tokens));
}

uint64_t Library::kv_bytes(int64_t n_tokens) const {
  const uint64_t n = std::max<int64_t>(n_tokens, 0);
  const uint64_t one = fusion::record_token_bytes(engine_->model().config(), scope_.record_type);
  return n > std::numeric_limits<uint64_t>::max() / one ? std::numeric_limits<uint64_t>::max()
                                                        : n * one;
}

uint64_t Library::record_bytes(std::span<const int32_t> tokens) const {
  const model::ModelConfig& config = engine_->model().config();
  const int64_t n = std::ssize(tokens);
  const auto layer_bytes = fusion::record_layer_bytes(config, scope_.record_type, n);
  const store::RecordInfo info{.n_layers = narrow<uint32_t>(config.n_layers),
                               .layer_bytes = narrow<uint64_t>(layer_bytes)};
  return info.file_bytes(fusion::chunk_identity(scope_, tokens).size());
}

Status Library::check_kv_room(int64_t chunk_tokens) const {
  const kv::Usage kv = engine_->kv_usage();
  const int64_t page = kv.page_tokens;
  const int64_t n_anchor = std::ssize(scope_.anchor);
  // The page in which the anchor ends is shared with nothing else: the chunk gets a copy of it.
  const int64_t n_pages =
      (n_anchor + chunk_tokens + page - 1) / page + (n_anchor % page == 0 ? 0 : 1);
  if (n_pages <= kv.pages) return Status::ok();
  return resource_exhausted(
      fmt::format("a chunk of {} tokens is computed after the anchor of {} (--anchor), which takes "
                  "{} tokens of KV cache, and it holds {}: a --kv-limit of {} or a larger context "
                  "(-c) is needed",
                  chunk_tokens, n_anchor, n_pages * page, kv.pages * page,
                  size_flag_for(narrow<uint64_t>(engine_->limit_to_hold(n_pages)))));
}

void Library::store_missing(std::span<const std::vector<int32_t>> chunks,
                            FunctionRef<void(const Status&)> on_failed) {
  if (is_read_only_) return;
  const std::vector<std::span<const int32_t>> all(chunks.begin(), chunks.end());
  size_t done = 0;
  const auto count = [&](bool /*computed*/) { ++done; };
  while (done < all.size() && !(options_.cancelled && options_.cancelled())) {
    if (fusor().is_stored(all[done])) {
      ++done;
      continue;
    }
    Status stored = check_kv_room(std::ssize(all[done]));
    if (stored.is_ok()) {
      stored = fusor().ensure_first_stored(std::span(all).subspan(done), count);
    }
    if (stored.is_ok()) continue;
    on_failed(stored);
    ++done;
  }
}

Result<bool> Library::take_away_if_new(Env& env) {
  if (mode_of_empty_) return take_out_of_folder(env);
  if (made_folders_.empty()) return false;
  const std::string dir = made_folders_.front();
  std::string aside;
  const auto move_aside = [&]() -> Status {
    WEFT_ASSIGN_OR_RETURN(const bool nobodys, is_bare_and_nobodys(env, dir));
    if (!nobodys) return Status::ok();
    // The rename makes the removal one step: a process that comes now makes a new store at the old
    // place, and one that has this store open sees that its index has moved.
    WEFT_ASSIGN_OR_RETURN(std::string name, env.make_temporary_dir(dir + "."));
    const Status moved = env.rename(dir, name);
    if (moved.is_ok()) {
      aside = std::move(name);
    } else {
      std::error_code ignored;
      std::filesystem::remove(name, ignored);
    }
    return moved;
  };
  WEFT_RETURN_IF_ERROR(index_->if_empty(move_aside).status());
  if (aside.empty()) return false;
  fusor_.reset();
  index_.reset();
  store_.reset();
  remove_bare(env, aside);
  std::error_code ignored;  // a folder that is not empty cannot be removed, and stays
  std::filesystem::remove(aside, ignored);
  for (size_t i = 1; i < made_folders_.size(); ++i) {
    std::filesystem::remove(made_folders_[i], ignored);
  }
  return true;
}

/// For a folder that was there and empty before create(). It may be a mount point or some shell's
/// working directory, so only what create() put into it is removed, under the store's lock.
Result<bool> Library::take_out_of_folder(Env& env) {
  const std::string& dir = options_.dir;
  bool is_done = false;
  const auto remove_all = [&]() -> Status {
    WEFT_ASSIGN_OR_RETURN(const auto lock,
                          env.lock(join_path(dir, "store.lock"), /*exclusive=*/true, LockWait{}));
    WEFT_ASSIGN_OR_RETURN(const bool nobodys, is_bare_and_nobodys(env, dir));
    if (!nobodys) return Status::ok();
    remove_bare(env, dir);
    is_done = true;
    return Status::ok();
  };
  WEFT_RETURN_IF_ERROR(index_->if_empty(remove_all).status());
  if (!is_done) return false;
  fusor_.reset();
  index_.reset();
  store_.reset();
  (void)env.set_mode(dir, *mode_of_empty_);
  return true;
}

Status Library::remove_unneeded_records() {
  if (is_read_only_) return Status::ok();
  return index_->sweep([&](const Hash128& record) { return remove_record(*store_, record); });
}

}  // namespace weft::library
